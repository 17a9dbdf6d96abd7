"""Optimisation: published objectives by hand, functions that fail, logs that continue, and one line for wrong input."""
import json
import math
import random
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from rdkit import Chem

from loflexmdm.molecules.verbs.optimize import lead_name, progress_printer, read_leads, unsound_note
from loflexmdm.molecules.optimise import MUTATIONS, Call, CallLog, Genetic, PerScaffold, RandomSearch, Regrow
from loflexmdm.molecules.optimise import ScaffoldFilter, Screened, murcko, substructure
from loflexmdm.molecules.optimise import _prompt, alerts, best_calls, best_curve, crossover, join_parts, mutate
from loflexmdm.molecules.optimise import optimise, sound, top_auc
from loflexmdm.molecules.scores import objectives
from loflexmdm.molecules.scores.objectives import OBJECTIVES, Likeness, Scorer, _serve, load_objective
from commands import call, refused

SCORES = """import os, time
print("what a function prints is not a result")
def score(smiles):
    if "Br" in smiles: raise KeyError("bromine")
    if "I" in smiles: os._exit(1)
    if "S" in smiles: time.sleep(30)
    return float("nan") if "F" in smiles else len(smiles)
"""
DRUG = "CC(C)(C)NCC(O)c1ccc(O)c(CO)c1"


@pytest.fixture
def place(tmp_path, monkeypatch):
    "A directory with an objective and leads."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.py").write_text(SCORES)
    (tmp_path / "leads.smi").write_text("CCOc1ccccc1\nNC(=O)c1ccccc1\nC1CC\nCCCCCCO\n")
    return tmp_path


# objectives

@pytest.mark.parametrize("name", OBJECTIVES)
def test_scores_lie_in_0_to_1_and_targets_have_1(name):
    task = OBJECTIVES[name]
    assert all(0 <= task(s) <= 1 for s in (DRUG, "C", "c1ccccc1", "[Na+].[Cl-]")) and task("x") == task("") == 0
    if isinstance(task, Likeness) and len(task.targets) == 1:
        again = Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(task.targets[0]), 3, 0)
        assert all(task(s) == 1 for s in again)


def test_a_median_is_the_geometric_mean_of_similarities():
    one, other = (Likeness((t,), "ECFP4") for t in OBJECTIVES["median1"].targets)
    for s in ("CC(C)C1CCCCC1O", "CC1CCC(=O)C1"):
        assert math.isclose(OBJECTIVES["median1"](s), math.sqrt(one(s) * other(s)))


def test_similarity_is_satisfied_from_three_quarters_on():
    whole, part = Likeness((DRUG,), "FCFP4"), OBJECTIVES["albuterol"]
    near = "CC(C)NCC(O)c1ccc(O)c(CO)c1"
    assert 0.75 < whole(near) < 1 == part(near) and math.isclose(part("CCNCC(O)C"), whole("CCNCC(O)C") / 0.75)


@pytest.mark.slow
def test_failures_have_reasons_and_the_next_call_works(place):
    with Scorer("scores.py:score", 1.0) as scorer:
        found = [scorer(s) for s in ("CCO", "CBr", "CF", "CI", "CS", "CCCO")]
    assert found[0] == (3.0, "") and found[-1] == (4.0, "") and [v for v, _ in found[1:5]] == [None] * 4
    assert [r.split(" ")[0] for _, r in found[1:5]] == ["KeyError:", "not", "the", "took"]


def test_a_file_may_import_what_lies_beside_it(place):
    (place / "helper.py").write_text("def f(s): return 7\n")
    (place / "mine.py").write_text("from helper import f\ndef score(s): return f(s)\n")
    with Scorer(f"{place / 'mine.py'}:score") as scorer: assert scorer("C") == (7.0, "")


