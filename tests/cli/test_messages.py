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
