"""What tools that read code see of this package: type checkers accept the code of README, tutorials and how-to, and an
editor finds the definition of each name that users need."""
import importlib
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

import loflexmdm

ROOT = Path(__file__).parents[2]
RULES = dict(  # of pyright's standard mode, without those that notebooks break on purpose
    typeCheckingMode="standard",
    reportUnusedExpression=False,  # the last line of a cell is shown
    reportPossiblyUnboundVariable=False,  # a refused call leaves the name of its error alone
    reportIncompatibleVariableOverride=False,  # a property may stand for a field of the base class
    reportRedeclaration=False,  # a later cell defines a name anew
    reportMissingModuleSource=False,
)


def without_magics(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not re.match(r"\s*[%!]", line))


def pages() -> dict[str, str]:
    "Name of each page that users read, and all its code as one script."
    readme = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    found = {"readme": "\n".join(readme)}
    tutorials, how_to = (sorted(ROOT.glob(f"nbs/{folder}/*.ipynb")) for folder in ("tutorials", "how_to"))
    for path in [ROOT / "nbs/index.ipynb", *tutorials, *how_to]:
        cells = json.loads(path.read_text())["cells"]
        code = [without_magics("".join(c["source"])) for c in cells if c["cell_type"] == "code"]
        found[f"{path.parent.name}_{path.stem}"] = "\n\n".join(code) + "\n"
    return found


@pytest.mark.slow
def test_a_type_checker_accepts_the_code_of_pages(tmp_path):
    pytest.importorskip("basedpyright")
    for name, code in pages().items(): (tmp_path / f"{name}.py").write_text(code)
    settings = RULES | dict(extraPaths=[str(ROOT), str(ROOT / "experiments")], include=["."], pythonVersion="3.11")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True, text=True,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(pages()) > 30
    told = [
        f"{Path(g['file']).stem}, line {g['range']['start']['line'] + 1}: "
        f"{g['message'].splitlines()[0]} ({g.get('rule')})"
        for g in found["generalDiagnostics"]
        if g["severity"] == "error"
    ]
    assert not told, "\n".join(told)


SCRIPT = """
import loflexmdm

model = loflexmdm.load("star-tiny")
prompts = model.prompts("test", 3)
samples = model.sample(prompts, seed=0)
texts: list[str] = samples.texts
made = loflexmdm.recipe("brackets", steps=500)
made.trainer("runs/brackets").fit()
sampler = loflexmdm.TauLeaping(steps=32)
print(texts, samples.frame(), model.sample(prompts, sampler=sampler).texts, loflexmdm.models.names())
"""


@pytest.mark.slow
def test_of_an_installed_package_a_type_checker_finds_what_is_wrong_and_no_more(tmp_path):
    "Where a package is installed, checkers hold its names to be private unless it says that it hands them on."
    pytest.importorskip("basedpyright")
    (site := tmp_path / "site").mkdir()
    (site / "loflexmdm").symlink_to(ROOT / "loflexmdm")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    [packages] = environment.glob("lib/*/site-packages")
    (packages / "more.pth").write_text(f"{site}\n{Path(torch.__file__).parents[1]}\n")

    (pages := tmp_path / "pages").mkdir()
    wrong = SCRIPT.replace("= samples.texts", "= samples.textz").replace("steps=32", "steps='32'")
    for name, code in dict(right=SCRIPT, wrong=wrong).items(): (pages / f"{name}.py").write_text(code)
    (pages / "pyrightconfig.json").write_text(json.dumps(dict(typeCheckingMode="standard", include=["."])))
    python = environment / "bin" / "python"
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", str(python), "-p", str(pages)],
        capture_output=True, text=True,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    told = [(Path(g["file"]).stem, g["range"]["start"]["line"] + 1, g["rule"]) for g in found]
    assert told == [("wrong", 7, "reportAttributeAccessIssue"), ("wrong", 10, "reportArgumentType")], found


def names_of_users() -> list[tuple[str, str]]:
    "Each name of `__all__` of the package and of its rooms, and where it is imported from."
    packages = ["loflexmdm", *(f"loflexmdm.{room}" for room in loflexmdm.ROOMS)]
    return [(package, name) for package in packages for name in importlib.import_module(package).__all__]


@pytest.mark.slow
def test_an_editor_finds_definitions():
    "Jump to definition ends where the name is defined, not in a table of names."
    jedi = pytest.importorskip("jedi")
    names = names_of_users()
    assert len(names) > 110
    lines = [f"from {package} import {name}; {name}" for package, name in names]
    script = jedi.Script("\n".join(lines), path=ROOT / "page.py", project=jedi.Project(ROOT))
    lost = []
    for number, (line, (package, name)) in enumerate(zip(lines, names), 1):
        found = script.goto(number, len(line), follow_imports=True)
        homes = [d.module_path for d in found if d.module_path and d.module_path.name != "__init__.py" and d.line]
        if not homes or found[0].name != name: lost.append((package, name))
    assert not lost


LINES = """
import loflexmdm
model = loflexmdm.load("star-tiny")
samples = model.sample(n=3)
{line}
"""


@pytest.mark.slow
@pytest.mark.parametrize("line, where", [
    ("model.sample", "sample"),
    ("model.edit", "edit"),
    ("model.push", "push"),
    ("model.prompts", "prompts"),
    ("samples.texts", "texts"),
    ("samples.frame", "frame"),
    ("loflexmdm.recipe('brackets').trainer('run').fit", "fit"),
    ("loflexmdm.recipe('brackets').trainer('run').train_step", "train_step"),
    ("loflexmdm.EventDriven().step", "step"),
])
def test_an_editor_finds_methods(line, where):
    jedi = pytest.importorskip("jedi")
    code = LINES.format(line=line)
    row = code.rstrip("\n").count("\n") + 1
    script = jedi.Script(code, path=ROOT / "page.py", project=jedi.Project(ROOT))
    found = script.goto(row, len(line), follow_imports=True)
    assert [d.name for d in found] == [where] and found[0].module_name.startswith("loflexmdm.")