def test_what_lies_beside_a_file_comes_before_what_lies_in_the_working_directory(place):
    (place / "goals").mkdir()
    for file, value in (("helper.py", 7), ("goals/helper.py", 8)):
        (place / file).write_text(f"def f(s): return {value}\n")
    (place / "goals/mine.py").write_text("from helper import f\ndef score(s): return f(s)\n")
    with Scorer("goals/mine.py:score") as scorer: assert scorer("C") == (8.0, "")


def test_a_handle_is_inherited_on_every_system(monkeypatch):
    told = []
    monkeypatch.setattr(objectives.os, "name", "nt")
    monkeypatch.setattr(objectives.os, "set_handle_inheritable", lambda *given: told.append(given), raising=False)
    monkeypatch.setattr(objectives.subprocess, "STARTUPINFO", dict, raising=False)
    options = objectives.inherit(7)
    assert told == [(7, True)] and options == dict(startupinfo=dict(lpAttributeList=dict(handle_list=[7])))
    monkeypatch.undo()
    assert objectives.inherit(7) == dict(pass_fds=[7])



@pytest.mark.parametrize("text, part", [
    ("def score(s:\n", "SyntaxError"), ("raise SystemExit(3)\n", "SystemExit"), ("score = 3\n", "has no function"),
    ("import nothing_of_this_name\n", "ModuleNotFoundError"), ("", "has no function"),
])
def test_objectives_that_cannot_be_loaded(place, text, part):
    (place / "bad.py").write_text(text)
    with pytest.raises(ValueError, match=part): load_objective("bad.py:score")
    refused(call("optimize --objective bad.py:score --way genetic --start leads.smi --budget 3"), part)


# the area under the curve, the log and the rounds

def test_area_by_hand():
    assert top_auc([1.0] * 300, 300) == (50 + 200) / 300
    assert math.isclose(top_auc([0.5] * 50, 100), (50 * 0.25 + 50 * 0.5) / 100)
    assert math.isclose(top_auc([None, 0.3] + [None] * 8, 10, every=100), 0.15)
    assert math.isclose(top_auc([1.0] * 10 + [0.0] * 90, 100), 0.5)  # the ten best, of which none is 0
    assert best_curve([1, None, 3, 2], 2) == [1, 1, 2, 2.5] and top_auc([], 10) == 0


ATOMS = lambda smiles: (float(Chem.MolFromSmiles(smiles).GetNumAtoms()), "")


LISTED = RandomSearch(["C" * k + "O" for k in range(1, 40)], 6)


@pytest.mark.parametrize("propose", [Genetic(8), Genetic(8, ranked=True), LISTED, Screened(Genetic(8))])
def test_killed_runs_go_on_exactly(tmp_path, propose):
    start = ["CCOc1ccccc1", "NC(=O)c1ccccc1", "CCCCCCO"]
    optimise(ATOMS, propose, CallLog(tmp_path / "a"), 30, start, population=5)
    for n in (2, 5, 9, 13, 30):
        calls = iter(range(n))
        def dying(smiles, calls=calls):
            if next(calls, None) is None: raise KeyboardInterrupt
            return ATOMS(smiles)
        try: optimise(dying, propose, CallLog(tmp_path / "b"), 30, start, population=5)
        except KeyboardInterrupt:
            with open(tmp_path / "b", "a") as f: f.write('{"smiles": "C')
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len({c.smiles for c in CallLog(tmp_path / "a").calls}) == 30


def test_a_proposer_with_nothing_new_ends_the_run():
    log = optimise(ATOMS, lambda population, rng: [("CC", "same")], CallLog(), 10, ["CC", "CO"], patience=3)
    assert len(log.calls) == 2


