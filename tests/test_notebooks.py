"""Every notebook runs from top to bottom in a fresh process; cells flagged slow, gpu or
notest keep their stored outputs."""
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(
    (p for p in (ROOT / "nbs").rglob("*.ipynb") if not p.name.startswith("_") and ".ipynb_checkpoints" not in p.parts),
    key=lambda p: -p.stat().st_size,
)
RUN = (
    "import sys; from nbdev.test import test_nb; sys.exit(not test_nb(sys.argv[1], "
    "skip_flags=['notest', 'slow', 'gpu'], basepath=sys.argv[2])[0])"
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT / "nbs")))
def test_notebook(path):
    # a process each: a notebook that defines a method enters it in the package's table, where the next one would find
    # it
    done = subprocess.run([sys.executable, "-c", RUN, path, ROOT], cwd=path.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT / "nbs")))
def test_notebook_is_small(path):
    assert path.stat().st_size < 300_000
