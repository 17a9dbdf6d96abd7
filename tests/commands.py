"The command line in this process and in others, for tests."
import contextlib
import io
import subprocess
import sys
import time

from loflexmdm.cli import main

COMMAND = [sys.executable, "-m", "loflexmdm.cli"]
SMALL = "--batch-size 4 --warmup 2 --log-every 5 --valid-every 10 --valid-size 4 --valid-samples 2 --device cpu".split()


def call(line, *more):
    "A command line in this process: exit code, stdout, stderr without the opening lines."
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err): code = main([*line.split(), *map(str, more)])
    return (
        code,
        out.getvalue(),
        "".join(
            x
            for x in err.getvalue().splitlines(True)
            if not x.startswith(("loflexmdm 0", "weights: ", "device: ", "command: ", "resuming at "))
        ),
    )


def start(*argv):
    return subprocess.Popen([*COMMAND, *map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.01)


def refused(result, *parts):
    "Exit code 2 and one line that holds every part."
    code, out, err = result
    assert (
        code == 2 and not out and err.count("\n") == 1 and err.startswith("loflexmdm: ") and "Traceback" not in err
    ), result
    for part in parts: assert str(part) in err, err
