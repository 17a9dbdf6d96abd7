"Values on both sides of gaps that go on from an earlier state, against those that are computed anew."
import random

import pytest
import torch

from loflexmdm.process.automata import Completions, from_regex
from loflexmdm.process.states import Vocabulary, collate, prefix_example

LETTERS = Vocabulary("abc")
AUTOMATON = from_regex("a+b(ab|c)*", LETTERS)


def sides(texts: list[str]) -> Completions:
    x = collate([prefix_example("", text, LETTERS) for text in texts])
    return Completions(AUTOMATON, x, torch.ones_like(x.open))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("picked", [True, False])
def test_values_that_go_on_are_those_computed_anew(seed, picked):
    "Rows that share their first letters with earlier ones: the columns that agree are counted, and no value changes."
    rng = random.Random(seed)
    word = lambda n: "".join(rng.choices("abc", k=n))
    old_texts = [word(5) for _ in range(3)]
    rows = rng.choices(range(3), k=4) if picked else [0, 1, 2]
    kept = rng.randint(0, 5)
    texts = [old_texts[row][:kept] + word(5 - kept) for row in rows]
    old, new, anew = sides(old_texts), sides(texts), sides(texts)
    old.before(rng.randint(0, 5))
    if rng.random() < 0.5: old.before(rng.randint(0, 5))
    index = torch.tensor(rows) if picked else None
    columns = new.agreement(old, index)
    agree = [all(text[:k] == old_texts[row][:k] for text, row in zip(texts, rows)) for k in range(6)]
    assert columns == sum(agree)  # with that of the start token
    new.resume(old, index, columns)
    for column in rng.sample(range(6), 6) + list(range(6)):
        assert torch.equal(new.before(column), anew.before(column)), column
    at = torch.tensor([rng.randint(0, 5) for _ in rows])
    for one, other in zip(new.at(at), anew.at(at)): assert torch.equal(one, other)
    assert torch.equal(new.fewest(), anew.fewest())


@pytest.mark.parametrize("pattern, letters", [
    ("[b-d]", "bcd"), ("[^b-d]", "ae5 _"), ("[a5]", "a5"), ("[^a5]", "bcde _"), (r"\d", "5"), (r"\D", "abcde _"),
    (r"\s", " "),
    (r"\S", "abcde5_"), (r"\w", "abcde5_"), (r"\W", " "), (r"[\da]", "a5"), (r"[^\da]", "bcde _"),
    ("[^a]", "bcde5 _"), (".", "abcde5 _"),
])
def test_classes_of_characters(pattern, letters):
    vocabulary = Vocabulary("abcde5 _")
    automaton = from_regex(pattern, vocabulary)
    assert "".join(c for c in "abcde5 _" if automaton.accepts(vocabulary.encode([c]))) == letters
