"""What every attack shares: a process of its own for it, a verdict, and the count of tried, survived and failed.

An attack survives if what it hits is refused in one line, or the result is that without it. It fails if there is a
traceback, a crash, a hang, or another result silently."""
import contextlib
import io
import json
import os
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SECONDS, BYTES = 120, 6 * 2**30  # of processor time, and of memory beyond what a process has when it starts


def isolated(run: Callable[[], object], seconds: int = SECONDS) -> dict:
    """What `run()` does in a child process: its exit `code` (99 after an exception, minus the signal that ended it),
    what it wrote on stdout (`out`) and stderr (`said`), and the exception's `trace`."""
    return isolated_each([run], seconds)[0]


def isolated_each(runs: list[Callable[[], object]], seconds: int = SECONDS, memory: int = BYTES) -> list[dict]:
    """`isolated` for each of `runs`, one after the other in one child process, since a fork takes longer than a small
    attack. After one that ends the process the rest has a new one."""
    found = []
    while len(found) < len(runs):
        texts, code = _child(runs[len(found):], seconds, memory)
        found += [dict(code=0, out="", said="", trace="") | json.loads(text) for text in texts]
        if len(found) < len(runs): found.append(dict(code=code, out="", said="", trace=""))
    return found


def _child(runs: list, seconds: int, memory: int) -> tuple[list[str], int]:
    "A line of JSON for each run that came to its end, and the exit code of their process."
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        with open(read) as f: lines = [line for line in f if line.endswith("\n")]
        return lines, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BaseException):
        _few_resources(memory)
        for run in runs:
            told = json.dumps(_in_child(run, seconds)).encode() + b"\n"
            while told: told = told[os.write(write, told):]  # an attack may have replaced `open`
    os._exit(99)


def _few_resources(memory: int):
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**18
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _in_child(run: Callable[[], object], seconds: int) -> dict:
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds, resource.RLIM_INFINITY))
    signal.alarm(10 * seconds)
    out, err, trace = io.StringIO(), io.StringIO(), ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: code = run() or 0
        except SystemExit as e: code = e.code or 0
        except BaseException: code, trace = 99, traceback.format_exc(limit=-3)
    code, out = code if type(code) is int else 99, out.getvalue()[-10**5:]
    return dict(code=code, out=out, said=err.getvalue()[-3000:], trace=trace)


def refused(told: dict) -> bool:
    "Whether a command ended as one that refuses its input: exit code 1 or 2, and a last line that says why."
    lines = told["said"].splitlines()
    return told["code"] in (1, 2) and bool(lines) and lines[-1].startswith("loflexmdm: ") and len(lines[-1]) < 1500


def what_went_wrong(told: dict) -> str:
    "Why a process neither succeeded nor refused; empty if it did one of them."
    if told["code"] == 0 or refused(told): return ""
    last = (told["trace"] or told["said"] or "no word").strip().splitlines()
    return f"exit code {told['code']}: {' | '.join(last[-4:])}"[:600]


@dataclass
class Tally:
    "Counts by kind of attack; failures with what is needed to repeat them, also written to `log` if there is one."
    log: Path | None = None
    tried: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)

    def note(self, kind: str, what: str, wrong: str):
        "Count an attack; `wrong` is empty if it was survived."
        self.tried[kind] += 1
        if not wrong: return
        self.failures.append((kind, what, wrong))
        if self.log:
            with open(self.log, "a") as f: f.write(json.dumps([kind, what, wrong]) + "\n")

    def failed(self, kind: str) -> int: return sum(k == kind for k, *_ in self.failures)

    def table(self) -> str:
        "A line for each kind: tried, survived, failed; then the failures."
        lines = [f"{'attack':28}{'tried':>8}{'survived':>10}{'failed':>8}"]
        rows = [(kind, n, self.failed(kind)) for kind, n in self.tried.items()]
        rows.append(("all", self.tried.total(), len(self.failures)))
        lines += [f"{kind:28}{n:8,}{n - bad:10,}{bad:8,}" for kind, n, bad in rows]
        return "\n".join([*lines, *(f"FAILED {kind}, {what}: {wrong}" for kind, what, wrong in self.failures[:40])])


def tell(*words):
    print(*words, file=sys.stderr, flush=True)
