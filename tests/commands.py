"The command line in this process and in others, for tests."
import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

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
            if not x.startswith(("loflexmdm 0", "weights: ", "device: ", "command: ", "resuming at ", "read: "))
        ),
    )


def status_of(line, *more):
    "A command line in this process: exit code and all of stderr."
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = main([*line.split(), *map(str, more)])
    return code, err.getvalue()


def start(*argv):
    return subprocess.Popen([*COMMAND, *map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Forked:
    "A command line in a child of this process, which need not import anything; used as what `start` gives."
    def __init__(self, said: Path, *argv):
        self.said = said
        self.child = get_context("fork").Process(target=self.run, args=[str(a) for a in argv])
        self.child.start()
        self.pid = self.child.pid

    def run(self, *argv):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(self.said, "w") as f, contextlib.redirect_stdout(f), contextlib.redirect_stderr(f):
            sys.exit(main(list(argv)))

    def poll(self): return self.child.exitcode
    def kill(self): self.child.kill()
    def send_signal(self, number: int): os.kill(self.pid, number)

    def wait(self) -> int:
        self.child.join(60)
        return self.child.exitcode


def wait_for(path, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, path
        time.sleep(0.01)


def refused(result, *parts):
    "Exit code 2 and one line that holds every part."
    code, out, err = result
    assert (
        code == 2 and not out and err.count("\n") == 1 and err.startswith("loflexmdm: ") and "Traceback" not in err
    ), result
    for part in parts: assert str(part) in err, err
