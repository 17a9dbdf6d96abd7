"One flipped bit in any file of a model, a run, unfinished samples, a cache or a comparison."
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kill import killed_at

from campaigns.attacks import Tally, isolated, refused, what_went_wrong
from campaigns.jobs import Job, files_in, run

LOG = "metrics.jsonl"  # has no digest: a record for the reader, of which nothing is computed


@dataclass(frozen=True)
class Target:
    "A directory in which a bit is flipped, the command that reads it, and what that must give if it accepts."
    name: str
    directory: Path
    read: Callable[[Path], object]
    found: Callable[[Path], object]
    but: tuple = ()  # names of files that are left alone


def sampled(d: Path): return run("sample", "MODEL", "-n", "3", "--sampler", "tau", "--steps", "2", model=d / "model")


def trained(d: Path) -> dict:
    "What a finished run computed: its checkpoint, and the recipe."
    return files_in(d, f"*/{LOG}", "run/best/*", "run/.lock")


def unfinished(job: Job, place: Path) -> Path:
    "Samples of which half are there."
    job.begin(d := place / "unfinished")
    n = killed_at(0, place / "counted", lambda: (job.begin(place / "counted"), job.run(place / "counted"))[1])
    killed_at(n["operations"] * 3 // 4, d, lambda: job.run(d))
    assert any(d.glob("*.partial.jsonl"))
    return d


def targets(jobs: dict[str, Job], place: Path) -> list[Target]:
    "All kinds of directories."
    made = {name: place / f"flips_{name}" for name in ("sample", "resume", "cache", "compare")}
    for name, d in made.items(): jobs[name].begin(d)
    for name in ("cache", "compare"): assert not isolated(lambda name=name: jobs[name].run(made[name]))["code"]
    samples = lambda d: (d / "s.jsonl").read_bytes()
    kept = lambda d: {p.name: p.read_bytes() for p in (d / "cache").rglob("*.arrow")}
    rows = lambda d: json.loads((d / "compared/results.json").read_text())["rows"]
    return [
        Target("model", made["sample"], sampled, lambda d: None, ("README.md",)),
        Target("run", made["resume"], jobs["resume"].again, trained, (LOG, ".lock")),
        Target("unfinished samples", unfinished(jobs["sample"], place), jobs["sample"].again, samples, ("README.md",)),
        Target("cache", made["cache"], jobs["cache"].again, kept, ("some.smi",)),
        Target("comparison", made["compare"], jobs["compare"].again, rows, (LOG, "r.toml", ".lock")),
    ]


def flip(path: Path, rng: random.Random) -> str:
    "Flip a bit of a file; says which."
    data, at = bytearray(path.read_bytes()), rng.randrange(8 * path.stat().st_size)
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)
    return f"bit {at} of {path.name}"


def outcome(target: Target, d: Path) -> tuple[dict, object]:
    "What the command says, and what it made."
    told = isolated(lambda: target.read(d))
    return told, target.found(d) if told["code"] == 0 else None


def attack(target: Target, place: Path, rng: random.Random, expected: tuple) -> tuple[str, str]:
    "Which bit was flipped, and what is wrong then."
    d = place / "flipped"
    shutil.copytree(target.directory, d)
    try:
        files = [p for p in sorted(d.rglob("*")) if p.is_file() and p.name not in target.but and p.stat().st_size]
        what = flip(rng.choice(files), rng)
        told, found = outcome(target, d)
        if told["code"]: return what, "" if refused(told) else what_went_wrong(told)
        return what, "" if (told["out"], found) == expected else "another result silently"
    finally: shutil.rmtree(d)


def campaign(jobs: dict[str, Job], place: Path, tally: Tally, rng: random.Random, each: int):
    "Flip `each` bits in every kind of directory, one at a time."
    for target in targets(jobs, place):
        shutil.copytree(target.directory, d := place / "flipped")
        told, found = outcome(target, d)
        assert told["code"] == 0, told
        shutil.rmtree(d)
        for _ in range(each): tally.note(f"flip in {target.name}", *attack(target, place, rng, (told["out"], found)))


assert os.name == "posix"  # needs fork
