"""All fillings of two gaps of immune receptors, with their exact probabilities (experiments/receptors.py --enumerate):
numbers of residues sum up, and the sampled KL of models is that of enumeration."""
import itertools
import json
import math
import random
import sys
from pathlib import Path

import pytest
import torch

from loflexmdm.methods.fill_in_the_middle import FillInTheMiddle, FillInTheMiddleConfig
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.process.states import Vocabulary, collate, filled_example

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from known_law import Case, LawEntrant, ListedLaw, MethodEntrant, filled_prompt, score_cases  # noqa: E402

FILE = json.loads((Path(__file__).parents[2] / "experiments" / "results" / "receptor_fillings.json").read_text())
FORWARD = dict(order="left_to_right", orders=1)
MODELS = dict(fim=(FillInTheMiddle, FillInTheMiddleConfig, dict(cut=0.0, gaps=2)),
              insertion=(OrderedInsertion, OrderedInsertionConfig, FORWARD))  # both have exact likelihoods
DRAWN, STEPS, BATCH = 800, 60, 32


def pieces(text: str) -> list:
    "Return a prompt's residues, and `...` at its gaps."
    return [piece for part in text.split("...") for piece in (*part, ...)][:-1]


def fillings_in_order(gaps: int, most: int, residues: str) -> list[tuple]:
    "Return the fillings in the order of the file."
    sizes = [ns for ns in itertools.product(range(most + 1), repeat=gaps) if sum(ns) <= most]
    words = lambda n: itertools.product(residues, repeat=n)
    return [f for ns in sizes for f in itertools.product(*map(words, ns))]


class Enumerated:
    "A prompt of the file with the distribution of its fillings."
    def __init__(self, row: dict):
        self.prompt = pieces(row["prompt"])
        fillings = fillings_in_order(self.prompt.count(...), row["most"], row["residues"])
        self.weights = {f: 10**p if p is not None else 0.0 for f, p in zip(fillings, row["log10_p"], strict=True)}
        self.sizes = {tuple(ns): 10**p for ns, p in row["log10_lengths"]}
        total = math.fsum(self.weights.values())
        self.law = {f: p / total for f, p in self.weights.items() if p}

    def cases(self, n: int, seed: int = 0) -> list[Case]:
        drawn = random.Random(seed).choices(list(self.law), list(self.law.values()), k=n)
        lengths = {}
        for f, p in self.law.items(): lengths[sum(map(len, f))] = lengths.get(sum(map(len, f)), 0) + p
        return [Case("", self.prompt, list(map(list, f)), math.log(self.law[f]), lengths) for f in drawn]


ALL = [Enumerated(row) for row in FILE["prompts"]]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    "A model in float64, trained for some steps on fillings of both prompts."
    cls, config, settings = MODELS[request.param]
    torch.manual_seed(0)
    made = cls(Vocabulary(FILE["prompts"][0]["residues"]), config(size="nano", max_length=25, **settings))
    optimiser = torch.optim.Adam(made.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    rows = [c for e in ALL for c in e.cases(STEPS * BATCH // 2, seed=1)]
    random.Random(0).shuffle(rows)
    for k in range(STEPS):
        batch = [filled_example(c.prompt, c.fillings, made.vocabulary) for c in rows[k * BATCH:(k + 1) * BATCH]]
        made.loss(collate(batch), generator).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return made.double().eval()


@pytest.mark.parametrize("row", ALL)
def test_fillings_of_each_length_sum_to_the_wildcards(row):
    "Sums over residues against the program's own sum, to the digits of the file."
    for ns, p in row.sizes.items():
        found = math.fsum(w for f, w in row.weights.items() if tuple(map(len, f)) == ns)
        assert found == pytest.approx(p, rel=2e-5)


@pytest.mark.parametrize("row", ALL)
@pytest.mark.slow
def test_sampled_kl_is_that_of_enumeration(row, model):
    if row is ALL[0] and model.name != "fim": return  # thousands of fillings take long
    cases = [Case("", row.prompt, list(map(list, f)), math.log(p), {}) for f, p in row.law.items()]
    p = torch.tensor(list(row.law.values()), dtype=torch.float64)
    nll = MethodEntrant(model, states=2).nll(cases)
    exact = float((p * (nll + p.log())).sum())
    assert (-nll).exp().sum() < 1  # fillings that are longer have the rest
    found = score_cases(MethodEntrant(model, states=2), row.cases(DRAWN), 1)
    assert exact > 0.05 and abs(found["kl"] - exact) < 4 * found["kl_se"]


@pytest.mark.parametrize("row", ALL)
def test_the_law_as_an_entrant_has_kl_0(row):
    law = ListedLaw({tuple(filled_prompt(row.prompt, f)): p for f, p in row.law.items()})
    if row.prompt.count(...) > 1: return  # a sequence may be split in two ways
    scores = score_cases(LawEntrant(law), row.cases(5), 50)
    assert abs(scores["kl"]) < 1e-9 and scores["length_tv"] < 2 * scores["length_tv_floor"]
