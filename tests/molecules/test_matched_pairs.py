"Matched pairs of a few molecules by hand: cuts, cores, texts, files, exchanges; rings that close a fragment."
from collections import Counter

import pytest
from rdkit import Chem

from loflexmdm.molecules.closures import ClosureRequest
from loflexmdm.molecules.data.exchanged_pairs import exchange_rules, with_exchanges
from loflexmdm.molecules.data.matched_pairs import (
    Matched, Matching, all_cuts, build_pairs, cap, core_text, fill_core, fitting_cuts, groups_of, heavy_atoms,
    is_reversible,
    match, piece_text, same_molecule, shift_rings, single_cuts, store_pairs, stored_pairs,
)
from loflexmdm.molecules import growth
from loflexmdm.molecules.edit_task import _between
from loflexmdm.molecules.growth import best_way

SMILES = [Chem.CanonSmiles(s) for s in ("c1ccccc1CCO", "c1ccccc1CCN", "c1ccccc1CC", "CCCCCCC", "c1ccccc1CCCl")]
SMALL = Matching(2, .5)


def test_cuts_are_made_both_ways_round():
    assert sorted(single_cuts("CCO")) == [("C*", "OC*"), ("CC*", "O*"), ("O*", "CC*"), ("OC*", "C*")]
    assert fitting_cuts("CCCO", Matching(1, .5)) == [pair for pair in single_cuts("CCCO") if heavy_atoms(pair[1]) == 1]
    assert fitting_cuts("CCO", Matching(1, .4)) == [] and len(fitting_cuts("CCO", Matching(2, 2))) == 4
    assert (heavy_atoms("*C([2H])Cl"), heavy_atoms("[NH3+]Br"), heavy_atoms("*[H]")) == (2, 2, 0)


@pytest.mark.parametrize("core, piece, text", [
    ("CC*", "O", "CCO"), ("C(*)N", "", "CN"), ("C1CC1*", "C1CC1", "C1CC1C1CC1"),
    ("C1CC(*)C1", "C1CC1", "C1CC(C2CC2)C1"),
    ("C%10CC(*)C%10", "C1CC1", "C%10CC(C%11CC%11)C%10"), ("C1C2CC(*)C2C1", "C1CC1", "C1C2CC(C3CC3)C2C1"),
    ("C(*)", "N", "C(N)"),
])
def test_cores_are_filled(core, piece, text):
    assert fill_core(core, piece) == text
    shifted = shift_rings("C1CC%10C1", 2), shift_rings("C9CC9", 1), shift_rings("[13CH4]", 1)
    assert shifted == ("C3CC%12C3", "C%10CC%10", "[13CH4]")


def test_texts_of_pieces_and_cores():
    assert piece_text("*[H]") == "" and piece_text("*OC") == "OC" and piece_text("*C(=O)O") == "C(=O)O"
    assert core_text("*CC").count("*") == 1 and not core_text("*CCO").startswith("*")
    starts = {core_text("*CCO", k) for k in range(3)}
    assert len(starts) == 3 and core_text("*CCO", 4) == core_text("*CCO", 1)
    assert all(Chem.CanonSmiles(t) == "*CCO" for t in starts)
    assert cap("*CC") == "CC" and cap("*c1ccccc1") == "c1ccccc1"


def test_molecules_are_grouped_by_core_and_matched_once():
    cuts = [fitting_cuts(s, SMALL) for s in SMILES]
    groups = groups_of(SMILES, cuts)
    assert all(len(members) > 1 for members in groups.values())
    core = next(core for core, members in groups.items() if len(members) == 4)
    assert Chem.CanonSmiles(core) == "*CCc1ccccc1"
    assert sorted(groups[core]) == [(0, "O*"), (1, "N*"), (2, "*[H]"), (4, "Cl*")]
    found = match(SMILES, cuts)
    assert {m[:2] for m in found} == {(0, 1), (0, 2), (0, 4), (1, 2), (1, 4), (2, 4)}
    assert {m.core for m in found} == {core}
    pair = next(m for m in found if m[:2] == (0, 2))
    assert (pair.old, pair.new) == ("O*", "*[H]") and pair.swapped == Matched(2, 0, core, "*[H]", "O*")
    assert [Chem.CanonSmiles(t) for t in pair.texts()] == [SMILES[0], SMILES[2]] and is_reversible(pair, SMILES, 3)
    assert not is_reversible(pair._replace(second=1), SMILES) and not is_reversible(pair._replace(first=1), SMILES)
    assert same_molecule("OCC", "CCO") and not same_molecule("C(", "C") and not same_molecule("OCC", "OCC")
    assert match(SMILES[:1] * 2, [cuts[0]] * 2) == [], "equal substituents make no pair"


