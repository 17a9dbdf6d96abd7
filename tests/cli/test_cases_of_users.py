"The commands on inputs that users brought: objectives, replicates, prompts with dots, a tokenizer, stereocentres."
import csv
import io
import runpy
from pathlib import Path

import pytest
from rdkit import Chem

from commands import call, status_of

CASES = Path(__file__).parents[3] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the folder of users' cases is not here")

SEARCH = "optimize --objective {}:{} --way ranked --budget 20 --out calls.jsonl"
FAILS = dict(
    nan="not a finite number", none="NoneType", raises="license server down", exits="the process ended",
    big="not a finite number", inf="not a finite number",
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch): monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILS)
def test_an_objective_without_a_score_ends_in_one_line(name):
    code, out, said = call(SEARCH.format(CASES / "objectives.py", name))
    assert (code, out) == (2, "") and said.count("loflexmdm: ") == 1
    assert "none of 20 calls gave a score; 20 failed: " in said and FAILS[name] in said


@pytest.mark.slow
@pytest.mark.parametrize("name, best", [("prints", None), ("text", 0.5), ("neg", None), ("bool_", 1.0)])
def test_an_objective_whose_values_are_numbers_is_maximised(name, best):
    code, out, said = call(SEARCH.format(CASES / "objectives.py", name))
    scores = [float(row["score"]) for row in csv.DictReader(io.StringIO(out))]
    assert code == 0 and scores == sorted(scores, reverse=True) and "20 of 20 calls" in said
    if best is not None: assert scores[0] == best


@pytest.mark.slow
def test_calls_that_fail_are_counted():
    code, _, said = call(SEARCH.format(CASES / "objectives.py", "some"))
    assert code == 0 and "calls failed: RuntimeError: dock failed" in said


def test_replicates_count_by_their_median_and_are_said():
    code, _, said = call(f"report {CASES / 'replicates.csv'} --by IC50 --out page.html")
    assert code == 0 and "1 of 2 molecules have different values, of which the median counts" in said
    assert "from 1 to 10000 (CCO)" in said


def test_a_data_set_is_read_by_its_column(capsys):
    pytest.importorskip("datasets")
    runpy.run_path(str(CASES / "hf_dataset.py"))
    assert capsys.readouterr().out == "Vocabulary(4 tokens: A C G T)\n"


def test_prompts_with_dots_are_read_as_data_and_said():
    assert call(f"train {CASES / 'rna_dot_bracket.txt'} --steps 2 --batch-size 2 --out run")[0] == 0
    code, said = status_of(f"sample run --prompts {CASES / 'rna_prompts.txt'} -n 1")
    assert code == 0 and "prompts: the first is ((...)) (7 tokens given, open at its end)" in said


def test_a_tokenizer_that_loses_texts_is_refused():
    pytest.importorskip("tokenizers")
    code, _, said = call(
        f"train {CASES / 'tokenizer_texts.txt'} --tokenizer {CASES / 'tokenizer_unk.json'} --steps 2 --out run")
    assert code == 2 and "do not survive the tokenizer" in said


@pytest.mark.slow
def test_a_scaffold_keeps_its_stereocentre():
    code, out, _ = call(f"optimize --objective qed --start {CASES / 'leads_chiral.smi'} --budget 30 "
                        "--scaffold C[C@H](N)c1ccccc1 --model molecules-leads --out calls.jsonl")
    scaffold, rows = Chem.MolFromSmiles("C[C@H](N)c1ccccc1"), list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and rows
    assert all(Chem.MolFromSmiles(row["smiles"]).HasSubstructMatch(scaffold, useChirality=True) for row in rows)
