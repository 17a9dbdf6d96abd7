"""Which size and batch, by time: `python experiments/size_runs.py FILE --seconds 120 --seeds 0 --about "what it is"`.

Autoregression learns the lines of FILE with networks and batches of several sizes, the next step being that of the one
that has spent least of the processor's time, so that all meet the same load; rates fall to their last value when the
time is over. At MARKS a row notes the bounds so far of the same held-out lines, in nats per line. Rows go to
experiments/results/size_runs.jsonl."""
import argparse
import json
import tempfile
from pathlib import Path

import torch

from loflexmdm.tasks.base import task_from
from loflexmdm.training.log import JsonLines
from loflexmdm.training.recipes import FIRST_TRAIN, recipe_from
from runs import COMMIT, ROOT, bound_of, held_out, processor
from training_runs import Racer

RESULTS = ROOT / "experiments" / "results" / "size_runs.jsonl"
MARKS = 6, 12, 24, 40, 60, 120, 180, 300, 600  # seconds after which a bound is noted
ENTRANTS = dict(  # sizes with lines of a step and rate
    nano=(16, 4e-3), nano_fast=(16, 6e-3), nano_32=(32, 4e-3), nano_64=(64, 4e-3), nano_64_fast=(64, 6e-3),
    micro=(16, 4e-3), micro_32=(32, 4e-3), tiny=(16, 3e-3), tiny_8=(8, 3e-3),
)
HELD_OUT = 256


def racer(task: dict, name: str, seed: int, seconds: float, directory: str) -> Racer:
    "Begin the run of an entrant, with the settings of a first run but for its batch and rate."
    batch_size, rate = ENTRANTS[name]
    train = FIRST_TRAIN | dict(lr=rate, batch_size=batch_size, seed=seed, steps=10**6, compile=False)
    model = dict(method="ar", size=name.partition("_")[0])
    return Racer(recipe_from(dict(task=task, model=model, train=train)).trainer(directory, progress=False), seconds)


def race(file: Path, seconds: float, seed: int, names: list[str], about: str, out: Path):
    "Train entrants in turn and note their bounds at the marks."
    task = dict(kind="text", file=str(file.absolute()), unit="characters")
    held, marks = held_out(task_from(task), HELD_OUT, "valid"), [m for m in MARKS if m <= seconds]
    with tempfile.TemporaryDirectory() as directory:
        racers = {name: racer(task, name, seed, seconds, f"{directory}/{name}") for name in names}
        ahead = {name: list(marks) for name in names}
        while any(ahead.values()):
            name = min((n for n in names if ahead[n]), key=lambda n: racers[n].spent)
            racers[name].step()
            if racers[name].spent < ahead[name][0]: continue
            row = dict(file=file.name, entrant=name, seed=seed, seconds=seconds, at=ahead[name].pop(0),
                       steps=racers[name].trainer.step, nats=bound_of(racers[name].method, held, 2),
                       about=about, commit=COMMIT, processor=processor())
            print(json.dumps(row), flush=True)
            JsonLines(out).write(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=["nano", "nano_32", "micro"])
    parser.add_argument("--about", help="what the file is and where it comes from")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a file to which rows are added, as JSON lines")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds: race(args.file, args.seconds, seed, args.entrants, args.about, args.out)


if __name__ == "__main__": main()
