"Several goals in one file: curves at their bounds, every component on a molecule, and one line for what is wrong."
import math
import subprocess
import sys

import pytest
from rdkit import Chem
from rdkit.Chem import QED, Crippen, Descriptors

from loflexmdm.molecules.scores.desirability import DESCRIPTORS, MAKERS, TRANSFORMS, Goal, Goals, read_goals
from loflexmdm.molecules.scores.desirability import double_sigmoid, reverse_sigmoid, sigmoid
from loflexmdm.molecules.scores.desirability import weighted_mean
from loflexmdm.molecules.scores.objectives import Scorer, load_objective
from commands import call, refused

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def write(path, text):
    path.write_text(text)
    return path


def one(component: str, rest: str = "") -> str:
    "A file with a single goal."
    return f"[scoring]\n[[scoring.component]]\n{component}.endpoint = [{{name = 'x', weight = 2{rest}}}]\n"


@pytest.mark.parametrize("x, value", [(1, 1 / (1 + 10**5)), (2, 0.5), (3, 1 / (1 + 10**-5)), (1e9, 1), (-1e9, 0)])
def test_a_sigmoid_and_its_mirror(x, value):
    assert math.isclose(sigmoid(x, 1, 3, 1), value, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(reverse_sigmoid(x, 1, 3, 1), 1 - value, rel_tol=1e-9, abs_tol=1e-12)


def test_a_double_sigmoid_is_a_half_at_both_bounds_and_a_step_without_a_divisor():
    assert [double_sigmoid(x, 200, 500) for x in (200, 500)] == [0.5, 0.5]
    assert [double_sigmoid(x, 2, 5, 0) for x in (1, 3, 4, 6)] == [0, 1, 1, 0]


@pytest.mark.parametrize("component, value", [
    ("QED", QED.qed), ("slogp", Crippen.MolLogP), ("Molecular_Weight", Descriptors.MolWt), ("NumRings", lambda m: 1.0),
    ("HBondDonors", lambda m: 1.0), ("graph-length", lambda m: 6.0), ("NumAtomStereoCenters", lambda m: 0.0)])
def test_descriptors_however_they_are_spelled(component, value, tmp_path):
    goals = read_goals(write(tmp_path / "one.toml", one(component)))
    expected = float(value(Chem.MolFromSmiles(ASPIRIN)))
    assert math.isclose(goals.desirabilities(ASPIRIN)["x"], expected, abs_tol=1e-9)


@pytest.mark.parametrize("component, params, value", [
    ("GroupCount", "{smarts = 'C(=O)O'}", 2), ("MatchingSubstructure", "{smarts = 'N'}", 0.5),
    ("custom_alerts", "{smarts = ['[#8][#8]', 'N']}", 1), ("custom_alerts", "{smarts = 'c'}", 0),
    ("Alerts", "{names = 'PAINS'}", 1), ("TanimotoDistance", f"{{smiles = '{ASPIRIN}'}}", 1),
    ("TanimotoSimilarity", f"{{smiles = ['C', '{ASPIRIN}'], use_counts = false, radius = 2}}", 1)])
def test_measures_with_parameters(component, params, value, tmp_path):
    goals = read_goals(write(tmp_path / "one.toml", one(component, f", params = {params}")))
    assert goals.desirabilities(ASPIRIN)["x"] == value
    assert {component.lower().replace("_", "")} <= {name.lower() for name in MAKERS}


def test_means_by_hand():
    assert math.isclose(weighted_mean([0.25, 1.0], [1, 1]), 0.5)
    assert weighted_mean([0.25, 1.0], [3, 1], "arithmetic") == 0.4375
    assert math.isclose(weighted_mean([0.0, 1.0], [1, 1]), 1e-4)


def test_a_filter_and_a_penalty():
    "A filter that fails makes the score 0, whatever its weight; a penalty multiplies the mean."
    goal = lambda value, role: Goal(role, lambda mol: value, lambda x: x, 1.0, role)
    assert Goals([goal(0.5, "score"), goal(0.0, "filter")])("C") == 0
    assert math.isclose(Goals([goal(0.5, "score"), goal(0.5, "penalty")])("C"), 0.25)
    assert Goals([goal(1.0, "filter")])("C") == 1


def test_a_value_that_is_no_number_fails():
    with pytest.raises(ValueError, match="x: not a number"): Goals([Goal("x", lambda mol: math.nan, float)])("C")
    with pytest.raises(ValueError, match="not a molecule"): Goals([Goal("x", lambda mol: 1.0, float)])("C1CC")


@pytest.mark.parametrize("text, message", [
    ("", "has no table"), ("[scoring]\n", "has no component"), (one("QEDD"), "did you mean 'QED'"),
    (one("QED", ", wieght = 2"), "did you mean 'weight'"),
    (one("QED", ", params = {a = 1}"), "'a': QED has no parameters"),
    (one("GroupCount"), "smarts"), (one("GroupCount", ", params = {smarts = 'c1c'}"), "not a SMARTS pattern"),
    (one("TanimotoDistance", ", params = {smiles = ['C1C']}"), "not a molecule"),
    (one("Alerts", ", params = {names = 'BRENCK'}"), "BRENCK"),
    (one("QED", ", transform = {type = 'steep'}"), "'steep'"),
    (one("QED", ", transform = {type = 'sigmoid', low = 1}"), "missing"),
    (one("QED", ", transform = {type = 'step', low = 'a'}"), "low='a': must be a number"),
    (one("QED", ", transform = 3"), "must be a table"),
    (one("QED").replace("weight = 2", "weight = true"), "weight=True"),
    (one("QED") + one("QED").removeprefix("[scoring]\n"), "used twice"),
    ("[scoring]\ntype = 'max'\n", "type='max'"),
    ("[scoring]\n[[scoring.component]]\nQED = 3\n", "has no [[endpoint]]"), ("[scoring\n", "not valid TOML")])
def test_what_is_wrong_is_said_with_its_place(text, message, tmp_path):
    with pytest.raises(ValueError) as caught: read_goals(write(tmp_path / "wrong.toml", text))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_of_goals_is_an_objective(tmp_path):
    (tmp_path / "mine.py").write_text("def score(smiles): return len(smiles)\n")
    both = one("Function", ", params = {function = 'mine.py:score'}")
    assert load_objective(str(write(tmp_path / "both.toml", both)), allow_code=True)("CCO") == pytest.approx(3)
    for name in ("none.toml", "both.tom"):
        with pytest.raises(ValueError, match="objective="): load_objective(str(tmp_path / name))


@pytest.mark.slow
def test_code_that_a_file_names_runs_only_where_it_is_allowed(tmp_path, monkeypatch):
    "Neither the function, nor modules beside the file that are called like those of Python."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\ndef f(smiles): return 1.0\n"
    for name in ("other/h.py", "tomllib.py", "other/tomllib.py", "numpy.py", "signal.py"): write(tmp_path / name, code)
    write(tmp_path / "goals.toml", one("Function", ", params = {function = 'other/h.py:f'}"))
    write(tmp_path / "leads.smi", "CCO\n")
    command = "optimize --objective goals.toml --way ranked --start leads.smi --budget 1"
    refused(call(command), "--allow-code")
    for make in (load_objective, Scorer):
        with pytest.raises(ValueError, match="allow_code=True"): make("goals.toml")
    with Scorer("qed") as scorer: assert scorer("CCO")[0] == pytest.approx(0.4068, abs=1e-4)
    assert not ran.exists()
    for name in ("tomllib.py", "other/tomllib.py", "numpy.py", "signal.py"): (tmp_path / name).unlink()
    assert call(f"{command} --allow-code")[0] == 0 and ran.exists()


def test_a_process_that_scores_does_not_wait_for_torch():
    script = "import sys, loflexmdm.molecules.scores.objectives; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_weights_that_are_all_zero_are_refused(tmp_path):
    "Their mean would be 0/0; one goal with another weight is enough."
    zero = one("QED").replace("weight = 2", "weight = 0")
    with pytest.raises(ValueError, match=r"weight=0 for every score \(.*\); at least one must be positive"):
        read_goals(write(tmp_path / "zero.toml", zero))
    goal = lambda name, weight: Goal(name, lambda mol: 0.5, lambda x: x, weight)
    assert math.isclose(Goals([goal("a", 0.0), goal("b", 1.0)])("C"), 0.5)


def test_every_descriptor_and_curve_gives_a_number():
    mol = Chem.MolFromSmiles(ASPIRIN)
    assert all(math.isfinite(float(f(mol))) for f in DESCRIPTORS.values())
    assert set(TRANSFORMS) == {"sigmoid", "reverse_sigmoid", "double_sigmoid", "step", "right_step", "left_step"}


def test_the_command_refuses_a_wrong_file_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "wrong.toml", one("QEDD"))
    write(tmp_path / "leads.smi", "CCO\n")
    refused(call("optimize --objective wrong.toml --way ranked --start leads.smi --budget 5"), "did you mean 'QED'")


