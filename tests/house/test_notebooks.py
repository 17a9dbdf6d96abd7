"""Every notebook runs from top to bottom in a fresh process; cells flagged slow, gpu or
notest keep their stored outputs."""
from pathlib import Path

import forks
import pytest

ROOT = Path(__file__).parents[2]
NBS = ROOT / "nbs"
NOTEBOOKS = sorted(
    (p for p in NBS.rglob("*.ipynb") if not p.name.startswith("_") and ".ipynb_checkpoints" not in p.parts),
    key=lambda p: -p.stat().st_size,
)
RUN = (
    "import sys; from nbdev.test import test_nb; sys.exit(not test_nb(sys.argv[1], "
    "skip_flags=['notest', 'slow', 'gpu'], basepath=sys.argv[2])[0])"
)
# by a Python of their own, not by the server of processes
STARTED = {
    NBS / f"{name}.ipynb" for name in ("index", "support/07_worker_pool", "reports/05_demo", "tutorials/star_graphs")
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(NBS)))
def test_notebook(path):
    # a process each: a notebook that defines a method enters it in the package's table, where the next one would find
    # it
    argv = ["-c", RUN, path, ROOT]
    done = (forks.start if path in STARTED else forks.run)(argv, cwd=path.parent)
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(NBS)))
def test_notebook_is_small(path):
    assert path.stat().st_size < 300_000
