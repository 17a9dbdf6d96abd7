"""Runs behind the figures on optimisation: `python docs/optimise_runs.py SEED... [--tasks NAME...] [--ways NAME...]`.

Each way gets the same molecules to start from and the same number of calls. A run adds its curve to
nbs/optimise_runs.json, with its settings, seed and commit; one that was interrupted goes on where it stopped."""
import argparse
import time
from collections import Counter

import torch

from loflexmdm.molecules.objectives import OBJECTIVES
from loflexmdm.molecules.optimise import (
    CallLog, Genetic, Proposer, RandomSearch, Regrow, best_calls, best_curve, optimise, top_auc,
)
from loflexmdm.pretrained import load
from runs import ROOT, note

RESULTS = ROOT / "nbs" / "optimise_runs.json"
TASKS = "celecoxib", "qed", "median1", "albuterol", "troglitazone", "thiothixene", "mestranol", "median2"
WAYS = "random", "genetic", "model"
BUDGET, POPULATION, CHILDREN, EVERY = 1000, 50, 50, 50


def proposer(way: str, method, train: list[str]) -> Proposer:
    "Who proposes molecules."
    if way == "random": return RandomSearch(train, CHILDREN)
    return Genetic(CHILDREN) if way == "genetic" else Regrow(method, CHILDREN)


def run(task: str, way: str, seed: int, budget: int, method, train: list[str], model: str):
    "One run, noted with its curve, areas, best molecules and who proposed the ten best."
    settings, began = dict(task=task, way=way, seed=seed, model=model if way == "model" else ""), time.process_time()
    folder = ROOT / "runs" / "optimise"
    folder.mkdir(parents=True, exist_ok=True)
    log = CallLog(folder / f"{task}-{way}-{model}-{seed}.jsonl", settings)
    start = RandomSearch(train, POPULATION).first(seed)
    score = lambda smiles: (OBJECTIVES[task](smiles), "")
    optimise(score, proposer(way, method, train), log, budget, start, seed, POPULATION)
    best, scores = best_calls(log.calls, 10), log.scores
    note(RESULTS, settings | dict(
        name=f"{task} {way} {seed}" + (f" {model}" if way == "model" and model != "molecules" else ""), budget=budget,
        calls=len(scores), auc=round(top_auc(scores, budget), 4),
        curve=[round(v, 4) for v in best_curve(scores)[::EVERY]],
        best=[[c.smiles, round(c.score, 4)] for c in best[:3]], top10=round(sum(c.score for c in best) / len(best), 4),
        proposed=dict(Counter(c.by for c in best)), cpu_seconds=round(time.process_time() - began),
    ))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--model", default="molecules", help="grows parts anew, and has the training molecules")
    args = parser.parse_args()
    torch.set_num_threads(1)
    method = load(args.model)
    train = method.task_object.smiles("train")
    for task in args.tasks:
        for way in args.ways:
            for seed in args.seeds: run(task, way, seed, args.budget, method, train, args.model)


if __name__ == "__main__": main()
