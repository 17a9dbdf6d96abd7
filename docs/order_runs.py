"""Trainings behind the figures on orders: `python docs/order_runs.py TASK SEED... [--steps N] [--entrants NAME...]`.

Every entrant has the same network and as many generator rows per step. Each run adds its curve to nbs/order_runs.json,
with its settings, seed and commit; a run that was interrupted goes on where it stopped."""
import argparse
import json
import time

import torch

from loflexmdm.methods.base import Method
from loflexmdm.pretrained import load
from loflexmdm.recipes import recipe_from
from loflexmdm.states import collate
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.training import checkpoints
from runs import ROOT, note

RESULTS = ROOT / "nbs" / "order_runs.json"
TASKS = dict(
    key=dict(kind="key", n=10, q=4), key_small=dict(kind="key", n=6, q=3),
)
LEARNED = dict(order="learned", order_size="nano", states=2)
OPTIONS = dict(readings="event", centre=True, regulariser=1.0)
ENTRANTS = dict(
    fixed=dict(order="fixed", states=1), given=dict(order="given", given="slots:7,0.6", states=1),
    published=LEARNED, learned=LEARNED | OPTIONS, plain=LEARNED | OPTIONS | dict(plain=0.25),
)
ROWS = 64  # of the generator per step, for every entrant
TRAIN = dict(lr=6e-3, warmup=100, ema=0.99, optimiser="muon", keep=100, valid_size=256)


def judged(task: Task, method: Method, n: int = 500) -> dict[str, float]:
    "Scores of answers to the first n test prompts."
    samples = method.sample(task.prompts("test", n), generator=torch.Generator().manual_seed(0))
    return {k: round(v, 4) for k, v in task.score("test", samples).items()} | dict(calls=samples.network_calls)


def rates(task: Task, method: Method) -> list[float]:
    "Mean insertion rate of each free position of 200 test sequences of one length."
    data = task.dataset("test")
    x1 = collate([data[i] for i in range(200)])
    with torch.no_grad(): b = method.schedule(x1.to(method.device))[0]
    return [round(v, 3) for v in b[x1.free].view(200, -1).mean(0).tolist()]


def train(name: str, entrant: str, seed: int, steps: int):
    "Train an entrant on a task, judge eight checkpoints on the way, and note its curve."
    model = dict(size="nano") | ENTRANTS[entrant]
    recipe = recipe_from(dict(task=TASKS[name], model=model, train=TRAIN | dict(
        steps=steps, seed=seed, batch_size=ROWS // model["states"], save_every=steps // 8, valid_every=steps // 8,
        order_start=steps // 6,
    )))
    directory, start = ROOT / "runs" / f"{name}-{entrant}-{seed}-{steps}", time.process_time()
    recipe.trainer(directory, progress=False).fit(resume=bool(checkpoints(directory)))
    task, spent, curve = task_from(recipe.task), round(time.process_time() - start), []
    logged = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    valid = {r["step"]: r["valid_nll"] for r in logged if "valid_nll" in r}
    for path in checkpoints(directory):
        step, method = int(path.name.split("_")[1]), load(path)
        curve.append(dict(step=step, valid_nll=valid.get(step)) | judged(task, method))
    note(RESULTS, dict(name=f"{name} {entrant} {seed}", task=TASKS[name], model=model, steps=steps, seed=seed,
                       rows=ROWS, cpu_seconds=spent, curve=curve, rates=rates(task, method)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for entrant in args.entrants: train(args.task, entrant, seed, args.steps)


if __name__ == "__main__": main()
