"Substructures as they are drawn: in searches, locked fragments and grown molecules."
import json

import pytest
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.edit_task import kept_tokens
from loflexmdm.molecules.data.matched_pairs import fill_core, piece_text, single_cuts, smiles_tokens
from loflexmdm.molecules.notation.substructures import contains, join_parts, keeps_fragment, with_stereo
from loflexmdm.molecules.optimise import ScaffoldFilter, Regrow, split_at
from commands import call, refused

LEADS = [
    "C[C@H](N)c1ccc(Cl)cc1", "C[C@H](NC(C)=O)c1ccccc1", "C[C@H](NCCO)c1ccc(F)cc1",
    "C[C@H](NC(=O)CCN1CCOCC1)c1ccccc1", "C[C@@H](N)c1ccccc1",
]
CENTRE = "C[C@H](N)c1ccccc1"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("model", ["molecules-leads", "molecules-moses-ar"])
@pytest.mark.slow
def test_every_proposal_keeps_the_scaffold_as_drawn(tmp_path, monkeypatch, model, seed):
    "Also those of a model that has no tokens for stereochemistry."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.smi").write_text("\n".join(LEADS))
    line = f"optimize --objective qed --model {model} --start leads.smi --budget 40 --children 20 --seed {seed}"
    code, _, said = call(line, "--scaffold", CENTRE)
    assert code == 0 and "kept as drawn, with 1 stereocentre, 1 written hydrogen" in said
    rows = [json.loads(line) for line in open("optimize.jsonl")][1:]
    query = Chem.MolFromSmiles(CENTRE)
    assert {row["by"] for row in rows} >= {"start", "model"}
    assert all(Chem.MolFromSmiles(row["smiles"]).HasSubstructMatch(query, useChirality=True) for row in rows)


def test_grown_sides_keep_their_centres():
    "Without any filter: what a flat model grows from a side has the side's configuration."
    parts = [Chem.MolFromSmiles("*N[C@@H](C)c1ccccc1")] * 8
    grown = [s for s in Regrow(load("molecules-moses-ar")).grow(parts, 0) if s]
    assert len(grown) >= 5 and all("@" in s for s in grown)
    assert all(contains(s, CENTRE) for s in grown)


def test_a_scaffold_keeps_its_written_hydrogen():
    holding = ScaffoldFilter(lambda population, rng: [], "c1ccc2[nH]ncc2c1")
    assert holding.keeps("Cc1ccc2[nH]ncc2c1") and not holding.keeps("Cc1ccc2n(C)ncc2c1")


def test_a_scaffold_in_no_lead_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.smi").write_text(LEADS[4])
    answer = call("optimize --objective qed --way ranked --start leads.smi --budget 3", "--scaffold", CENTRE)
    refused(answer, "contains it as drawn", "stereocentres and written hydrogens")


def test_locked_fragments_are_those_that_are_drawn():
    tokens = smiles_tokens("C[C@H](N)c1ccccc1")
    assert sum(kept_tokens(tokens, "C[C@H](N)c1ccccc1")) == len(tokens)
    with pytest.raises(ValueError, match="as it is drawn"): kept_tokens(tokens, "C[C@@H](N)c1ccccc1")


def test_a_fragment_with_an_inverted_centre_is_altered():
    fragment = "*[C@H](C)c1ccccc1"
    assert keeps_fragment("N[C@H](C)c1ccccc1", fragment) and not keeps_fragment("N[C@@H](C)c1ccccc1", fragment)
    assert keeps_fragment("NC(C)c1ccccc1", fragment)  # of a model without stereochemistry, which says so


def test_matched_pairs_keep_every_centre():
    "Each single cut of the leads, put together again, is the lead."
    for lead in LEADS:
        for core, piece in single_cuts(lead):
            whole = fill_core(core, piece_text(piece))
            assert Chem.CanonSmiles(whole) == Chem.CanonSmiles(lead)


def test_cut_and_join_is_the_identity():
    for lead in LEADS:
        mol = Chem.MolFromSmiles(lead)
        for bond in mol.GetBonds():
            if bond.IsInRing() or bond.GetBondTypeAsDouble() != 1: continue
            joined = Chem.MolToSmiles(join_parts(*split_at(mol, [bond.GetIdx()])))
            assert Chem.CanonSmiles(joined) == Chem.CanonSmiles(lead)


def test_a_molecule_without_the_part_is_unchanged():
    mol = Chem.MolFromSmiles("CCO")
    assert with_stereo(mol, Chem.MolFromSmiles("*[C@H](C)c1ccccc1")) is mol
