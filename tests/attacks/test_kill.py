"""Training and sampling killed at every file operation: the same command, or `resume`, ends as if nothing had happened.

LOFLEXMDM_KILL_ALL=1 tries every operation; without it a sample of them, which is other every day, is tried."""
import datetime
import functools
import json
import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from kill import killed_at

from loflexmdm.cli import commands
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.training.checkpoints import checkpoints, run_lock

ALL = os.environ.get("LOFLEXMDM_KILL_ALL") == "1"
TRAIN = (
    "brackets --size pico --order-size pico --steps 4 --save-every 2 --keep 1 --batch-size 2 --warmup 1 --log-every 1 "
    "--valid-every 2 --valid-size 2 --valid-samples 2 --device cpu"
).split()


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    "A size of network with one block of 16 features, and everything imported that a child process needs."
    SIZES["pico"] = Size(16, 1, 2, 8)
    assert train(path := tmp_path_factory.mktemp("warm") / "run") == resume(path) == 0
    assert sample(path, path, ".csv") == 0
    yield
    del SIZES["pico"]


@functools.cache
def parsed(*argv): return commands.parse(argv)


def run(*argv, **places):
    "A command line whose arguments are parsed once (that takes longer than the work), with its places filled in."
    options = replace(parsed(*argv), **{k: str(v) for k, v in places.items()})
    with pytest.MonkeyPatch.context() as m:
        m.setattr(commands, "parse", lambda _: options)
        return commands.main([])


def train(directory): return run("train", *TRAIN, "--out", "RUN", out=directory)
def resume(directory): return run("resume", "RUN", "--device", "cpu", directory=directory)
def go_on(directory): return resume(directory) if (directory / "run.json").is_file() else train(directory)


TIMED = "seconds", "digest", "compiled"  # whether to compile is decided after ten steps of one sitting


def without(rows, *keys): return [{k: v for k, v in r.items() if k not in keys} for r in rows]


def left(directory: Path) -> dict:
    "Everything in a run's directory that must not depend on kills: the names of all files, and their contents."
    found = {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}
    found.pop(".lock", None)
    rows = [json.loads(line) for line in found.pop("metrics.jsonl").splitlines()]
    found["metrics"] = without(rows, "seconds", "tokens_per_second")
    found["recipe"] = json.loads(found.pop("run.json"))["recipe"]
    states = [name for name in found if name.endswith("state.json")]
    return found | {name: without([json.loads(found[name])], *TIMED) for name in states}


def chosen(n: int, most: int) -> list[int]:
    "The operations to try: all of them, or as many as fit in the time of a test."
    if ALL or n <= most: return list(range(1, n + 1))
    return sorted(random.Random(str(datetime.date.today())).sample(range(1, n + 1), most))


def said(told: dict) -> str: return told["said"].splitlines()[-1]


def campaign(tmp_path, name, begin, run, again, found, most):
    """`run` on a directory that `begin` prepares, killed at each operation, then `again`; every directory must end as
    without a kill."""
    begin(whole := tmp_path / "whole")
    told = killed_at(0, whole, lambda: run(whole))
    assert told["code"] == 0, told
    expected, tried, wrong = found(whole), chosen(told["operations"], most), {}
    for k in tried:
        begin(d := tmp_path / f"at_{k}")
        assert killed_at(k, d, lambda d=d: run(d))["code"] == -signal.SIGKILL
        after = killed_at(0, d, lambda d=d: again(d))
        if after["code"]: wrong[k] = said(after)
        elif (ended := found(d)) != expected:
            wrong[k] = {n for n in expected.keys() | ended.keys() if expected.get(n) != ended.get(n)}
        shutil.rmtree(d)
    print(f"{name}: {told['operations']} operations, {len(tried)} tried, {len(wrong)} ended otherwise")
    assert not wrong


