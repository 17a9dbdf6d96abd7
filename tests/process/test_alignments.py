"Alignments and sources against slow code of their own."
from functools import cache

import pytest
import torch

from loflexmdm.process.alignments import ALIGNMENTS, BLANK, DELETE, INSERT, PAIR, VOID
from loflexmdm.process.alignments import Corrupted, Dataset, Masks, UniformTokens, align, at, collate_pairs
from loflexmdm.process.alignments import _keys, _pair_counts, _places, edit_distance, optimal_moves, slot_column, strip
from loflexmdm.process.states import BOS, Vocabulary, collate, prefix_example
from loflexmdm.support.notebook import seeded

LETTERS = Vocabulary("abcdefghijklmnopqrstuvwxyz")


def words(*texts, prompt=""): return collate([prefix_example(prompt, t, LETTERS) for t in texts])


@cache
def levenshtein(a: str, b: str) -> tuple[int, int]:
    "Fewest edits and number of alignments that make them, by recursion from the left."
    if not a or not b: return len(a) + len(b), 1
    options = [(levenshtein(a[1:], b[1:]), a[0] != b[0]), (levenshtein(a[1:], b), 1), (levenshtein(a, b[1:]), 1)]
    best = min(d + c for (d, _), c in options)
    return best, sum(n for (d, n), c in options if d + c == best)


def random_texts(n, most, seed):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, most + 1, (n,), generator=g).tolist()
    return ["".join("abc"[i] for i in torch.randint(0, 3, (k,), generator=g)) for k in lengths]


def test_edits_and_counts_of_optimal_alignments():
    a, b = random_texts(200, 9, 0), random_texts(200, 9, 1)
    edits, log_count = edit_distance(words(*a), words(*b))
    assert edits.tolist() == [levenshtein(*p)[0] for p in zip(a, b)]
    assert log_count.exp().round().long().tolist() == [levenshtein(*p)[1] for p in zip(a, b)]
    assert align(words(*a), words(*b)).edits.equal(edits)


