"""Write everything that is derived from the notebooks: `make update`, or `python tools/update.py [STEP...]`.

    export   loflexmdm/ from the notebooks, and notebooks without metadata that changes by itself
    tables   help.json and recipe.schema.json, from the options and recipes of the package
    lists    long cells and cases first, in tests/data; what has become worse stays as it was, and its test fails
    counts   the number of tests, in the index notebook
    readme   README.md from the index notebook"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "nbs" / "index.ipynb"
TABLES = "from loflexmdm.cli.commands import write_help; from loflexmdm.training.recipes import write_schema; "
TESTS = re.compile(r"more than [\d,]+ tests")


def run(*command: str, **options) -> subprocess.CompletedProcess:
    "Run a program of this Python's environment in the repository, with the repository's package."
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = os.environ | dict(PATH=path, PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=ROOT, env=env, check=True, text=True, **options)


def export():
    run("nbdev-export")
    run("nbdev-clean")


def tables(): run(sys.executable, "-c", TABLES + "write_help(); write_schema()")


def lists():
    for name in ("test_style", "test_cases_first"):
        run(sys.executable, f"tests/house/{name}.py", stdout=subprocess.DEVNULL)


def collected() -> int:
    "Count the tests that pytest finds."
    said = run(sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", capture_output=True)
    return int(re.search(r"(\d+) tests collected", said.stdout)[1])


def counts():
    "Write the number of tests, in thousands, where the index notebook tells it."
    text = INDEX.read_text(encoding="utf-8")
    new, found = TESTS.subn(f"more than {collected() // 1000 * 1000:,} tests", text)
    if found != 1: raise SystemExit(f"nbs/index.ipynb: {found} times 'more than N tests', where once is expected")
    if new != text: INDEX.write_text(new, encoding="utf-8")


def readme(): run(sys.executable, "tests/house/test_readme.py")


STEPS = dict(export=export, tables=tables, lists=lists, counts=counts, readme=readme)


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
