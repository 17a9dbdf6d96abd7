"The scripts behind stored figures can be imported, and continue with the first run that has no row."
import ast
import asyncio
import importlib
import inspect
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from loflexmdm.methods.base import Method
from loflexmdm.models.model import Model
from loflexmdm.training.recipes import recipe_from

SCRIPTS_FOLDER = Path(__file__).parents[2] / "experiments"
RESULTS = sorted(SCRIPTS_FOLDER.glob("results/[!.]*.json*"))
OPTIONAL = ("molsets", "olga")  # packages that a script installs for itself


@pytest.fixture
def from_experiments(monkeypatch):
    "Import a script as `python experiments/...` does."
    monkeypatch.syspath_prepend(SCRIPTS_FOLDER)
    return importlib.import_module


def test_every_script_imports_what_it_uses(from_experiments):
    for path in sorted(SCRIPTS_FOLDER.glob("*.py")):
        try: from_experiments(path.stem)
        except ModuleNotFoundError as error: assert error.name in OPTIONAL, f"{path.name}: {error}"


def test_every_script_says_what_it_takes(from_experiments, monkeypatch, capsys):
    for path in sorted(SCRIPTS_FOLDER.glob("*.py")):
        if not re.search(r"ArgumentParser\(|train_all\(", path.read_text()): continue
        try: main = from_experiments(path.stem).main
        except ModuleNotFoundError: continue  # of an optional package, as above
        monkeypatch.setattr(sys, "argv", [path.name, "--help"])
        with pytest.raises(SystemExit) as end:
            asyncio.run(main()) if inspect.iscoroutinefunction(main) else main()
        assert end.value.code == 0 and f"usage: {path.name}" in capsys.readouterr().out


OF_MODELS = {name for name in vars(Model) if name[0] != "_" and not hasattr(Method, name)}
OF_MODELS -= {"task", "sampling", "vocabulary", "config"}  # which a method has from its `__init__`


def kind_of_type(found: object) -> str:
    "Whether a type is `Model` or a `Method`; else ''."
    return next((base.__name__ for base in (Model, Method) if isinstance(found, type) and issubclass(found, base)), "")


def kind_of(node: ast.expr, known: dict[str, str]) -> str:
    "Whether an expression of a script is a `Model` or a `Method`, as far as annotations and calls tell; else ''."
    if isinstance(node, ast.Name): return known.get(node.id, "")
    if isinstance(node, ast.Attribute): return "Method" * (node.attr == "method" and kind_of(node.value, known) == "Model")
    if not isinstance(node, ast.Call): return ""
    is_fit = isinstance(node.func, ast.Attribute) and node.func.attr == "fit" and not node.args  # a trainer's
    return "Model" * (is_fit or ast.unparse(node.func) in ("load", "loflexmdm.load"))


def kinds_in(function: ast.FunctionDef, script: ModuleType) -> dict[str, str]:
    "Names in a function that are a `Model` or a `Method`."
    annotated = [(a.arg, a.annotation) for a in function.args.args if isinstance(a.annotation, ast.Name)]
    known = {name: kind_of_type(getattr(script, annotation.id, None)) for name, annotation in annotated}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign): continue
        names, values = node.targets[0], node.value
        several = isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
        for name, value in zip(names.elts, values.elts) if several else [(names, values)]:
            if isinstance(name, ast.Name) and (kind := kind_of(value, known)): known[name.id] = kind
    return known


def misused(function: ast.FunctionDef, script: ModuleType) -> list[ast.expr]:
    "Where a function uses a model as its method, or a method as a model."
    known, found = kinds_in(function, script), []
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            kind = kind_of(node.value, known)
            lacks = node.attr != "method" and not hasattr(Model, node.attr)
            if kind == "Model" and lacks or kind == "Method" and node.attr in OF_MODELS: found.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = getattr(script, node.func.id, None)
            if not inspect.isfunction(called): continue
            pairs = zip(node.args, inspect.signature(called).parameters.values())
            kinds = [(kind_of(value, known), kind_of_type(parameter.annotation)) for value, parameter in pairs]
            if any(own and wanted and own != wanted for own, wanted in kinds): found.append(node)
    return found


def test_scripts_tell_models_from_methods(from_experiments):
    "`load` and `fit` return a `Model`; weights, bounds and rates are those of its `method`."
    found = []
    for path in sorted(SCRIPTS_FOLDER.glob("*.py")):
        try: script = from_experiments(path.stem)
        except ModuleNotFoundError: continue  # of an optional package, as above
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        wrong = [node for function in functions for node in misused(function, script)]
        found += [f"{path.name}, line {node.lineno}: {ast.unparse(node)}" for node in wrong]
    assert not found, "\n".join(found)


