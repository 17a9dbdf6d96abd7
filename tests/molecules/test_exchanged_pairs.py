"Exchanges of substituents that make pairs."
from collections import Counter

from loflexmdm.molecules.data.exchanged_pairs import Matching, chunk_exchanges


def test_an_exchange_keeps_the_charge():
    "Of two new substituents of an ether the charged one makes no pair."
    made = {new: chunk_exchanges(["COc1ccccc1"], {"CO*": Counter({new: 1})}, Matching()) for new in ("N*", "[NH3+]*")}
    assert [[m.second for m in found] for found in made.values()] == [["Nc1ccccc1"], []]
