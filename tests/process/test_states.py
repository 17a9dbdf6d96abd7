"The public contract of loflexmdm.process.states: vocabularies, prompts, batches, contraction, gap sums, insertion."
import pytest
import torch
from torch.testing import assert_close

from loflexmdm.process.states import BOS, CLEAN, DROPPED, MASK, MASKED, PAD, SPECIAL_TOKENS, Example
from loflexmdm.process.states import PartialSequences, Vocabulary, collate, contract, filled_example, gap_of
from loflexmdm.process.states import fillings_of, gap_mark, gap_sums, insert_masks, parse_prompt, prefix_example

VOCABULARY = Vocabulary("abc")
A, B, C = VOCABULARY.encode("abc")


# vocabulary

def test_special_ids_come_first():
    assert (PAD, MASK, BOS) == (0, 1, 2) and VOCABULARY.tokens[:3] == SPECIAL_TOKENS and (A, B, C) == (3, 4, 5)


def test_vocabulary_is_a_value():
    assert Vocabulary("abc") == VOCABULARY
    assert hash(Vocabulary("abc")) == hash(VOCABULARY)
    assert Vocabulary("acb") != VOCABULARY
    assert VOCABULARY != ("a", "b", "c") and len(Vocabulary(())) == 3


def test_tokens_may_be_numbers_or_strings():
    digits = Vocabulary(range(20))
    assert digits.encode([3, "12"]) == [6, 15] and digits.decode(torch.tensor([6, 15])) == ["3", "12"]


@pytest.mark.parametrize("tokens", ["aa", ["x", "<mask>"], ["<pad>"], [1, "1"]])
def test_vocabulary_refuses(tokens):
    with pytest.raises(ValueError, match="tokens="): Vocabulary(tokens)


@pytest.mark.parametrize(
    "sequence, token", [(["d"], "'d'"), (["a", "<pad>"], "special"), (["<bos>"], "special"), (["<mask>"], "special")]
)
def test_encode_refuses(sequence, token):
    with pytest.raises(ValueError, match=token): VOCABULARY.encode(sequence)


@pytest.mark.parametrize("i", [-1, 6])
def test_decode_refuses(i):
    with pytest.raises(ValueError, match=f"id {i}"): VOCABULARY.decode([A, i])


# prompts and batches

@pytest.mark.parametrize("prompt, tokens, closed", [
    ((), [BOS], [False]),
    ("ab", [BOS, A, B], [True, True, False]),
    ((...,), [BOS], [False]),
    ((..., "a"), [BOS, A], [False, True]),
    (("a", ..., ..., "b"), [BOS, A, B], [True, False, True]),
    (("a", ..., "b", ...), [BOS, A, B], [True, False, False])])
def test_prompts(prompt, tokens, closed):
    assert parse_prompt(prompt, VOCABULARY) == Example(tokens, [True] * len(tokens), closed)


def test_prompt_refuses_special_tokens():
    for token in ("<pad>", "<bos>"):
        with pytest.raises(ValueError, match="special"): parse_prompt(["a", token], VOCABULARY)


def test_prompt_with_holes_is_closed():
    assert parse_prompt(["a", "<mask>", "b"], VOCABULARY) == Example(
        [BOS, A, MASK, B], [True, True, False, True], [True] * 4
    )
    assert parse_prompt(["a", "<mask>", ...], VOCABULARY) == Example(
        [BOS, A, MASK], [True, True, False], [True, True, False]
    )
    with pytest.raises(ValueError, match="prefix"): prefix_example(["a", "<mask>"], "b", VOCABULARY)


def test_prefix_example():
    assert prefix_example("a", "bc", VOCABULARY) == Example(
        [BOS, A, B, C], [True, True, False, False], [True, False, False, False]
    )
    assert prefix_example("", "", VOCABULARY) == Example([BOS], [True], [False])
    with pytest.raises(ValueError, match="prompt="): prefix_example(["a", ..., "b"], "c", VOCABULARY)


