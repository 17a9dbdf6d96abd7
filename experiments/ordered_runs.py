"""Figures of a trained model of star graphs: `python experiments/ordered_runs.py NAME DIR [--trained-at COMMIT]`.

DIR is a run, say of `loflexmdm train star-mixed-ordered --seed 1 --out DIR`. Its best weights answer test graphs; exact
answers, bounds, calls of the network, curve and order of generation go to experiments/results/ordered_runs.json, with
the recipe."""
import argparse
import json
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.samplers import Samples
from loflexmdm.tasks.base import Task, task_from
from runs import COMMIT, ROOT, bound_of, curve_of, held_out, logged, note

RESULTS = ROOT / "experiments" / "results" / "ordered_runs.json"
GRAPHS, BOUND_GRAPHS, ORDERS = 2000, 256, 16


def answered(task: Task, method: Method, n: int) -> tuple[dict, Samples]:
    "Scores of answers to the first n test graphs and calls of the network for them, and the answers."
    samples = generate(method, task.prompts("test", n), seed=1, record=True)
    scores = {k: round(v, 4) for k, v in task.score("test", samples).items()}
    return scores | dict(calls=samples.network_calls), samples


def arrivals(samples: Samples) -> list[float]:
    "Mean relative arrival, 0 first to 1 last, of the answers' tokens, counted from the end."
    by_place = {}
    for trajectory, free in zip(samples.trajectories, samples.free):
        born = [t for t, is_free in zip(trajectory.inserted_at, free) if is_free]
        span = max(max(born) - min(born), 1)
        for place, t in enumerate(reversed(born)): by_place.setdefault(place, []).append((t - min(born)) / span)
    return [round(sum(v) / len(v), 3) for _, v in sorted(by_place.items())]


def tight(task: Task, method: Method) -> list[float]:
    "The bound with ORDERS orders inside the logarithm, and its standard error over sequences."
    x1 = held_out(task, BOUND_GRAPHS)
    values = method.tight_bound(x1, ORDERS, torch.Generator().manual_seed(1))
    return [round(float(values.mean()), 3), round(float(values.std() / len(values) ** 0.5), 3)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the row")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--trained-at", default=COMMIT, help="commit of the code that trained it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    method = load(args.directory / "best").method
    task = task_from(method.task)
    scores, samples = answered(task, method, GRAPHS)
    seconds = logged(args.directory, "seconds")
    found = dict(bound=bound_of(method, held_out(task, BOUND_GRAPHS), ORDERS), order=arrivals(samples))
    if hasattr(method, "tight_bound"): found["tight"] = tight(task, method)
    recipe = json.loads((args.directory / "run.json").read_text())["recipe"]
    note(RESULTS, dict(
        name=args.name, graphs=GRAPHS, steps=max(seconds), seconds=round(max(seconds.values())), **scores, **found,
        curve=curve_of(args.directory), trained_at=args.trained_at, recipe=recipe,
    ))


if __name__ == "__main__": main()
