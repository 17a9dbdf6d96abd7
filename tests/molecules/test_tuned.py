"Search by a model that learns: its log is all it needs, what it may not write, and one line for wrong input."
import json
import random
from collections import Counter

import pytest
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.optimise import Call, CallLog, Holding, PerScaffold, Screened
from loflexmdm.molecules.optimise import murcko, optimise, substructure
from loflexmdm.molecules.tuned import Tuned, respell
from commands import call, refused

START = ["CCOc1ccccc1", "NC(=O)c1ccccc1", "CCCCCCO", "c1ccncc1C"]


def length(smiles: str): return float(len(smiles)), ""


def tuned(**options): return Tuned(load("molecules-moses-ar"), size=6, updates=2, seed=3, **options)


def same_weights(one: Tuned, other: Tuned) -> bool:
    pairs = zip(one.model.method.parameters(), other.model.method.parameters(), strict=True)
    return all(a.equal(b) for a, b in pairs)


@pytest.fixture(scope="module")
def searched() -> tuple[Tuned, list[Call]]:
    "A model that learned in a search of 30 calls, and the calls."
    proposer = tuned()
    return proposer, optimise(length, proposer, CallLog(), 30, START).calls


def test_it_learns_and_the_packaged_model_stays_as_it_is(searched):
    proposer, calls = searched
    assert {c.by for c in calls} == {"start", "tuned", "genetic"}
    assert proposer.learned == max(c.round for c in calls)
    own, first = proposer.model.method.state_dict(), proposer.source.method.state_dict()
    assert any(not v.equal(first[k]) for k, v in own.items())
    assert all(v.equal(first[k]) for k, v in proposer.model.tuner.prior.state_dict().items())


def test_what_it_knows_depends_on_the_calls_alone(searched):
    "Told the same calls at once or round by round, two models have the same weights; told another score, others."
    calls = searched[1][:24]
    last = calls[-1].round
    at_once, in_parts = tuned(), tuned()
    at_once.learn(calls, last)
    for number in range(1, last + 1): in_parts.learn([c for c in calls if c.round < number], number)
    assert same_weights(at_once, in_parts)

    other = tuned()
    other.learn([c._replace(score=-c.score) for c in calls], last)
    assert not same_weights(at_once, other)


def test_calls_that_failed_and_molecules_that_it_cannot_write():
    proposer = tuned()
    proposer.learn([Call("C[N+](C)(C)C", 1.0, "", 0, "start"), Call("CCO", None, "broken", 0, "start")], 1)
    proposer.learn([], 2)
    assert proposer.learned == 2 and respell("C[N+](C)(C)C", proposer.task, random.Random(0)) is None


def test_a_round_that_brought_nothing_is_not_learned_from():
    proposer, calls = tuned(), [Call(s, float(k), "", 0, "start") for k, s in enumerate(START)]
    proposer.learn(calls, 1)
    before = [p.clone() for p in proposer.model.method.parameters()]
    proposer.learn(calls, 2)
    assert all(a.equal(b) for a, b in zip(before, proposer.model.method.parameters(), strict=True))


def test_what_is_sifted_is_learned_as_the_worst():
    "A scaffold and alerts around a model that learns: it goes on to learn, and no call lacks the scaffold."
    inner = tuned()
    way = Holding(Screened(inner, ("BRENK",)), "c1ccccc1")
    log = optimise(length, way, CallLog(), 12, START[:2])
    ring = substructure("c1ccccc1")
    assert inner.learned > 0 and all(Chem.MolFromSmiles(c.smiles).HasSubstructMatch(ring) for c in log.calls)


def test_a_search_within_the_calls_of_each_scaffold_goes_on_from_its_log(tmp_path, searched):
    "A run that was cut, with a model that learns, makes the same calls; none of a scaffold more than its share."
    def way(): return PerScaffold(tuned(), 2)

    path = tmp_path / "run.jsonl"
    whole = optimise(length, way(), CallLog(path), 24, START).calls
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:17]))  # settings, and 16 calls
    log = CallLog(path)
    assert len(log.calls) == 16 and optimise(length, way(), log, 24, START).calls == whole
    counts = Counter(filter(None, (murcko(c.smiles) for c in whole)))
    assert max(counts.values()) == 2
    free = Counter(filter(None, (murcko(c.smiles) for c in searched[1][:20])))
    assert max(free.values()) > 2


@pytest.mark.parametrize("text", ["", "c1ccc"])
def test_a_scaffold_that_is_none(text):
    with pytest.raises(ValueError, match="scaffold="): substructure(text)


def test_the_command_keeps_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.smi").write_text("\n".join(START))
    line = "optimize --objective qed --way tuned --children 6 --start leads.smi --out run.jsonl --save kept"
    call(f"{line} --budget 10")
    first = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])
    assert first["way"] == "tuned" and first["children"] == 6 and "model" in first
    call("sample kept -n 2 --seed 0")
    refused(call(f"{line} --budget 20 --scaffold c1ccccc1"), "a run with other settings (scaffold, start)")
    refused(call(f"{line} --budget 20 --per-scaffold 3"), "a run with other settings (per_scaffold)")


@pytest.mark.parametrize("options, message", [
    ("--scaffold c1ccc", "scaffold='c1ccc'"), ("--scaffold C1CCNCC1", "none of the 4 first molecules"),
    ("--way ranked --save kept", "--save kept"),
    ("--per-scaffold 0", "--per-scaffold 0: must be at least 1"), ("--model star-tiny", "molecules"),
    ("--model molecules", "likelihood")])
def test_one_line_for_what_is_wrong(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.smi").write_text("\n".join(START))
    line = "optimize --objective qed --way tuned --start leads.smi --budget 8"
    refused(call(f"{line} {options}"), message)


def test_rewards_lie_between_nothing_and_the_given_nats():
    search, seen = tuned(), []
    search.model.step = lambda rows, generator: seen.extend(reward for _, reward in rows)
    search.learn([Call("CCO", 2.0, "", 0, "start"), Call("CCN", 4.0, "", 0, "start")], 1)
    assert set(seen) == {0.0, search.nats}
