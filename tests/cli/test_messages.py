"Messages that name the cure, and texts of any letters in any locale."
import json
import os
import subprocess
import sys

import pytest
import torch
from commands import call, refused

from loflexmdm.methods.lo_flexmdm import LoFlexMDM
from loflexmdm.methods.sampling import generate
from loflexmdm.models.model import Model
from loflexmdm.process.states import Vocabulary
from loflexmdm.support.registries import nearest
from loflexmdm.training.recipes import recipe


def letters() -> LoFlexMDM:
    torch.manual_seed(0)
    config = LoFlexMDM.Config(size="nano", order="fixed", states=1, max_length=8)
    return LoFlexMDM(Vocabulary("äß中"), config).eval()


def in_c_locale(*argv) -> subprocess.CompletedProcess:
    "A command in a process whose locale has ASCII alone."
    env = os.environ | dict(LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    env.pop("PYTHONIOENCODING", None)
    return subprocess.run([sys.executable, "-m", "loflexmdm", *argv], env=env, capture_output=True)


@pytest.mark.slow
def test_samples_of_any_letters_in_the_c_locale(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Model(letters()).save("mödel")
    shown = in_c_locale("sample", "mödel", "-n", "3", "--device", "cpu")
    saved = in_c_locale("sample", "mödel", "-n", "3", "--device", "cpu", "--out", "s.jsonl")
    assert shown.returncode == saved.returncode == 0, (shown.stderr, saved.stderr)
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text(encoding="utf-8").splitlines()]
    assert shown.stdout.decode("utf-8").splitlines() == [" ".join(row["tokens"]) for row in rows]
    assert set("äß中") & set(shown.stdout.decode("utf-8"))


def test_every_file_is_opened_as_utf_8():
    rule = ["check", "--preview", "--select", "PLW1514", "loflexmdm", "--output-format", "concise"]
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    found = subprocess.run([sys.executable, "-m", "ruff", *rule], cwd=root, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no names beyond UTF-8")
def test_a_name_that_is_not_utf_8(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"m\xff")
    Model(letters()).save(name)
    for command in "sample", "info": refused(call(command, name), "the name is not UTF-8", "rename it")


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_switch_in_quotes(value):
    with pytest.raises(ValueError, match=rf"compile='{value}' \(write it without quotes\): choose one of true, false"):
        recipe("brackets", compile=value)


def test_weights_that_are_not_numbers_name_the_cure():
    method = letters()
    with torch.no_grad():
        for p in method.parameters(): p.fill_(torch.nan)
    with pytest.raises(ValueError, match="the weights or a logits_hook give such values; use an earlier checkpoint"):
        generate(method, n=2, seed=0)


MEANT = {  # command line -> what its refusal suggests
    "optimize --objective qed --calls 500": "--budget", "optimize qed --budget 5": "--objective qed",
    "edit lead-edits leads.csv": "--input leads.csv", "sample star-tiny leads.csv": "--prompts leads.csv",
    "compare brackets mdm": "--methods mdm or --out mdm", "sample star-tiny --output x.csv": "--out",
    "train brackets --out x --learning-rate 3": "--lr", "train brackets --out x --batch 3": "--batch-size",
    "evaluate leads.csv --temp 1": "--temperature", "sample star-tiny --n 3": "-n",
    "report leads.csv --ouput x": "--out",
}


@pytest.mark.parametrize("line", MEANT)
def test_an_unknown_argument_names_the_option_that_is_meant(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.csv").write_text("smiles\nCCO\n")
    refused(call(line), f"(did you mean {MEANT[line]!r}?)")


@pytest.mark.parametrize("line", [
    "edit lead-edits --input CC(=O)O.Cl", "optimize --objective qed --start CC(=O)O.Cl", "report CC(=O)O.Cl",
    "sample molecules-leads --prompts CC(=O)O.Cl", "evaluate CC(=O)O.Cl --model molecules-leads",
])
def test_a_molecule_in_place_of_a_file_is_shown_how_to_become_one(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(line)
    assert code == 2 and not out and err.endswith("is needed, as from echo 'CC(=O)O.Cl' > input.smi\n")
    assert "echo" not in call(line.replace("CC(=O)O.Cl", "nowhere.smi.gz"))[2]


@pytest.mark.parametrize("line", [
    "optimize --objective qed --epochs 5", "report leads.csv other", "info --modle x",
])
def test_an_unknown_argument_without_a_near_one_lists_the_options(line):
    code, out, err = call(line)
    assert code == 2 and not out and "did you mean" not in err and "; allowed: --help, --" in err


def test_what_is_required_is_said_where_no_word_is_too_many():
    refused(call("optimize --alerts BRENK PAINS --budget 5"), "the following arguments are required: --objective")


def test_near_names():
    known = "salts", "budget", "steps", "max_pairs", "out", "train", "tau"
    near = dict(stepz="steps", pairs="max_pairs", output="out", training="train", taw="tau", trian="train")
    assert {name: nearest(name, known) for name in near} == near
    assert [name for name in ("calls", "states", "epochs", "", "x" * 200, "ab") if nearest(name, known)] == []
