"The scripts behind stored figures begin, say what they do, and go on with the first run that has no row."
import importlib
import json
import sys
from pathlib import Path

import pytest

SCRIPTS_FOLDER = Path(__file__).parents[2] / "experiments"
SCRIPTS = sorted(p.stem for p in SCRIPTS_FOLDER.glob("*_runs.py") if p.stem != "training_runs")


@pytest.fixture
def from_experiments(monkeypatch):
    "Import a script as `python experiments/...` does."
    monkeypatch.syspath_prepend(SCRIPTS_FOLDER)
    return importlib.import_module


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name, from_experiments, monkeypatch, capsys):
    script = from_experiments(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended: script.main()
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0 and script.__doc__.splitlines()[0].split(":")[0][:60] in said


def test_a_run_with_a_row_is_not_repeated(from_experiments, tmp_path):
    runs, file = from_experiments("runs"), tmp_path / "rows.json"
    settings = dict(task=dict(kind="words"), train=dict(steps=3))
    assert not runs.noted(file, "a", settings)
    runs.note(file, dict(name="a", bound=[1.0, float("nan")], **settings))
    assert runs.noted(file, "a", settings) and not runs.noted(file, "b", settings)
    assert not runs.noted(file, "a", settings | dict(train=dict(steps=4)))
    assert json.loads(file.read_text())[0]["bound"] == [1.0, None]


def test_a_later_row_takes_the_place_of_an_earlier_one(from_experiments, tmp_path):
    runs, file = from_experiments("runs"), tmp_path / "rows.json"
    for name, value in (("b", 1), ("a", 2), ("b", 3)): runs.note(file, dict(name=name, value=value))
    assert [(r["name"], r["value"]) for r in json.loads(file.read_text())] == [("a", 2), ("b", 3)]
