"Growing from left to right: where a fragment is cut, when a substituent is over, and what the packaged model makes."
import math

import pytest
import torch
from rdkit import Chem

from loflexmdm.molecules.fragments import contains_fragment
from loflexmdm.molecules.growth import divided, grow, grows_rightwards, within_branch
from loflexmdm.pretrained import load, names
from loflexmdm.states import BOS, Example, Vocabulary, collate

FRAGMENTS = {  # with a methyl group at the point
    "*c1ccncc1": "Cc1ccncc1", "*C(=O)Nc1ccc(Cl)cc1": "CC(=O)Nc1ccc(Cl)cc1", "*N1CCOCC1": "CN1CCOCC1", "*OCC": "COCC",
    "*=C1CCNCC1": "C=C1CCNCC1",
    "*n1c(C)ccc1C": "Cn1c(C)ccc1C",
    "*CC1CN(C)CC(Cc2ccccc2)C1=O": "CCC1CN(C)CC(Cc2ccccc2)C1=O",
    "*c1nonc1-c1ccc2c(c1)OCO2": "Cc1nonc1-c1ccc2c(c1)OCO2",
    "*[N+](C)(C)C": "C[N+](C)(C)C", "C1CC2CCC1N2*": "C1CC2CCC1N2C",
}
packaged = pytest.mark.skipif("molecules-moses-ar" not in names(), reason="the package holds no such model")


@pytest.mark.parametrize("fragment, whole", FRAGMENTS.items())
def test_a_substituent_between_both_parts_is_at_the_point(fragment, whole):
    before, behind = divided(fragment)
    assert Chem.CanonSmiles("".join([*before, "C", *behind])) == Chem.CanonSmiles(whole)
    assert behind[:1] in ([], [")"])


@pytest.mark.parametrize("fragment", ["c1ccccc1", "*c1ccc(*)cc1", "*CC.*CC", "x", "*"])
def test_what_has_not_one_point_is_refused(fragment):
    with pytest.raises(ValueError): divided(fragment)


VOCABULARY = Vocabulary(["c", "C", "1", "(", ")"])
LAW = {"C": 0.4, "1": 0.2, ")": 0.3, "end": 0.1}


def law_after(written: str, behind: str = "") -> dict[str, float]:
    "What may come after `c1ccc(` and some tokens, where the model's own law is LAW."
    outcomes = [*VOCABULARY.tokens, "end"]
    logits = torch.full((1, 1, len(outcomes)), -torch.inf, dtype=torch.float64)
    for k, p in LAW.items(): logits[..., outcomes.index(k)] = math.log(p)
    tokens = [BOS, *VOCABULARY.encode([*"c1ccc(", *written])]
    x = collate([Example(tokens, [i < 7 for i in range(len(tokens))], [i < 6 for i in range(len(tokens))])])
    found = within_branch(VOCABULARY, [*behind])(logits, x, None).softmax(-1)[0, 0].tolist()
    return {k: round(p, 9) for k, p in zip(outcomes, found) if p}


@pytest.mark.parametrize("written, behind, law", [
    ("", "", {"C": 1.0}), ("C", "", {"C": 0.5, "end": 0.5}), ("C(C", "", {"C": 0.5, ")": 0.375, "end": 0.125}),
    ("C(C)", "", {"C": 0.5, "end": 0.5}), ("", ")cc1", {"C": 1.0}), ("C", ")cc1", {"C": 0.5, ")": 0.5}),
    ("C)", ")cc1", {"c": 1.0}), ("C)c", ")cc1", {"c": 1.0}), ("C)cc", ")cc1", {"1": 1.0}),
    ("C)cc1", ")cc1", {"end": 1.0}),
    ("C)C(C)", ")C(C)c1", {"c": 1.0}),
])
def test_the_end_and_a_closing_parenthesis_are_one_event(written, behind, law): assert law_after(written, behind) == law


@packaged
def test_the_packaged_model_grows_fragments_of_which_prompts_at_the_end_make_little():
    model = load("molecules-moses-ar")
    fragment = "*C(=O)Nc1ccc(Cl)cc1"
    tokens = ["c", "1", "c", "c", "(", "Cl", ")", "c", "c", "c", "1", *"NC(=O)"]
    found = grow(model, [fragment] * 40)
    assert sum(contains_fragment(s, fragment) for s in found) >= 28
    assert sum(s is not None for s in model.sample([[*tokens, ...]] * 40, seed=0).smiles) < 10
    assert grow(model, [fragment, "*[Si](C)(C)C", "*C*", "*" + "C" * 80])[1:] == [None] * 3
    assert not grows_rightwards(load("molecules")) and grow(model, []) == []
