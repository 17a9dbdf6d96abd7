"A forked process is like one that was started: what it sees, how it ends, and what it does not share with others."
import subprocess
import sys

import forks
import pytest

SEEN = f"""
import importlib, json, os, signal, sys, threading, warnings
for name in {forks.PACKAGES}: importlib.import_module(name)
import matplotlib, numpy, torch
from loflexmdm.support.registries import METHODS
print(json.dumps(dict(
    argv=sys.argv, path=sys.path, directory=os.getcwd(), stdin=sys.stdin.read(), main=__name__,
    ours=sorted(name for name in sys.modules if name.startswith("loflexmdm")), methods=sorted(METHODS.classes),
    generator=len(torch.get_rng_state()), dtype=str(torch.get_default_dtype()), hashed=sys.flags.hash_randomization,
    threads=[torch.get_num_threads(), threading.active_count(), len(os.listdir("/proc/self/task"))],
    signals=[str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
    backend=matplotlib.get_backend(), warned=[str(f) for f in warnings.filters], variable=os.environ["TRIED"],
    flags=str(sys.flags), encoding=[sys.stdin.encoding, sys.stdout.encoding, sys.stderr.errors],
    descriptors=len(os.listdir("/proc/self/fd")),
), indent=1, default=str))
"""
ENDS = {
    "pass": 0,
    "import sys; sys.exit(3)": 3,
    "raise SystemExit('one line')": 1,
    "1 / 0": 1,
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": -15,
    "import atexit, threading; atexit.register(print, 'last'); threading.Timer(0.1, print, ['first']).start()": 0,
}


@pytest.mark.slow
def test_it_sees_what_a_started_one_sees(tmp_path, monkeypatch):
    for name, value in dict(forks.ALWAYS, TRIED="ü").items(): monkeypatch.setenv(name, value)
    argv = ["-c", SEEN, "--flag", "two words"]
    forked, other = (run(argv, cwd=tmp_path, input="ä\n") for run in (forks.run, forks.start))
    assert other.returncode == 0, other.stderr
    assert forked.stdout.splitlines() == other.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("code", ENDS)
def test_it_ends_as_a_started_one(code):
    forked, other = forks.run(["-c", code]), forks.start(["-c", code])
    assert forked.returncode == other.returncode == ENDS[code] and forked.stdout == other.stdout
    assert forked.stderr.splitlines()[-1:] == other.stderr.splitlines()[-1:]


@pytest.mark.slow
def test_a_module_is_the_main_program():
    argv = ["-m", "loflexmdm.cli", "train", "brackets", "--stepz", "3"]
    forked, other = forks.run(argv), forks.start(argv)
    assert (forked.returncode, forked.stdout, forked.stderr) == (2, other.stdout, other.stderr)


@pytest.mark.slow
def test_what_must_be_imported_by_a_command_itself_is_not_there():
    names = "loflexmdm", "safe", "datamol", "datasets", "transformers", "peft", "selfies", "scipy", "pyarrow"
    code = f"import sys; print([m for m in sys.modules if m.split('.')[0] in {names}])"
    assert forks.run(["-c", code]).stdout == "[]\n"


def test_none_draws_what_another_drew():
    draw = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(()).item())"
    one, two = (forks.run(["-c", draw]).stdout.split() for _ in range(2))
    assert len(one) == len(two) == 3 and all(a != b for a, b in zip(one, two, strict=True))


def test_nothing_stays_for_the_next():
    assert forks.run(["-c", "import os, sys; os.environ['LEFT'] = sys.left = 'x'; os.chdir('/')"]).returncode == 0
    code = "import os, sys; sys.exit('LEFT' in os.environ or hasattr(sys, 'left') or os.getcwd() == '/')"
    assert forks.run(["-c", code]).returncode == 0


def test_what_only_a_start_can_do_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="argv="): forks.run(["-W", "error", "-c", "pass"])
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    with pytest.raises(ValueError, match="PYTHONHASHSEED"): forks.run(["-c", "pass"])


@pytest.mark.skipif(not forks.started_by(1), reason="this system does not tell what a process has started")
def test_seconds_of_processes_that_still_run_count():
    code = "while sum(__import__('os').times()[:2]) < .3: pass\nprint(flush=True); input()"
    before = forks.cpu_seconds()
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {code!r}])"
    process = subprocess.Popen([sys.executable, "-S", "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    running = forks.cpu_seconds() - before
    assert .3 <= round(running, 6) < 1
    process.communicate(b"\n")
    assert running <= forks.cpu_seconds() - before < running + .5
