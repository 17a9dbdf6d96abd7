"""Lengths against the number of sampling steps, on phrases: `python experiments/length_runs.py SEED... [--steps N]`.

FlexMDM and masked diffusion, trained as experiments/method_runs.py does, are sampled with 1, 2, 4, ..., 256 steps.
FlexMDM leaps as published, with the count of missing tokens held, and with the rate held, the package's default. Each
model adds the total variation between the lengths of its samples and of the test set to
experiments/results/length_runs.json, with settings, seed and commit; training sequences in place of samples are
the floor."""
import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from statistics import mean

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.samplers import Ancestral, Sampler, Samples, TauLeaping
from loflexmdm.tasks.base import Task, task_from
from method_runs import CORPORA, HELD_OUT, SAMPLES, STATES, TRAIN, tables, text_scores
from runs import ROOT, bound, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "length_runs.json"
STEPS = [2 ** k for k in range(9)]


def leaping(steps: int, hold: str) -> Sampler:
    "Steps of FlexMDM; one more call shows what is still masked, as published."
    return TauLeaping(steps=steps + 1, hold=hold)


def samplers(method: str, most: int) -> dict[str, list[tuple[int, Sampler]]]:
    "The samplers of a method, by the way in which a step is taken, each with its number of steps."
    upto = lambda n: [k for k in STEPS if k <= min(n, most)]
    if method == "masked": return dict(ancestral=[(n, Ancestral(steps=n)) for n in upto(256)])
    ways = dict(count=upto(256), rate=upto(32))  # enough to see which of the two is better
    return {hold: [(n, leaping(n, hold)) for n in steps] for hold, steps in ways.items()}


def scores(task: Task, samples: Samples) -> dict[str, float]:
    "Total variation of the lengths from the test set's, mean length, share of known words."
    found = task.score("test", samples) | text_scores(task, samples)
    kept = {k: round(float(found[k]), 4) for k in ("length_tv", "known_words")}
    return kept | dict(length=round(mean(map(len, samples.sequences)), 3))


def point(task: Task, model: Method, steps: int, sampler: Sampler, seed: int) -> dict:
    "Scores of samples with a number of steps, and CPU seconds for all of them."
    start = time.process_time()
    samples = generate(model, n=SAMPLES, sampler=sampler, generator=torch.Generator().manual_seed(seed))
    seconds = round(time.process_time() - start, 1)
    return dict(steps=steps, seconds=seconds, full=samples.overflowing) | scores(task, samples)


def note_floor(task: Task, seeds: Sequence[int]):
    "How often each length comes in the test set; and scores of as many training sequences, drawn at random."
    lengths = Counter(map(len, task.splits["test"]))
    note(RESULTS, dict(name="test", method="test", lengths=sorted(lengths.items())))
    for seed in seeds:
        chosen = random.Random(seed).sample(task.splits["train"], SAMPLES)
        real = Samples([task.vocabulary.encode(s) for s in chosen], [[True] * len(s) for s in chosen])
        note(RESULTS, dict(name=f"real {seed}", method="real", seed=seed, samples=SAMPLES, **scores(task, real)))


def run(method: str, seed: int, steps: int, most: int):
    "Train a method, sample with each number of steps, and note."
    settings, name = tables("text", method, seed, steps, TRAIN["lr"]), f"{method} {seed} {steps}"
    if noted(RESULTS, name, settings): return
    model, _, spent = trained(settings, f"text {name}")
    task = task_from(settings["task"])
    points = {way: [point(task, model, n, sampler, seed) for n, sampler in line]
              for way, line in samplers(method, most).items()}
    note(RESULTS, dict(name=name, method=method, seed=seed, steps=steps, cpu_seconds=spent, **settings,
                       samples=SAMPLES, bound=bound(task, model, HELD_OUT, STATES), points=points))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=CORPORA["text"]["steps"], help="of training")
    parser.add_argument("--methods", nargs="+", choices=("masked", "flexmdm"), default=("masked", "flexmdm"))
    parser.add_argument("--most", type=int, default=STEPS[-1], help="sampling steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    note_floor(task_from(CORPORA["text"]["task"]()), args.seeds)
    for seed in args.seeds:
        for method in args.methods: run(method, seed, args.steps, args.most)


if __name__ == "__main__": main()
