import os
import signal
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import forks
import pytest
import torch
from house.test_layers import FLOORS

from loflexmdm.networks.transformer import SIZES, Size

if hasattr(signal, "SIGHUP"): signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, by children too

torch.set_num_threads(1)
NBS = Path(__file__).parents[1] / "nbs"
SECONDS = 1.5  # of the CPU: a test that takes more is marked slow


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


def floor(nodeid: str) -> int:
    "Return the floor of the room that a test is for: a wrong nucleus first fails in its room, then in what uses it."
    return FLOORS.get(room_of(nodeid), len(FLOORS))


def room_of(nodeid: str) -> str:
    "Return the folder of tests that a test lies in, '' for other reports."
    return next(iter(Path(nodeid.split("::")[0]).parts[1:-1]), "")


NUMBERS = {(p.relative_to(NBS).parts[0], p.stem[3:]): int(p.stem[:2]) for p in NBS.rglob("[0-9][0-9]_*.ipynb")}


def rank(nodeid: str) -> tuple[int, int]:
    "Return the floor of a test and the number of the notebook that its file is named after, the others last."
    path = Path(nodeid.split("::")[0])
    return floor(nodeid), NUMBERS.get((room_of(nodeid), path.stem.removeprefix("test_")), 99)


LAWS = 5  # highest floor whose slow tests and pages run wherever a change is checked


def checked_room(nodeid: str) -> str:
    "Return the room that a test or a page checks; of a page outside the rooms, such as a tutorial, its folder."
    page = nodeid.partition("test_notebook[")[2]
    return page.split("/")[0] if page else room_of(nodeid)


def is_nightly(item) -> bool:
    "Return True for a slow test or page of what stands on the laws. Golden values and pages for users are neither."
    room = checked_room(item.nodeid)
    for_users = "test_notebook[" in item.nodeid and room not in FLOORS
    if not item.get_closest_marker("slow") or for_users or room == "golden": return False
    return FLOORS.get(room, len(FLOORS)) > LAWS


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items):
    """Mark tests that are nightly; order fast tests by floor and notebook of what they check, and after them the slow
    ones, pages first: a long one that begins last keeps one process busy while the other has nothing to do."""
    def turn(item):
        slow = bool(item.get_closest_marker("slow"))
        return slow, slow and "test_notebook[" not in item.nodeid, *rank(item.nodeid)
    for item in filter(is_nightly, items): item.add_marker("nightly")
    items.sort(key=turn)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    "Measure the CPU seconds of a test, which decide whether it is marked slow."
    before = forks.cpu_seconds()
    yield
    item.user_properties.append(("cpu", forks.cpu_seconds() - before))


def measured(terminalreporter) -> dict[str, tuple[float, bool]]:
    "Return CPU seconds of each test that passed, and whether it is marked slow."
    return {r.nodeid: (dict(r.user_properties).get("cpu", 0.0), "slow" in r.keywords)
            for r in terminalreporter.getreports("passed") if r.when == "call"}


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    "Failures in lower rooms are printed first, whichever process has found them: they are the causes."
    if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
        for kind in "failed", "error": reporter.stats.get(kind, []).sort(key=lambda r: rank(r.nodeid))


def pytest_terminal_summary(terminalreporter):
    "Print how long each page took, for which a reader waits, and the tests whose mark `slow` is to be changed."
    took = measured(terminalreporter)
    for name, (seconds, slow) in sorted(took.items()):
        if "test_notebook[" in name: terminalreporter.write_line(f"{name.split('[')[1][:-1]}: {seconds:.0f} s")
        elif seconds > SECONDS and not slow: terminalreporter.write_line(f"{name}: {seconds:.1f} s, not marked slow")
        elif seconds < SECONDS / 4 and slow: terminalreporter.write_line(f"{name}: {seconds:.1f} s, but marked slow")
