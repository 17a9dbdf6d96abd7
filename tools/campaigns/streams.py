"""Files that change while a model is trained on them, at a random step and in a random way, with what should come of
it: the weights of an undisturbed run where the bytes stay, else an error and no checkpoint from after the change."""
import contextlib
import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from resuming import VOCABULARY, trainer

from campaigns.attacks import Tally
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask
from loflexmdm.training.checkpoints import checkpoints

STEPS = 12


def written(path: Path, rng: random.Random):
    "A file of words in every letter, long enough that no pass over it ends."
    rows = ["".join(rng.choices(VOCABULARY.ordinary, k=rng.randint(2, 6))) for _ in range(300)]
    path.write_text("\n".join(["abcd", "efgh", *rows]) + "\n")


def other_letter(path: Path, rng: random.Random):
    "One letter in place, in the size and with the time of before."
    found, data = path.stat(), bytearray(path.read_bytes())
    at = rng.choice([i for i, c in enumerate(data) if c != 10])
    data[at] = ord(rng.choice([v for v in "abcdefgh" if ord(v) != data[at]]))
    with open(path, "r+b") as f: f.write(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def put_back(path: Path, rng: random.Random):
    "Other bytes for a moment, then the same again."
    data = path.read_bytes()
    path.write_bytes(data[::-1])
    path.write_bytes(data)


def replaced(path: Path, data: bytes):
    "Another file of that name."
    (beside := path.with_name("beside")).write_bytes(data)
    os.replace(beside, path)


HARMLESS: dict[str, Callable] = dict(
    nothing=lambda path, rng: None,
    touched=lambda path, rng: os.utime(path),
    rewritten=lambda path, rng: path.write_bytes(path.read_bytes()),
    put_back=put_back,
    copied=lambda path, rng: replaced(path, path.read_bytes()),
)
HARMFUL: dict[str, Callable] = dict(
    letter=other_letter,
    appended=lambda path, rng: path.write_bytes(path.read_bytes() + b"abc\n"),
    cut_off=lambda path, rng: os.truncate(path, rng.randrange(1, path.stat().st_size)),
    replaced=lambda path, rng: replaced(path, path.read_bytes()[::-1]),
    removed=lambda path, rng: path.unlink(),
)


def run(path: Path, directory: Path, save_every: int, at: int, change: Callable) -> dict:
    "Train, and call `change()` before step `at + 1`; the weights. ValueError if the run ends before."
    config = SequencesConfig(file=str(path), unit="characters", stream=True, limit=100, max_length=9)
    task = SequencesTask(config)
    task.set_vocabulary(VOCABULARY)
    own = trainer(task.dataset(), directory, STEPS, save_every=save_every, keep=99)
    step = own.train_step

    def changing(stream):
        if own.step == at: change()
        return step(stream)
    own.train_step = changing
    return own.fit().method.state_dict()


def attack(rng: random.Random, place: Path) -> str:
    "Train on a file that changes; what is wrong, empty if nothing is."
    path, save_every, at = place / "words.txt", rng.randint(2, 6), rng.randrange(STEPS)
    written(path, rng)
    undisturbed = run(path, place / "whole", save_every, at, lambda: None)
    name = rng.choice([*HARMLESS, *HARMFUL])
    change = (HARMLESS | HARMFUL)[name]
    try: found = run(path, place / "run", save_every, at, lambda: change(path, rng))
    except (ValueError, FileNotFoundError) as e:
        gone = isinstance(e, FileNotFoundError) and name == "removed"  # before it was opened
        if name in HARMLESS: return f"{name}: refused: {e}"
        if not gone and "changed while being trained on" not in str(e): return f"{name}: another error: {e}"
        late = [p.name for p in checkpoints(place / "run") if int(p.name[5:]) > at]
        return f"{name} before step {at + 1}: {late[0]} is kept" if late else ""
    if name in HARMFUL: return f"{name} before step {at + 1} is not noticed"
    same = all(torch.equal(found[key], value) for key, value in undisturbed.items())
    return "" if same else f"{name}: other weights"


def campaign(place: Path, tally: Tally, seed: int, numbers: range):
    "Changed files; number `i` depends on `seed` and `i` alone."
    for i in numbers:
        own = place / f"stream_{i}"
        own.mkdir()
        with contextlib.redirect_stderr(io.StringIO()):
            tally.note("streams", f"seed {seed}, number {i}", attack(random.Random(f"{seed} stream {i}"), own))
        shutil.rmtree(own)
