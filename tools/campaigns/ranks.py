"""Two training processes that were started differently, in random settings and data, with what should come of it: an
error in both that names every difference, or the weights of equal ones where they may differ."""
import json
import os
import random
import re
import shutil
import sys
import tempfile
from pathlib import Path

import share
from share import difference, start, train, wait

from campaigns.attacks import Tally

FEW = dict(steps=2, save_every=2, valid_every=2, log_every=2)
WORDS = list(share.WORDS)
# what the second process may be given, and the name by which the first should hear of it; '' where it may
OTHER = dict(
    lr=(dict(lr=1e-3), "train.lr"),
    steps=(dict(steps=3), "train.steps"),
    seed=(dict(seed=7), "train.seed"),
    clip=(dict(clip=0.5), "train.clip"),
    ema=(dict(ema=0.5), "train.ema"),
    often=(dict(valid_every=1), "train.valid_every"),
    rows=(dict(batch_size=4), "train.batch_size"),
    size=(dict(options=dict(size="micro")), "model.size"),
    order=(dict(options=dict(order="fixed")), "model.order"),
    method=(dict(method="mdm"), "model.method"),
    shorter=(dict(words=[0, 9, 1]), "data.train.rows"),
    reversed=(dict(words=[None, None, -1]), "data.train.examples"),
    workers=(dict(workers=1), ""),
    nothing=({}, ""),
)


def differently(directory: str, other: str):
    "Train, in the second process with other settings or data."
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # whatever this process has put in its place
    own = json.loads(other) if os.environ["RANK"] == "1" else {}
    if cut := own.pop("words", None): share.WORDS = WORDS[slice(*cut)]
    train(directory, json.dumps(FEW | own))


def together(directory: Path, other: dict) -> tuple[list[int], str]:
    "Exit codes of both processes, and what they wrote on stderr."
    with tempfile.TemporaryFile("w+") as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try: codes = wait(start(2, differently, str(directory), json.dumps(other)))
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        said.seek(0)
        return codes, said.read()


def attack(rng: random.Random, place: Path) -> str:
    "Start two processes differently; what is wrong, empty if nothing is."
    names = rng.sample(sorted(OTHER), rng.choice([1, 1, 2]))
    if {"shorter", "reversed"} == set(names): names = names[:1]  # there is one list of words
    other, options = {}, {}
    for name in names:
        given = dict(OTHER[name][0])
        options |= given.pop("options", {})
        other |= given
    if options: other["options"] = options
    expected = {OTHER[name][1] for name in names} - {""}
    if other.get("method") == "mdm" and options.get("order"): return ""  # a setting that the other method has not
    codes, said = together(place / "run", other)

    if not expected:
        if codes != [0, 0]: return f"{names}: exit codes {codes}: {said[-300:]}"
        share_of = difference(place / "run", place.parent / "equal")
        return "" if share_of == 0 else f"{names}: other weights"
    if codes != [2, 2]: return f"{names}: exit codes {codes}: {said[-300:]}"
    if list((place / "run").glob("checkpoints/*")): return f"{names}: a checkpoint was written"
    both = re.findall("were started differently: ([^\n]*)", said)
    unnamed = {name for name in expected if not any(name in line for line in both)}
    return f"{names}: {unnamed} is not named: {both}" if unnamed else ""


def campaign(place: Path, tally: Tally, seed: int, numbers: range):
    "Processes started differently; number `i` depends on `seed` and `i` alone."
    if not (place / "equal").exists(): together(place / "equal", {})
    for i in numbers:
        own = place / f"ranks_{i}"
        own.mkdir()
        tally.note("ranks", f"seed {seed}, number {i}", attack(random.Random(f"{seed} ranks {i}"), own))
        shutil.rmtree(own)
