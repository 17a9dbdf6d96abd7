"Tasks of edits: repair of any task's sequences, edits of molecules, and the commands on them."
import csv
import functools
import itertools
import json
import math
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rdkit import Chem

from loflexmdm.cli.commands import run_line
from loflexmdm.models.pretrained import load
from loflexmdm.models.saved import save_method
from loflexmdm.molecules.data import matched_pairs
from loflexmdm.molecules.data.matched_pairs import MatchedPairs, fill_core, prepare_pairs
from loflexmdm.molecules.data.matched_pairs import same_molecule, smiles_tokens
from loflexmdm.molecules.edit_task import Edited, MoleculeEditsTask, edit_figures, judge_edits, kept_tokens
from loflexmdm.process.states import Vocabulary, collate
from loflexmdm.reports.comparison import compare
from loflexmdm.samplers import Samples, TauLeaping
from loflexmdm.tasks.base import fewest_edits, kept_places, task_from
from loflexmdm.tasks.repair import parts
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import recipe_from
from stored_models import stored

torch.set_num_threads(1)
BRACKETS = dict(kind="repair", settings="kinds = 2, max_pairs = 3", errors=2)
MODEL = dict(method="editflow", coupling="pairs", size="nano")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))


def as_samples(task, rows): return Samples([task.vocabulary.encode(r) for r in rows], [[True] * len(r) for r in rows])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "A directory with a short training on pairs."
    folder = tmp_path_factory.mktemp("runs")
    (folder / "r.toml").write_text(
        '[task]\nkind = "repair"\nsettings = "kinds = 2, max_pairs = 3"\nerrors = 2\n[model]\nmethod = "editflow"\n'
        'coupling = "pairs"\nsource = "shown"\nsize = "nano"\n[train]\nsteps = 4\nbatch_size = 8\nsave_every = 2\n'
        'valid_every = 2\nvalid_size = 8\nvalid_samples = 2\n'
    )
    code, _, said = run_line("loflexmdm train r.toml --out run", folder)
    assert code == 0, said
    return folder


@pytest.mark.slow
def test_a_run_on_pairs_goes_on_and_is_evaluated(run):
    weights = load(run / "run").method.state_dict()
    shutil.rmtree(checkpoints(run / "run")[-1])  # as if it had been stopped on the way
    assert run_line("loflexmdm resume run", run)[0] == 0
    torch.testing.assert_close(load(run / "run").method.state_dict(), weights, rtol=0, atol=0)
    code, out, said = run_line("loflexmdm evaluate run -n 12 --nll 2 --sampler tau --steps 4 --out figures.json", run)
    assert code == 0, said
    figures = json.loads((run / "figures.json").read_text())["figures"]
    assert figures["n"] == 12 and {"exact", "correct", "edits", "distance_to_correct", "nll_bound"} <= figures.keys()
    code, _, said = run_line("loflexmdm evaluate run -n 4 --min-length 3", run)
    assert code == 2 and "min_length=3" in said


@pytest.mark.slow
def test_edit_accounts_for_every_row_of_the_input(run):
    (run / "in.csv").write_text("\ufefftext,id\n([),1\n(a),2\n,3\n()[],4\n")
    line = "loflexmdm edit run --input in.csv -n 2 --keep 1 --sampler tau --steps 4 --out out.csv"
    code, _, said = run_line(line, run)
    assert code == 0 and "6 rows" in said
    rows = list(csv.DictReader((run / "out.csv").open()))
    assert [r["line"] for r in rows] == ["2", "2", "3", "4", "5", "5"]
    assert [r["state"].startswith("skipped") for r in rows] == [False, False, True, True, False, False]
    assert all(r["text"][0] == r["input"][0] for r in rows if r["text"])
    assert json.loads((run / "out.csv.run.json").read_text())["n"] == 6


