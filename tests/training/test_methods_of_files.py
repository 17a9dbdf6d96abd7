"A method `FILE.py:Class`: trained, saved, loaded again where allowed, and refused in one line where it is not."
import json
import sys

import pytest
from commands import call

from loflexmdm.models.pretrained import load
from loflexmdm.reports.comparison import compare
from loflexmdm.support.registries import METHODS, permit_code
from loflexmdm.training.recipes import recipe, recipe_from, recipe_schema

FILE = """
from beside import CLIP
from loflexmdm.methods.masked import MaskedDiffusion
from loflexmdm.support.configs import config


@config
class MineConfig(MaskedDiffusion.Config):
    clip: float = CLIP  # training has an option of this name
    quiet: bool = False  # every command has
    no_compile: int = 0  # the other half of a switch


class Mine(MaskedDiffusion):
    name, Config = "ar", MineConfig
"""
RECIPE = '[task]\nkind = "brackets"\n[model]\nmethod = "mine.py:Mine"\nsize = "nano"\n[train]\nsteps = 2\n'


@pytest.fixture
def place(tmp_path, monkeypatch):
    "A directory with a method's file and a recipe that names it; both are forgotten afterwards."
    (tmp_path / "beside.py").write_text("CLIP = 0.5\n")
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    yield tmp_path
    forget(tmp_path)


def forget(place): METHODS.classes.pop(f"{place.resolve()}/mine.py:Mine", None)


def test_trained_from_the_command_line_and_used_again(place):
    train = "train brackets --method mine.py:Mine --size nano --steps 2 --mine-clip 0.25 --mine-no-compile 3 --out run"
    assert call(train)[0] == 0 and METHODS["ar"].__name__ == "Autoregressive"
    forget(place)
    for line in ("sample run -n 1", "resume run", "train run --out further", "info run", "evaluate run"):
        code, _, error = call(line)
        assert code == 2 and error.count("\n") == 1 and "--allow-code" in error, line
        assert not any("mine.py" in name for name in METHODS.classes)
    assert call("sample run -n 1 --allow-code")[0] == 0
    assert load("run").method.config.clip == 0.25 and load("run").method.config.no_compile == 3


def test_a_missing_file_is_named(place):
    assert call("train brackets --method mine.py:Mine --size nano --steps 1 --out run")[0] == 0
    forget(place)
    (place / "mine.py").rename(place / "moved.py")
    with pytest.raises(ValueError, match=r"run.best.config.json: method='.*mine.py:Mine': .*mine.py: no such file"):
        load("run", allow_code=True)


def test_a_recipe_runs_its_file_only_if_allowed(place, monkeypatch):
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match="allow_code=True"): recipe(place / "recipe.toml")
    assert call("train", place / "recipe.toml", "--out", place / "run")[0] == 2 and not (place / "run").exists()
    assert call("train", place / "recipe.toml", "--out", place / "run", "--allow-code")[0] == 0


def test_the_same_in_python(place):
    made = recipe("brackets", method="mine.py:Mine", mine_clip=0.25, train_clip=2.0)
    assert made.model["clip"] == 0.25 and made.train.clip == 2.0
    assert METHODS["mine.py:Mine"] is METHODS[f"{place.resolve()}/mine.py:Mine"]
    forget(place)
    assert recipe("recipe.toml", allow_code=True).model["method"] == f"{place.resolve()}/mine.py:Mine"
    forget(place)
    with permit_code(): assert recipe("recipe.toml").model["method"] in METHODS.classes


@pytest.mark.slow
def test_tables_and_comparisons_run_the_file_only_if_allowed(place):
    tables = dict(task=dict(kind="brackets"), model=dict(method="mine.py:Mine", size="nano"), train=dict(steps=2))
    small = dict(seeds=1, n=2, states=2, calls=(2,), progress=False)
    with pytest.raises(ValueError, match="allow_code=True"): recipe_from(tables)
    with pytest.raises(ValueError, match="allow_code=True"): compare("recipe.toml", ["mdm"], directory="no", **small)
    assert not (place / "no").exists()
    assert recipe_from(tables, allow_code=True).model["method"].endswith("mine.py:Mine")
    forget(place)
    rows = compare("recipe.toml", ["mdm"], directory="yes", allow_code=True, **small).rows
    forget(place)
    assert call("compare recipe.toml --methods mdm --seeds 1 -n 2 --nll 2 --calls 2 --out no")[0] == 2
    line = "compare recipe.toml --methods mdm --seeds 1 -n 2 --nll 2 --calls 2 --out again --allow-code"
    assert call(line)[0] == 0
    again = json.loads((place / "again" / "results.json").read_text())["rows"]
    assert [row["method"] for row in again] == [row["method"] for row in rows]


@pytest.mark.parametrize("name, reason", {
    "none.py:Mine": "no such file", "mine.py:CLIP": "has no class 'CLIP'", "bad.py:Mine": "cannot be run",
    "leaves.py:Mine": "cannot be run", "mine.py": "or FILE.py:Class",
}.items())
def test_one_line_for_a_file_that_cannot_be_used(place, name, reason):
    (place / "bad.py").write_text("1 / 0")
    (place / "leaves.py").write_text("raise SystemExit")
    code, _, error = call(f"train brackets --method {name} --out run")
    assert code == 2 and reason in error and error.count("\n") == 1 and not (place / "run").exists()


def test_the_schema_allows_a_file():
    assert any(m["properties"]["method"].get("pattern") for m in recipe_schema()["properties"]["model"]["anyOf"])
