"""Rings that close between the two points of a fragment, in both routes and through every door."""

import pytest
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.closures import (
    Chain, _with_open_ring, bonds_of, closing_parts, closing_text, closure_request, ring_size,
)
from loflexmdm.molecules.notation.notations import symbols
from loflexmdm.molecules.notation.substructures import keeps_fragment
from commands import call

META = "*CCc1cccc(C*)c1"
CHIRAL = "*C(=O)N1C[C@H](O)C[C@H]1C(=O)N*"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["molecules-leads", "molecules-moses-ar"])
def test_rings_have_the_requested_size(name):
    found = load(name).sample([closing_text(META, "12-15")], n=12, seed=3).smiles
    kept = [s for s in found if s and 12 <= ring_size(s, META) <= 15]
    assert len(kept) > 9 and len(set(kept)) > 7


@pytest.mark.slow
def test_stereocentres_are_kept_and_batches_change_nothing():
    model, text = load("molecules-leads"), closing_text(CHIRAL)
    found = model.sample([text], n=8, seed=1)
    assert found.sequences == model.sample([text], n=8, seed=1, batch_size=3).sequences
    assert sum(keeps_fragment(s, CHIRAL) for s in found.smiles if s) > 5


def test_every_spelling_is_the_same_molecule():
    texts = {Chem.CanonSmiles("".join([*a, *"CCCCCC", *b])) for a, b in closing_parts(CHIRAL)}
    assert len(texts) == 1 and len(closing_parts(CHIRAL)) > 3


@pytest.mark.parametrize("text, ways", [
    ("*CO*", ["C1O|1"]), ("C(*)OC*", ["C1OC|1"]), ("C(=O)(*)N*", ["C1(=O)N|1"]), ("CC(F)(*)CN(*)C", ["CC1(F)CN(|1)C"]),
    ("*c1ccc(*)cc1", ["c12ccc(|2)cc1"]), ("OC*CN*", []), ("C(O*)N*", []), ("C1CC1(*)O*", ["C1CC12O|2"]),
    ("*[C@H](F)*", ["[C@@H]1(F)|1", "[C@H]1(F)|1"]), ("*[C@@H](F)*", ["[C@@H]1(F)|1", "[C@H]1(F)|1"]),
])
def test_a_ring_opens_at_the_first_point_and_closes_at_the_second(text, ways):
    assert ["|".join(map("".join, parts)) for parts in _with_open_ring(symbols(text))] == ways


def test_bonds_of_tokens():
    known = {"C": 4, "[C@@H]": 3, "[NH3+]": 1, "[N+]": 4, "[O-]": 1, "[nH]": 2, "c": 3, "F": 1, "[n+]": 3, "[S@@]": 6}
    assert {t: bonds_of(t) for t in known} == known


@pytest.mark.parametrize("text", ["CC(=O)NC", "c1ccccc1C", "C1CCN(C)C1", "c1ccc2c(c1)CCN2", "C(F)(F)C", "C=CC", "C#CC"])
def test_real_linkers_may_be_written(text):
    tokens = symbols(text)
    refused = [k for k, t in enumerate(tokens) if not Chain(tokens[:k]).allows(t, 12)]
    assert not refused and Chain(tokens).may_end(1, 12)


@pytest.mark.parametrize("fragment, size, what", [
    ("*CC", "", "two points"), ("*CC.C*", "", "two points"), (META, "4", "--ring-size 4"), (META, "x", "--ring-size x"),
    (META, "18-12", "--ring-size 18-12"),
])
def test_refusals(fragment, size, what):
    with pytest.raises(ValueError, match=what.replace("*", ".")): closure_request(fragment, size)


@pytest.mark.slow
def test_the_command_means_the_same_as_python():
    argv = "sample molecules-leads --close --ring-size 12-15 -n 4 --seed 2 --fragment"
    code, printed, said = call(argv, META)
    rows = load("molecules-leads").sample([closing_text(META, "12-15")], n=4, seed=2).rows()
    found = [row["smiles"] for row in rows if row["state"] == "valid"]
    assert code == 0 and "a ring of 12 to 15 atoms closes" in said
    assert [line for line in printed.splitlines() if line in found] == found != []


@pytest.mark.parametrize("argv, what", [
    ("sample molecules-leads --close", "close=True: is for a fragment"),
    (f"sample molecules-leads --fragment {META} --ring-size 12", "only with close"),
    (f"sample molecules --fragment {META} --close", "a ring is closed by models"),
])
def test_the_command_refuses(argv, what):
    code, _, said = call(argv)
    assert code == 2 and what in said


@pytest.mark.parametrize("text, allowed",
[("CC", True), ("CC(", False), ("CC=", False), ("CCF", False), ("CC(C)", False)])
def test_a_ring_opens_after_an_atom_that_has_a_bond_left(text, allowed):
    assert Chain(symbols(text))._allows_ring("1") is allowed
