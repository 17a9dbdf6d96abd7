"Links by request: limits, both routes, scores, and the command."
import csv

import pytest
import torch
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.links import LinkGuide, LinkRequest, grown_links, inserted_links, limits_from, link_nats
from loflexmdm.molecules.links import linker_of, links, neutral, protonated, two_ends, with_linker
from loflexmdm.process.states import collate, prefix_example
from commands import call

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
    for wrong in ("5-3", "x", "-2", "1-", "0"):
        with pytest.raises(ValueError, match="--link-atoms"): limits_from(wrong, "--link-atoms", 1)
    assert limits_from("6", "--link-atoms") == (6, 6)


@pytest.mark.parametrize("request_", [LinkRequest((3, 4), (0, 0)), LinkRequest((7, 9), (1, 1))])
@pytest.mark.parametrize("route", [0, 1])
def test_linkers_are_within_the_limits(models, route, request_):
    draw = (inserted_links, grown_links)[route]
    found = draw(models[route], ENDS, request_, 24, seed=1)
    assert len(found) == 24 and any(found) and all(request_.meets(linker) for linker in found if linker)
    assert found == draw(models[route], ENDS, request_, 24, seed=1)


def test_ends_are_read_as_other_programs_write_them(models):
    plain = links(models[1:], "*c1ccccc1.*N1CCCC1", 4)
    assert plain and links(models[1:], "[R1]c1ccccc1|[R2]N1CCCC1", 4) == plain


def test_masks_by_hand(models):
    guide = LinkGuide(tuple(models[0].vocabulary.tokens), LinkRequest((2, 3), (0, 1)))
    ids = models[0].vocabulary.index
    def state(text):
        x = collate([prefix_example(["C"], list(text), models[0].vocabulary)])
        p = guide.progress(x)
        masked = guide.tokens(torch.zeros(1, len(models[0].vocabulary)), p)[0]
        allowed = {t for t in ("C", "(", ")", "1", "=") if masked[ids[t]] > -torch.inf}
        return bool(guide.may_end(p)), allowed
    assert state("C") == (False, {"C", "(", "1", "="}) and state("CC") == (True, {"C", "(", "1", "="})
    assert state("CCC") == (True, set()) and state("C1CC") == (False, {"1"}) and state("C(CC") == (False, {")"})


def test_amines_get_a_proton_and_linkers_lose_it():
    assert protonated("*N1CCOCC1.*c1ccccc1") == Chem.CanonSmiles("*[NH+]1CCOCC1.*c1ccccc1")
    assert protonated("*NC(=O)C.*c1ccccc1") == Chem.CanonSmiles("*NC(=O)C.*c1ccccc1")
    assert neutral("[1*]CC[NH+](C)[2*]") == Chem.CanonSmiles("[1*]CCN(C)[2*]")


def test_scores_are_those_of_the_model(models):
    from loflexmdm.methods.flexmdm import filled_example
    from loflexmdm.molecules.links import link_prompts
    prompt = link_prompts(models[0].method, ENDS)[0]
    x = collate([filled_example(prompt, [["C"]], models[0].vocabulary)])
    expected, _ = models[0].method.nll_bound(x, 2, torch.Generator().manual_seed(0))
    assert link_nats(models[0], ENDS, ["[1*]C[2*]"], 1) == pytest.approx(expected.tolist(), abs=1e-4)
    short, long = link_nats(models[0], ENDS, ["[1*]C[2*]", "[1*]CCCCCCCC[2*]"])
    assert short < long


def test_the_command_ranks_and_says_what_it_found(models, tmp_path):
    out = tmp_path / "links.csv"
    names = "molecules-leads", "molecules-moses-ar"
    code, _, said = call("link", ENDS, "--models", *names, "--link-atoms", "3-5", "-n", 8, "--rounds", 2, "--out", out)
    rows = list(csv.DictReader(open(out)))
    assert code == 0 and "linkers" in said and len({r["linker"] for r in rows}) == len(rows) > 2
    nats = [float(r["nats"]) for r in rows if r["nats"]]
    assert nats == sorted(nats) and {int(r["atoms"]) for r in rows} <= {3, 4, 5}
    assert [l.smiles for l in links(models, ENDS, 8, LinkRequest((3, 5)), rounds=2) if l.smiles in {
        r["smiles"] for r in rows}] == [r["smiles"] for r in rows]
    code, _, said = call("link", "*CC*.*C")
    assert code == 2 and "two ends are linked" in said
