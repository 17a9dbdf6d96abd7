"""Linkers of drugs and macrocycles by a model of SMILES: `python experiments/link_runs.py MODEL... --seeds 0 1 2`.

For twice ten pairs of ends (`link_cases.toml`): of some draws at the known linker's atoms and rings, how many are as
requested, how many of these differ, if the known linker is among them, and its -log p under the model. For ten
fragments with two points: how many single draws close a ring of the requested size, how many draws of the command,
which tries again, and how many of these differ. Of molecules from nothing: how many are valid. Rows, one of each
model and seed, go to experiments/results/link_runs.json."""
import argparse
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import torch
from rdkit import Chem

from loflexmdm import load
from loflexmdm.models.model import Model
from loflexmdm.molecules.closures import closing_text, closure_request
from loflexmdm.molecules.growth import grows_rightwards
from loflexmdm.molecules.links import ROUTES, LinkRequest, link_nats
from loflexmdm.molecules.notation.fragments import count_atoms
from runs import ROOT, note, noted

RESULTS = ROOT / "experiments" / "results" / "link_runs.json"
CASES = ROOT / "experiments" / "link_cases.toml"


def request_of(linker: str) -> LinkRequest:
    "Return a request for the atoms and rings of a linker."
    mol = Chem.MolFromSmiles(linker)
    atoms, rings = count_atoms(mol), mol.GetRingInfo().NumRings()
    return LinkRequest((atoms, atoms), (rings, rings))


def linked(model: Model, known: Mapping[str, list[str]], n: int, seed: int) -> dict:
    "Draw linkers of each pair by the model's route."
    _, draw = ROUTES[grows_rightwards(model.method)]
    found = {}
    for name, (ends, linker) in known.items():
        drawn = [made for made in draw(model, ends, request_of(linker), n, seed) if made]
        row = dict(requested=len(drawn), different=len({*drawn}), known=drawn.count(Chem.CanonSmiles(linker)))
        if not grows_rightwards(model.method): row |= dict(nats=round(link_nats(model, ends, [linker])[0], 2))
        found[name] = row
    return found


def closed(model: Model, rings: Mapping[str, str], n: int, seed: int) -> dict:
    "Close rings of each fragment."
    found = {}
    for name, fragment in rings.items():
        request = closure_request(fragment)
        smiles = model.sample([closing_text(fragment)], n=n, seed=seed, unique=False).smiles
        good = [s for s in smiles if s and not request.objection(s)]
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
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for place in args.models: run(place, seed, args.n)


if __name__ == "__main__": main()