ENDS = "*c1ccccc1.*N1CCOCC1"


@pytest.mark.parametrize("component, value", [
    ("FragmentNumHeavyAtoms", 3), ("FragmentEffectiveLength", 1), ("fragment_graph_length", 2), ("FragmentNumRings", 0),
    ("FragmentLengthRatio", 50), ("FragmentHBondDonors", 0), ("FragmentNumRotBond", 0), ("FragmentCsp3", 1)])
def test_a_goal_of_the_linker(component, value, tmp_path):
    text = one(component, f", params = {{ends = '{ENDS}'}}")
    goals = read_goals(write(tmp_path / "one.toml", text))
    assert goals.desirabilities("CC(Cc1ccccc1)N1CCOCC1")["x"] == value
    shared = one(component).replace("[scoring]\n", f"[scoring]\nends = '{ENDS}'\n")
    assert read_goals(write(tmp_path / "two.toml", shared)).desirabilities("CC(Cc1ccccc1)N1CCOCC1")["x"] == value
    with pytest.raises(ValueError, match="no linker between the ends"): goals("CCO")
    with pytest.raises(ValueError, match="needs params.ends"): read_goals(write(tmp_path / "no.toml", one(component)))
    other = one(component, f", params = {{ends = '{ENDS}', endz = 1}}")
    with pytest.raises(ValueError, match="endz"): read_goals(write(tmp_path / "other.toml", other))


def test_stages_count_one_after_the_other():
    called = []
    goal = lambda name, value, stage: Goal(name, lambda mol: called.append(name) or value, lambda x: x, stage=stage)
    low, high = goal("low", 0.25, 1), goal("high", 0.75, 1)
    assert Goals([low, goal("next", 0.5, 2)])("C") == 0.125 and called == ["low"]
    assert Goals([high, goal("next", 0.5, 2)])("C") == 0.75 and called[1:] == ["high", "next"]
    assert Goals([high, goal("next", 0.5, 2)], pass_at=0.8)("C") == 0.375
    with pytest.raises(ValueError, match="weight=0"): Goals([high, low._replace(stage=2, weight=0.0)])


@pytest.mark.parametrize("rest, message", [(", stage = 0", "stage=0"), (", stage = true", "stage=True")])
def test_stages_that_are_refused(rest, message, tmp_path):
    with pytest.raises(ValueError, match=message): read_goals(write(tmp_path / "stage.toml", one("QED", rest)))
    text = one("QED").replace("[scoring]\n", "[scoring]\npass_at = 2\n")
    with pytest.raises(ValueError, match="pass_at=2"): read_goals(write(tmp_path / "pass.toml", text))
