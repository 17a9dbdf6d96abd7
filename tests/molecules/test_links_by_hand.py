"Links with models in place of which known linkers are drawn: readers, rounds, routes, scores, and the command."
import importlib
import json
import math
import random
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from commands import call

from loflexmdm.molecules.links import Link, LinkReader, Refusals, by_size, grown_links, in_turns, link_nats, row_of
from loflexmdm.molecules.rules import Linker, RingSize, Smarts, SmilesReader, Sound, ValidSmiles
from loflexmdm.process.rules import parse_rule
from loflexmdm.process.states import Vocabulary
from loflexmdm.samplers import EventByEvent
from loflexmdm.support.random_numbers import seed_of_try

module = importlib.import_module("loflexmdm.molecules.links")
ENDS = "*c1ccccc1.*N1CCOCC1"
VOCABULARY = Vocabulary([*"CcNnOo()=123", "[N+]"])


@pytest.mark.parametrize("text, atoms, rings, follows, ends", [
    ("", (1, 2), (0, None), "CcNnO(=123", False), ("C", (1, 2), (0, None), "CcNnO(=123", True),
    ("CC", (1, 2), (0, None), "", True), ("CC", (3, None), (0, None), "CcNnO(=123", False),
    ("C1CC", (1, 3), (0, None), "1", False), ("C(C", (1, 2), (0, None), ")", False),
    ("C", (1, 3), (0, 0), "CNO(=", True), ("C", (1, 3), (1, 1), "CcNnO(=123", False),
    ("C1CC1", (1, 3), (1, 1), "", True),
    ("C(C1)", (1, 3), (0, None), "CcNnO(=123", False), ("C()", (1, 9), (0, None), "CcNnO(=123", True),
])
def test_what_may_follow_in_a_linker(text, atoms, rings, follows, ends):
    reader, pieces = LinkReader(Linker(ENDS, atoms, rings)), list("CcNnO()=123")
    state = ()
    for letter in text: state = reader.after(state, letter)
    assert "".join(p for p, ok in zip(pieces, reader.may_follow(state, pieces)) if ok) == follows
    assert reader.ends(state) is ends


def test_draws_are_spread_over_sizes():
    rule = Linker(ENDS, (3, 5))
    found = by_size(rule, 7, random.Random(0))
    assert [r.atoms for r, _ in found] == [(3, 3), (4, 4), (5, 5)] and sorted(n for _, n in found) == [2, 2, 3]
    assert sum(n for _, n in by_size(rule, 2, random.Random(0))) == 2 and len(by_size(rule, 2, random.Random(0))) == 2
    first = Counter(by_size(rule, 1, random.Random(seed))[0][0].atoms[0] for seed in range(60))
    large = Linker(ENDS, (3, None))
    assert set(first) == {3, 4, 5} and by_size(large, 7, random.Random(0)) == [(large, 7)]
    assert in_turns([[1, 2, 3], [4], [5, 6]]) == [1, 4, 5, 2, 6, 3]


def insertion(max_length=20):
    "A model of which only what the functions ask for is there; -log p of a row is its number of tokens in the gap."
    asked = []

    def nll_bound(x, states, generator):
        asked.append(len(x.tokens))
        return x.free.sum(-1).double() / 2, torch.zeros(len(x.tokens))
    config = SimpleNamespace(max_length=max_length)
    method = SimpleNamespace(config=config, vocabulary=VOCABULARY, nll_bound=nll_bound)
    parts = dict(vocabulary=VOCABULARY, config=config, device=torch.device("cpu"), asked=asked)
    return SimpleNamespace(method=method, **parts)


