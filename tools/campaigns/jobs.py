"""Commands small enough to be attacked a thousand times: train, resume, sample, molecules from a file to the cache,
compare. Each has a directory that it begins with, and says what of its results must not depend on attacks."""
import contextlib
import functools
import gc
import importlib
import json
import re
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kill import killed_at

from campaigns.attacks import isolated
from loflexmdm.cli import commands
from loflexmdm.molecules.data.prepared import prepare
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.reports.comparison import compare
from loflexmdm.samplers import TauLeaping
from loflexmdm.training.checkpoints import checkpoints

UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}")  # a file that is written before it gets its name
TRAIN = (
    "brackets --size pico --order-size pico --steps 4 --save-every 2 --keep 1 --batch-size 2 --warmup 1 --log-every 1 "
    "--valid-every 2 --valid-size 2 --valid-samples 2 --compile false --device cpu"
).split()
SAMPLE = "-n 70 --batch-size 20 --nll 2 --sampler tau --steps 2 --device cpu".split()
RECIPE = """[task]
kind = "brackets"
max_pairs = 3
[model]
method = "mdm"
size = "pico"
[train]
steps = 2
batch_size = 2
warmup = 1
log_every = 1
valid_size = 2
valid_samples = 2
compile = false
"""
SMILES = "CCO\nc1ccccc1CCO\nCC(=O)Nc1ccc(O)cc1\nnot a molecule\nCCN(CC)CC\n"


@functools.cache
def parsed(*argv): return commands.parse(argv)


def run(*argv, **places) -> int:
    "A command line that is parsed once (that takes longer than the work), with its places filled in."
    options = replace(parsed(*argv), **{k: str(v) for k, v in places.items()})
    with pytest.MonkeyPatch.context() as m:
        m.setattr(commands, "parse", lambda _: options)
        return commands.main([])


LINES = dict(
    train=("train", *TRAIN, "--out", "RUN"), resume=("resume", "RUN", "--device", "cpu"),
    sample=("sample", "MODEL", *SAMPLE, "--out", "s.jsonl"),
)


def train(d: Path): return run(*LINES["train"], out=d / "run")
def resume(d: Path): return run(*LINES["resume"], directory=d / "run")
def sample(d: Path): return run(*LINES["sample"], model=d / "model", out=d / "s.jsonl")
def cache(d: Path): prepare(d / "some.smi", cache=d / "cache", processes=1)


def compared(d: Path):
    options = dict(seeds=[0], n=4, states=2, samplers=[TauLeaping(steps=2)], progress=False)
    return commands_like(lambda: compare(d / "r.toml", ["mdm"], directory=d / "compared", **options))


def commands_like(call: Callable[[], object]) -> int:
    "Errors of a Python call as the command line has them."
    try: call()
    except (ValueError, OSError) as e:
        commands.print_status(f"loflexmdm: {commands.one_line(e)}")
        return 2
    return 0


def pico():
    "A size of network with one block of 16 features."
    SIZES["pico"] = Size(16, 1, 2, 8)


TIMED = "seconds", "tokens_per_second", "step_ms", "digest", "compiled", "recipe"  # the last is a path


def timeless(value):
    "JSON without what depends on the clock."
    if isinstance(value, dict): return {k: timeless(v) for k, v in value.items() if k not in TIMED}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def files_in(d: Path, *but: str) -> dict:
    """All files by name: JSON without times, others as bytes; without locks, without what a killed process was
    writing under a name of its own, and without those that match one of `but`."""
    found = {}
    for p in sorted(d.rglob("*")):
        name = str(p.relative_to(d))
        if not p.is_file() or p.name.endswith(".lock") or UNFINISHED.fullmatch(p.name): continue
        if any(Path(name).match(b) for b in but): continue
        data = p.read_bytes()
        if p.name == "metrics.jsonl": found[name] = [timeless(json.loads(line)) for line in data.splitlines()]
        elif p.name == "run.json": found[name] = json.loads(data)["recipe"]
        elif p.name.endswith(".run.json"): found[name] = json.loads(data)["counters"]
        else: found[name] = timeless(json.loads(data)) if p.suffix == ".json" else data
    return found


@dataclass(frozen=True)
class Job:
    "A command that is attacked."
    name: str
    begin: Callable[[Path], object]  # fills a new directory
    run: Callable[[Path], object]  # the command, attacked
    again: Callable[[Path], object]  # what one does afterwards
    found: Callable[[Path], dict]  # what must then be as without the attack


def go_on(d: Path): return resume(d) if (d / "run/run.json").is_file() else train(d)


def stopped_after_two(place: Path) -> Path:
    "A directory whose run of four steps was killed while it wrote the last checkpoint."
    whole = killed_at(0, place / "timed", lambda: train(place / "timed"))["operations"]
    assert killed_at(whole * 3 // 4, place / "half", lambda: train(place / "half"))["code"] == -signal.SIGKILL
    assert [p.name for p in checkpoints(place / "half/run")] == ["step_000002"]
    return place / "half"


def jobs(place: Path) -> dict[str, Job]:
    "All jobs; what several begin with is made once, in `place`."
    pico()
    place.mkdir(parents=True, exist_ok=True)
    (base := place / "base").mkdir()
    assert train(base) == 0
    half = stopped_after_two(place)
    write = lambda d, name, text: (d.mkdir(), (d / name).write_text(text))
    found = [
        Job("train", Path.mkdir, train, go_on, files_in),
        Job("resume", lambda d: shutil.copytree(half, d), resume, resume, files_in),
        Job("sample", lambda d: shutil.copytree(base / "run/best", d / "model"), sample, sample, files_in),
        Job("cache", lambda d: write(d, "some.smi", SMILES), cache, cache, files_in),
        Job("compare", lambda d: write(d, "r.toml", RECIPE), compared, compared, files_in),
    ]
    for job in found:
        job.begin(d := place / f"warm_{job.name}")
        import_as(lambda job=job, d=d: job.run(d))
    for line in LINES.values(): parsed(*line)  # here, so that no child has to
    gc.freeze()  # children share its pages
    return {job.name: job for job in found}


def import_as(run: Callable[[], object]):
    "Import what `run()` imports, so that no child process has to."
    told = isolated(lambda: run() or print("\n", *sys.modules))
    assert told["code"] == 0, told
    for name in told["out"].splitlines()[-1].split():
        if name.startswith("."): continue  # torch enters a module of its own under such a name
        with contextlib.suppress(ImportError): importlib.import_module(name)
