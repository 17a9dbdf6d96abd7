"""Edits of drugs towards goals about the lead: `python experiments/goal_runs.py --seeds 0 1 2`.

22 drugs, of which two are salts, two have boron and some are longer than the model writes (`goal_drugs.csv`), with
`lead-edits`. The same edits are judged by four goals, each with a similarity of at least .4. For each goal: how many of
the changed valid edits meet it, of how many drugs at least one does, and the mean similarity of those; and which drugs
are refused. Rows, one of each seed, go to experiments/results/goal_runs.json."""
import argparse
import csv
import time

import torch

from loflexmdm import load
from loflexmdm.molecules.data.compounds import standard
from loflexmdm.molecules.edit_goals import edit_goals
from runs import ROOT, note, noted

RESULTS = ROOT / "experiments" / "results" / "goal_runs.json"
DRUGS = ROOT / "experiments" / "goal_drugs.csv"
GOALS = "logp:-1", "solubility:+0.5", "tpsa:-15", "weight:-30"


def edits_of(drugs: dict[str, str], n: int, seed: int, salts: str) -> tuple[list[dict], dict[str, str]]:
    "Edit each drug `n` times. Return the rows, and the reason of each drug that is refused."
    model, rows, refused = load("lead-edits"), [], {}
    for name, smiles in drugs.items():
        found = standard(smiles, salts)
        try: rows += [row | dict(drug=name) for row in model.edit(found.smiles or smiles, n=n, seed=seed).rows()]
        except ValueError as e: refused[name] = str(e).split(";")[0]
    return rows, refused


def share(goal: str, rows: list[dict]) -> dict:
    "Judge edits by a goal."
    goals = edit_goals(f"{goal},similarity:0.4")
    met = [row for row in rows if not goals.objection(row["lead"], row["smiles"])]
    near = [row["similarity"] for row in met]
    return dict(met=len(met), share=round(len(met) / len(rows), 3), drugs=len({row["drug"] for row in met}),
                similarity=round(sum(near) / len(near), 3) if near else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("-n", type=int, default=16, help="edits of each drug")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with DRUGS.open(newline="") as file: drugs = {row["name"]: row["SMILES"] for row in csv.DictReader(file)}
    for seed in args.seeds:
        if noted(RESULTS, f"seed {seed}", dict(n=args.n)): continue
        begun = time.process_time()
        rows, refused = edits_of(drugs, args.n, seed, "largest")
        changed = [row for row in rows if row["state"] == "valid"]
        note(RESULTS, dict(
            name=f"seed {seed}", seed=seed, n=args.n, drugs=len(drugs), refused=refused, edits=len(rows),
            valid_and_changed=len(changed), different=len({(row["drug"], row["smiles"]) for row in changed}),
            goals={goal: share(goal, changed) for goal in GOALS}, cpu_seconds=round(time.process_time() - begun)))


if __name__ == "__main__": main()
