"Permutations that are computed row by row, and rows that are shuffled as they stream."
import random

import pytest

from loflexmdm.process.streams import shuffled
from loflexmdm.support.random_numbers import TABLE, Feistel, permutation


@pytest.mark.parametrize("n", [1, 2, 3, 10, 97, 100, 1000])
def test_a_network_permutes_and_its_key_decides(n):
    places = list(Feistel(n, "a"))
    assert sorted(places) == list(range(n)) and places == list(Feistel(n, "a")) and len(Feistel(n)) == n
    assert n < 10 or places != list(Feistel(n, "b"))
    for wrong in (-1, n):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range for {n} elements"): Feistel(n)[wrong]


def test_the_order_of_large_data_is_that_of_earlier_versions():
    "A run that goes on with another version would meet some rows twice and others never."
    large = permutation(10**9, "a", 3)
    assert [large[i] for i in range(4)] == [177878294, 518105648, 281107190, 491454103]
    assert isinstance(permutation(TABLE + 1, 7), Feistel) and not isinstance(permutation(TABLE, 7), Feistel)
    with pytest.raises(ValueError, match="n=0: must be at least 1"): permutation(0, 7)


@pytest.mark.parametrize("window", [1, 2, 10, 100, 200])
def test_streamed_rows_come_once_and_never_earlier_than_the_window(window):
    rows = list(range(100))
    found = list(shuffled(rows, window, random.Random(0)))
    assert sorted(found) == rows and all(row - place < window for place, row in enumerate(found))
    assert window == 1 or found != rows
