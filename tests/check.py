"""`make test`: generated files match the notebooks, lint, every fast test, and a page of each room.

With `--all` (`make test-all`) also the slow tests and all other pages, while the site is built, and then the tests of
the site; with `--ci` (`make test-ci`, `.ci/run`) all of these but those marked nightly. With `--room ROOM` the tests
and pages of that room, and those that import from it, instead. Tests run in a process per core (four at most). Other
options go to pytest."""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SITE = "tests/house/test_site.py"  # its tests come last, when the site that is built beside the others is complete
NO_TESTS = 5  # pytest's exit code where an option, such as -k, leaves none


def digest(folders=("nbs", "loflexmdm")):
    "Content of every source file, by name."
    files = (
        p
        for f in folders
        for p in (ROOT / f).rglob("*")
        if p.suffix in (".py", ".ipynb") and ".ipynb_checkpoints" not in p.parts
    )
    return {str(p.relative_to(ROOT)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def run(*command):
    print("$", *command, flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def generated_files_match():
    "nbdev-export and nbdev-clean must change nothing."
    before = digest()
    run("nbdev-export")
    run("nbdev-clean")
    after = digest()
    changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    if changed:
        sys.exit(
            f"export or clean changed {len(changed)} file(s): {', '.join(changed)}; "
            "run make update, then commit"
        )


def tested(*arguments) -> int:
    "The exit code of pytest."
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT).returncode


def rooms() -> list[str]: return sorted(p.parent.name for p in (ROOT / "loflexmdm").glob("*/__init__.py"))


def code_of(path: Path) -> str:
    "The Python of a test or notebook."
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py": return text
    return "\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "code")


def of_room(room: str) -> list[str]:
    "Tests, as pytest names them, of a room and of what imports from it. ValueError for a room that is not there."
    if room not in rooms(): raise ValueError(f"room={room!r}: choose one of {', '.join(rooms())}")
    names = re.compile(rf"^\s*(?:from|import) loflexmdm(?:\.{room}\b| import .*\b{room}\b)", re.MULTILINE)
    def has(path: Path, top: str) -> bool:
        return path.relative_to(ROOT / top).parts[0] == room or bool(names.search(code_of(path)))
    tests = [p for p in sorted((ROOT / "tests").rglob("test_*.py")) if has(p, "tests") and p != ROOT / SITE]
    pages = [p for p in sorted((ROOT / "nbs").rglob("[!_]*.ipynb")) if has(p, "nbs")]
    whole = "tests/house/test_notebooks.py::test_notebook"
    return [*(f"{whole}[{p.relative_to(ROOT / 'nbs')}]" for p in pages), *(str(p.relative_to(ROOT)) for p in tests)]


def in_workers() -> list[str]:
    cores = os.cpu_count() or 1
    workers = min(cores, 4) if cores > 1 else 0  # 0: in this process
    return ["-n", str(workers), "--dist", "worksteal"]


def fast(*options: str) -> int:
    "Run every test that is not marked slow; the exit code of pytest."
    return tested(*in_workers(), "-m", "not slow", f"--ignore={SITE}", *options) % NO_TESTS


def whole(marker: str, *options: str) -> int:
    "Run the tests of a marker ('': all) beside the build of the site, then those of the site; return pytest's code."
    site = subprocess.Popen([sys.executable, "docs/build.py"], cwd=ROOT)
    code = tested(*in_workers(), "-m", marker, "--durations=8", f"--ignore={SITE}", *options) % NO_TESTS
    if site.wait(): sys.exit("docs/build.py failed: the site is not built")
    of_site = tested(*in_workers(), SITE, *options) % NO_TESTS  # also after a failure, which would hide theirs
    return code or of_site


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", choices=rooms())
    parser.add_argument("--all", action="store_true", help="slow tests, all pages and the site too")
    parser.add_argument("--ci", action="store_true", help="the same without the tests that are marked nightly")
    asked, options = parser.parse_known_args()
    os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="agg")
    started = time.monotonic()
    generated_files_match()
    run("ruff", "check", "loflexmdm", "tests", "tools", "docs", "setup.py")
    if asked.room: code = tested(*in_workers(), *of_room(asked.room), *options)
    elif asked.all or asked.ci: code = whole("" if asked.all else "not nightly", *options)
    else: code = fast(*options)
    name, minutes = "-all" if asked.all else "-ci" if asked.ci else "", (time.monotonic() - started) / 60
    print(f"make test{name}: {'all passed' if code == 0 else 'FAILED'} in {minutes:.1f} min", flush=True)
    shutil.rmtree(ROOT / ".pytest_cache", ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__": main()
