"Servers for tests: calls answered in this process, and real servers in others."
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from loflexmdm.support.limits import Budget
from loflexmdm.support.workers import parts_of

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from service_load import start  # noqa: E402


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
    process, address = start(*argv, stdout=subprocess.PIPE, OMP_NUM_THREADS="1", **dict(env))
    try: yield process, address
    finally:
        if process.poll() is None: process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def seconds_to_end(process, number) -> float:
    "Send a signal; return the seconds until the process has ended; what it has started may still clear up."
    begun = time.monotonic()
    process.send_signal(number)
    process.wait(timeout=30)
    return time.monotonic() - begun
