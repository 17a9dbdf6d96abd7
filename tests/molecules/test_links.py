"Links by request: limits, both routes, scores, and the command."
import csv
import importlib
import random

import pytest
import torch
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.links import LinkReader, by_size, grown_links, inserted_links, link_nats
from loflexmdm.molecules.links import linker_of, links, neutral, protonate, request_from, two_ends, with_linker
from loflexmdm.molecules.rules import Linker
from loflexmdm.molecules.substituents import GapReader
from loflexmdm.process.states import collate, prefix_example
from loflexmdm.molecules.scores.makeable import objection
from commands import call

links_module = importlib.import_module("loflexmdm.molecules.links")

ENDS = "*c1ccc(F)cc1.*N1CCOCC1"


@pytest.fixture(scope="module")
def models(): return [load("molecules-leads"), load("molecules-moses-ar")]


@pytest.mark.parametrize("ends, linker", [
    ("*[C@H](C)c1ccccc1.*N1CCOCC1", "[1*]CC([2*])=O"), ("*C(=O)NO.*C(=O)Nc1ccccc1", "[1*]CCCCCC[2*]"),
    ("*c1ccccc1.*c1ccccc1", "[1*]CO[2*]"), (ENDS, "[1*]c1ccc([2*])cc1"),
])
def test_a_linker_comes_back_from_its_molecule(ends, linker):
    smiles = with_linker(linker, ends)
    found = linker_of(smiles, ends)
    assert with_linker(found, ends) == smiles and Chem.MolFromSmiles(found).GetNumAtoms() == Chem.MolFromSmiles(
        linker).GetNumAtoms()


def test_ends_without_a_linker_and_wrong_ends():
    assert linker_of("Fc1ccc(N2CCOCC2)cc1", ENDS) == linker_of("C1CC", ENDS) == linker_of(None, ENDS) == ""
    for wrong in ("*CC*.*C", "*CC", "CC.*C"):
        with pytest.raises(ValueError, match="two ends"): two_ends(wrong)
    for wrong in ("5-3", "x", "-", "0", "0-3"):
        with pytest.raises(ValueError, match=f"--link-atoms {wrong}: "): request_from(ENDS, wrong, None)
    texts = "6", "3-6", "3-", "-6"
    assert [request_from(ENDS, text, None).atoms for text in texts] == [(6, 6), (3, 6), (3, None), (1, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Linker(ENDS, (3, 4), (0, 0)), Linker(ENDS, (7, 9), (1, 1))])
@pytest.mark.parametrize("route", [0, 1])
def test_linkers_are_within_the_limits(models, route, rule):
    draw = (inserted_links, grown_links)[route]
    found = draw(models[route], rule, 24, seed=1)
    assert len(found) == 24 and any(found) and all(rule.meets(linker) for linker in found if linker)
    assert found == draw(models[route], rule, 24, seed=1)


@pytest.mark.slow
def test_ends_are_read_as_other_programs_write_them(models):
    plain = links(models[1:], "*c1ccccc1.*N1CCCC1", 4)
    assert plain and links(models[1:], "[R1]c1ccccc1|[R2]N1CCCC1", 4) == plain


def test_masks_by_hand(models):
    "After a carbon of the prompt, and one in which the ring 2 is open: it stays open."
    reader, ids = GapReader(LinkReader(Linker(ENDS, (2, 3), (0, 1))), models[0].vocabulary), models[0].vocabulary.index
    def state(text, prompt="C"):
        x = collate([prefix_example(list(prompt), list(text), models[0].vocabulary)])
        allowed, ends = reader.next(x, x.free, x.fixed)
        return bool(ends), {t for t in ("C", "(", ")", "1", "=") if allowed[0, ids[t]]}
    assert state("C", "C1") == (False, {"C", "(", "="})
    assert state("C") == (False, {"C", "(", "1", "="}) and state("CC") == (True, {"C", "(", "1", "="})
    assert state("CCC") == (True, set()) and state("C1CC") == (False, {"1"}) and state("C(CC") == (False, {")"})


def test_amines_get_a_proton_and_linkers_lose_it():
    assert protonate("*N1CCOCC1.*c1ccccc1") == Chem.CanonSmiles("*[NH+]1CCOCC1.*c1ccccc1")
    assert protonate("*NC(=O)C.*c1ccccc1") == Chem.CanonSmiles("*NC(=O)C.*c1ccccc1")
    assert neutral("[1*]CC[NH+](C)[2*]") == Chem.CanonSmiles("[1*]CCN(C)[2*]")


