"Streams: what a pass yields, what is left out, and batches that begin in the middle."
import random

import pytest

from loflexmdm.process.streams import HEAD, Stream, shuffle_window, stream_batches


def numbers(window: int = 4) -> Stream:
    "Rows 0 to 9 of every pass, marked with it; every fifth is left out."
    make = lambda row, number: "of five" if row[1] % 5 == 0 else "the third" if row == (0, 2) else (number, *row)
    return Stream(lambda k: [(k, i) for i in range(10)], make, window)


def test_passes_follow_each_other_and_reasons_are_counted():
    stream = numbers(window=1)
    examples = stream.examples(chunk=3)
    found = [next(examples) for _ in range(15)]
    rows = [(k, i) for k in (0, 1) for i in range(10) if i % 5 and (k, i) != (0, 2)]
    assert [row for _, *row in found] == [[k, i] for k, i in rows]
    assert [number for number, *_ in found] == [10 * k + i for k, i in rows]  # no number is lost between passes
    assert stream.account() == "left out of the stream: 5 rows (4 of five, 1 the third)"
    next(stream.examples(chunk=2))
    assert stream.left_out == {"of five": 1}
    assert numbers().account() == ""


def test_rows_move_within_their_window():
    found = list(shuffle_window(range(40), 4, random.Random(0)))
    assert sorted(found) == list(range(40)) != found and all(i >= row - 3 for i, row in enumerate(found))
    assert list(shuffle_window(range(5), 1, random.Random(0))) == list(range(5))


def test_orders_differ_by_seed_and_pass():
    take = lambda seed: [row for row, _ in zip(numbers().examples(seed), range(15))]
    assert take(0) == take(0) != take(1)
    assert [row[2] for row in take(0) if row[1] == 0] != [row[2] for row in take(0) if row[1] == 1]


def test_batches_begin_where_they_are_asked_to():
    every = list(stream_batches(numbers(), 3, 0, 4, seed=1))
    assert [len(batch) for batch in every] == [3] * 4
    assert list(stream_batches(numbers(), 3, 2, 4, seed=1)) == every[2:]


def test_first_examples_can_be_indexed_and_are_not_shuffled():
    stream = numbers()
    assert [stream[i][2] for i in range(3)] == [1, 3, 4] and stream[70] == stream[70] and stream[3] == stream[3]
    for i in (-1, HEAD):
        with pytest.raises(ValueError, match=f"example {i}"): stream[i]


def test_streams_that_are_empty_or_useless():
    with pytest.raises(ValueError,
        match="the stream is empty"): next(Stream(lambda k: [], lambda row, i: row).examples())
    with pytest.raises(ValueError, match="window=0"): Stream(lambda k: [1], lambda row, i: row, 0)