@pytest.mark.parametrize("line, word", [
    ("run --input none.txt", "none.txt"), ("run --input r.toml", "can be edited"),
    ("run --input in.txt --gain 1", "gain"),
    ("run --input in.txt --inputs x", "did you mean"), ("star-tiny --input in.txt", "cannot edit"),
    ("run --input bad.txt", "none of 1 rows"), ("run --input in.txt --column a", "not a table"),
])
def test_edit_refuses_in_one_line(run, line, word):
    (run / "in.txt").write_text("([)\n")
    (run / "bad.txt").write_text("xyz\n")
    code, out, said = run_line(f"loflexmdm edit {line}", run)
    assert code == 2 and word in said and not out


@pytest.mark.slow
def test_compare_takes_a_task_of_edits(tmp_path):
    model = '[model]\nmethod = "editflow"\ncoupling = "pairs"\nsize = "nano"\n'
    (tmp_path / "r.toml").write_text('[task]\nkind = "repair"\n' + model)
    options = dict(steps=2, calls=[4], samplers=[TauLeaping(steps=4)], n=4, states=2, progress=False, valid_size=4)
    found = compare(str(tmp_path / "r.toml"), ["editflow"], [0], tmp_path / "runs", **options)
    assert found.rows and all("correct" in row["scores"] and row["n"] == 4 for row in found.rows)


def test_each_number_of_errors_is_as_frequent_and_held_out_pairs_stay():
    task = task_from(BRACKETS)
    data, again = task.dataset("test"), task_from(task.as_dict()).dataset("test")
    assert [data[i] for i in range(9)] == [again[i] for i in range(9)]
    data = task.dataset("train")
    intact = sum(data[i].source == data[i].target for i in range(900))
    assert 0 <= (intact - 300) / 200**0.5 < 12  # a third has no error, and errors may undo each other or change nothing
    assert all(len(data[i].source.tokens) > 1 for i in range(300))  # something is left to be edited


def test_a_text_comes_again_with_other_errors_and_a_model_needs_no_file(tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(f"line {i} of {i * i}" for i in range(40)))
    settings = f"file = '{tmp_path / 't.txt'}', unit = 'characters'"
    task = task_from(dict(kind="repair", inner="text", settings=settings, least=1))
    data, n = task.dataset("train"), task.sizes()["train"]
    first, again = ({tuple(data[i].target.tokens): data[i].source for i in range(k * n, (k + 1) * n)} for k in (0, 1))
    assert first.keys() == again.keys() and first != again
    (tmp_path / "t.txt").unlink()
    stored = task_from(task.as_dict())
    assert stored.vocabulary == task.vocabulary and stored.max_length == task.max_length
    assert "".join(stored.edits.source("line 7 of 49")) == "line 7 of 49"


def test_score_of_a_repaired_star_path():
    task = task_from(dict(kind="repair", inner="star", least=1, errors=2))
    pairs = [task.dataset("test")[i] for i in range(20)]
    truth = Samples([p.target.tokens[1:] for p in pairs], [[not f for f in p.target.fixed[1:]] for p in pairs])
    figures = task.score("test", truth)
    assert figures["exact"] == figures["correct"] == 1 and figures["exact_before"] < 1
    assert figures["edits"] == figures["distance"] > 0
    assert all(parts(p.source, task.vocabulary)[0] == parts(p.target, task.vocabulary)[0] for p in pairs)


def test_places_to_keep():
    assert kept_places(4, "2-3") == [False, True, True, False]
    for text in ("0", "5", "3-2", "a", ""):
        with pytest.raises(ValueError, match="places from 1 to 4"): kept_places(4, text)


def leads_file(path: Path) -> Path:
    "Rings with one of several substituents each, and two rows without a partner."
    rings = ("c1ccc({})cc1", "c1ccnc({})c1", "C1CCN({})CC1", "c1ccc2cc({})ccc2c1", "O=C(N{})c1ccccc1", "c1cc({})cs1")
    pieces = ("C", "CC", "CCO", "C(F)(F)F", "CC(=O)O", "CCN", "C(C)C", "CCOC")
    rows = [ring.format(piece) for ring in rings for piece in pieces] + ["C1CC", "CCCCCCCCC"]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def leads(tmp_path):
    return dict(kind="molecule-edits", source=str(leads_file(tmp_path / "leads.smi")), gain=0.01, test_share=0.2)


