"""Searches with the filter of what can be made: `python experiments/search_runs.py --seeds 0 1 2`.

Three objectives, a thousand calls each, from the same fifty training molecules of `molecules`: the default way of
`optimize`, in which a model grows parts anew, beside a genetic algorithm on graphs (crossover and mutation, `Genetic`),
both with the filter and, with seed 0, without it. Of the hundred best molecules: how many the filter would
refuse, and how many have a structural alert (BRENK). Rows go to experiments/results/search_runs.json, and the hundred
best with `--best FOLDER` to files of SMILES."""
import argparse
import time
from pathlib import Path

import torch
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.optimise import CallLog, Genetic, Makeable, RandomSearch, Regrow, alerts, best_calls
from loflexmdm.molecules.optimise import best_curve, optimise, top_auc
from loflexmdm.molecules.scores.makeable import objection
from loflexmdm.molecules.scores.objectives import OBJECTIVES
from loflexmdm.molecules.verbs.optimize import OptimizeOptions
from loflexmdm.support.atomic_files import write_file
from runs import ROOT, note, noted

RESULTS = ROOT / "experiments" / "results" / "search_runs.json"
TASKS, BEST = ("qed", "celecoxib", "albuterol"), 100


def run(task: str, way: str, sound: bool, seed: int, budget: int, model, train: list[str], best: Path | None):
    "Search, and note the row unless it is there."
    name = f"{task} {way} {'sound' if sound else 'free'} {seed}"
    if noted(RESULTS, name, dict(budget=budget)): return
    began, propose = time.process_time(), Regrow(model, 50) if way == "model" else Genetic(50, ranked=True)
    if sound: propose = Makeable(propose)
    start = RandomSearch(train, 50).first(seed)
    log = optimise(lambda smiles: (OBJECTIVES[task](smiles), ""), propose, CallLog(), budget, start, seed)
    found = [call.smiles for call in best_calls(log.calls, BEST)]
    mols = [Chem.MolFromSmiles(smiles) for smiles in found]
    if best is not None: write_file(best / f"{name.replace(' ', '_')}.smi", "\n".join(found) + "\n")
    note(RESULTS, dict(
        name=name, task=task, way=way, filter=sound, seed=seed, budget=budget, calls=len(log.calls),
        top10=round(best_curve(log.scores)[-1], 4), auc=round(top_auc(log.scores, budget), 4),
        refused=sum(bool(objection(mol)) for mol in mols), alerts=sum(bool(alerts(smiles)) for smiles in found),
        start=sum(call.by == "start" for call in best_calls(log.calls, BEST)),
        cpu_seconds=round(time.process_time() - began)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--best", type=Path, help="folder of the hundred best of each run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.best is not None: args.best.mkdir(parents=True, exist_ok=True)
    model, train = load(OptimizeOptions.model), load("molecules").task.smiles("train")
    for seed in args.seeds:
        for sound in (True, False)[:1 + (seed == 0)]:
            for task in TASKS:
                for way in ("model", "genetic"): run(task, way, sound, seed, args.budget, model, train, args.best)


if __name__ == "__main__": main()
