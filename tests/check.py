"""All checks in order: generated files match the notebooks, lint, then notebooks and tests in
a process of one thread per core (four at most), while the site is built, then the tests of the site.

With `--room ROOM` only the tests and pages of that room, and those that import from it. Other options go to pytest."""
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
README = ROOT / "README.md"
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


def outdated_count(ran: int, readme: str) -> str:
    "A line that asks for another count of tests in README; empty where it is right, and where only a part of them ran."
    told = int(re.search(r"more than ([\d,]+) tests", readme)[1].replace(",", ""))
    if ran < told / 2 or 0 <= ran - told < 1000: return ""
    return f"README.md tells of more than {told:,} tests, and {ran:,} ran: make update counts anew"


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


def everything(*options: str) -> int:
    "Run all tests beside the build of the site, then those of the site; the exit code of pytest."
    site = subprocess.Popen([sys.executable, "docs/build.py"], cwd=ROOT)
    code = tested(*in_workers(), "--durations=8", f"--ignore={SITE}", *options)
    if site.wait(): sys.exit("docs/build.py failed: the site is not built")
    of_site = tested(*in_workers(), SITE, *options) % NO_TESTS  # also after a failure, which would hide theirs
    return code or of_site


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", choices=rooms())
    asked, options = parser.parse_known_args()
    os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="agg")
    started = time.monotonic()
    generated_files_match()
    run("ruff", "check", "loflexmdm", "tests", "tools", "docs", "setup.py")
    code = tested(*in_workers(), *of_room(asked.room), *options) if asked.room else everything(*options)
    print(
        f"make test: {'all passed' if code == 0 else 'FAILED'} in {(time.monotonic() - started) / 60:.1f} min",
        flush=True,
    )
    shutil.rmtree(ROOT / ".pytest_cache", ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__": main()
