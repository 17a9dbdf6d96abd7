"""Tests or a notebook of a copy of the repository, up to the first failure, in a process that has imported nothing of
the package before."""
import resource
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import campaign  # noqa: E402


class First:
    "The first failure, written where the parent finds it."
    def __init__(self, path: Path): self.path = path

    def pytest_runtest_logreport(self, report):
        if report.failed: self.path.write_text(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed: self.path.write_text(report.nodeid)


def main(tree: str, first: str, seconds: float, names: list[str]) -> int:
    "Exit code; the name of the test that fails goes to the file `first`. `seconds` of processor time are allowed."
    resource.setrlimit(resource.RLIMIT_AS, (campaign.MEMORY, campaign.MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 6))
    signal.alarm(60 + 20 * int(seconds))  # one that waits uses no processor time
    campaign.in_tree(Path(tree), campaign.folder(Path(tree), names[0]))()
    if names[0].endswith(".ipynb"): return campaign.run_notebook(Path(tree), names[0])
    import pytest
    options = ["-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *names], plugins=[First(Path(first))]))
