"Servers for tests: calls answered in this process, and real servers in others."
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from loflexmdm.support.limits import Budget
from loflexmdm.support.workers import parts_of


class Direct:
    "Answers calls as `Workers` does, in this process."
    def __init__(self, target):
        self.target, self.ready, self.waiting, self.restarts = target, True, [], 0
        self.running = type("None", (), dict(total=lambda self: 0))()

    async def open(self): pass
    def close(self): pass

    async def call(self, name, *arguments, settings=None, budget=Budget(), **more):
        with budget.enforce(): found = list(parts_of(getattr(self.target, name)(*arguments, **settings or {})))
        for part in found: yield part

    async def result(self, name, *arguments, **more):
        last = None
        async for last in self.call(name, *arguments, **more): pass  # noqa: B007
        return last


@contextmanager
def running(*argv, env=()):
    "Run a server; yield its process and its address."
    argv = [sys.executable, "-m", "loflexmdm.cli", *argv, "--port", "0", "--device", "cpu"]
    env = os.environ | dict(OMP_NUM_THREADS="1") | dict(env)
    with tempfile.NamedTemporaryFile() as log:  # a pipe that nobody reads would stop the server when it is full
        process, said = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, env=env), Path(log.name)
        while not (found := re.search(r"open (http://[^/\s]+)", said.read_text())):
            assert process.poll() is None, said.read_text()
            time.sleep(0.1)
        try: yield process, found[1]
        finally:
            if process.poll() is None: process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)


def seconds_to_end(process, number) -> float:
    "Send a signal; return the seconds until the process has ended; what it has started may still clear up."
    begun = time.monotonic()
    process.send_signal(number)
    process.wait(timeout=30)
    return time.monotonic() - begun


def children_of(pid: int) -> list[int]:
    "Return the processes of a server that answer calls: the children of those that it has started."
    def started(pid):
        return map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split())
    return [worker for helper in started(pid) for worker in started(helper)]