def test_pairs_are_numbered_among_the_molecules_that_are_used(tmp_path, monkeypatch):
    found = build_pairs(SMILES, dict(salt=3), SMALL)
    assert found.smiles == [SMILES[k] for k in (0, 1, 2, 4)] and len(found.scores) == 4 and len(found.pairs) == 6
    assert found.rejects == Counter({"molecule salt": 3, "molecule without a partner": 1, "pair not reversible": 0})
    assert all(is_reversible(m, found.smiles) for m in found.pairs)
    assert all(0 < qed < 1 <= sa for qed, sa in found.scores)
    assert all_cuts(SMILES, SMALL) == [fitting_cuts(s, SMALL) for s in SMILES]
    with pytest.raises(ValueError,
        match="no two of 2 molecules differ in one substituent of at most 2 heavy atoms and 0.5"):
        build_pairs([SMILES[0], SMILES[3]], {}, SMALL)
    store_pairs(found, tmp_path / "a.json")
    assert stored_pairs(tmp_path / "a.json") == found and stored_pairs(tmp_path / "b.json") is None
    (tmp_path / "a.json").write_text("[1")
    assert stored_pairs(tmp_path / "a.json") is None


def test_exchanges_follow_the_rules_of_the_pairs():
    pairs = [Matched(0, 1, "*C", "*O", "*N"), Matched(0, 1, "*CC", "*O", "*N"), Matched(0, 1, "*C", "*O", "*Cl")]
    assert exchange_rules(pairs) == {"*O": Counter({"*N": 2, "*Cl": 1})}
    found = build_pairs(SMILES[:2], {}, SMALL)
    more = with_exchanges(found, ["OCCCCC1CC1", "CCCCCCC"], SMALL)
    assert len(more.pairs) == 2 and more.smiles[:2] == found.smiles and more.rejects["exchange that makes no pair"] == 1
    assert (more.pairs[1].old, more.pairs[1].new) == ("O*", "N*") and is_reversible(more.pairs[1], more.smiles)


@pytest.mark.parametrize("smiles, reason", [
    ("C1CCCCCCO1", ""), ("C1CCCCCO1", "ring of 7"), ("C1CCCCCCCCCO1", "ring of 11"), ("CCCOC", "ring not closed"),
    ("CCCN", "fragment altered"), ("C1CCCCCCCO1", ""), ("C(", "fragment altered"),
])
def test_why_a_ring_is_not_as_requested(smiles, reason):
    request = ClosureRequest("*CCO*", (8, 9))
    assert request.reason(smiles) == reason and request.accepts(smiles) is (not reason)
    assert request.linker == (5, 6) and request.description == "a ring of 8 to 9 atoms closes from *CCO*"


def test_the_best_spelling_is_the_first_if_it_is_good_enough():
    "Else all are tried, and the best three twice as long with other seeds."
    asked = []

    def kept(counts):
        def count(ways, n, seed):
            asked.append((len(ways), n, seed))
            return [counts[seed][way] for way in ways]
        return count
    trials, enough = growth.TRIALS, growth.ENOUGH
    assert best_way([0, 1], kept({0: [enough, 9]})) == 0 and asked == [(1, trials, 0)]
    asked.clear()
    first, second = [enough - 1, 0, 5, 4, 3], [0, 99, 2, 4, 2]
    assert best_way([0, 1, 2, 3, 4], kept({0: first, 1: second})) == (0 if enough - 1 > 8 else 3)
    assert asked == [(1, trials, 0), (5, trials, 0), (growth.FINALISTS, 2 * trials, 1)]


@pytest.mark.parametrize("smiles, inside, kept", [
    ("C(O)N", {2}, "..O.."), ("C(O)N", {0, 2}, "C(O)."), ("C(O)N", {0, 4}, "C...N"), ("C=O", {0, 2}, "C=O"),
    ("C=O", {0}, "C.."),
])
def test_what_stands_between_kept_atoms_is_kept(smiles, inside, kept):
    found = _between(list(smiles), inside, {})
    assert "".join(t if keep else "." for t, keep in zip(smiles, found)) == kept
