"""A masked model turned into FlexMDM, on phrases: `python experiments/retrofit_runs.py SEED... [--steps N]`.

The masked model of experiments/method_runs.py is trained on as FlexMDM for a quarter of its steps, all weights or
adapters alone, beside FlexMDM from random weights with as many steps. Each model adds its bound along training and at
the end, and the scores of its samples, to experiments/results/retrofit_runs.json, with settings, seed and commit."""
import argparse
import time
from functools import partial

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.retrofit import merge, parameter_counts, retrofit
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import recipe_from
from loflexmdm.training.trainer import Trainer
from method_runs import CORPORA, HELD_OUT, SAMPLES, STATES, TRAIN, sampled, tables
from runs import ROOT, bound, curve_of, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "retrofit_runs.json"
ALL = CORPORA["text"]["steps"]
STARTS = dict(scratch=None, all_weights=partial(retrofit, adapters=False), adapters=retrofit)


def masked_model(seed: int) -> tuple[Method, int]:
    "The masked model that is the start, and the CPU seconds of its training."
    model, _, spent = trained(tables("text", "masked", seed, ALL, TRAIN["lr"]), f"text masked {seed} {ALL}")
    return model, spent


def trainer_of(arm: str, settings: dict, name: str, masked: Method) -> Trainer:
    "A trainer as the recipe has it, of the model that the arm starts from."
    recipe, start = recipe_from(settings), STARTS[arm]
    task, method = recipe.build()
    if start is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.train.seed)
            method = start(masked)
    directory = ROOT / "runs" / name.replace(" ", "-")
    return Trainer(method, task.dataset("train"), recipe.train, directory, task.dataset("valid"), progress=False)


def run(arm: str, seed: int, steps: int):
    "Train one arm, measure, and note."
    settings, name = tables("text", "flexmdm", seed, steps, TRAIN["lr"]), f"{arm} {seed} {steps}"
    if noted(RESULTS, name, settings): return
    masked, before = masked_model(seed)
    trainer = trainer_of(arm, settings, f"retrofit {name}", masked)
    trainer.clock, counts = time.process_time, parameter_counts(trainer.method)
    model = merge(trainer.fit(resume=bool(checkpoints(trainer.directory))).method)
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, arm=arm, seed=seed, steps=steps, trained=counts[0], total=counts[1],
                       cpu_seconds=round(trainer.seconds), masked_cpu_seconds=before if STARTS[arm] else 0, **settings,
                       curve=curve_of(trainer.directory), bound=bound(task, model, HELD_OUT, STATES), samples=SAMPLES,
                       **sampled(task, model)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--arms", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--steps", type=int, default=ALL // 4, help="of training as FlexMDM")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for arm in args.arms: run(arm, seed, args.steps)


if __name__ == "__main__": main()
