"""In which order a model of SMILES with learned orders writes: `python experiments/smiles_order.py DIR`.

DIR is what `experiments/molecules_moses_learned.toml` trains. The rates that the order model gives to each token of 300
molecules that come with the package, and when tokens of 300 samples are decided, go to
experiments/results/smiles_order.json."""
import argparse
import math
from collections import defaultdict
from itertools import islice

import numpy as np
import torch

from loflexmdm import load
from loflexmdm.methods.base import Method
from loflexmdm.molecules.data.sources import embedded_smiles
from loflexmdm.molecules.notation.bracket_safe import tokenize
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.process.states import collate, prefix_example
from loflexmdm.samplers.event_driven import EventDriven
from molecule_orders import decodable, keep, order_table, structure_lead
from runs import COMMIT, ROOT, write_results

RESULTS = ROOT / "experiments" / "results" / "smiles_order.json"
NUMBER = 300


def known_smiles(model: Method, n: int) -> list[str]:
    "Canonical SMILES of the package's molecules that have no other tokens than the model's."
    found = (j.smiles for s in embedded_smiles("wehi") for j in judge([s]) if j.smiles)
    fits = lambda s: len(tokens := tokenize(s)) < 60 and all(t in model.vocabulary.index for t in tokens)
    return [*islice(filter(fits, found), n)]


@torch.no_grad()
def token_rates(model: Method, smiles: list[str]) -> dict[str, list]:
    "For each kind of token, frequent first: how many, both rates, and the spread of their logarithms."
    found = defaultdict(list)
    for s in smiles:
        rates = model.schedule(collate([prefix_example((), tokens := tokenize(s), model.vocabulary)]))
        for t, *pair in zip(tokens, *(b[0, 1:].log().tolist() for b in rates)): found[t].append(pair)
    rows = {t: (len(v), *(math.exp(m) for m in np.mean(v, 0)), *np.std(v, 0)) for t, v in found.items()}
    most = sorted(rows.items(), key=lambda item: -item[1][0])[:14]
    return {t: [n, *(round(float(v), 4) for v in values)] for t, (n, *values) in most}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    model = load(parser.parse_args().directory)
    torch.set_num_threads(1)
    drawn = model.sample(n=NUMBER, sampler=EventDriven(exact=True, top_p=0.7), seed=0, record=True)
    whole = keep(drawn, decodable(drawn, model.vocabulary))
    found = order_table(whole, model.vocabulary, slowest=float(model.method.slowest))
    pair = lambda summary: [round(summary.mean, 4), round(summary.error, 4)]
    lead = [pair(structure_lead(whole, model.vocabulary, event)) for event in ("inserted", "unmasked")]
    times = {kind: [pair(found.times[kind]), pair(found.ranks[kind])] for kind in found.times}
    row = dict(tokens=token_rates(model.method, known_smiles(model.method, NUMBER)), samples=len(drawn), molecules=len(whole),
               times=times, lead=lead, commit=COMMIT)
    write_results(RESULTS, row)


if __name__ == "__main__": main()
