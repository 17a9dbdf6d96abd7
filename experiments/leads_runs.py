"""What a model of SMILES that inserts makes of held-out molecules: `python experiments/leads_runs.py DIR LEADS.smi`.

From nothing; from each of `LEADS.smi`, molecules that it was not trained on, with a link or free branches to be
generated, and with a gap of any place and length in their canonical text. Shares of valid and of different molecules,
of those that are the lead again, and CPU seconds go to experiments/results/leads_runs.json.

`--data FILE` compares the molecules from nothing with as many of the training data: radicals, and the Frechet ChemNet
distance to others of the file, of the samples and of the data (the floor). Needs the wheel fcd_torch."""
import argparse
import random
import time
from pathlib import Path

import torch

from loflexmdm import load
from loflexmdm.methods.base import Method
from loflexmdm.models.model import Model
from loflexmdm.molecules.notation.linkers import draw_cut, link_cuts, spell_link
from loflexmdm.molecules.notation.notations import Span, free_branches, given_and_closed, random_smiles
from loflexmdm.molecules.notation.notations import symbols
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.samplers.event_by_event import EventByEvent
from loflexmdm.tasks.sequences import stretch
from rdkit import Chem
from moses_figures import activations, frechet, gaussian
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "leads_runs.json"
DE_NOVO, EACH = 2000, 4  # molecules from nothing, and of each lead


def gap(lead: str, rng: random.Random) -> tuple[str, list[Span]]:
    "A gap of any place and length in the canonical text."
    return lead, [stretch(len(symbols(lead)), rng)]


def branches(lead: str, rng: random.Random) -> tuple[str, list[Span]]:
    "Free branches of a random text."
    text = random_smiles(Chem.MolFromSmiles(lead), rng)
    return text, free_branches(symbols(text), rng)


def link(lead: str, rng: random.Random) -> tuple[str, list[Span]]:
    "A link between its ends, if the lead has one that can be written."
    mol = Chem.MolFromSmiles(lead)
    cuts = link_cuts(mol)
    spelled = spell_link(mol, draw_cut(cuts, rng), rng) if cuts else None
    return (spelled[0], [spelled[1]]) if spelled else (lead, [])


HOLES = dict(link=link, branches=branches, gap=gap)


def prompt_of(tokens: list[str], holes: list[tuple[int, int]]) -> list:
    "The given tokens, `...` in place of each hole."
    fixed, _ = given_and_closed(tokens, holes)
    starts = {a for a, _ in holes}
    prompt = []
    for i, token in enumerate([*tokens, None]):
        if i in starts: prompt.append(...)
        if token is not None and fixed[i + 1]: prompt.append(token)
    return prompt


def prompts_of(leads: list[str], kind: str, method: Method) -> list[tuple[str, list]]:
    "Each lead that the model has tokens for with a prompt of it, `EACH` times."
    found = []
    for number, lead in enumerate(leads):
        for k in range(EACH):
            rng = random.Random(f"{kind} {number} {k}")
            text, holes = HOLES[kind](lead, rng)
            tokens = symbols(text)
            is_known = method.vocabulary.index.keys() >= {*tokens} and len(tokens) < method.config.max_length
            if holes and is_known: found.append((lead, prompt_of(tokens, holes)))
    return found


def drawn_lines(path: Path, n: int) -> list[str]:
    "The first words of `n` lines of a file, drawn at random."
    lines = path.read_text().splitlines()
    return [Chem.CanonSmiles(line.split()[0]) for line in random.Random(0).sample(lines, n)]


def radicals(smiles: list[str]) -> float:
    "The share of molecules with an unpaired electron."
    has_radical = lambda mol: any(a.GetNumRadicalElectrons() for a in mol.GetAtoms())
    return round(sum(has_radical(Chem.MolFromSmiles(s)) for s in smiles) / len(smiles), 5)


def beside_data(smiles: list[str], data: list[str]) -> dict:
    "Radicals and distance of valid samples, and of as many molecules of the data, from the rest of the data."
    known, others = data[:len(smiles)], data[len(data) // 2:]
    reference = gaussian(activations(others))
    distance = lambda found: round(frechet(*gaussian(activations(found)), *reference), 3)
    shares = dict(radicals=radicals(smiles), radicals_of_data=radicals(known))
    return shares | dict(fcd=distance(smiles), floor=distance(known))


def figures(model: Model, prompts: list, leads: list[str], n: int, top_p: float, data: list[str]) -> dict:
    "What came of prompts; of none, `n` molecules from nothing, beside those of `data` if there are any."
    start = time.process_time()
    samples = model.sample(prompts or None, n=None if prompts else n, seed=1, sampler=EventByEvent(top_p=top_p))
    seconds = time.process_time() - start
    smiles = [j.smiles for j in judge(["".join(model.vocabulary.decode(s)) for s in samples.sequences])]
    valid = [s for s in smiles if s]
    share = lambda count: round(count / len(smiles), 4)
    row = dict(n=len(smiles), valid=share(len(valid)), different=round(len({*valid}) / max(len(valid), 1), 4))
    if leads: row |= dict(lead_again=share(sum(a == b for a, b in zip(smiles, leads))))
    if data and not leads: row |= beside_data(valid, data)
    return row | dict(ms_per_sample=round(1000 * seconds / len(smiles), 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="of the model, or its name")
    parser.add_argument("leads", type=Path)
    parser.add_argument("--data", type=Path, help="SMILES of the training data, one per line")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, name = load(args.directory), f"{Path(args.directory).name}, {args.leads.stem},"
    leads = [Chem.CanonSmiles(line.split()[0]) for line in args.leads.read_text().splitlines() if line.strip()]
    data = drawn_lines(args.data, 2 * DE_NOVO) if args.data else []
    for top_p in (1.0, 0.9):
        found = figures(model, [], [], DE_NOVO, top_p, data)
        note(RESULTS, dict(name=f"{name} from nothing, p = {top_p}", **found))
        for kind in HOLES:
            originals, prompts = zip(*prompts_of(leads, kind, model.method))
            found = figures(model, list(prompts), list(originals), 0, top_p, data)
            note(RESULTS, dict(name=f"{name} {kind}, p = {top_p}", leads=len({*originals}), **found))


if __name__ == "__main__": main()