def test_pairs_are_split_by_molecule_and_counted(leads):
    task = task_from(leads)
    trained = {task.found.smiles[i] for m in task.matched["train"] for i in m[:2]}
    assert trained and task.leads("test") and not trained & {*task.leads("test"), *task.leads("valid")}
    assert all(task.gain_of(m) >= 0.01 for found in task.matched.values() for m in found)
    left_out = task.rejections()
    assert left_out["molecule unparsable"] == 1 and left_out["molecule without a partner"] >= 1
    assert sum(n for r, n in left_out.items() if r.startswith("pair ") and r != "pair not reversible") + sum(
        task.sizes().values()
    ) == 2 * len(task.found.pairs)


def test_every_spelling_of_a_pair_is_the_pair(leads):
    task = task_from(leads)
    for m in task.matched["train"][:60]:
        for start in (None, 1, 4):
            pair = task.pair(m, start)
            texts = ["".join(task.vocabulary.decode(e.tokens[1:])) for e in pair]
            assert all(same_molecule(t, task.found.smiles[i]) for t, i in zip(texts, m[:2]))
    x = collate([task.dataset("train")[i] for i in range(4)])
    assert x.x0.tokens.shape[0] == 4


def test_other_spellings_of_a_lead_are_the_lead(leads):
    task = task_from(leads)
    for lead in task.leads("train")[:10]:
        assert all(same_molecule("".join(task.edits.source(lead, k)), lead) for k in range(6))
    assert any(task.edits.source(lead, k) != task.edits.source(lead) for k in range(1, 6))
    narrow = task_from(task.as_dict() | dict(tokens=" ".join(dict.fromkeys(task.edits.source(lead)))))
    assert same_molecule("".join(narrow.edits.source(lead, 3)), lead)
    with pytest.raises(ValueError, match="not a molecule: syntax"): task.edits.source("C1CC")


def test_pairs_come_from_the_cache_and_damage_is_repaired(leads, monkeypatch, tmp_path):
    first = prepare_pairs(leads["source"])
    [path] = (tmp_path / "cache").rglob("*.pairs-*.json")
    with monkeypatch.context() as m:
        m.setattr(matched_pairs, "build_pairs", lambda *_: pytest.fail("made again"))
        assert prepare_pairs(leads["source"]) == first
    path.write_text("[")
    assert prepare_pairs(leads["source"]) == first and isinstance(first, MatchedPairs)


def test_joining_moves_ring_numbers_and_drops_empty_branches():
    assert fill_core("c1ccc(*)cc1", "c1ccncc1") == "c1ccc(c2ccncc2)cc1"
    assert fill_core("c1ccc(*)cc1", "") == "c1ccccc1" and fill_core("*c1ccccc1", "CC") == "CCc1ccccc1"


def test_what_is_kept_of_a_molecule():
    lead = smiles_tokens("CCN(C)c1ccc(C(=O)Nc2ccccc2)cc1")
    shown = lambda f: "".join(t if k else "." for t, k in zip(lead, kept_tokens(lead, f)))
    assert shown("C(=O)N") == "............C(=O)N............"
    assert shown("NC(=O)c1ccccc1").replace(".", "") == "c1ccc(C(=O)N)cc1"
    for fragment in ("", "C1CC", "Cl"):
        with pytest.raises(ValueError, match="keep="): kept_tokens(lead, fragment)