@pytest.mark.slow
def test_scores_are_those_of_the_model(models):
    "The mean over the spellings of the ends of the sum over texts of the linker; one of a methylene."
    from loflexmdm.methods.flexmdm import filled_example
    from loflexmdm.molecules.links import SPELLINGS, link_prompts
    prompts = link_prompts(models[0].method, ENDS)
    assert len(prompts) == SPELLINGS
    x = collate([filled_example(prompt, [["C"]], models[0].vocabulary) for prompt in prompts])
    nats, _ = models[0].method.nll_bound(x, 2, torch.Generator().manual_seed(0))
    expected = -((-nats.double()).exp().mean().log()).item()
    assert link_nats(models[0], ENDS, ["[1*]C[2*]"]) == pytest.approx([expected], abs=1e-4)
    short, long = link_nats(models[0], ENDS, ["[1*]C[2*]", "[1*]CCCCCCCC[2*]"])
    assert short < long and link_nats(models[0], ENDS, ["[1*][Si](C)(C)[2*]"]) == [float("inf")]


@pytest.mark.parametrize("n, expected", [(1, "A"), (2, "AB"), (3, "ABC")])
def test_the_first_linkers_that_are_drawn_count(models, monkeypatch, n, expected):
    "Of the draws A B A C A two are A and B; a repeated one does not move behind the others."
    linkers = dict(A="[1*]C[2*]", B="[1*]CC[2*]", C="[1*]CCC[2*]")
    drawn = [linkers[letter] for letter in "ABACA"]
    route = (lambda model, rule, n, seed: drawn[:n])
    monkeypatch.setitem(links_module.ROUTES, False, ("insertion", route))
    found = links(models[:1], ENDS, n)
    assert {link.linker for link in found} == {Chem.CanonSmiles(linkers[letter]) for letter in expected}


def test_the_number_of_draws_is_limited_and_refused_ones_do_not_count(models, monkeypatch):
    asked, seeds, refused = [], [], []
    def route(model, rule, n, seed):
        asked.append(n)
        seeds.append(seed)
        return ["[1*]C[2*]", "[1*]O[2*]"] * n

    def refuse(smiles):
        refused.append(smiles)
        return "oxygen" * (linker_of(smiles, ENDS) == "[1*]O[2*]")

    monkeypatch.setitem(links_module.ROUTES, False, ("insertion", route))
    found = links(models[:1], ENDS, 3, rounds=4, refuse=refuse)
    assert [link.linker for link in found] == ["[1*]C[2*]"] and sum(asked) <= 12 and len(refused) == 2
    links(models[:1], ENDS, 3, seed=1, rounds=4, refuse=refuse)
    assert len({*seeds}) == len(seeds) > 3 and {0, 1} < {*seeds}  # rounds of neighbouring seeds share nothing


def test_each_number_of_atoms_of_a_range_is_drawn_as_often(models):
    asked = by_size(Linker(ENDS, (4, 6)), 100, random.Random(0))
    assert [rule.atoms for rule, _ in asked] == [(4, 4), (5, 5), (6, 6)]
    assert sorted(n for _, n in asked) == [33, 33, 34]
    assert by_size(Linker(ENDS), 7, random.Random(0)) == [(Linker(ENDS), 7)]
    assert len(by_size(Linker(ENDS, (1, 9)), 3, random.Random(0))) == 3


@pytest.mark.slow
def test_a_range_of_atoms_is_delivered_whole_without_one_size_over_half(models):
    found = links(models[:1], Linker(ENDS, (4, 6)), 60)
    sizes = [link.atoms for link in found]
    assert len(found) == 60 and max(map(sizes.count, (4, 5, 6))) <= 30


@pytest.mark.slow
def test_the_command_ranks_and_says_what_it_found(models, tmp_path):
    out = tmp_path / "links.csv"
    names = "molecules-leads", "molecules-moses-ar"
    code, _, said = call("link", ENDS, "--models", *names, "--link-atoms", "3-5", "-n", 8, "--rounds", 2, "--out", out)
    rows = list(csv.DictReader(open(out)))
    assert code == 0 and "linkers" in said and len({r["linker"] for r in rows}) == len(rows) > 2
    nats = [float(r["nats"]) for r in rows if r["nats"]]
    assert nats == sorted(nats) and {int(r["atoms"]) for r in rows} <= {3, 4, 5}
    refuse = lambda smiles: objection(Chem.MolFromSmiles(smiles))
    found = links(models, Linker(ENDS, (3, 5)), 8, rounds=2, refuse=refuse)
    assert [link.smiles for link in found] == [r["smiles"] for r in rows]
    code, _, said = call("link", "*CC*.*C")
    assert code == 2 and "two ends are linked" in said
