"Edits towards a goal: charges, properties, changes against the lead, measured columns, functions, rows left out."
import csv
import io
from statistics import fmean

import pytest

from loflexmdm import load
from loflexmdm.cli.answers import Answers
from loflexmdm.molecules.edit_goals import NAMES, EditGoals, charge_of, edit_goals, read_goal, values_of
from loflexmdm.samplers import Samples
from commands import call, refused

DICLOFENAC = "OC(=O)Cc1ccccc1Nc1c(Cl)cccc1Cl"
ESTER = "COC(=O)Cc1ccccc1Nc1c(Cl)cccc1Cl"


@pytest.fixture
def assay(tmp_path):
    "A table whose column counts carbons."
    rows = [f"{'C' * n}O,{n},m{n}" for n in range(1, 21)]
    (tmp_path / "assay.csv").write_text("\n".join(["smiles,pIC50,name", *rows]) + "\n")
    return tmp_path / "assay.csv"


@pytest.mark.parametrize("smiles, charge", [
    (DICLOFENAC, -1), ("CCOC(=O)C", 0), ("NCC(=O)O", 0), ("[O-]C(=O)C", -1), ("CC(=O)NC", 0), ("Nc1ccccc1", 0),
    ("NC(=N)c1ccccc1", 1), ("CS(=O)(=O)O", -1), ("CN1CCNCC1", 2), ("c1nn[nH]n1", -1),
    ("CCN(CC)CC(=O)Nc1c(C)cccc1C", 1)])
def test_charges(smiles, charge): assert charge_of(smiles) == charge


def test_each_goal_is_checked():
    assert edit_goals("charge:keep").objection(DICLOFENAC, ESTER) == "charge:keep"
    assert edit_goals("charge:change").objection(DICLOFENAC, ESTER) == ""
    assert edit_goals("charge:0..0,logp:0..1").objection(DICLOFENAC, ESTER) == "logp:0..1"
    assert edit_goals("similarity:0.9").objection(DICLOFENAC, ESTER) == "similarity:0.9"
    assert edit_goals() == EditGoals() and EditGoals().objection(DICLOFENAC, ESTER) == ""


@pytest.mark.parametrize("name", [name for name in NAMES if name != "similarity"])
def test_every_property_can_be_asked_to_rise_or_to_stay(name):
    before, after = values_of(DICLOFENAC)[name], values_of(ESTER)[name]
    asked = "up" if after > before else "down" if after < before else "keep"
    for word in ("up", "down", "keep"):
        assert (edit_goals(f"{name}:{word}").objection(DICLOFENAC, ESTER) == "") == (word == asked)


@pytest.mark.parametrize("asked, after, met", [
    ("-1", 2.0, True), ("-1", 2.5, False), ("+.5", 3.5, True), ("+.5", 2.5, False), ("2", 2.5, True),
    ("2.6", 2.5, False),
    ("2..", 2.5, True), ("..2", 2.5, False), ("-3..-1", -2.0, True), ("change", float("nan"), True),
    ("up", float("nan"), False)])
def test_changes_and_limits(asked, after, met): assert read_goal(f"logp:{asked}").is_met(3.0, after) is met


@pytest.mark.slow
def test_a_measured_column_guards_edits(assay):
    goals = edit_goals("pIC50:up", str(assay))
    assert goals.objection("CCCO", "CCCCCCCCCCCCO") == "" and goals.objection("CCCCCCCCCCCCO", "CCCO") == "pIC50:up"
    assert "predicted from 20 molecules, with an error of" in goals.remarks[0]


def test_a_function_guards_edits(tmp_path):
    (tmp_path / "mine.py").write_text("def chlorine(smiles): return smiles.count('Cl')\n")
    goals = edit_goals("chlorine:-1", None, f"{tmp_path / 'mine.py'}:chlorine")
    assert goals.objection(DICLOFENAC, DICLOFENAC) == "chlorine:-1"
    assert goals.objection(DICLOFENAC, "OC(=O)Cc1ccccc1Nc1c(Cl)cccc1") == ""


@pytest.mark.parametrize("argv, what", [
    ("--goal charge", "must be NAME:WHAT"), ("--goal logp:3..1", "the lower limit comes first"),
    ("--goal logp:same", "up, down, keep, change"), ("--goal lopg:up", "did you mean 'logp'"),
    ("--goal pIC50:up", "needs measured=TABLE"), ("--function none.py:f --goal f:up", "no such file")])
def test_refusals(argv, what, tmp_path):
    (tmp_path / "leads.smi").write_text(f"{DICLOFENAC}\n")
    refused(call(f"edit lead-edits {argv} --input", tmp_path / "leads.smi"), what)


def test_calls_of_the_app_name_no_files(assay):
    answers = Answers(["lead-edits"])
    for name in ("measured", "function"):
        with pytest.raises(ValueError, match=f"{name}: cannot be set by a call"):
            next(answers.edit("lead-edits", DICLOFENAC, **{name: str(assay)}))


def test_the_command_writes_edits_that_meet_the_goals(tmp_path):
    (tmp_path / "leads.smi").write_text(f"{DICLOFENAC} diclofenac\n")
    code, printed, said = call("edit lead-edits -n 16 --goal charge:keep,similarity:.4 --input", tmp_path / "leads.smi")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert code == 0 and rows and "as they miss a goal" in said and "charge:keep" in said
    assert all(charge_of(row["smiles"]) == -1 for row in rows)
    assert fmean(float(row["similarity"]) for row in rows) > 0.4


def test_solubility_by_hand():
    "Delaney's line for benzene: log P 1.6866, weight 78.114, no rotatable bond, all six atoms aromatic."
    assert values_of("c1ccccc1")["solubility"] == pytest.approx(
        0.16 - 0.63 * 1.6866 - 0.0062 * 78.114 - 0.74, abs=1e-4)


def test_a_row_of_an_edit_by_hand():
    "Phenol to anisole: the lead is canonical, the benzene ring stays, and one token is written."
    task = load("lead-edits").task
    lead = task.edits.source("Oc1ccccc1")
    ids = task.vocabulary.encode(["C", *lead])
    [row] = task.edits.describe([lead], Samples([ids], [[True] * len(ids)]))
    assert (row["lead"], row["smiles"], row["state"], row["scaffold_kept"], row["edits"]) == (
        "Oc1ccccc1", "COc1ccccc1", "valid", 1, 1)
