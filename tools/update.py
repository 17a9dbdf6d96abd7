"""Write everything that is derived from the notebooks: `make update`, or `python tools/update.py [STEP...]`.

    export   loflexmdm/ from the notebooks, and notebooks without metadata that changes by itself
    tables   help.json and recipe.schema.json, from the options and recipes of the package
    readme   README.md from the index notebook"""
import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = "from loflexmdm.cli.commands import write_help; from loflexmdm.training.recipes import write_schema; "


def run(*command: str, **options) -> subprocess.CompletedProcess:
    "Run a program of this Python's environment in the repository, with the repository's package."
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = os.environ | dict(PATH=path, PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=ROOT, env=env, check=True, text=True, **options)


def export():
    run("nbdev-export")
    run("nbdev-clean")


def tables(): run(sys.executable, "-c", TABLES + "write_help(); write_schema()")


def readme(): run(sys.executable, "tests/house/test_readme.py")


STEPS = dict(export=export, tables=tables, readme=readme)


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
