"Recipes: steps on a small file, paths, and another method or single values in Python as at the shell."
from contextlib import nullcontext
from dataclasses import dataclass, fields
from types import SimpleNamespace

import re

import pytest

from loflexmdm.cli.commands import parse
from loflexmdm.cli.train import recipe_of
from loflexmdm.methods.base import Method
from loflexmdm.support.configs import config
from loflexmdm.support.registries import METHODS, TASKS
from loflexmdm.training import recipes
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import check_tables, configs_of, keys_of, limited_steps, override, recipe, recipe_from
from loflexmdm.training.recipes import shared_keys, with_absolute_paths


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


def test_another_method_in_python_as_at_the_shell():
    from_shell = recipe_of(parse("train brackets --method mdm --steps 3 --out x".split()))
    assert recipe("brackets", method="mdm", steps=3) == from_shell
    assert from_shell.model["method"] == "mdm" and from_shell.model["size"] == "nano"  # the recipe's own size
    assert recipe("brackets", method="loflexmdm") == recipe("brackets")


@pytest.mark.parametrize("name, settings, message", [
    ("brackets", dict(method="mdn"), r"method='mdn' \(did you mean 'mdm'\?\)"),
    ("brackets", dict(method=3), "method=3"),
    ("brackets", dict(method="mdm", order="fixed"), "unknown key 'order'"),
])
def test_wrong_methods_in_python_are_refused_as_at_the_shell(name, settings, message):
    with pytest.raises(ValueError, match=message): recipe(name, **settings)
    words = [w for key, value in settings.items() for w in (f"--{key}", str(value))]
    with pytest.raises(ValueError, match="method=|unknown argument --order"):
        recipe_of(parse(["train", name, *words, "--out", "x"]))


@config
class ClippingConfig:
    "Settings whose names train and training have."
    clip: float = 0.5  # also a setting of training
    out: str = ""  # also an option of train
    width: int = 4  # features
    max_length: int = 8  # longest sequence


def test_settings_of_a_plug_in_that_clash_with_training():
    class Clipping(Method):
        name, Config = "clipping", ClippingConfig
    try:
        line = "train brackets --method clipping --clipping-clip 2 --train-clip 3 --clipping-out y --width 5 --out x"
        options = parse(line.split())
        assert options.settings == dict(clipping_clip=2.0, train_clip=3.0, out="y", width=5) and options.out == "x"
        made = recipe_of(options)
        assert (made.model["clip"], made.train.clip, made.model["out"], made.model["width"]) == (2.0, 3.0, "y", 5)
        assert recipe("brackets", method="clipping", clipping_clip=2.0, train_clip=3.0, out="y", width=5) == made
        for refused in (lambda: recipe("brackets", method="clipping", clip=3.0),
                        lambda: recipe_of(parse("train brackets --method clipping --clip 3 --out x".split()))):
            with pytest.raises(ValueError, match="write train_clip or clipping_clip"): refused()
    finally: del METHODS.classes["clipping"]


@pytest.mark.parametrize("method", [name for name in METHODS.names() if "(test)" not in name])
def test_every_setting_has_one_name_and_a_shared_key_is_refused(method):
    for kind in TASKS.names():
        tables = dict(task=dict(kind=kind), model=dict(method=method))
        settings = [(table, f.name) for table, cls in configs_of(tables).items() for f in fields(cls)]
        names = keys_of(tables)
        assert sorted(names.values()) == sorted(settings), "every setting has a name, and one only"
        assert names["seed"] == ("train", "seed")
        for key, owners in shared_keys(tables).items():
            assert key not in names and {names[owner][1] for owner in owners} == {key}
            with pytest.raises(ValueError, match=f"write {re.escape(' or '.join(owners))}$"):
                override(tables, **{key: 1})


def test_first_values_of_a_model():
    "A mixture unless an order is named, a slope for learned ones; states for fixed orders, parts for learned ones."
    first = lambda method, **model: recipes.first_model(method, model)
    plain, fixed = first("ordered-insertion"), first("ordered-insertion", order="left_to_right")
    assert (plain["order"], plain["orders"], plain["size"]) == ("mixture", 1, "nano") and "slope" not in plain
    assert "slope" not in fixed and fixed["order"] == "left_to_right" and first("ordered-masks")["slope"] == 1.0
    assert first("ordered-insertion", order_size="tiny")["order"] == "learned"
    assert "slope" not in first("ordered-insertion", given="left-to-right")
    assert first("ordered-insertion", slope=3.0)["slope"] == 3.0
    assert "slope" not in first("ordered-insertion", order="left_to_right", given="left-to-right")
    assert first("ordered-insertion", order="learned")["slope"] == 1.0
    learned, states = first("loflexmdm", order="learned"), first("loflexmdm")
    assert learned["centre"] and "states" not in learned and states["states"] == 1 and states["order"] == "fixed"
    assert first("ar") == dict(size="nano") and first("ar", size="tiny") == dict(size="tiny")


def test_a_file_for_a_model_is_the_source_of_its_task(tmp_path):
    (tmp_path / "mine.smi").write_text("CCO\n"), (tmp_path / "mine.txt").write_text("a b\n")
    found = recipes.tables_on_file(tmp_path / "mine.smi", "molecules")
    assert found["task"]["source"] == str(tmp_path / "mine.smi") and found["task"]["kind"] == "molecules"
    assert found["train"]["start_from"] == "molecules" and found["train"]["steps"] == 100
    assert recipes.tables_on_file("star-tiny", "molecules")["task"]["kind"] == "star"
    for start in (None, "star-tiny"):
        assert recipes.tables_on_file(tmp_path / "mine.txt", start)["task"].get("file") == str(tmp_path / "mine.txt")
    like = recipes.tables_like("molecules")
    assert like["model"]["method"] and like["train"] == recipes.FURTHER | dict(start_from="molecules")


@dataclass(frozen=True)
class Mixture:
    "What is asked for of a method's configuration."
    order: str = "mixture"
    trial: int = 300


def test_a_trial_of_orders_ends_before_the_run():
    for steps in (100, 300):
        with pytest.raises(ValueError, match=f"trial=300: must be below steps={steps}.*at most 300"):
            recipes.with_trial(Mixture(), True, TrainConfig(steps=steps))
    for other in (Mixture("fixed"), SimpleNamespace()): assert recipes.with_trial(other, True,
        TrainConfig(steps=9)) is other
    kept = Mixture()
    assert recipes.with_trial(kept, True, TrainConfig(steps=301)) is kept
    assert recipes.with_trial(kept, True, TrainConfig(steps=100, start_from="x")) is kept
    assert recipes.with_trial(kept, False, TrainConfig(steps=100)).trial == int(100 * recipes.TRIAL) < 100
    assert recipes.with_trial(kept, False, TrainConfig(steps=100_000)).trial == 300