@pytest.mark.parametrize("text", ["x\n", "[]\n", '{"seed": 0}\n{"smiles": "C"}\n', '{"seed": 1}\n'])
def test_other_logs_are_refused(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(ValueError, match="log"): CallLog(tmp_path / "log", dict(seed=0))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_disk_is_said_with_the_name_of_the_log():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"): CallLog("/dev/full", dict(seed=0))


def test_the_best_are_those_with_scores_and_earlier_first():
    calls = [Call(s, v, "", 0, "") for s, v in (("a", 1.0), ("b", None), ("c", 2.0), ("d", 1.0))]
    assert [c.smiles for c in best_calls(calls, 3)] == ["c", "a", "d"]


# the genetic algorithm

@pytest.mark.parametrize("change", MUTATIONS)
def test_every_mutation_can_leave_a_sound_molecule(change):
    found = set()
    for k in range(100):
        mol = Chem.RWMol(Chem.MolFromSmiles(DRUG))
        Chem.Kekulize(mol, clearAromaticFlags=True)
        change(mol, random.Random(k))
        found.add(sound(mol.GetMol()))
    assert len(found - {None, Chem.CanonSmiles(DRUG)}) > 3


def test_children_are_sound_and_come_from_the_generator():
    mol = Chem.MolFromSmiles(DRUG)
    assert mutate(mol, random.Random(1)) == mutate(mol, random.Random(1))
    assert mutate(Chem.MolFromSmiles("C"), random.Random(0)) is None
    assert crossover(mol, Chem.MolFromSmiles("c1ccccc1"), random.Random(0)) is None  # no bond to cut
    a, b = map(Chem.MolFromSmiles, ("*CCO", "*c1ccccc1"))
    assert sound(join_parts(a, b)) == Chem.CanonSmiles("OCCc1ccccc1")
    assert sound(Chem.MolFromSmiles("CC.CC")) is None and sound(Chem.MolFromSmiles("CC")) is None


def electrons(smiles): return sum(a.GetNumRadicalElectrons() for a in Chem.MolFromSmiles(smiles).GetAtoms())


@pytest.mark.parametrize("smiles", ["Cc1ccc([N+](=O)[O-])cc1", "C[C@@H](N)c1ccccc1", "C[n+]1ccccc1CC(=O)[O-]"])
def test_no_mutation_leaves_a_radical_or_another_charge(smiles):
    mol, rng = Chem.MolFromSmiles(smiles), random.Random(0)
    made = [s for s in (mutate(mol, rng) for _ in range(300)) if s]
    assert len(made) > 200 and not sum(map(electrons, made))
    assert {Chem.GetFormalCharge(Chem.MolFromSmiles(s)) for s in made} == {Chem.GetFormalCharge(mol)}


def test_radicals_and_other_charges_are_not_sound():
    radical, ion = map(Chem.MolFromSmiles, ("C[CH]C", "CC(=O)[O-]"))
    assert sound(radical) is None and sound(ion) == "CC(=O)[O-]"
    assert sound(Chem.MolFromSmiles("C[SH]=C")) is None and sound(Chem.MolFromSmiles("CS(C)=O")) == "CS(C)=O"
    assert sound(ion, charges={0, 1}) is None and sound(ion, charges={-1, 0}) == "CC(=O)[O-]"


def test_children_have_the_charge_of_a_parent():
    betaine, acid = map(Chem.MolFromSmiles, ("C[N+](C)(C)CCCC(=O)[O-]", "CCCCC(=O)O"))
    made = [Genetic(mutation=0).child(betaine, acid, random.Random(k)) for k in range(200)]
    assert {Chem.GetFormalCharge(Chem.MolFromSmiles(s)) for s in made if s} == {0} and len(set(made)) > 10


def test_radicals_are_neither_scored_at_the_start_nor_drawn():
    random_search = RandomSearch(["CC[CH2]", "C[SH]=C", "CCC"])
    log = optimise(ATOMS, random_search, CallLog(), 9, ["C[CH]C", "CC[SH]=C", "CCO"], patience=2)
    assert [c.smiles for c in log.calls] == ["CCO", "CCC"]
    with pytest.raises(ValueError, match="start: holds no valid"): optimise(ATOMS, LISTED, CallLog(), 9, ["C[CH]C"])


@pytest.mark.parametrize("propose", [Genetic(8), Genetic(8, ranked=True), LISTED])
def test_a_start_without_scores_says_why(propose):
    fails = lambda smiles: (None, "KeyError: 'bromine'")
    with pytest.raises(ValueError, match="start: no molecule has a score .KeyError: 'bromine'.$"):
        optimise(fails, propose, CallLog(), 20, ["CCO", "CCN"])


# structural alerts

def test_alerts_are_those_of_the_catalogue_named():
    assert alerts("COOC", ["NIH"]) == ["peroxide"] and alerts("CCO") == alerts("COOC", ["PAINS"]) == []
    assert set(alerts("COOC", ["NIH", "BRENK"])) == {"peroxide", "Oxygen-nitrogen_single_bond"}
    with pytest.raises(ValueError, match="alerts='NHI': must be one of PAINS_A, "): Screened(LISTED, ["NHI"])


def test_screened_proposals_are_those_without_an_alert_in_their_order():
    mixed = lambda population, rng: [("COOC", "a"), ("CCO", "b"), ("CC=C=O", "c"), ("CCN", "d")]
    assert Screened(mixed)([], random.Random(0)) == [("CCO", "b"), ("CCN", "d")]


# the command

@pytest.mark.slow
def test_the_command_counts_failures_and_continues(place):
    line = "optimize --objective scores.py:score --way genetic --start leads.smi --children 10 --time-limit 1 --top 2"
    code, out, err = call(f"{line} --budget 12 --out a.jsonl")
    assert code == 0 and out.startswith("smiles,score,by,round,lead,similarity\n") and len(out.splitlines()) == 3
    assert "left out: 1 syntax, the first is line 3 'C1CC'" in err
    first, *rows = map(json.loads, (place / "a.jsonl").read_text().splitlines())
    assert first["objective"] == "scores.py:score" and len(rows) == 12 and rows[0]["by"] == "start"
    assert call(f"{line} --budget 20 --out a.jsonl")[0] == call(f"{line} --budget 20 --out b.jsonl")[0] == 0
    assert (place / "a.jsonl").read_bytes() == (place / "b.jsonl").read_bytes()
    (place / "scores.py").write_text(SCORES + "\n# changed\n")
    refused(call(f"{line} --budget 30 --out a.jsonl"), "other settings", "objective_file")


@pytest.mark.slow
def test_screening_is_a_setting_of_the_run(place):
    line = "optimize --objective scores.py:score --way ranked --start leads.smi --children 10 --time-limit 1"
    assert call(f"{line} --budget 30 --alerts BRENK NIH --out a.jsonl")[0] == 0
    rows = list(map(json.loads, (place / "a.jsonl").read_text().splitlines()[1:]))
    assert len(rows) == 30 and not any(alerts(r["smiles"], ["BRENK", "NIH"]) for r in rows if r["by"] != "start")
    for other in ("", "--alerts BRENK", "--alerts NIH BRENK PAINS"):
        refused(call(f"{line} --budget 40 {other} --out a.jsonl"), "other settings (alerts)")


@pytest.mark.parametrize("options, part", [
    ("--alerts BRENCK", "invalid choice: 'BRENCK'"),
    ("--budget 0", "--budget 0: must be at least 1"), ("--start none.smi", "none of its 1 rows"),
    ("--start nowhere.smi", "no such file"), ("--objective celecoxyb", "did you mean 'celecoxib'"),
    ("--objective scores.py:points", "no function"), ("--time-limit -1", "must be a positive number"),
    ("--out a.csv", "must end in .jsonl"), ("--children 0", "--children 0"),
    ("--scaffold c1ccc", "scaffold='c1ccc'"), ("--scaffold C1CCNCC1", "first molecules contains it"),
    ("--per-scaffold 0", "--per-scaffold 0: must be at least 1"),
    ("--way model --model star-tiny", "molecules"),
    ("--start bromides.smi", "no molecule has a score (KeyError: 'bromine')"),
    ("--start bromides.smi --budget 2", "none of 2 calls gave a score; 2 failed: KeyError: 'bromine'"),
])
def test_wrong_input(place, options, part):
    (place / "none.smi").write_text("C1CC\n")
    (place / "bromides.smi").write_text("CCBr\nCCCBr\n")
    line = "optimize --objective scores.py:score --way genetic --start leads.smi --budget 3"
    refused(call(f"{line} {options}"), part)


def test_radicals_of_a_file_of_leads_are_left_out(tmp_path):
    path = tmp_path / "leads.smi"
    path.write_text("CCO\nC[CH]C\nx\nCCN\n")
    found, remarks, table = read_leads(str(path))
    assert found == ["CCO", "CCN"] and len(table.rows) == 4
    assert "4 records, 3 kept" in remarks and "1 syntax" in remarks and "1 with a flaw (radical" in remarks


def test_parents_are_drawn_by_score_or_by_rank():
    "Scores below 0 have a chance, too."
    asked = []
    rng = SimpleNamespace(choices=lambda population, weights, k: (asked.append(weights), population[:k])[1])
    population = [Call("C" * n, score, "", 0, "start") for n, score in ((1, 2.0), (2, 1.0), (3, -1.0))]
    for ranked in (False, True): assert len(Genetic(2, ranked=ranked).parents(population, rng)) == 2
    assert asked == [[3 + 1e-6, 2 + 1e-6, 1e-6]] * 2 + [[1 / 2, 1 / 3, 1 / 4]] * 2
    Genetic(1).parents(population[:2], rng)
    assert asked[-1] == [2 + 1e-6, 1 + 1e-6]


def test_the_process_of_an_objective_answers_every_call(place, monkeypatch):
    calls, told = iter(["CCO", "CBr", "CF", "C"]), []
    def receive():
        if (smiles := next(calls, None)) is None: raise EOFError
        return smiles
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("loflexmdm.molecules.scores.objectives.signal.signal", lambda *_: None)
    _serve(SimpleNamespace(recv=receive, send=told.append), "scores.py:score")
    assert told == ["", (3.0, ""), (None, "KeyError: 'bromine'"), (None, "not a finite number"), (1.0, "")]


@pytest.mark.parametrize("share, by", [(0.0, "genetic"), (1.0, "model")])
def test_which_share_of_the_proposals_the_model_grows(share, by):
    asked = []
    grow = lambda parts, seed, charges: (asked.append(charges), ["CCC"] * len(parts))[1]
    way = SimpleNamespace(size=20, share=share, part=lambda mol, rng: mol, grow=grow)
    population = [Call(smiles, 1.0, "", 0, "start") for smiles in ("CCOCC", "CCC[NH3+]", "OCCCCN")]
    found = Regrow.__call__(way, population, random.Random(0))
    assert found and {name for _, name in found} == {by}
    assert set(asked[0]) == ({0, 1} if share else set())


@pytest.mark.parametrize("charges, kept", [(None, ["CCC", "CC[NH3+]", None]), ([0, 0, 0], ["CCC", None, None]),
                                           ([0, 1, 1], ["CCC", "CC[NH3+]", None])])
def test_what_is_grown_has_the_charge_asked_for(monkeypatch, charges, kept):
    monkeypatch.setattr("loflexmdm.molecules.optimise.grows_rightwards", lambda method: False)
    written = lambda method, fragments, seed: ["CCC", "CC[NH3+]", None]
    monkeypatch.setattr("loflexmdm.molecules.optimise.grow_by_insertion", written)
    parts = [Chem.MolFromSmiles("C*")] * 3
    assert Regrow.grow(SimpleNamespace(model=SimpleNamespace(method=None)), parts, 0, charges) == kept


@pytest.mark.parametrize("fragment, fits", [("CCC", True), ("CCCC", False)])
def test_a_prompt_has_room_for_the_start_and_two_more_tokens(fragment, fits):
    "Of 6 columns one is the start token's; a prompt of 4 would leave one, and the model nothing to choose."
    model = SimpleNamespace(prompt=list, config=SimpleNamespace(max_length=6))
    assert _prompt(model, fragment) == (list(fragment) if fits else None)


def test_a_fragment_that_a_model_cannot_read_has_no_prompt():
    def prompt(fragment): raise ValueError(fragment)
    assert _prompt(SimpleNamespace(prompt=prompt), "C") is None


def test_a_search_within_the_calls_of_each_scaffold_goes_on_from_its_log(tmp_path):
    "A run that was cut makes the same calls; none of a scaffold more than its share, every molecule with the ring."
    start, length = ["CCOc1ccccc1", "NC(=O)c1ccccc1"], lambda smiles: (float(len(smiles)), "")
    def way(): return PerScaffold(ScaffoldFilter(Genetic(6), "c1ccccc1"), 2)

    path = tmp_path / "run.jsonl"
    whole = optimise(length, way(), CallLog(path), 12, start).calls
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:8]))  # settings, and seven calls
    log = CallLog(path)
    assert len(log.calls) == 7 and optimise(length, way(), log, 12, start).calls == whole
    assert max(Counter(murcko(c.smiles) for c in whole).values()) == 2
    assert all(Chem.MolFromSmiles(c.smiles).HasSubstructMatch(substructure("c1ccccc1")) for c in whole)
    free = optimise(length, Genetic(6), CallLog(), 12, start).calls
    assert max(Counter(filter(None, (murcko(c.smiles) for c in free))).values()) > 2


