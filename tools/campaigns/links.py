"""Files of others in the directories of a job, and links that lead out of them: neither may be changed or removed.

A command survives if one line refuses what it finds, or if its own results are those without the other files."""
import random
import shutil
from pathlib import Path

from campaigns.attacks import Tally, isolated, refused, what_went_wrong
from campaigns.jobs import Job

# names of users, and those that the package gives to folders; what is a file of that name belongs to somebody else
NAMES = [
    ".git", ".cache", "notes.txt", ".bestiary", "step_000001", "step_000003", "step_000009", ".step_000001",
    ".step_000003", ".step_000002.k3j9_x2a", ".best.k3j9_x2a", "model", "best", "checkpoints", "some.new", "s.csv",
]
MINE = "mine\n"
INNER = "HEAD", "notes.txt", "state.json", "model.safetensors", ".step_000001/x", "step_000002/config.json"


def others(path: Path, rng: random.Random) -> list[Path]:
    "Write a file, or a directory with some, that belongs to somebody else."
    if rng.random() < 0.4: files = [path]
    else: files = [path / name for name in rng.sample(INNER, rng.randint(1, 3))] + [path / "thesis.tex"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MINE)
    return files


def planted(d: Path, away: Path, rng: random.Random) -> tuple[list[Path], list[str]]:
    "Put one to three of them, or links to them, below `d`; return their files and where they stand."
    kept, places = [], []
    for number in range(rng.randint(1, 3)):
        below = [p for p in (d, *sorted(d.rglob("*"))) if p.is_dir() and not p.is_symlink()]
        path = rng.choice(below) / rng.choice(NAMES)
        if path.exists() or path.is_symlink(): continue
        if rng.random() < 0.5: kept += others(path, rng)
        else:
            kept += others(away / str(number), rng)
            path.symlink_to(away / str(number))
        places.append(str(path.relative_to(d)))
    return kept, places


def moved(d: Path, away: Path, rng: random.Random) -> Path | None:
    "Move a directory below `d` elsewhere and put a link in its place; says which."
    inner = [p for p in sorted(d.rglob("*")) if p.is_dir() and not p.is_symlink()]
    if not inner or rng.random() < 0.8: return None
    path = rng.choice(inner)
    shutil.move(path, away / "moved")
    path.symlink_to(away / "moved")
    return path


def put_back(path: Path, away: Path):
    "Undo `moved`, unless the link is no longer there."
    if not path.is_symlink(): return
    path.unlink()
    shutil.move(away / "moved", path)


def different(job: Job, d: Path, expected: dict, places: list[str]) -> str:
    "Return what differs from the results without files of others, which are removed first."
    for path in map(d.joinpath, places):
        if path.is_dir() and not path.is_symlink(): shutil.rmtree(path)
        else: path.unlink(missing_ok=True)
    found = job.found(d)
    other = sorted(n for n in expected if expected[n] != found.get(n))
    return f"other files: {', '.join(other[:5])}" if other else ""


def attack(job: Job, place: Path, rng: random.Random, expected: dict) -> tuple[str, str]:
    "Run a job among files of others; return where they stand, and what is wrong then."
    d, away = place / f"{job.name}_links", place / f"{job.name}_away"
    try:
        job.begin(d)
        away.mkdir()
        kept, places = planted(d, away, rng)
        linked = moved(d, away, rng)
        what = f"{places}" + (f", {linked.relative_to(d)} is a link" if linked else "")
        kept = [p.resolve() for p in kept]
        told = isolated(lambda: job.run(d))
        lost = [str(p.relative_to(place)) for p in kept if not p.is_file() or p.read_text() != MINE]
        if lost: return what, f"lost: {lost[:3]}"
        if told["code"]: return what, "" if refused(told) else what_went_wrong(told)
        if linked: put_back(linked, away)
        return what, different(job, d, expected, places)
    finally:
        for path in d, away: shutil.rmtree(path, ignore_errors=True)


def campaign(jobs: dict[str, Job], place: Path, tally: Tally, rng: random.Random, most: int):
    "Attack every job `most` times."
    for name, job in jobs.items():
        job.begin(d := place / f"{name}_alone")
        assert isolated(lambda job=job, d=d: job.run(d))["code"] == 0
        expected = job.found(d)
        for _ in range(most):
            what, wrong = attack(job, place, rng, expected)
            tally.note(f"links {name}", what, wrong)
