"""Which lines of the package each test reaches, and in how many seconds of processor time."""
import sys
import time
from collections import Counter
from pathlib import Path

CALLS = 100  # calls of a function whose lines are noted, per test


class Reach:
    "Notes the lines of the package's modules that run between `start` and `stop`."
    def __init__(self, root: Path):
        self.root, self.package, self.names = f"{root}/", f"{root}/loflexmdm/", {}
        self.lines, self.calls = {}, Counter()

    def name(self, file: str) -> str | None:
        "Path in the repository, or None outside the package."
        if file not in self.names:
            self.names[file] = file.removeprefix(self.root) if file.startswith(self.package) else None
        return self.names[file]

    def trace(self, frame, event, argument):
        "Follow the first calls of each function."
        code = frame.f_code
        if (name := self.name(code.co_filename)) is None: return None
        self.calls[code] += 1
        return self.follow(self.lines.setdefault(name, set())) if self.calls[code] <= CALLS else None

    def follow(self, lines: set):
        def line(frame, event, argument):
            lines.add(frame.f_lineno)
            return line
        return line

    def start(self):
        self.lines, self.calls, self.began = {}, Counter(), time.process_time()
        sys.settrace(self.trace)

    def stop(self) -> dict:
        sys.settrace(None)
        seconds = time.process_time() - self.began
        return dict(seconds=round(seconds, 3), lines={k: sorted(v) for k, v in self.lines.items()})


class Plugin:
    "What each passed test reached, by its name."
    def __init__(self, root: Path):
        self.reach, self.found, self.passed = Reach(root), {}, {}

    def pytest_runtest_setup(self, item): self.reach.start()

    def pytest_runtest_teardown(self, item): self.found[item.nodeid] = self.reach.stop()

    def pytest_runtest_logreport(self, report):
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def result(self) -> dict:
        return {name: one for name, one in self.found.items() if self.passed[name]}