def test_scores_are_the_mean_over_prompts_of_the_sum_over_texts(monkeypatch):
    "Of prompts of 3 and 5 tokens; a linker of one atom has one text, one of two has two."
    prompts = [["C", ..., "N"], ["C", "C", ..., "N", "C"]]
    monkeypatch.setattr(module, "link_prompts", lambda method, ends: prompts)
    texts = dict(one=[["C"]], two=[["C", "O"], ["O", "C"]], long=[["C"] * 17], short=[["C"] * 16], odd=[["S"]], none=[])
    monkeypatch.setattr(module, "_between", lambda linker, prompt, ends: texts[linker])
    found = link_nats(model := insertion(), ENDS, list(texts))
    assert found[0] == pytest.approx(.5) and found[1] == pytest.approx(1 - math.log(2))
    # 16 tokens and 4 of the longer prompt are one more than 19
    assert found[2:] == [pytest.approx(8.5 + math.log(2)), pytest.approx(8 + math.log(2)), math.inf, math.inf]
    assert link_nats(insertion(max_length=19), ENDS, ["long"]) == [math.inf] and model.asked == [8]
    many = link_nats(model, ENDS, ["one"] * 40)
    assert many == [pytest.approx(.5)] * 40 and model.asked[1:] == [64, 16]


@pytest.fixture
def routes(monkeypatch):
    "Routes that draw known linkers, and what they were asked for."
    asked, linkers = [], ["[1*]C[2*]", "[1*]O[2*]", None, "[1*]CC[2*]"]

    def draw(model, rule, n, seed):
        asked.append((model.name, rule.ends, n, seed))
        if model.name == "broken": raise ValueError("cannot write these ends")
        return [linkers[(len(asked) + i) % 4] for i in range(n)]
    monkeypatch.setattr(module, "ROUTES", {False: ("insertion", draw), True: ("left to right", draw)})
    monkeypatch.setattr(module, "grows_rightwards", lambda method: method == "grows")
    monkeypatch.setattr(module, "check_fills", lambda method, what: None)
    nats = lambda text: math.inf if "O" in text else float(len(text))
    monkeypatch.setattr(module, "link_nats", lambda model, ends, texts: [*map(nats, texts)])
    return asked


def fake(name, method="inserts"): return SimpleNamespace(name=name, method=method)


def test_rounds_draw_twice_as_many_with_seeds_of_their_own(routes):
    found = module.links([fake("a")], ENDS, n=4, seed=7, rounds=6)
    assert [(n, seed) for _, _, n, seed in routes] == [(4, 7), (8, seed_of_try(7, 1)), (12, seed_of_try(7, 2))]
    assert [link.linker for link in found] == ["[1*]C[2*]", "[1*]CC[2*]", "[1*]O[2*]"]
    assert [link.nats for link in found] == [9.0, 10.0, math.inf] and {link.route for link in found} == {"insertion"}
    assert (found[0].atoms, found[0].rings, found[0].smiles) == (1, 0, "c1ccc(CN2CCOCC2)cc1")


def test_models_take_turns_and_one_may_not_write_the_ends(routes):
    repeated = module.links([fake("a"), fake("b", "grows")], ENDS, n=4, unique=False, rounds=1)
    assert [(name, n) for name, _, n, _ in routes] == [("a", 2), ("b", 2), ("a", 2), ("b", 2)] and len(repeated) == 4
    assert Counter(link.route for link in repeated)["left to right"] >= 1
    routes.clear()
    alone = module.links([fake("broken"), fake("b", "grows")], ENDS, n=2, rounds=1)
    assert {(link.route, link.nats) for link in alone} == {("left to right", 9.0), ("left to right", math.inf)}
    scored = module.links([fake("b", "grows")], ENDS, n=2, rounds=1)
    assert {link.nats for link in scored} == {math.inf}, "only insertion scores them"
    with pytest.raises(ValueError, match="cannot write these ends"): module.links([fake("broken")], ENDS, n=2)


def test_refused_molecules_do_not_count_and_isotopes_are_kept(routes):
    refused = []
    found = module.links([fake("a")], "*c1ccccc1.*N([2H])C", n=2, rounds=8,
                         refuse=lambda smiles: refused.append(smiles) or "no" * ("O" in smiles))
    assert {link.linker for link in found} == {"[1*]C[2*]", "[1*]CC[2*]"}
    assert all("[2H]" in link.smiles for link in found)
    assert len(refused) == 3 and not any("2H" in ends for _, ends, _, _ in routes)