def test_a_gap_takes_its_filling():
    "A prompt with a gap and its filling, one whose gap stays empty, and one without gaps, which is a prefix."
    found = filled_example(["b", ..., "c"], ["aa"], VOCABULARY)
    assert found.tokens == [BOS, *VOCABULARY.encode("baac")]
    assert (found.fixed, found.closed) == ([True, True, False, False, True], [True, False, False, False, True])
    assert filled_example(["b", ...], [""], VOCABULARY).tokens == [BOS, *VOCABULARY.encode("b")]
    assert filled_example("b", ["ac"], VOCABULARY) == prefix_example("b", "ac", VOCABULARY)
    with pytest.raises(ValueError, match="2 given.* has 1 gaps"): filled_example(["b", ...], ["a", "c"], VOCABULARY)


def test_collate_pads():
    x = collate([prefix_example("a", "bc", VOCABULARY), prefix_example("", "", VOCABULARY)])
    assert x.tokens.tolist() == [[BOS, A, B, C], [BOS, PAD, PAD, PAD]] and x.origin is None
    assert x.free.tolist() == [[False, False, True, True], [False] * 4]
    assert x.open.tolist() == [[False, True, True, True], [True, False, False, False]] and x.lengths.tolist() == [4, 1]
    with pytest.raises(ValueError, match="examples"): collate([])


def test_rows_and_trim():
    x = collate([prefix_example("", t, VOCABULARY) for t in ("abc", "a", "ab")])
    short = x.rows([1, 2]).trim()
    assert short.tokens.shape == (2, 3) and short.tokens.tolist() == [[BOS, A, PAD], [BOS, A, B]]
    assert x.rows(torch.tensor([False] * 3)).trim().tokens.shape == (0, 1)
    assert x.map(lambda v: v).origin is None and isinstance(x.to("cpu"), PartialSequences)


# contraction

@pytest.fixture
def x1(): return collate([prefix_example("a", "bcb", VOCABULARY), prefix_example("", "ab", VOCABULARY)])


def test_contract_by_hand(x1):
    # the last two are padding
    state = torch.tensor([[CLEAN, CLEAN, DROPPED, MASKED, CLEAN], [CLEAN, MASKED, CLEAN, MASKED, CLEAN]])
    x = contract(x1, state)
    assert x.tokens.tolist() == [[BOS, A, MASK, B], [BOS, MASK, B, PAD]]
    assert x.origin.tolist() == [[0, 1, 3, 4], [0, 1, 2, 0]]
    assert x.fixed.tolist() == [[True, True, False, False], [True, False, False, False]]
    assert x.closed.tolist() == [[True, False, False, False], [False, False, False, True]]
    assert gap_of(x1, state).tolist() == [[0, 1, 1, 2, 3], [0, 1, 2, 2, 2]]


def test_all_clean_and_all_dropped(x1):
    full = contract(x1, torch.full((2, 5), CLEAN))
    for a, b in zip(full[:3], x1[:3], strict=True): assert torch.equal(a, b)
    empty = contract(x1, torch.where(x1.free, DROPPED, CLEAN))
    assert empty.tokens.tolist() == [[BOS, A], [BOS, PAD]] and empty.open.tolist() == [[False, True], [True, False]]


def test_gap_sums_by_hand(x1):
    state = torch.tensor([[CLEAN, CLEAN, DROPPED, MASKED, DROPPED], [CLEAN, DROPPED, DROPPED, DROPPED, DROPPED]])
    # survivors and padding count for nothing
    values = torch.tensor([[100.0, 100, 1, 100, 2], [100, 4, 8, torch.nan, torch.nan]])
    assert gap_sums(values, x1, state, 3).tolist() == [[0, 1, 2], [12, 0, 0]]


@pytest.mark.slow
def test_gap_sums_gradient(x1):
    values, state = torch.ones(2, 5, dtype=torch.float64, requires_grad=True), torch.where(x1.free, DROPPED, CLEAN)
    grad = torch.autograd.grad(gap_sums(values, x1, state, 2).square().sum(), values)[0]
    assert_close(grad, torch.tensor([[0, 0, 6, 6, 6], [0, 4, 4, 0, 0]], dtype=torch.float64))


