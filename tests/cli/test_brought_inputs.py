"Calls of the kinds that users brought: values of other types, isotopes, a book in one line, gaps new to a model."
import random

import numpy as np
import pytest
import torch

from loflexmdm import load
from commands import call, status_of

SUBJECTS, VERBS = ("the cat", "a dog", "my friend", "our team"), ("sees", "likes", "finds")
OBJECTS = "the red ball", "a small box", "the long road"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_values_of_other_types():
    state = torch.get_rng_state()
    model = load("molecules-leads")
    assert torch.equal(state, torch.get_rng_state())
    assert len(model.sample("*c1ccncc1", n=np.int64(2), seed=1).smiles) == 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert len(model.sample("*c1ccncc1", n=2, seed=1).smiles) == 2
    with pytest.raises(ValueError, match=r"sequences\[1\]=nan: is missing"):
        model.score(["CCO", float("nan")], states=2)
    assert len(model.score("CCO", states=2).nats) == 1


@pytest.mark.slow
def test_isotopes_of_ends_are_in_the_molecules():
    code, out, said = call("link *c1ccc([2H])cc1.*N1CCOCC1 -n 2 --rounds 2")
    lines = [line for line in out.splitlines() if "[2H]" in line]
    assert code == 0 and len(lines) == 2, said


def test_a_book_in_one_line_is_told_with_a_cure(place):
    (place / "book.txt").write_text(" ".join(f"word{i}" for i in range(3000)))
    code, said = status_of("train book.txt --steps 2 --out run")
    assert code == 2 and "one" in said and said.count("loflexmdm: ") == 1


@pytest.mark.slow
def test_gaps_that_training_did_not_have_are_said(place):
    rng = random.Random(0)
    rows = [" ".join(map(rng.choice, (SUBJECTS, VERBS, OBJECTS))) for _ in range(60)]
    (place / "grammar.txt").write_text("\n".join(rows) + "\n")
    assert call("train grammar.txt --method fim --steps 2 --size nano --batch-size 4 --out run --infill 0.5")[0] == 0
    model = load("run")
    for prompt, told in ("the cat ... ball", False), ("the cat ... the ... ball", True), ("... sees ... box", True):
        assert any("gap" in note for note in model.sample([prompt], n=1, seed=3).notes) == told