def test_grown_linkers_begin_at_either_end(monkeypatch):
    asked = []

    def generate(method, prompts, seed, sampler):
        asked.append((["".join(p[:-1]) for p in prompts], [p[-1] for p in prompts], seed))
        return SimpleNamespace(sequences=[VOCABULARY.encode([*p[:-1], "C"]) for p in prompts])
    monkeypatch.setattr(module, "generate", generate)
    monkeypatch.setattr(module, "continuation_error", lambda method, parts: "")
    monkeypatch.setattr(module, "within_branches", lambda *args, **options: None)
    monkeypatch.setattr(module, "_place", lambda text, side, rule, rng: (text, side[2], rule.atoms))
    model = SimpleNamespace(method=SimpleNamespace(vocabulary=VOCABULARY, config=SimpleNamespace(max_length=99)))
    found = grown_links(model, Linker("*c1ccccc1.*N(C)C", (2, 3)), 5, seed=3)
    assert sorted(Counter(atoms for _, _, atoms in found).values()) == [2, 3]
    assert {atoms[0] for _, _, atoms in found} == {2, 3}
    begins, gaps, seeds = zip(*asked)
    assert set(seeds) == {3} and all(gap is ... for gap in sum(gaps, [])) and len({*sum(begins, [])}) > 1
    assert all(text[-1] == "C" and text[:-1] in sum(begins, []) for text, _, _ in found)
    monkeypatch.setattr(module, "continuation_error", lambda method, parts: "too long")
    with pytest.raises(ValueError, match="too long"): grown_links(model, Linker(ENDS), 1)


def test_rows_and_refusals():
    link = Link("CCO", "[1*]C[2*]", 1, 0, "insertion", 1.23456)
    assert row_of(link) == link._asdict() | dict(nats=1.235, objection="")
    assert row_of(link._replace(nats=math.inf))["nats"] is None
    refuse = Refusals()
    assert refuse("CCO") == "" and refuse("C1CC2CC12OO") and sum(refuse.counts.values()) == 1
    assert Refusals(False)("C1CC2CC12OO") == ""


@pytest.fixture
def command(monkeypatch):
    "The command with known links; returns them and what was asked for."
    verb, asked = importlib.import_module("loflexmdm.molecules.verbs.link"), []
    first = Link("CCO", "[1*]C[2*]", 1, 0, "insertion", 1.5)
    known = [first, Link("CCCO", "[1*]CC[2*]", 2, 0, "left to right", math.inf)]

    def links(models, rule, n, seed, unique, rounds, refuse):
        asked.append((models, rule, n, seed, unique, rounds, refuse.sound))
        refuse.counts["a strained ring"] += 2
        return known[:n]
    monkeypatch.setattr(verb, "links", links)
    monkeypatch.setattr(verb, "load", lambda name, device: name)
    return asked


def test_the_command_prints_links(command):
    options = "-n 3 --link-atoms 1-4 --link-rings 0 --models x y --seed 5 --rounds 2 --no-unique"
    code, out, said = call(f"link {ENDS} {options}")
    assert code == 0 and out.splitlines() == [
        "smiles,linker,atoms,rings,route,nats,objection", "CCO,[1*]C[2*],1,0,insertion,1.5,",
        "CCCO,[1*]CC[2*],2,0,left to right,,"]
    assert "2 linkers of 3, as more draws repeat" in said and "(--rounds 2): 1 insertion, 1 left to right" in said
    assert "left out, as they cannot be made (--no-sound for all): 2 a strained ring" in said
    (models, rule, *others), = command
    assert models == ["x", "y"] and (rule.atoms, rule.rings) == ((1, 4), (0, 0)) and others == [3, 5, False, 2, True]


def test_the_command_writes_files(command, tmp_path):
    out = tmp_path / "links.csv"
    code, printed, said = call(f"link {ENDS} -n 2 --no-sound --out", out)
    assert code == 0 and not printed and len(out.read_text().splitlines()) == 3 and "2 linkers: 1 insertion" in said
    [notes] = [p for p in tmp_path.iterdir() if p != out]
    told = json.loads(notes.read_text())
    assert told["n"] == 2 and told["models"] == ["molecules-chembl", "molecules-moses-ar"] and str(notes) in said
    assert call(f"link {ENDS} -n 2 --out", out)[0] == 2 and call(f"link {ENDS} -n 2 --force --out", out)[0] == 0
    assert command[0][-1] is False and command[0][4] is True


