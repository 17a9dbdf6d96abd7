"""Linkers of drugs and macrocycles by a model of SMILES: `python experiments/link_runs.py MODEL... --seeds 0 1 2`.

For pairs of ends (`link_cases.toml`): of some draws at the known linker's atoms and rings, how many are as requested,
how many of these differ, if the known linker is among them, and its -log p under the model. With `--different`, draws
go on until as many differ, four times as many at most, and the row has the place of the known linker among those that
differ (0: it is not among them). For ten fragments with two points: how many single draws close a ring of the
requested size, how many draws of the command, which tries again, and how many of these differ. Of molecules from
nothing: how many are valid. Rows, one of each model and seed, go to experiments/results/link_runs.json."""
import argparse
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rdkit import Chem

from loflexmdm import load
from loflexmdm.models.model import Model
from loflexmdm.molecules.closures import closing_text, closure_request
from loflexmdm.molecules.growth import grows_rightwards
from loflexmdm.molecules.links import ROUTES, link_nats
from loflexmdm.molecules.notation.fragments import count_atoms
from loflexmdm.molecules.rules import Linker
from runs import ROOT, note, noted

RESULTS = ROOT / "experiments" / "results" / "link_runs.json"
CASES = ROOT / "experiments" / "link_cases.toml"


def rule_of(ends: str, linker: str) -> Linker:
    "Return the rule of two ends with the atoms and rings of a linker."
    mol = Chem.MolFromSmiles(linker)
    atoms, rings = count_atoms(mol), mol.GetRingInfo().NumRings()
    return Linker(ends, (atoms, atoms), (rings, rings))


def linked(model: Model, known: Mapping[str, list[str]], n: int, seed: int) -> dict:
    "Draw linkers of each pair by the model's route."
    _, draw = ROUTES[grows_rightwards(model.method)]
    found = {}
    for name, (ends, linker) in known.items():
        drawn = [made for made in draw(model, rule_of(ends, linker), n, seed) if made]
        row = dict(requested=len(drawn), different=len({*drawn}), known=drawn.count(Chem.CanonSmiles(linker)))
        if not grows_rightwards(model.method): row |= dict(nats=round(link_nats(model, ends, [linker])[0], 2))
        found[name] = row
    return found


def place(model: Model, ends: str, linker: str, n: int, seed: int) -> dict:
    "Draw linkers until the known one comes or `n` differ, in rounds that grow; tell its place among them."
    _, draw = ROUTES[grows_rightwards(model.method)]
    known, found, drawn = Chem.CanonSmiles(linker), {}, 0
    for k, size in enumerate((n // 4, n - n // 4, n, 2 * n)):
        for made in draw(model, rule_of(ends, linker), size, seed + 1000 * k):
            if known in found or len(found) == n: break
            drawn += 1
            if made: found.setdefault(made, len(found) + 1)
        if known in found or len(found) == n: break
    return dict(place=found.get(known, 0), different=len(found), draws=drawn)


def run_different(name_of_model: str, group: str, seeds: Sequence[int], n: int):
    "Look for the known linkers of a group among different ones, and note it, unless the rows are there."
    model, cases = load(name_of_model), tomllib.loads(CASES.read_text())[group]
    names = {seed: f"{Path(name_of_model).name}, different {group} {seed}" for seed in seeds}
    left = [seed for seed in seeds if not noted(RESULTS, names[seed], dict(n=n))]
    found, begun = {seed: {} for seed in left}, time.process_time()
    for key, case in cases.items():
        for seed in left: found[seed][key] = place(model, *case, n, seed)
        print(key, {seed: found[seed][key] for seed in left}, flush=True)
    for seed, rows in found.items():
        note(RESULTS, dict(name=names[seed], n=n, seed=seed, found=sum(case["place"] > 0 for case in rows.values()),
                           places=rows, cpu_seconds_of_all_seeds=round(time.process_time() - begun)))


def closed(model: Model, rings: Mapping[str, str], n: int, seed: int) -> dict:
    "Close rings of each fragment."
    found = {}
    for name, fragment in rings.items():
        request = closure_request(fragment)
        smiles = model.sample([closing_text(fragment)], n=n, seed=seed, unique=False).smiles
        good = [s for s in smiles if s and not request.reason(s)]
        found[name] = dict(requested=len(good), different=len({*good}))
    return found


def de_novo(model: Model, n: int, seed: int) -> dict:
    "Draw molecules from nothing."
    smiles = [s for s in model.sample(n=n, seed=seed).smiles if s]
    return dict(valid=round(len(smiles) / n, 4), different=round(len({*smiles}) / n, 4))


def run(place: str, seed: int, n: int):
    "Draw, measure and note, unless the row is there."
    name = f"{Path(place).name} {seed}"
    if noted(RESULTS, name, dict(n=n)): return
    model, cases, begun = load(place), tomllib.loads(CASES.read_text()), time.process_time()
    row = dict(name=name, n=n, seed=seed, links=linked(model, cases["known"], n, seed))
    row |= dict(second=linked(model, cases["second"], n, seed))
    row |= dict(rings=closed(model, cases["rings"], n, seed), from_nothing=de_novo(model, 5 * n, seed))
    note(RESULTS, row | dict(cpu_seconds=round(time.process_time() - begun)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="names or directories")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("-n", type=int, default=200, help="draws of each case")
    parser.add_argument("--different", nargs="*", default=[], help="groups of pairs: draw until that many differ")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.models:
        for group in args.different: run_different(name, group, args.seeds, args.n)
        for seed in args.seeds if not args.different else (): run(name, seed, args.n)


if __name__ == "__main__": main()
