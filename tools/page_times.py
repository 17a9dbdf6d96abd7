"""Write the times of pages that tell one: `python tools/page_times.py [NOTEBOOK...]`, by default all of them.

A page says "runs in about N seconds on one core". The notebook is run in a process of its own, without its slow cells,
and N becomes its CPU seconds, to two digits: time that other programs take on the machine does not count."""
import argparse
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAID = re.compile(r"(runs in about )([\d,]+)( seconds on one core)")
RUN = (
    "import sys; from nbdev.test import test_nb; sys.exit(not test_nb(sys.argv[1], "
    "skip_flags=['notest', 'slow', 'gpu'], basepath=sys.argv[2])[0])"
)


def pages() -> list[Path]:
    "List the notebooks that tell their time."
    found = sorted((ROOT / "nbs").rglob("*.ipynb"))
    return [path for path in found if SAID.search(path.read_text(encoding="utf-8"))]


def measured(path: Path) -> float:
    "Run a notebook on one thread; return its CPU seconds. CalledProcessError if it fails."
    env = os.environ | dict(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", MPLBACKEND="agg")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", RUN, path, ROOT], cwd=path.parent, env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rounded(seconds: float) -> str:
    "Write seconds with at most two digits that are not 0: 7, 35, 120."
    digits = 1 if seconds >= 100 else 0
    return f"{max(1, round(seconds, -digits)):.0f}"


def write_time(path: Path) -> str:
    "Write the time of a notebook into its text; return a line on it."
    text, seconds = path.read_text(encoding="utf-8"), measured(path)
    old = SAID.search(text)[2]
    path.write_text(SAID.sub(rf"\g<1>{rounded(seconds)}\g<3>", text), encoding="utf-8")
    return f"{path.relative_to(ROOT)}: {old} -> {rounded(seconds)} ({seconds:.1f} CPU seconds)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="notebooks that tell their time; default: all")
    for path in map(Path, parser.parse_args().notebooks or pages()): print(write_time(path.resolve()), flush=True)


if __name__ == "__main__": main()