@pytest.mark.parametrize("text", ["", "c1ccc"])
def test_a_scaffold_that_is_none(text):
    with pytest.raises(ValueError, match="scaffold="): substructure(text)


def test_calls_of_a_scaffold_are_limited_within_a_round_and_over_rounds():
    "Four benzenes and two chains, two calls for each scaffold; then one benzene has been called before."
    rings, chains = ["Cc1ccccc1", "CCc1ccccc1", "CCCc1ccccc1", "CCCCc1ccccc1"], ["CCO", "CCN"]
    way = PerScaffold(lambda population, rng: [(s, "") for s in rings + chains], 2)
    assert [s for s, _ in way([], random.Random(0))] == rings[:2] + chains
    way.learn([Call("Oc1ccccc1", 1.0, "", 0, "start")], 1)
    assert [s for s, _ in way([], random.Random(0))] == rings[:1] + chains


def test_progress_is_told_after_each_hundred_calls_and_at_the_end(capsys):
    tell, log = progress_printer(250), CallLog()

    def said(n: int, score: float | None) -> str:
        log.calls += [Call("C" * (len(log.calls) + i + 1), score, "" if score else "odd", 0, "start") for i in range(n)]
        tell(log)
        return capsys.readouterr().err.strip()

    assert said(99, None) == "" and said(1, None) == "100 of 250 calls: no score, 100 failed"
    assert said(50, 0.25) == ""
    assert said(60, 0.5) == "210 of 250 calls: best 0.5, mean of ten 0.5, 100 failed"
    assert said(40, 0.125).startswith("250 of 250 calls: best 0.5")
    failed = CallLog()
    failed.calls = [Call("C", None, "odd", 0, "start")] * 250
    progress_printer(250)(failed)
    assert capsys.readouterr().err == "", "a run without a score ends with an error"


def test_a_lead_has_its_name_or_the_number_of_its_record():
    named = SimpleNamespace(cell=dict(name="aspirin").get, number=7)
    assert lead_name(named, SimpleNamespace(name="name")) == "aspirin"
    assert lead_name(named, SimpleNamespace(name="id")) == "record 7"


def test_leads_that_would_be_left_out_are_said():
    options = lambda sound: SimpleNamespace(sound=sound, sa_limit=4.5)
    odd, fine = "C1CC2CC12OO", "CCO"
    assert unsound_note([odd, fine], options(False)) == unsound_note([fine], options(True)) == ""
    assert unsound_note([odd, fine, odd],
        options(True)).startswith("--start: scored, but as proposals left out unless --no-sound: 2 ")
