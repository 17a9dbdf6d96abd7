"`make bench`: points that run, parts that add up, and ratios that show a slowdown."
import json
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
import bench  # noqa: E402

ROWS = [dict(name="a", seconds=0.2, megabytes=3.0, load=1.5), dict(name="b", seconds=1.0, megabytes=1.0)]


def test_every_setting_grows_from_the_base():
    train = [p for p in bench.points(quick=False) if p["kind"] == "train"]
    assert len({bench.name_of(p) for p in bench.points(quick=False)}) == len(bench.points(quick=False))
    for key in bench.BASE: assert len([p for p in train if p[key] != bench.BASE[key]]) == len(bench.GROWTH[key]) >= 2
    assert len(bench.points(quick=True)) == 3


@pytest.mark.parametrize("point", bench.points(quick=True)[::2], ids=bench.name_of)
def test_a_point_gives_its_figures(point):
    found = bench.run_point(point, seconds=0.01)
    assert found["seconds"] > 0 and found["megabytes"] >= 0 and found["name"] == bench.name_of(point)
    if point["kind"] == "train":
        assert list(found["shares"]) == list(bench.PARTS) and abs(sum(found["shares"].values()) - 1) < 1e-9
    else: assert 0 < found["counts"]["network_calls"] <= 16  # fewer where all rows are finished
    bench.SIZES.pop("bench", None)


@pytest.mark.parametrize("method", bench.PAIR)
@pytest.mark.slow
def test_a_step_and_samples_of_ordered_insertion_and_autoregression(method):
    step = bench.run_point(dict(kind="step", method=method, ragged=True), seconds=0.01)
    assert 0 < step["shares"]["padding"] < 0.2 and step["seconds"] > step["per_token"] > 0  # of similar length
    assert step["operations"] > bench.operations(lambda: torch.ones(3).add(1).mul(2)) == 3
    written = bench.run_point(dict(kind="write", method=method, n=4), seconds=0.01)
    assert written["tokens"] == 4 * 31 and written["per_token"] == pytest.approx(written["seconds"] / 31)
    assert written["counts"]["network_calls"] == 32 and written["load"] >= 0
    bench.SIZES.pop("bench", None)


def test_samplers_are_compared_on_many_rows():
    assert all(p["n"] >= 32 for p in bench.points(quick=False) if p["kind"] == "sample")


def test_ratios_against_a_snapshot(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(dict(points=[dict(name="a", seconds=0.1, megabytes=2.0)])))
    found = bench.ratios(ROWS, tmp_path / "old.json")
    assert [r["ratio"] for r in found] == [2.0, None] and [r["memory"] for r in found] == [1.5, None]
    assert "| 2.00 | 1.50 | 1.5 |" in bench.table(found)
    assert bench.ratios(ROWS, tmp_path / "none.json")[0]["ratio"] is None


def test_the_stored_snapshot_has_every_point():
    stored = json.loads(bench.SNAPSHOT.read_text())
    assert [r["name"] for r in stored["points"]] == [bench.name_of(p) for p in bench.points(quick=False)]
    assert {"cpu", "cores", "threads", "torch", "commit"} <= stored["machine"].keys()


@pytest.mark.parametrize("what, method", [(what, m) for what, methods in bench.BY_LENGTH.items() for m in methods])
@pytest.mark.slow
def test_ordered_insertion_in_turns_with_autoregression(what, method):
    "With short sequences and one round the three ratios are one; a step has more operations than one of `ar`."
    found = bench.by_length_point(what, method, 8, 0)
    assert found["over"] == [pytest.approx(found["seconds"] / found["theirs"], rel=0.05)] * 3
    assert found["operations"] > found["operations_of_theirs"] > 100


def test_points_by_length_have_every_method_at_every_length_and_number_of_rows():
    by_length = [p for p in bench.points(quick=False) if p["kind"] == "by_length"]
    steps = {(p["method"], p["length"]) for p in by_length if p["what"] == "step"}
    assert steps == {*product(("forward_late", "learned_late", "masks_late"), (32, 128, 512)), ("forward_late", 2048)}
    assert {p["rows"] for p in by_length if p["what"] == "sample"} == {1, 32, 128}