@pytest.mark.parametrize("more, what", [
    ("-n 0", "-n 0: must be at least 1"), ("--rounds 0", "--rounds 0"), ("-n 100000000", "draws"),
])
def test_the_command_refuses(command, more, what):
    code, _, said = call(f"link {ENDS} {more}")
    assert code == 2 and what in said and not command


def test_the_command_ends_without_a_link(command, monkeypatch):
    monkeypatch.setattr(importlib.import_module("loflexmdm.molecules.verbs.link"), "links", lambda *args: [])
    code, out, said = call(f"link {ENDS} -n 2")
    assert code == 2 and not out and "no linker as requested" in said and "0 linkers of 2" in said


@pytest.mark.parametrize("text, accepted", [
    ("smarts:[#7]", ["CCN", "c1ccncc1"]), ("ring:3", ["C1CC1"]), ("ring:5-", ["c1ccncc1"]),
    ("valid", ["CCN", "C1CC1", "c1ccncc1", "CCO"]),
    ("ring:3-6", ["C1CC1", "c1ccncc1"]),
])
def test_rules_of_molecules(text, accepted):
    assert [s for s in ("CCN", "C1CC1", "c1ccncc1", "CCO", "C(") if parse_rule(text).accepts(s)] == accepted


def test_rules_of_linkers_are_read():
    rule = Linker.read("*C.*N path=3 atoms=2-4")
    assert rule == Linker("*C.*N", (2, 4), (0, None), (3, 3)) and rule.accepts("CCCN") and not rule.accepts("CCN")
    assert not rule.accepts("C(") and not rule.accepts("CCCO") and Linker.read("*C.*N rings=1-").accepts("CC1CC1N")
    for wrong, message in (("*C.*N size=3", "'size': choose among atoms=, rings=, path="), ("*C", "two ends"),
        ("", "empty")):
        with pytest.raises(ValueError, match=message): Linker.read(wrong)
    with pytest.raises(ValueError, match="RDKit cannot read"): Smarts("C(")
    assert Sound().reason("C(") == "not valid" and Sound().accepts("CCO") and Sound.read("1").limit == 1
    assert not Sound.read("").reason("CCO")
    with pytest.raises(ValueError): RingSize(5, 3)


def test_a_reader_of_smiles():
    if ValidSmiles().reader() is None: pytest.skip("needs partialsmiles")
    reader = SmilesReader()
    assert reader.after("C", "(") == "C(" and reader.after("C", ")") is None
    assert reader.may_follow("C(", ["C", ")", "="]) == [True, False, True]
    assert reader.ends("CC") and not reader.ends("C(") and not reader.ends("")


def test_linkers_are_inserted_between_the_forms_of_the_ends(monkeypatch):
    "Those that are not as requested are None; charges that protons make up for are taken off."
    texts = ["c1ccc(CCN2CCOCC2)cc1", "c1ccc(CN2CCOCC2)cc1", "c1ccc(", "c1ccc(CC[NH+]2CCOCC2)cc1"]
    protonated = "*c1ccccc1.*[NH+]1CCOCC1"
    prompts, asked = [(ENDS, ["one"]), (ENDS, ["two"]), (ENDS, ["three"]), (protonated, ["four"])], []
    vocabulary = SimpleNamespace(tokens=VOCABULARY.tokens)
    method = SimpleNamespace(sampler=lambda: EventByEvent())

    def sample(prompts, sampler, seed):
        asked.append((prompts, seed, sampler.logits_hook is not None))
        return SimpleNamespace(texts=texts)
    monkeypatch.setattr(module, "GapReader", lambda reader, vocabulary: reader)
    model = SimpleNamespace(vocabulary=vocabulary, method=method, sample=sample)
    found = module._fill(model, Linker(ENDS, (2, 2)), prompts, 5)
    assert found == ["[1*]CC[2*]", None, None, "[1*]CC[2*]"]
    assert asked == [([["one"], ["two"], ["three"], ["four"]], 5, True)]