def test_stored_results_have_a_line_per_row(from_experiments):
    runs = from_experiments("runs")
    for value in [dict(name="a", curve=[[1, 2.5]]), dict(name="b")], dict(cpu="x", rows=[dict(a=1), dict(a=None)]), []:
        assert json.loads(runs.as_json(value)) == value
    assert runs.as_json([dict(a=[1, 2]), dict(a=3)]) == '[\n{"a": [1, 2]},\n{"a": 3}\n]'
    stored = {p.name: p.read_text() for p in RESULTS if p.suffix == ".json" and p.stem.endswith("_runs")}
    assert not [name for name, text in stored.items() if text != runs.as_json(json.loads(text)) + "\n"]


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


def test_every_method_and_entrant_has_a_recipe_with_as_many_rows_per_step(from_experiments):
    "But two, which have twice as many. The methods say how many times they evaluate a sequence."
    orders, methods, moses = map(from_experiments, ("order_runs", "method_runs", "moses_runs"))
    made = {name: methods.tables("words", name, 0, 1000, 1e-3) for name in methods.METHODS | methods.FORMER}
    made |= {f"stars {name}": orders.tables("stars", name, 0, 1000, 1e-3) for name in orders.ENTRANTS}
    words = made["fixed"]["task"]  # with which a method is built without the molecules
    made |= {f"moses {name}": moses.tables(name, 0, 1000, "nano") | dict(task=words) for name in moses.ENTRANTS}
    for settings in made.values(): settings["train"].pop("start_from", None)  # a run that is not there
    built = {name: recipe_from(settings).build()[1] for name, settings in made.items()}
    rows = {name: r["train"]["batch_size"] * built[name].evaluations_per_loss for name, r in made.items()}
    assert rows == dict.fromkeys(made, 64) | {"stars unmask_wide": 128, "genmd4_twice": 128}


def commits_named(rows) -> set[str]:
    "Every commit that stored rows name."
    if isinstance(rows, list): return set().union(*map(commits_named, rows))
    if not isinstance(rows, dict): return set()
    own = {rows[key] for key in ("commit", "trained_at") if isinstance(rows.get(key), str)}
    return own.union(*map(commits_named, rows.values()))


def git(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *args], cwd=SCRIPTS_FOLDER, capture_output=True, text=True)


def test_the_commit_of_every_stored_row_is_in_the_history():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false": pytest.skip("no clone with its history")
    history = set(git("rev-list", "HEAD").stdout.split())
    known = {commit[:n] for commit in history for n in range(7, 41)}
    for path in RESULTS:
        text = path.read_text()
        rows = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
        gone = commits_named(rows) - known
        assert not gone, f"{path.name}: not in the history: {', '.join(sorted(gone))}"


def test_the_list_of_experiments_names_every_file():
    text = (SCRIPTS_FOLDER / "README.md").read_text(encoding="utf-8")
    kinds = {p.name for ending in ("*.py", "*.toml") for p in SCRIPTS_FOLDER.glob(ending)}
    left_out = {name for name in kinds if f"`{name}`" not in text and not name.startswith("molecules_")}
    assert not left_out and (SCRIPTS_FOLDER / "molecules_moses.toml").is_file()
    assert not [link for link in re.findall(r"\]\(([^)]+)\)", text) if not (SCRIPTS_FOLDER / link).is_file()]


def timed(results: Path) -> dict[str, list[tuple[str, float]]]:
    "Names and CPU seconds per step of the rows that have them, by name without the numbers."
    rows = [r for r in json.loads(results.read_text()) if r.get("cpu_seconds") is not None]
    found = {}
    for row in rows:
        steps = row.get("steps") or (row["train"].get("steps") if isinstance(row.get("train"), dict) else None)
        if not isinstance(steps, int): continue
        kind = " ".join(word for word in row["name"].split() if not word.isdigit())
        found.setdefault(kind, []).append((row["name"], row["cpu_seconds"] / steps))
    return found


def test_seconds_of_seeds_agree():
    "A run whose last sitting alone was timed has far fewer seconds than its seeds; such rows hold None."
    for results in SCRIPTS_FOLDER.glob("results/*_runs.json"):
        for rows in timed(results).values():
            usual = statistics.median(pace for _, pace in rows)
            assert not [name for name, pace in rows if pace < usual / 2.5], results.name
