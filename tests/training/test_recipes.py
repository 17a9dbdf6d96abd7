"How long a recipe trains on a small file."
from contextlib import nullcontext

import pytest

from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import check_tables, limited_steps, recipe_from, with_absolute_paths


def test_a_small_file_is_not_passed_over_without_end(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(f"a b c{i}" for i in range(2000)))
    tables = dict(task=dict(kind="text", file=str(file)), train=dict(batch_size=32))
    made = recipe_from(tables)
    n = 1000 < made.train.steps < 10_000 and made.train.steps * 32 * made.model["orders"] / 100
    assert n == pytest.approx(1600, abs=60)  # the training split, four fifths
    assert recipe_from(made.as_dict()) == made
    assert recipe_from(tables | dict(train=dict(steps=9000))).train.steps == 9000
    assert recipe_from(dict(task=dict(kind="star"))).train.steps == 10_000
    assert [limited_steps(TrainConfig(), n) for n in (1, 320, 640, 10**6)] == [500, 500, 1000, 10_000]
    assert [limited_steps(TrainConfig(), n, orders=2) for n in (640, 1280)] == [500, 1000]


@pytest.mark.parametrize("there, found", [
    (["recipes"], "recipes"), (["here"], "here"), (["recipes", "here"], "recipes"), ([], "recipes"),
])
def test_paths_of_a_recipe_are_taken_from_its_directory(tmp_path, monkeypatch, there, found):
    "From the working directory, with a warning, where the file is there alone."
    for name in ("recipes", "here"): (tmp_path / name).mkdir()
    for name in there: (tmp_path / name / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path / "here")
    tables = dict(task=dict(kind="text", file="a.txt"))
    warned = pytest.warns(UserWarning, match="found in the working directory") if found == "here" else nullcontext()
    with warned: made = with_absolute_paths(tables, "../recipes")
    assert made["task"]["file"] == str(tmp_path / found / "a.txt") and tables["task"]["file"] == "a.txt"


@pytest.mark.parametrize("tables, message", [
    (dict(training=dict(steps=3)), r"unknown table or key 'training' \(did you mean 'train'\?\); allowed: \[task\]"),
    (dict(steps=3), "unknown table or key 'steps'"), (dict(train=3), r"train=3: must be a table, \[train\]"),
])
def test_tables_that_no_recipe_has(tables, message):
    with pytest.raises(ValueError, match=message): check_tables(dict(task={}) | tables)
    assert check_tables(dict(task={}, train={})) == dict(task={}, train={})
