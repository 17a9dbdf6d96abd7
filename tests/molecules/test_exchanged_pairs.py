"Exchanges of substituents that make pairs."
from collections import Counter

from loflexmdm.molecules.data.exchanged_pairs import Matching, _merge_pairs, chunk_exchanges
from loflexmdm.molecules.data.matched_pairs import MatchedPairs


def test_an_exchange_keeps_the_charge():
    "Of two new substituents of an ether the charged one makes no pair."
    made = {new: chunk_exchanges(["COc1ccccc1"], {"CO*": Counter({new: 1})}, Matching()) for new in ("N*", "[NH3+]*")}
    assert [[m.second for m in found] for found in made.values()] == [["Nc1ccccc1"], []]


def test_molecules_without_an_exchange_are_counted_beside_the_other_reasons():
    found = MatchedPairs([], [], [], Counter(size=2))
    assert _merge_pairs(found, [], 3).rejects == {"size": 2, "exchange that makes no pair": 3}
