"Every notebook runs from top to bottom; cells flagged slow, gpu or notest keep their stored outputs."
from pathlib import Path

import pytest
from nbdev.test import test_nb as run_notebook

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((p for p in (ROOT / "nbs").rglob("*.ipynb") if not p.name.startswith("_") and ".ipynb_checkpoints" not in p.parts), key=lambda p: -p.stat().st_size)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT / "nbs")))
def test_notebook(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    passed, _ = run_notebook(path, skip_flags=["notest", "slow", "gpu"], basepath=ROOT)
    assert passed
