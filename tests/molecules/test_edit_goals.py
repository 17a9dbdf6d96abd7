"Edits towards a goal: charges of acids and bases, limits, and rows that the command leaves out."
import csv
import io

import pytest

from loflexmdm.molecules.edit_goals import EditGoals, charge_of, edit_goals
from commands import call, refused

DICLOFENAC = "OC(=O)Cc1ccccc1Nc1c(Cl)cccc1Cl"


@pytest.mark.parametrize("smiles, charge", [
    (DICLOFENAC, -1), ("CCOC(=O)C", 0), ("NCC(=O)O", 0), ("[O-]C(=O)C", -1), ("CC(=O)NC", 0), ("Nc1ccccc1", 0),
    ("NC(=N)c1ccccc1", 1), ("CS(=O)(=O)O", -1), ("CN1CCNCC1", 2), ("c1nn[nH]n1", -1),
    ("CCN(CC)CC(=O)Nc1c(C)cccc1C", 1)])
def test_charges(smiles, charge): assert charge_of(smiles) == charge


def test_each_goal_is_checked():
    ester = "COC(=O)Cc1ccccc1Nc1c(Cl)cccc1Cl"
    assert edit_goals("keep").objection(DICLOFENAC, ester) == "charge +0"
    assert edit_goals("change").objection(DICLOFENAC, ester) == edit_goals("0").objection(DICLOFENAC, ester) == ""
    assert edit_goals(None, "0:1").objection(DICLOFENAC, ester) == "logP outside the window"
    assert edit_goals(None, None, 0.9).objection(DICLOFENAC, ester) == "similarity below 0.9"
    assert edit_goals() == EditGoals() and EditGoals().objection(DICLOFENAC, ester) == ""


@pytest.mark.parametrize("argv, what", [
    ("--charge same", "keep, change or a whole number"), ("--logp 3:1", "the lower first"),
    ("--logp 3", "the lower first"), ("--similarity 2", "from 0 to 1")])
def test_refusals(argv, what, tmp_path):
    (tmp_path / "leads.smi").write_text(f"{DICLOFENAC}\n")
    refused(call(f"edit lead-edits {argv} --input", tmp_path / "leads.smi"), what)


def test_the_command_writes_edits_that_meet_the_goals(tmp_path):
    (tmp_path / "leads.smi").write_text(f"{DICLOFENAC} diclofenac\n")
    code, printed, said = call("edit lead-edits -n 16 --charge keep --similarity 0.4 --input", tmp_path / "leads.smi")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert code == 0 and rows and "as they miss a goal" in said and "charge +0" in said
    assert all(charge_of(row["smiles"]) == -1 and float(row["similarity"]) > 0.3 for row in rows)