def test_long_batches_are_taken_in_parts(monkeypatch):
    import loflexmdm.process.alignments as module
    x0, x1 = words(*random_texts(20, 9, 2)), words(*random_texts(20, 9, 3))
    whole = align(x0, x1, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(module, "CELLS", 1)
    parts = align(x0, x1, generator=torch.Generator().manual_seed(0))
    assert all(u.equal(v) for u, v in zip(whole, parts))


@pytest.mark.parametrize("how", [*ALIGNMENTS, "shuffled:0.5"])
def test_blanks_removed_both_sequences_are_back(how):
    x0, x1 = words(*random_texts(50, 7, 4), prompt="pq"), words(*random_texts(50, 7, 5), prompt="pq")
    z = align(x0, x1, how, torch.Generator().manual_seed(0))
    for side, x in ((z.z0, x0), (z.z1, x1)):
        assert all(u.equal(v) for u, v in zip(strip(side, z.fixed, z.closed)[:3], x.trim()[:3]))
    assert z.fixed.sum(-1).unique().tolist() == [3] and not ((z.z0 == BLANK) & (z.z1 == BLANK)).any()


def test_what_the_network_sees_and_where_edits_happen():
    z = align(words("kitten"), words("smitten"), "padded")
    shown = torch.zeros_like(z.fixed)
    shown[0, 2] = True
    assert LETTERS.decode(at(z, shown).tokens[0, 1:]) == list("kmtten")
    assert slot_column(z, shown).tolist() == [[0, 1, 2, 3, 4, 5, 6, 6]]  # the insertion lies in the last gap


def test_padding_is_edited_nowhere():
    z = align(words("kitten", "at"), words("smitten", "at"), "padded")
    columns = slot_column(z, torch.zeros_like(z.fixed))
    assert columns[1].tolist() == [0, 1, 2, *[2] * (columns.shape[1] - 3)], "columns of a short row end with its last"


def test_an_empty_source_and_an_empty_target():
    for how in ALIGNMENTS:
        assert align(words(""), words("ab"), how).inserts.sum() == 2
        assert align(words("ab"), words(""), how).deletes.sum() == 2
        assert align(words(""), words(""), how).z0.tolist() == [[BOS]]


def test_sources_keep_prompts_and_have_the_lengths_they_say():
    x1 = words("abc", "a", prompt="p")
    for source in (Masks(4), UniformTokens(len(LETTERS), 4), UniformTokens(len(LETTERS), 0)):
        x0 = source.draw(x1, torch.Generator().manual_seed(0))
        assert x0.tokens[:, :2].equal(x1.tokens[:, :2]) and x0.lengths.tolist() == [2 + source.length] * 2
    tokens = UniformTokens(len(LETTERS), 40).draw(x1, torch.Generator().manual_seed(1)).tokens[:, 2:]
    assert tokens.min() >= 3 and tokens.max() < len(LETTERS)


def test_errors_stay_within_the_limit_and_outside_the_prompt():
    x1 = words(*["abc"] * 100, prompt="pq")
    x0 = Corrupted(len(LETTERS), 5, 5, limit=7).draw(x1, torch.Generator().manual_seed(0))
    assert x0.lengths.max() <= 7 and (x0.tokens[:, :3] == x1.tokens[:, :3]).all()
    assert x0.fixed[:, :3].all() and not x0.fixed[:, 3:].any()
    assert edit_distance(x0, x1)[0].max() <= 10


def test_pairs_travel_as_batches():
    data = Dataset.of([("ab", "abc"), ("b", "abc"), ("", "c")], LETTERS)
    pairs = data.batch([0, 2]).rows([1]).to("cpu").trim()
    assert pairs.x0.tokens.tolist() == [[BOS]] and pairs.x1.lengths.tolist() == [2]
    with pytest.raises(ValueError, match="pairs="): collate_pairs([])


@cache
def optimal(a: str, b: str) -> set[tuple[int, ...]]:
    "All alignments with the fewest edits, by recursion from the left."
    if not a or not b: return {(DELETE,) * len(a) + (INSERT,) * len(b)}
    steps = (a[1:], b[1:], a[0] != b[0], PAIR), (a[1:], b, 1, DELETE), (a, b[1:], 1, INSERT)
    fewest = levenshtein(a, b)[0]
    ways = [(move, x, y) for x, y, cost, move in steps if levenshtein(x, y)[0] + cost == fewest]
    return {(move, *rest) for move, x, y in ways for rest in optimal(x, y)}


def test_optimal_moves_are_those_of_each_pair_whatever_its_neighbours_and_the_part(monkeypatch):
    "Rows of many lengths, in parts of one row: all alignments of a row come, and no others."
    a, b = ["aaaa", "", "ab", "kitten", "aab", "a"], ["aa", "ab", "", "smitten", "baa", "b"]
    monkeypatch.setattr("loflexmdm.process.alignments.CELLS", 1)
    found = [set() for _ in a]
    for seed in range(60):
        moves = optimal_moves(words(*a), words(*b), torch.Generator().manual_seed(seed))
        assert moves.shape == (len(a), 7 + 8)
        for seen, row in zip(found, moves.tolist()): seen.add(tuple(v for v in row[1:] if v != VOID))
    assert found == [optimal(x, y) for x, y in zip(a, b)]


def test_sources_of_a_target_are_drawn_from_all_that_it_has_and_no_others():
    data = Dataset.of([("ab", "xy"), ("b", "x"), ("c", "xy")], LETTERS, left_out=2)
    drawn = data.draw(words(*["xy", "x"] * 40), torch.Generator().manual_seed(0))
    found = [tuple(t[:n]) for t, n in zip(drawn.tokens.tolist(), drawn.lengths.tolist())]
    word = lambda text: tuple(prefix_example("", text, LETTERS).tokens)
    assert set(found[::2]) == {word("ab"), word("c")} and set(found[1::2]) == {word("b")}
    assert data.left_out == 2 and len(data) == 3
    with pytest.raises(ValueError, match="at least one pair"): Dataset(())
    with pytest.raises(ValueError, match="row 1: the data has no source"): data.draw(words("xy", "y"))


def test_what_does_not_fit_is_named_by_its_side():
    short, long = words("ab", "abc"), words("ab", "abcdef")
    for pair, name in (((long, short), "x0"), ((short, long), "x1")):
        with pytest.raises(ValueError, match=f"{name} has 7 tokens in row 1, .*: at most 6 are"): align(*pair, limit=6)
    with pytest.raises(ValueError, match="x0 has 1 rows and x1 2: they must be pairs"): align(words("a"), short)
    with pytest.raises(ValueError, match="row 0: the prompts of x0 and x1 must be the same"):
        align(words("x", prompt="a"), words("x", prompt="b"))
    assert align(short, long, limit=7).edits.tolist() == [0, 3]


@pytest.mark.parametrize("how, of_source, of_target", [
    ("padded", [0, 1, 2], [0, 1, 2]), ("block", [0, 1, 2], [4, 5, 6]), ("interleaved", [0, 2, 4], [1, 3, 5]),
])
def test_what_moves_are_sorted_by(how, of_source, of_target):
    "From 0 up to a width of 8, by hand: both sides at once, the source first, or in turn from the source on."
    index = torch.tensor([[0, 1, 2]])
    for side, by_hand in enumerate((of_source, of_target)):
        keys = _keys(how, index, side, 8, None)
        assert keys.tolist() == [by_hand] and keys.dtype == torch.float64
    shuffled = _keys("shuffled", index, 0, 8, seeded(0))
    assert shuffled.shape == (1, 3) and bool(((0 <= shuffled) & (shuffled < 8)).all())


@pytest.mark.parametrize("kind, full, places", [
    ("insert", False, [1, 3]), ("insert", True, []), ("delete", False, [1, 2, 4, 5]),
    ("substitute", True, [1, 2, 4, 5]),
    ("swap", False, [1, 4]),
])
def test_where_an_error_may_be_made(kind, full, places):
    "Swaps need a free neighbour on the right with another token; gaps after columns 1 and 3 are open."
    tokens, fixed = [2, 3, 4, 4, 3, 5], [True, False, False, True, False, False]
    closed = [True, False, True, False, True, True]
    assert _places(kind, tokens, fixed, closed, 6, full) == places
    assert _places("swap", [2, 3, 3, 4], [True] + [False] * 3, [False] * 4, 6, False) == [2]
    assert _places("substitute", tokens, fixed, closed, 4, full) == [] != _places("substitute", tokens, fixed, closed,
        5, full)


def test_pairs_of_a_segment_are_a_share_of_the_smaller_one():
    sizes = torch.tensor([[4, 10, 3]]), torch.tensor([[9, 2, 3, 5]])
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64):  # 29 % of 100 is 28.999999999999996 in float64
            torch.set_default_dtype(dtype)
            assert _pair_counts("block", .5, *sizes).tolist() == [[2, 2, 1]]
            assert _pair_counts("block", .29, torch.tensor([[100]]), torch.tensor([[100]])).tolist() == [[29]]
            assert _pair_counts("padded", .5, *sizes).tolist() == [[4, 2, 3]]
    finally: torch.set_default_dtype(before)


def test_the_number_of_errors_is_uniform_between_its_limits():
    x1 = words("abcdefgh").rows([0] * 900)
    x0 = Corrupted(len(LETTERS), 1, 3, kinds=("delete",)).draw(x1, torch.Generator().manual_seed(0))
    lost = (x1.lengths - x0.lengths).tolist()
    assert set(lost) == {1, 2, 3} and all(abs(lost.count(k) - 300) < 4 * 200 ** .5 for k in (1, 2, 3))
