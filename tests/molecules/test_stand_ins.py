"Leads that a model cannot write as a whole are edited in a core, and the part comes back."
import pytest
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.notation.substructures import contains
from loflexmdm.molecules.stand_ins import Core, core_of, rejoin
from commands import call

BORTEZOMIB = "CC(C)C[C@@H](B(O)O)NC(=O)[C@H](Cc1ccccc1)NC(=O)c1cnccn1"
LONG = "CC(C)c1c(C(=O)Nc2ccccc2)c(-c2ccccc2)c(-c2ccc(F)cc2)n1CC[C@@H](O)C[C@@H](O)CC(=O)Nc1ccc(OCCN2CCOCC2)cc1"


@pytest.fixture(scope="module")
def model(): return load("lead-edits")


@pytest.mark.parametrize("lead", [BORTEZOMIB, LONG])
def test_edits_keep_the_part_and_are_compared_with_the_whole_lead(model, lead):
    tokens, locked = model.lead(lead)
    found = model.edit(lead, n=4, seed=0)
    assert isinstance(tokens, Core) and sum(locked) == 1
    assert f"{tokens.part} (kept" in model.task.omissions(lead)
    assert all(row["lead"] == Chem.CanonSmiles(lead) for row in found.rows())
    assert [row["smiles"] or None for row in found.rows()] == found.smiles and any(found.smiles)
    assert all(contains(smiles, "B(O)O") for smiles in found.smiles if smiles and lead == BORTEZOMIB)


def test_variants_have_other_cores_and_the_stand_in_is_locked(model):
    cores = [model.lead(LONG, k)[0] for k in range(6)]
    assert len({tuple(core) for core in cores}) > 1
    assert all(sum(model.task.edits.locked_tokens(core)) == 1 == core.count("I") for core in cores)
    assert not any(model.lead("CCO")[1])


@pytest.mark.parametrize("made, whole", [
    ("Ic1ccccc1", "OB(O)c1ccccc1"), ("c1ccccc1", None), ("Ic1ccccc1I", None), ("Ic1cccc", "Ic1cccc"), (None, None),
])
def test_a_part_comes_back_once_or_not_at_all(made, whole): assert rejoin(made, "*B(O)O") == whole


def test_a_lead_with_iodine_has_no_stand_in(): assert core_of("CCc1ccc(I)cc1", lambda tokens: True) is None


@pytest.mark.slow
def test_the_command_says_which_part_is_kept(tmp_path):
    (tmp_path / "leads.smi").write_text(f"{BORTEZOMIB} bortezomib\n")
    code, _, said = call("edit lead-edits -n 2 --input", tmp_path / "leads.smi", "--out", tmp_path / "a.csv")
    assert code == 0 and "(kept as it is)" in said
