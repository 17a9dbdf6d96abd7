"""Bits per letter of texts of 256 letters: `python experiments/long_text_runs.py SEED... [--methods NAME...]`.

Autoregression, masked diffusion and MD4's learned schedule on the standard library's docstrings and comments, written
as text8 is: 26 letters and the space, in pieces of 256. Each network is trained with a budget of its own and adds its
bound on the test set, what the training log says along the way, and the share of known words among its samples to
experiments/results/long_text_runs.json, with settings, seed and commit. On one core a step takes .7 seconds."""
import argparse
from math import log

import torch

from corpora import known_share, pieces
from loflexmdm.cli.common import add_device, device_name, pick_device
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.tasks.base import Task, task_from
from method_runs import METHODS, ROWS, TRAIN
from runs import ROOT, bound, curve_of, note, noted, states_per_sequence
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "long_text_runs.json"
BUDGETS = [("autoregressive", 1000), ("masked", 1000), ("genmd4", 1000), ("autoregressive", 500),
           ("autoregressive", 250), ("masked", 2000)]  # steps of 64 rows
HELD_OUT, STATES, SAMPLES = 512, 16, 256


def known_words(task: Task, method: Method) -> float:
    "Share of known words among those of samples, without the first and the last of each, which may be cut."
    texts = map(task.text, task.sequences(generate(method, n=SAMPLES, batch_size=SAMPLES, seed=0)))
    return round(known_share(task, [word for text in texts for word in text.split()[1:-1]]), 4)


def train(method: str, steps: int, seed: int, device: torch.device, task: dict):
    "Train with a budget, measure, and note."
    name = f"{method} {steps} {seed}"
    model = dict(size="nano") | METHODS[method]
    budget = dict(steps=steps, seed=seed, batch_size=ROWS // states_per_sequence(model), save_every=steps // 4,
                  valid_every=125)
    settings = dict(task=task, model=model, train=TRAIN | budget)
    if noted(RESULTS, name, settings): return
    model, _, spent = trained(settings, f"pieces {name}", device)
    data = task_from(task)
    nats, error = bound(data, model, HELD_OUT, STATES)
    letters = log(2) * len(data.splits["test"][0])
    note(RESULTS, dict(name=name, method=method, steps=steps, seed=seed, cpu_seconds=spent, device=device_name(device),
                       **settings, bits=[round(nats / letters, 4), round(error / letters, 4)],
                       known_words=known_words(data, model),
                       curve=curve_of(ROOT / "runs" / f"pieces {name}".replace(" ", "-"))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", choices=dict(BUDGETS), help="instead of all")
    add_device(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    device, task = pick_device(args.device), pieces()
    for seed in args.seeds:
        for method, steps in BUDGETS:
            if method in (args.methods or dict(BUDGETS)): train(method, steps, seed, device, task)


if __name__ == "__main__": main()
