import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
import torch
from check import README, outdated_count

from loflexmdm.networks.transformer import SIZES, Size

if hasattr(signal, "SIGHUP"): signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, by children too

torch.set_num_threads(1)


def without_the_disk(file):
    "Refuses what `os.fsync` refuses, a file that is not open, and does not wait for the disk."
    os.fstat(file if isinstance(file, int) else file.fileno())


os.fsync = without_the_disk  # what is not on the disk is lost by a power cut alone, which no test makes


@pytest.fixture(autouse=True)
def untouched_globals():
    "No test may leave another default dtype, thread count or global random state behind."
    before = torch.get_default_dtype(), torch.get_num_threads(), torch.get_rng_state()
    yield
    dtype, threads, rng = before
    assert torch.get_default_dtype() == dtype and torch.get_num_threads() == threads
    torch.set_rng_state(rng)


@pytest.fixture
def pico(monkeypatch):
    "A size of network with one block of 16 features, for tests alone."
    monkeypatch.setitem(SIZES, "pico", Size(16, 1, 2, 8))


@pytest.fixture
def two_blocks(monkeypatch):
    "A size `test` of network with two blocks of 16 features, for tests alone."
    monkeypatch.setitem(SIZES, "test", Size(16, 2, 2, 16))


def pytest_collection_modifyitems(items):
    "Whole notebooks first: a long one that begins last keeps one process busy while the other has nothing to do."
    items.sort(key=lambda item: "test_notebook[" not in item.nodeid)


def pytest_terminal_summary(terminalreporter):
    "How long each tutorial took, for which a reader waits, and whether README counts the tests that ran."
    ran = sum(len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed", "skipped", "error"))
    if line := outdated_count(ran, README.read_text(encoding="utf-8")): terminalreporter.write_line(line)
    took = {
        r.nodeid.split("[")[1][:-1]: r.duration
        for r in terminalreporter.getreports("passed")
        if r.when == "call" and "test_notebook[tutorials/" in r.nodeid
    }
    for name, seconds in sorted(took.items()): terminalreporter.write_line(f"{name}: {seconds:.0f} s")
