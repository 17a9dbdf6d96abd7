"""Write everything that is derived from the notebooks: `make update`, or `python tools/update.py [STEP...]`.

    fold     cells that the site hides or folds are collapsed in JupyterLab too
    export   loflexmdm/ from the notebooks, and notebooks without metadata that changes by itself
    tables   help.json and recipe.schema.json, from the options and recipes of the package
    readme   README.md from the index notebook"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = "from loflexmdm.cli.commands import write_help; from loflexmdm.training.recipes import write_schema; "


def run(*command: str, **options) -> subprocess.CompletedProcess:
    "Run a program of this Python's environment in the repository, with the repository's package."
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = os.environ | dict(PATH=path, PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=ROOT, env=env, check=True, text=True, **options)


@cache
def builder():
    "Import the module that builds the site, which reads the directives of cells."
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
    spec.loader.exec_module(build := importlib.util.module_from_spec(spec))
    return build


def collapsed(options: dict[str, str]) -> dict[str, bool]:
    "Return what JupyterLab hides of a cell: code that the site hides or folds, and outputs where it shows none."
    if not {"hide", "code-fold"} & options.keys(): return {}
    is_answer = "answer" in options.get("code-summary", "")
    return dict(outputs_hidden=True, source_hidden=True) if "hide" in options or is_answer else dict(source_hidden=True)


def with_folds(text: str) -> str:
    "Return a notebook whose cells are collapsed as the site has them; the text itself where nothing changes."
    notebook, directives = json.loads(text), builder().directives
    before = json.dumps(notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code": continue
        options, _ = directives("".join(cell["source"]))
        cell["metadata"] = {k: v for k, v in cell["metadata"].items() if k != "jupyter"}
        if hidden := collapsed(options): cell["metadata"]["jupyter"] = hidden
    if json.dumps(notebook) == before: return text
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def notebooks() -> list[Path]:
    return [p for p in sorted((ROOT / "nbs").rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts]


def fold():
    for path in notebooks():
        text = path.read_text(encoding="utf-8")
        if (new := with_folds(text)) != text: path.write_text(new, encoding="utf-8")


def export():
    run("nbdev-export")
    run("nbdev-clean")


def tables(): run(sys.executable, "-c", TABLES + "write_help(); write_schema()")


def readme(): run(sys.executable, "tests/house/test_readme.py")


STEPS = dict(fold=fold, export=export, tables=tables, readme=readme)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"one or more of {', '.join(STEPS)}; all by default")
    asked = parser.parse_args().steps
    for name in asked:
        if name not in STEPS: parser.error(f"step={name!r}: choose one of {', '.join(STEPS)}")
    for name in asked or STEPS:
        print(f"update: {name}", flush=True)
        STEPS[name]()
    status = ["git", "status", "--short", "--", "nbs", "loflexmdm", "tests/data", "README.md"]
    changed = subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout
    print(f"to commit:\n{changed}" if changed else "nothing to commit")


if __name__ == "__main__": main()
