"""Every notebook runs from top to bottom in a fresh process. Cells flagged slow, gpu or notest keep their outputs.

One page of each room is among the fast tests, which `make test` runs; the others are marked slow."""
from pathlib import Path

import forks
import pytest
from house.test_layers import FLOORS

ROOT = Path(__file__).parents[2]
NBS = ROOT / "nbs"
# those that take longest, which begin first
LONGEST = {
    NBS / f"{name}.ipynb"
    for name in (
        "molecules/05_orders", "exact/02_samplers", "methods/05_lo_flexmdm",
        "how_to/more_than_one_gpu", "tutorials/molecule_edits",
        "samplers/12_guidance", "tutorials/repair", "tutorials/molecules", "tutorials/from_lead_to_report",
    )
}
FIRST = {  # of each room the page that executes most of its lines in little time
    NBS / f"{name}.ipynb"
    for name in (
        "support/10_readers", "process/04_schedules", "exact/01_ctmc", "networks/03_build", "samplers/05_tau_leaping",
        "methods/02_sampling", "tasks/01_base", "models/05_model", "training/03_log", "molecules/06_report",
        "reports/01_figures", "cli/05_sample",
    )
}
NOTEBOOKS = sorted(
    (p for p in NBS.rglob("*.ipynb") if not p.name.startswith("_") and ".ipynb_checkpoints" not in p.parts),
    key=lambda p: (p not in LONGEST, -p.stat().st_size),
)
RUN = (
    "import sys; from nbdev.test import test_nb; sys.exit(not test_nb(sys.argv[1], "
    "skip_flags=['notest', 'slow', 'gpu'], basepath=sys.argv[2])[0])"
)
# pages that train for hundreds of steps to show what a reader gets, and assert nothing of it: here they stop early
SHOWN = {
    NBS / f"{name}.ipynb"
    for name in (
        "tutorials/orders_on_a_clock", "tutorials/course", "tutorials/molecules", "tutorials/your_own_data",
        "tutorials/fill_a_gap", "tutorials/repair", "tutorials/molecule_edits", "how_to/your_own_tokenizer",
        "how_to/condition_on_a_prompt", "tutorials/log_anomalies",
    )
}
STEPS = 20
STOP_EARLY = f"""
from dataclasses import replace
from loflexmdm.training.trainer import Trainer

whole = Trainer.__init__
def short(self, method, data, config, *args, **options):
    whole(self, method, data, replace(config, steps=min(config.steps, {STEPS})), *args, **options)
Trainer.__init__ = short
"""
# pages that draw hundreds of molecules, and assert nothing of how many there are: here they draw fewer
DRAWN = {NBS / f"tutorials/{name}.ipynb" for name in ("from_lead_to_report", "molecules", "fragments")}
SAMPLES = 16
DRAW_FEWER = f"""
from loflexmdm.cli import commands
from loflexmdm.models.model import Model

whole_sample = Model.sample
def small_sample(self, prompts=None, n=None, *args, **options):
    return whole_sample(self, prompts, n and min(n, {SAMPLES}), *args, **options)
Model.sample = small_sample
whole_command = commands.main
def smaller(before, word): return str(min(int(word), {SAMPLES})) if before == "-n" else word
def small_command(argv): return whole_command([smaller(*pair) for pair in zip(["", *argv], argv)])
commands.main = small_command
"""
# by a Python of their own, not by the server of processes
STARTED = {
    NBS / f"{name}.ipynb" for name in ("index", "support/07_worker_pool", "reports/05_demo", "tutorials/star_graphs")
}


def marks(path: Path) -> list: return [] if path in FIRST else [pytest.mark.slow]


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(NBS)), marks=marks(p)) for p in NOTEBOOKS])
def test_notebook(path):
    # a process each: a notebook that defines a method enters it in the package's table, where the next one would find
    # it
    shorter = STOP_EARLY * (path in SHOWN) + DRAW_FEWER * (path in DRAWN)
    argv = ["-c", shorter + RUN, path, ROOT]
    done = (forks.start if path in STARTED else forks.run)(argv, cwd=path.parent)
    assert done.returncode == 0, done.stderr[-6000:]


def test_the_pages_named_are_there():
    assert set(NOTEBOOKS) >= LONGEST | SHOWN | DRAWN | STARTED | FIRST
    rooms = sorted(room for room in FLOORS if (NBS / room).is_dir())
    assert sorted(p.relative_to(NBS).parts[0] for p in FIRST) == rooms


def test_notebooks_are_small():
    assert not [str(p.relative_to(NBS)) for p in NOTEBOOKS if p.stat().st_size >= 300_000]