def test_contract_of_a_random_batch_keeps_rows_apart():
    generator = torch.Generator().manual_seed(0)
    x1 = collate([prefix_example("", "abcabc"[:n], VOCABULARY) for n in range(7)])
    for _ in range(20):
        state = torch.where(x1.free, torch.randint(0, 3, x1.tokens.shape, generator=generator), CLEAN)
        x, values = contract(x1, state), torch.rand(x1.tokens.shape, generator=generator)
        sums = gap_sums(values, x1, state, x.tokens.shape[1])
        for i in range(7):
            alone = contract(x1.rows([i]), state[[i]])
            n = alone.tokens.shape[1]
            assert torch.equal(x.tokens[i, :n], alone.tokens[0]) and int(x.lengths[i]) == n
            assert_close(sums[i, :n], gap_sums(values[[i]], x1.rows([i]), state[[i]], n)[0])


def test_order_is_kept_in_long_rows():
    n = 3000  # long enough for a sort that is not stable to show it
    x1 = collate([Example([BOS] + [A] * n, [True] + [False] * n, [False] * (n + 1))])
    state = torch.where(x1.free, torch.randint(0, 3, (1, n + 1), generator=torch.Generator().manual_seed(0)), CLEAN)
    assert bool((contract(x1, state).origin.diff() > 0).all())


# insertion

def test_insert_nothing_is_the_identity(x1):
    same = insert_masks(x1, torch.zeros(2, 5, dtype=torch.long))
    for a, b in zip(same[:3], x1[:3], strict=True): assert torch.equal(a, b)
    assert torch.equal(same.origin[x1.valid], torch.arange(5).expand(2, 5)[x1.valid])


def test_insert_masks_by_hand():
    x = collate([parse_prompt(["a", ..., "b"], VOCABULARY), parse_prompt((), VOCABULARY)])
    # only open gaps take masks: after "a", and after the start
    grown = insert_masks(x, torch.tensor([[5, 2, 5], [1, 5, 5]]))
    assert grown.tokens.tolist() == [[BOS, A, MASK, MASK, B], [BOS, MASK, PAD, PAD, PAD]]
    assert grown.fixed.tolist() == [[True, True, False, False, True], [True, False, False, False, False]]
    assert grown.closed.tolist() == [[True, False, False, False, True], [False, False, True, True, True]]
    # old columns; -1 for new masks and padding
    assert grown.origin.tolist() == [[0, 1, -1, -1, 2], [0, -1, -1, -1, -1]]
    wider = insert_masks(x, torch.tensor([[5, 2, 5], [1, 5, 5]]), 7)
    for a, b in zip(wider[:3], grown.widen(7)[:3], strict=True): assert torch.equal(a, b)
    assert wider.origin.tolist() == [[0, 1, -1, -1, 2, -1, -1], [0, -1, -1, -1, -1, -1, -1]]


def test_inputs_are_not_changed(x1):
    before = x1.map(torch.clone)
    state = torch.where(x1.free, DROPPED, CLEAN)
    x = contract(x1, state)
    gap_sums(torch.ones(2, 5), x1, state, 2)
    insert_masks(x, torch.ones_like(x.tokens))
    for a, b in zip(x1[:3], before[:3], strict=True): assert torch.equal(a, b)


@pytest.mark.parametrize("prompt, answer, free, fillings", [
    (["a", ..., "b"], "acdb", [0, 1, 1, 0], ["cd"]), (["a"], "abc", [0, 1, 1], ["bc"]), ([], "ab", [1, 1], ["ab"]),
    ([..., "a", ..., "b", "..."], "cabd", [1, 0, 0, 1], ["c", "", "d"]),
    (["a", ..., ...], "abb", [0, 1, 1], ["bb", ""]),
    ([..., "b", "...{2}"], "bcc", [0, 1, 1], ["", "cc"]),
])
def test_fillings_of_gaps(prompt, answer, free, fillings):
    assert ["".join(gap) for gap in fillings_of(prompt, list(answer), list(map(bool, free)),
        Vocabulary("abcd"))] == fillings


def test_marks_of_gaps_are_no_token():
    assert gap_mark(Vocabulary("ab")) == "..." and gap_mark(Vocabulary(["a", "..."])) == "<gap>"
