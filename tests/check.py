"""All checks in order: generated files match the notebooks, lint, then notebooks and tests in
a process of one thread per core (four at most), while the site is built, then the tests of the site."""
import hashlib
import os
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


def main():
    os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="agg")
    started = time.monotonic()
    generated_files_match()
    run("ruff", "check", "loflexmdm", "tests", "tools", "docs", "setup.py")
    site = subprocess.Popen([sys.executable, "docs/build.py"], cwd=ROOT)
    cores = os.cpu_count() or 1
    workers = min(cores, 4) if cores > 1 else 0  # 0: in this process
    code = tested("-n", str(workers), "--dist", "worksteal", "--durations=8", f"--ignore={SITE}", *sys.argv[1:])
    if site.wait(): sys.exit("docs/build.py failed: the site is not built")
    code = code or tested(SITE, *sys.argv[1:]) % NO_TESTS
    print(
        f"make test: {'all passed' if code == 0 else 'FAILED'} in {(time.monotonic() - started) / 60:.1f} min",
        flush=True,
    )
    shutil.rmtree(ROOT / ".pytest_cache", ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__": main()