@pytest.mark.slow
def test_train_killed_at_any_file_operation(tmp_path):
    campaign(tmp_path, "train", lambda d: None, train, go_on, left, 20)


@pytest.fixture(scope="module")
def run_of_four(tmp_path_factory):
    "A finished run of four steps."
    path = tmp_path_factory.mktemp("finished") / "run"
    assert train(path) == 0
    return path


@pytest.mark.slow
def test_resume_killed_at_any_file_operation(tmp_path):
    "From the state that a kill in the middle of the last checkpoint leaves."
    middle = killed_at(0, tmp_path / "a", lambda: train(tmp_path / "a"))["operations"] * 3 // 4
    assert killed_at(middle, tmp_path / "cut", lambda: train(tmp_path / "cut"))["code"] == -signal.SIGKILL
    assert [p.name for p in checkpoints(tmp_path / "cut")] == ["step_000002"]
    campaign(tmp_path, "resume", lambda d: shutil.copytree(tmp_path / "cut", d), resume, resume, left, 12)


def test_resume_of_a_finished_run_cleans_up(run_of_four, tmp_path):
    "What kills leave in all places, and an old checkpoint; the lock of a live process protects it."
    shutil.copytree(run_of_four, d := tmp_path / "run")
    shutil.copytree(d / "checkpoints/step_000004", d / "checkpoints/step_000002")
    one, two = "k3j9_x2a", "0a_b1c2d"  # as tempfile draws them
    staged = f"checkpoints/..step_000004.{one}.{two}", "checkpoints/.step_000002", f"..best.{one}.{two}", f".best.{one}"
    for name in staged: shutil.copytree(d / "best", d / name)
    for name in ("best/.config.json.new", f".run.json.{one}", f".metrics.jsonl.{one}", "metrics.partial"):
        (d / name).write_text("x")
    before = sorted(p.name for p in d.rglob("*"))
    with run_lock(d): assert killed_at(0, d, lambda: resume(d))["code"] == 2
    assert sorted(p.name for p in d.rglob("*")) == before
    assert resume(d) == 0
    assert left(d) == left(run_of_four)


@pytest.mark.parametrize("seed", range(6 if ALL else 2))
@pytest.mark.slow
def test_training_in_several_sittings(tmp_path, seed):
    "Killed at random operations, five times or more, and resumed each time."
    long = [*TRAIN, "--steps", "12", "--workers", "0"]
    def begin(d): return run("train", *long, "--out", "RUN", out=d)
    def again(d): return resume(d) if (d / "run.json").is_file() else begin(d)
    assert begin(tmp_path / "whole") == 0
    kills, rng, d = 0, random.Random(seed), tmp_path / "cut"
    while kills < 5 or killed_at(0, d, lambda: again(d))["code"]:
        kills += 1
        killed = killed_at(rng.randrange(20, 110), d, lambda: again(d))
        assert killed["code"] == -signal.SIGKILL, f"finished after {kills} sittings: {killed}"
    assert kills == 5 and left(d) == left(tmp_path / "whole")
    assert len(json.loads((d / "run.json").read_text())["sessions"]) in (5, 6)


SAMPLE = "-n 70 --batch-size 20 --nll 2 --sampler tau --steps 2 --device cpu".split()


def sample(model, directory, suffix):
    directory.mkdir(exist_ok=True)
    return run("sample", "MODEL", *SAMPLE, "--out", "s.jsonl", model=model, out=directory / f"s{suffix}")


def files_in(directory: Path) -> dict:
    "All files by name; of the provenance, what tells of the result."
    found = {p.name: p.read_bytes() for p in directory.iterdir()}
    return found | {n: json.loads(found[n])["counters"] for n in found if n.endswith(".run.json")}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_sample_killed_at_any_file_operation(run_of_four, tmp_path, suffix):
    def once(d): return sample(run_of_four, d, suffix)
    campaign(tmp_path, f"sample {suffix}", lambda d: None, once, once, files_in, 12)
