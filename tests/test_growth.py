"Growing from left to right: where a fragment is cut, when a substituent is over, and what the packaged model makes."
import math

import pytest
import torch
from rdkit import Chem

from loflexmdm import load
from loflexmdm.molecules.fragments import contains_fragment
from loflexmdm.molecules.growth import (
    Place, divided, first_place, grow, grows_rightwards, linked, with_points, within_branch,
)
from loflexmdm.pretrained import names
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


@pytest.mark.parametrize("fragment, whole", {
    "*c1ccc(*)cc1": "Cc1ccc(C)cc1", "*n1cc(*)nc1*": "Cn1cc(C)nc1C", "*C(*)(*)O": "CC(C)(C)O", "*N(*)CC*": "CN(C)CCC",
    "*=C1CN(*)C1": "CN1CC(=C)C1",
}.items())
def test_points_are_filled_one_after_another(fragment, whole):
    while "*" in fragment:
        place = first_place(fragment)
        fragment = with_points("".join([*place.before, "C", *place.behind]), place.methyls)
    assert Chem.CanonSmiles(fragment) == Chem.CanonSmiles(whole)


@pytest.mark.parametrize("other, side, ways", [
    ("*C1CC1", "CN", {"NC(c1ccncc1)C1CC1", "c1cc(CNC2CC2)ccn1"}), ("*C", "C#N", set()),
    ("*=O", "CN", {"NC(=O)c1ccncc1", "O=NCc1ccncc1"}), ("*n1ccnc1", "C(F)F", {"FC(F)(c1ccncc1)n1ccnc1"}),
])
def test_another_fragment_hangs_on_what_was_grown(other, side, ways):
    place = first_place("*c1ccncc1")
    found = linked("".join([*place.before, side, *place.behind]), place, other)
    assert set(found) == set(map(Chem.CanonSmiles, ways))


def test_an_atom_that_gives_its_explicit_hydrogen_has_none_left():
    place = Place(["C"], [], ())
    assert linked("Cc1c[nH]cc1", place, "*C") == sorted(map(Chem.CanonSmiles, ["Cc1c(C)[nH]cc1", "Cc1c[nH]cc1C",
                                                                               "Cc1cn(C)cc1", "Cc1c[nH]c(C)c1"]))


VOCABULARY = Vocabulary(["c", "C", "=", "1", "(", ")"])
LAW = {"C": 0.3, "=": 0.1, "1": 0.2, ")": 0.3, "end": 0.1}


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
    ("", "", {"C": 1.0}), ("C", "", {"C": 0.375, "=": 0.125, "end": 0.5}),
    ("C(C", "", {"C": 0.375, "=": 0.125, ")": 0.375, "end": 0.125}),
    ("C(C)", "", {"C": 0.375, "=": 0.125, "end": 0.5}), ("", ")cc1", {"C": 1.0}),
    ("C", ")cc1", {"C": 0.375, "=": 0.125, ")": 0.5}),
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
    assert grow(model, [fragment, "*[Si](C)(C)C", "CC", "x", "*C*.*C", "*" + "C" * 80])[1:] == [None] * 5
    assert not grows_rightwards(load("molecules")) and grow(model, []) == []


@packaged
@pytest.mark.parametrize("fragment", ["*c1ccc(*)cc1", "*c1ccncc1.*C1CC1", "*c1cc(*)cc(*)c1"])
def test_the_packaged_model_grows_all_points_and_links(fragment):
    model = load("molecules-moses-ar")
    once, often = (grow(model, [fragment] * 30, tries=tries) for tries in (1, 4))
    kept = [sum(contains_fragment(s, fragment) for s in found if s) for found in (once, often)]
    assert 20 < kept[0] < kept[1] and len(set(often)) > 20
    assert grow(model, [fragment] * 30, tries=4, batch_size=7) == often
    with pytest.raises(ValueError, match="tries=0"): grow(model, [fragment], tries=0)
