"""A short part of the campaigns of attacks, the same each time; `make campaign` goes on for hours, `tests/test_kill.py`
kills training and sampling at other operations every day."""
import random

import pytest
from campaigns import disks, flips, fuzz
from campaigns.attacks import Tally, isolated, refused, what_went_wrong
from campaigns.jobs import jobs

from loflexmdm.networks import SIZES


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    yield jobs(tmp_path_factory.mktemp("jobs") / "jobs")
    del SIZES["pico"]


def survived(tally: Tally):
    print(tally.table())
    assert not tally.failures, tally.table()


def test_full_disks_and_kills(made, tmp_path):
    rest = {name: made[name] for name in ("cache", "compare")}
    disks.campaign(rest, tmp_path, tally := Tally(), random.Random(0), 3, ("kill", "full"))
    disks.campaign({n: made[n] for n in ("train", "sample")}, tmp_path, tally, random.Random(0), 4, ("full",))
    survived(tally)


def test_flipped_bits(made, tmp_path):
    flips.campaign(made, tmp_path, tally := Tally(), random.Random(0), 6)
    survived(tally)


def test_fuzzed_inputs(made, tmp_path):
    fuzz.campaign(made, tmp_path, tally := Tally(), 0, range(150))
    survived(tally)


def test_what_counts_as_survived(tmp_path):
    def crash(): raise RuntimeError("no")
    assert "RuntimeError: no" in what_went_wrong(isolated(crash))
    assert not what_went_wrong(isolated(lambda: 0)) and "exit code 3" in what_went_wrong(isolated(lambda: 3))
    assert not refused(isolated(lambda: 2))  # without a word
    tally = Tally(tmp_path / "log")
    tally.note("kill", "operation 1", "")
    tally.note("kill", "operation 2", "other files")
    assert tally.table().splitlines()[1].split() == ["kill", "2", "1", "1"] and "operation 2" in tally.log.read_text()
