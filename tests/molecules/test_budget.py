"Work on a fragment is bounded before it begins: its length, its spellings and its drawing."
import time
from types import SimpleNamespace

import pytest
from rdkit import Chem

from loflexmdm.cli.structure_editor import ATOMS, to_molfile
from loflexmdm.models.pretrained import load
from loflexmdm.molecules.links import grown_links, link_prompts
from loflexmdm.molecules.notation.fragments import parse_fragment
from loflexmdm.molecules.notation.linkers import two_ends
from loflexmdm.molecules.notation.substructures import substructure
from loflexmdm.molecules.notation.notations import WRITTEN, check_length, smiles_prompts, up_to_point
from loflexmdm.molecules.rules import Linker

LONG = "C" * 14_999 + "*"
METHOD = SimpleNamespace(config=SimpleNamespace(max_length=64))


@pytest.mark.parametrize("text", [LONG, f"<any> {LONG}", "C" * 14_999])
def test_a_long_fragment_is_refused_before_it_is_spelled(text):
    task = load("molecules-moses-ar").task
    start = time.process_time()
    with pytest.raises(ValueError, match="fragment=.*has 14,999 atoms; the model writes at most 63 tokens"):
        task.prompts_for(text.removeprefix("<any> "), METHOD)
    assert time.process_time() - start < 3


@pytest.mark.parametrize("route", [lambda: link_prompts(METHOD, f"{LONG[4:]}.*CC"),
                                   lambda: grown_links(SimpleNamespace(method=METHOD), Linker(f"{LONG[4:]}.*CC"), 1)])
def test_long_ends_are_refused_before_they_are_spelled(route):
    start = time.process_time()
    with pytest.raises(ValueError, match="has 14,997 atoms; the model writes at most 63 tokens"): route()
    assert time.process_time() - start < 3


@pytest.mark.parametrize("read", [parse_fragment, substructure, two_ends])
def test_many_rings_are_refused_before_they_are_found(read):
    start = time.process_time()
    with pytest.raises(ValueError, match="more than 1,000 rings; LOFLEXMDM_MAX_RINGS|neither SMILES") as told:
        read("*" + "C1CC" * 3000)
    assert time.process_time() - start < 3 and len(str(told.value)) < 400


def test_a_fragment_is_as_long_as_the_model_writes():
    check_length("*" + "C" * 63, 64)
    check_length("*c1ccccc1*", 7)
    with pytest.raises(ValueError, match="has 64 atoms; the model writes at most 63"): check_length("*" + "C" * 64, 64)
    with pytest.raises(ValueError, match="has 6 atoms"): check_length("*c1ccccc1*", 6)


@pytest.mark.parametrize("atoms", [20, 136, 137, 400, 1200])
def test_spellings_are_within_a_budget_of_atoms(monkeypatch, atoms):
    "The writer is called once per start; the atoms of all calls are within the budget."
    calls = []
    write, some = Chem.MolToSmiles, Chem.MolToRandomSmilesVect
    monkeypatch.setattr(Chem, "MolToSmiles", lambda mol, **rest: calls.append(1) or write(mol, **rest))
    monkeypatch.setattr(Chem, "MolToRandomSmilesVect",
                        lambda mol, n, **rest: calls.extend([1] * n) or some(mol, n, **rest))
    mol = Chem.MolFromSmiles("C" * (atoms - 1) + "*")
    found = up_to_point(mol)
    assert found and all(text[-1] == "*" for text in found)
    assert len(calls) * atoms <= WRITTEN and len(calls) >= min(atoms - 1 + 100, WRITTEN // atoms // 2)


def test_small_fragments_have_all_their_spellings():
    mol = Chem.MolFromSmiles("*c1ccc(CN)cc1")
    rooted = [Chem.MolToSmiles(mol, rootedAtAtom=i) for i in range(1, 9)]
    random = list(Chem.MolToRandomSmilesVect(mol, 100, randomSeed=1))
    assert up_to_point(mol) == list(dict.fromkeys(t for t in rooted + random if t[-1] == "*" != t[0]))
    assert smiles_prompts("*CCN")[0][-1] is ...


def test_a_drawing_has_few_atoms():
    assert to_molfile("C" * ATOMS).count("\n") > ATOMS and to_molfile("C" * (ATOMS + 1)) == ""
    start = time.process_time()
    assert to_molfile("C" * 1500) == "" and time.process_time() - start < .1


def test_isotopes_of_ends_are_kept_though_no_model_writes_them(monkeypatch):
    from loflexmdm.molecules import links
    seen = []
    drawn = lambda models, rule, *rest: seen.append(rule.ends) or [("[1*]C[2*]", "insertion")]
    monkeypatch.setattr(links, "_round", drawn)
    monkeypatch.setattr(links, "check_fills", lambda method, what: None)
    monkeypatch.setattr(links, "grows_rightwards", lambda method: True)
    model = [SimpleNamespace(method=None)]
    [link] = links.links(model, "*c1ccc([2H])cc1.*N1CCO[13CH2]C1", 1)
    assert seen == ["*c1ccccc1.*N1CCOCC1"]
    assert link.smiles == Chem.CanonSmiles("[2H]c1ccc(CN2CCO[13CH2]C2)cc1")
    [link] = links.links(model, "*c1ccccc1.*N1CCOCC1", 1)
    assert seen[1] == "*c1ccccc1.*N1CCOCC1" and link.smiles == Chem.CanonSmiles("c1ccc(CN2CCOCC2)cc1")