def test_figures_of_edits(leads):
    three = judge_edits(["Oc1ccccc1"] * 3, ["c1ccc(O)cc1", "Nc1ccccc1", None])
    assert [e.state for e in three] == ["unchanged", "valid", "undecodable"] and isinstance(three[0], Edited)
    figures = edit_figures(three, 0.0)
    assert figures["success"] == 1 / 3 and figures["changed"] == 1 / 3 and figures["scaffold_kept"] == 1
    with pytest.raises(ValueError, match="leads"): judge_edits(["C1CC"], ["C"])
    odd = judge_edits(["Oc1ccccc1"] * 3 + ["C[CH]C"], ["[O]c1ccccc1", "[O-]c1ccccc1", "C=[SH]c1ccccc1", "CC[CH]C"])
    assert [e.state for e in odd] == ["radical", "another charge", "hypervalent S-H", "valid"]
    assert [e.smiles for e in odd] == ["", "", "", "C[CH]CC"]
    task = task_from(leads)
    same = [smiles_tokens(s) for s in task.leads("test")]
    assert task.score("test", as_samples(task, same))["edits"] == 0
    assert fewest_edits(same[0], same[0][1:]) == 1


@functools.cache
def edits_by_recursion(a, b):
    "From the definition: the first tokens form a pair, or one of them is deleted or inserted."
    if not a or not b: return len(a) + len(b)
    pair = edits_by_recursion(a[1:], b[1:]) + (a[0] != b[0])
    return min(pair, edits_by_recursion(a[1:], b) + 1, edits_by_recursion(a, b[1:]) + 1)


def test_fewest_edits_of_all_short_pairs():
    words = [w for n in range(5) for w in itertools.product("ab", repeat=n)]
    for a, b in itertools.product(words, words): assert fewest_edits(a, b) == edits_by_recursion(a, b)


def test_pairs_that_change_the_charge_are_left_out(tmp_path):
    (tmp_path / "few.smi").write_text("c1ccccc1CC\nc1ccccc1CO\nc1ccccc1C[NH3+]\n")
    task = task_from(dict(kind="molecule-edits", source=str(tmp_path / "few.smi"), goal="any", valid_share=0,
                          test_share=0))
    used = {s for m in task.matched["train"] for s in (task.found.smiles[m.first], task.found.smiles[m.second])}
    assert used == {"CCc1ccccc1", "OCc1ccccc1"} and task.rejections()["pair that changes the charge"] == 4


def test_leads_are_edited_on_the_command_line(leads, tmp_path):
    recipe = recipe_from(dict(task=leads, model=MODEL))
    save_method(recipe.build()[1].eval(), tmp_path / "model")
    (tmp_path / "in.smi").write_text("Cc1ccccc1 toluene\nC1CC\nCCCCC\n")
    line = "loflexmdm edit model --input in.smi -n 2 --keep c1ccccc1 --sampler tau --steps 4 --out out.csv"
    code, _, said = run_line(line, tmp_path)
    assert code == 0, said
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [r["line"] for r in rows] == ["1", "1", "2", "3"] and rows[0]["lead"] == "Cc1ccccc1"
    assert rows[2]["state"].startswith("skipped: ") and "is not in" in rows[3]["state"]
    assert run_line(line + " --gain 5 --force", tmp_path)[0] == 0
    assert len(list(csv.DictReader((tmp_path / "out.csv").open()))) == 2  # those that could not be read


# ---- the packaged models

@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    "A directory without data, and molecules that must not be read."
    monkeypatch.chdir(tmp_path)
    unread = lambda *a, **k: pytest.fail("data were read")
    monkeypatch.setattr("loflexmdm.molecules.data.matched_pairs.prepare_pairs", unread)


def test_the_packaged_model_of_texts_mends_single_errors(elsewhere):
    model = load("repair-text")
    spoilt = {"the frst argument": "the first argument", "retrun the value": "return the value",
              "a list of sttrings": "a list of strings", "raise an excepton": "raise an exception"}
    edited = model.edit([list(text) for text in spoilt], n=8, generator=torch.Generator().manual_seed(0))
    texts = ["".join(model.vocabulary.decode(s)) for s in edited.sequences]
    likeliest = [Counter(texts[8 * i:8 * i + 8]).most_common(1)[0][0] for i in range(len(spoilt))]
    assert sum(a == b for a, b in zip(likeliest, spoilt.values())) >= 3


