"""Run a short part of the campaigns of attacks, the same each time: `pytest tools/campaigns`.

`make campaign` continues for hours; `tests/attacks/test_kill.py` kills training and sampling every day."""
import os
import random
import signal

import pytest
from campaigns import calls, disks, files, flips, fuzz, links, parts, ranks, streams, tables
from campaigns.attacks import Tally, isolated, isolated_each, refused, what_went_wrong
from campaigns.jobs import jobs

from loflexmdm.networks.transformer import SIZES


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
    disks.campaign({n: made[n] for n in ("train", "sample")}, tmp_path, tally, random.Random(0), 4, ("kills", "full"))
    survived(tally)


def test_flipped_bits(made, tmp_path):
    flips.campaign(made, tmp_path, tally := Tally(), random.Random(0), 6)
    survived(tally)


def test_fuzzed_inputs(made, tmp_path):
    fuzz.campaign(made, tmp_path, tally := Tally(), 0, range(300))
    survived(tally)


def test_files_of_others_and_links_to_them(made, tmp_path):
    links.campaign(made, tmp_path, tally := Tally(), random.Random(0), 3)
    survived(tally)
    assert tally.tried.total() == 3 * len(made)


def test_parts_of_the_registry():
    parts.campaign(tally := Tally(), 0, range(100))
    survived(tally)
    assert set(tally.tried) == set(parts.KINDS)


def test_generated_tables(tmp_path):
    tables.campaign(tmp_path, tally := Tally(), 0, range(300))
    survived(tally)
    assert tally.tried["tables"] == 300


def test_bombs_and_rows_that_are_read_back(tmp_path):
    files.campaign(tmp_path, tally := Tally(), 0, range(80))
    survived(tally)
    assert dict(tally.tried) == {"bombs": 20, "read back": 80}


def test_calls_of_an_app():
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'loflexmdm[app]'")
    calls.campaign(tally := Tally(), 0, range(24))
    survived(tally)
    assert {*calls.KINDS, "Ctrl-C with an open page"} < {*tally.tried}


def test_changed_streams(made, tmp_path):
    streams.campaign(tmp_path, tally := Tally(), 0, range(30))
    survived(tally)
    assert tally.tried["streams"] == 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_disagree(tmp_path):
    ranks.campaign(tmp_path, tally := Tally(), 0, range(6))
    survived(tally)
    assert tally.tried["ranks"] == 6


def test_small_attacks_share_a_process_until_one_ends_it():
    def die(): os.kill(os.getpid(), signal.SIGKILL)
    def crash(): raise RuntimeError("no")
    pids = [lambda: print(os.getpid())] * 2
    told = isolated_each([*pids, die, *pids, crash, lambda: 2])
    assert [t["code"] for t in told] == [0, 0, -signal.SIGKILL, 0, 0, 99, 2] and "RuntimeError: no" in told[5]["trace"]
    first, second, _, third, fourth, *_ = (t["out"] for t in told)
    assert first == second != third == fourth


def test_what_counts_as_survived(tmp_path):
    def crash(): raise RuntimeError("no")
    assert "RuntimeError: no" in what_went_wrong(isolated(crash))
    assert not what_went_wrong(isolated(lambda: 0)) and "exit code 3" in what_went_wrong(isolated(lambda: 3))
    assert not refused(isolated(lambda: 2))  # without a word
    tally = Tally(tmp_path / "log")
    tally.note("kill", "operation 1", "")
    tally.note("kill", "operation 2", "other files")
    assert tally.table().splitlines()[1].split() == ["kill", "2", "1", "1"] and "operation 2" in tally.log.read_text()
