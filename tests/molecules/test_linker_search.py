"Searches for a linker: both ends stay in every call, and what cannot be is refused in a line."
import json
import random
from types import SimpleNamespace

import pytest

from loflexmdm.molecules import linker_search
from loflexmdm.molecules.linker_search import BetweenEnds, Relink
from loflexmdm.molecules.notation.linkers import linker_of, with_linker
from loflexmdm.molecules.optimise import Call
from loflexmdm.molecules.rules import Linker
from commands import call, refused

ENDS = "*c1ccccc1.*N1CCOCC1"


@pytest.mark.parametrize("way", ["model", "genetic"])
@pytest.mark.slow
def test_every_call_has_both_ends(way, tmp_path):
    out = tmp_path / "log.jsonl"
    code, printed, said = call("optimize --objective qed --budget 24 --children 6 --population 8 --top 3 --way", way,
                               "--ends", ENDS, "--link-atoms", "2-8", "--out", out)
    calls = [json.loads(line) for line in out.read_text().splitlines()[1:]]
    linkers = [linker_of(c["smiles"], ENDS) for c in calls]
    assert code == 0 and len(calls) == 24 and all(map(Linker(ENDS, (2, 8)).meets, linkers)), said
    assert {c["by"] for c in calls} == {"start", "genetic"} | ({"model"} if way == "model" else set())


def test_leads_without_the_ends_are_left_out(tmp_path):
    (tmp_path / "leads.smi").write_text("c1ccccc1CCN1CCOCC1\nCCO\n")
    command = "optimize --objective qed --budget 6 --children 4 --way genetic --start"
    code, _, said = call(command, tmp_path / "leads.smi", "--ends", ENDS, "--out", tmp_path / "log.jsonl")
    assert code == 0 and "--ends: 1 of 2 molecules do not have both" in said
    (tmp_path / "leads.smi").write_text("CCO\n")
    refused(call(command, tmp_path / "leads.smi", "--ends", ENDS, "--out", tmp_path / "b.jsonl"), "has both")


@pytest.mark.parametrize("argv, what", [
    (["--ends", "*CC"], "two ends are linked"), (["--link-atoms", "3"], "only with --ends"),
    (["--ends", ENDS, "--way", "random"], "only with --way model"),
    (["--ends", ENDS, "--link-atoms", "9-3"], "--link-atoms 9-3")])
def test_refusals(argv, what, tmp_path):
    refused(call("optimize --objective qed --out", tmp_path / "log.jsonl", *argv), what)


def test_drawn_linkers_are_about_as_large_as_a_parents():
    relink = Relink(Linker(ENDS, (2, 5)))
    assert relink.around("[1*]CCCC[2*]").atoms == (2, 5) and relink.around("[1*]C[2*]").atoms == (2, 3)
    assert relink.around("").atoms == (2, 5)


def test_an_inverted_end_is_not_an_end():
    ends, other = "*[C@H](C)c1ccccc1.*N1CCOCC1", "*[C@@H](C)c1ccccc1.*N1CCOCC1"
    found = [BetweenEnds(None, Linker(ends)).objection(with_linker("[1*]CC[2*]", e)) for e in (ends, other)]
    assert found == ["", "ends altered"]


def test_drawn_linkers_have_about_the_atoms_of_a_parent(monkeypatch):
    "The parent's linker has six atoms, so four to eight are asked for, within the limits of the request."
    parent, asked = with_linker("[1*]CCCCCC[2*]", ENDS), []
    monkeypatch.setattr(linker_search, "check_fills", lambda *_: None)
    draw = lambda _, rule, n, seed: asked.append((rule.atoms, n)) or ["CCO"]
    monkeypatch.setattr(linker_search, "draw_linkers", draw)
    relink = Relink(Linker(ENDS, (5, 12)), model=SimpleNamespace(method=None))
    of_parent = [Call(parent, 1.0, "", 1, "model")]
    assert relink.draw_linkers(of_parent, 3, random.Random(0)) == [("CCO", "model")] and asked == [((5, 8), 3)]
    assert relink.draw_linkers(of_parent, 0, random.Random(0)) == []