def test_the_packaged_model_of_molecules_edits_a_lead_without_data(elsewhere):
    model, lead = load(stored("molecule-edits")), "CCOC(=O)c1ccc(NC(C)=O)cc1"
    task = task_from(model.task)
    tokens = [task.edits.source(lead, k) for k in range(16)]
    edited = model.edit(tokens, generator=torch.Generator().manual_seed(0))
    rows = task.edits.describe(tokens, edited)
    assert sum(row["state"] == "valid" for row in rows) >= 4 and len({row["smiles"] for row in rows}) >= 3
    again = model.edit(tokens[:3], generator=torch.Generator().manual_seed(0))
    assert again.sequences == edited.sequences[:3]


@pytest.mark.parametrize("similarity, gain, success", [(0.4, 0.1, 1), (0.39, 0.1, 0), (0.4, 0.09, 0), (1.0, 2.0, 1)])
def test_a_success_is_at_least_as_similar_and_as_good_as_asked(similarity, gain, success):
    edited = Edited("CCO", "CCN", "valid", 0.5, gain, 0.25, similarity, True)
    lost = Edited("CCO", "", "syntax", *[math.nan] * 4, False)
    figures = edit_figures([edited, lost], 0.1, known=["CCO"])
    assert figures["success"] == success / 2 and figures["validity"] == figures["changed"] == 0.5
    assert (figures["sa_gain"], figures["similarity"], figures["novelty"]) == (0.25, similarity, 1)
    assert edit_figures([edited], 0.1, known=["CCN"])["novelty"] == 0 and math.isnan(edit_figures([lost])["novelty"])


def test_pairs_that_cannot_be_used_are_counted_by_their_reason():
    pairs = dict(train=["ab", "long", "longer"], valid=["odd"], test=["cd"])
    why = dict(long="too long", longer="too long", odd="odd token")
    task = SimpleNamespace(_sorted=(pairs, {"radical": 4}), unusable=why.get)
    rows, left_out = MoleculeEditsTask._usable.func(task)
    assert rows == dict(train=["ab"], valid=[], test=["cd"])
    assert left_out == {"radical": 4, "too long": 2, "odd token": 1}


@pytest.mark.parametrize("smiles, known", [("CCO", True), ("CCN", False), ("C1CO1", False)])
def test_a_smiles_is_known_by_its_tokens(smiles, known):
    task = SimpleNamespace(config=SimpleNamespace(notation="smiles"), vocabulary=Vocabulary(["C", "O"]))
    assert MoleculeEditsTask._is_known(task, smiles) == known


def test_pairs_to_train_on_are_written_from_another_atom_each_time(leads):
    "Of the same two molecules; without `respell` canonically."
    def spelled(**options):
        task = task_from(leads | options)
        text = lambda side: "".join(task.vocabulary.tokens[i] for i in side.tokens[1:])
        data, n = task.dataset(), task.sizes()["train"]
        return [tuple(map(text, data[i])) for i in range(2 * n)]

    respelled, canonical = spelled(), spelled(respell=False)
    pairs = list(zip(respelled, canonical, strict=True))
    assert sum(a != b for a, b in pairs) > len(pairs) / 2
    assert all(Chem.CanonSmiles(one) == Chem.CanonSmiles(other) for a, b in pairs for one, other in zip(a, b))
    assert len(set(respelled)) > len(pairs) * 3 / 4 > len(pairs) / 2 == len(set(canonical))  # each comes twice


def test_what_does_not_fit_is_written_canonically(leads, monkeypatch):
    task = task_from(leads)
    matched = task.matched["train"][0]
    own = [task.pair(matched, start) for start in range(9)]
    monkeypatch.setattr(type(task), "fits", lambda self, tokens: False)
    assert [task.pair(matched, start) for start in range(9)] == [task.pair(matched)] * 9 != own
