"Strings of brackets against all strings, and scores of samples by hand."
import itertools
import math
import random
from collections import Counter

import pytest

from loflexmdm.samplers import Samples
from loflexmdm.tasks.brackets import PAIRS, BracketsConfig, BracketsTask, balanced_strings, catalan, depth
from loflexmdm.tasks.brackets import draw_balanced, edits_to_balanced, is_balanced, split_weights


def reduces(string: str) -> bool:
    "Whether removing neighbouring pairs leaves nothing."
    while (shorter := string.replace("()", "").replace("[]", "")) != string: string = shorter
    return not string


ALL = ["".join(s) for n in range(7) for s in itertools.product("()[]", repeat=n)]
BALANCED = [s for s in ALL if reduces(s)]


def test_balanced_strings_are_those_that_reduce_to_nothing():
    assert [s for s in ALL if is_balanced(s)] == BALANCED
    assert sorted(balanced_strings(3, 2)) == sorted(s for s in BALANCED if s)
    assert [*balanced_strings(1, 3)] == ["()", "[]", "{}"]
    assert [catalan(n) for n in range(5)] == [1, 1, 2, 5, 14] and split_weights(3) == [2, 1, 2]
    assert Counter(map(len, balanced_strings(3, 2))) == {2 * n: catalan(n) * 2**n for n in (1, 2, 3)}


@pytest.mark.parametrize("string, deepest", [("", 0), ("()[]", 1), ("([]())", 2), ("()((()))", 3)])
def test_depth(string, deepest): assert depth(string) == deepest


def test_fewest_edits_are_those_of_a_search():
    "Breadth first over all strings of up to four brackets, by insertions, deletions and substitutions."
    known, last = {s: 0 for s in BALANCED}, BALANCED
    for n in range(1, 5):
        last = list({b for a in last for k in range(len(a) + 1) for b in (
            a[:k] + a[k + 1:], *(a[:k] + c + a[k:] for c in "()[]"), *(a[:k] + c + a[k + 1:] for c in "()[]"))
            if len(b) < 6 and b not in known})
        known |= dict.fromkeys(last, n)
    assert [edits_to_balanced(s) for s in ALL if len(s) < 5] == [known[s] for s in ALL if len(s) < 5]
    assert BracketsTask().edits.to_correct([], ")(") == 2


def test_the_law_of_strings():
    config = BracketsConfig(kinds=2, max_pairs=3)
    law = {s: config.probability(s) for s in ALL}
    assert {s for s, p in law.items() if p} == {s for s in BALANCED if s} and sum(law.values()) == pytest.approx(1)
    assert law["([])"] == 1 / 3 / 2 / 4
    assert config.probability("{}") == config.probability("()" * 4) == config.probability("") == 0
    assert config.entropy == pytest.approx(-sum(p * math.log(p) for p in law.values() if p))
    draw, n = random.Random(0), 4000
    found = Counter(draw_balanced(2, 2, draw) for _ in range(n))
    assert all(abs(found[s] - n / 8) < 4 * math.sqrt(n / 8 * 7 / 8) for s in BALANCED if len(s) == 4)
    assert sum(found.values()) == n
    task = BracketsTask(config)
    sizes = Counter(len(task.string("train", i)) for i in range(900))
    assert all(abs(sizes[2 * k] - 300) < 4 * math.sqrt(200) for k in (1, 2, 3))
    assert task.length_law() == {2: 1 / 3, 4: 1 / 3, 6: 1 / 3}
    short = task.short_law()
    assert short["()"] == 1 / 6 and short["()[]"] == 1 / 24 and len(short) == 2 + 8 + 1
    assert short["..."] == pytest.approx(1 / 3)
    assert BracketsTask(BracketsConfig(max_pairs=1)).short_law() == {"()": .5, "[]": .5, "...": 0.0}


def samples(task, *texts, given=0):
    ids = [task.vocabulary.encode(t) for t in texts]
    return Samples(ids, [[False] * given + [True] * (len(t) - given) for t in ids])


def test_scores_of_samples():
    task = BracketsTask(BracketsConfig(max_pairs=3))
    score = task.score("test", samples(task, "()", "()", "([])", "(]"))
    assert (score["valid"], score["unique"]) == (.75, .75) and "asked" not in score
    assert score["length_tv"] == pytest.approx((5 / 12 + 1 / 12 + 1 / 3) / 2)
    # of (), [], ([]), the other seven, and longer ones
    distances = 1 / 2 - 1 / 6, 1 / 6, 1 / 4 - 1 / 24, 7 / 24, 1 / 3 - 1 / 4
    assert score["short_tv"] == pytest.approx(sum(distances) / 2)
    assert 0 < score["length_tv_floor"] < score["short_tv_floor"] < 1
    assert task.prompts("test", 3) is None and task.text(["(", ")"]) == "()" and task.max_length == 7
    assert task.correct([], "([])") and not task.correct([], "(") and not task.correct([], "")


def test_conditions_are_depths():
    task = BracketsTask(BracketsConfig(max_pairs=2, kinds=1, condition="depth"))
    assert [*task.vocabulary.tokens[3:]] == ["(", ")", "<depth:1>", "<depth:2>", "<any>"]
    assert task.max_length == 6 and task.condition_of("(())") == ["<depth:2>"]
    assert task.prompt("<depth:1>") == ["<depth:1>"]
    assert task.prompt("<any>") == ["<any>"]
    assert task.prompts("test", 2) == [task.condition_of(task.string("test", i)) for i in (0, 1)]
    right = [(["<depth:2>"], "(())"), (["<any>"], "()"), (["<depth:1>"], "()()")]
    assert all(task.correct(*pair) for pair in right) and not task.correct(["<depth:1>"], "(())")
    asked = samples(task, ["<depth:2>", *"(())"], ["<depth:2>", *"()"], ["<any>", "("], ["<any>", *"()"], given=1)
    assert task.requested_fraction(asked) == task.score("test", asked)["asked"] == .5
    assert task.text(["<depth:2>", *"(())"]) == "(())" and task.strings(asked) == ["(())", "()", "(", "()"]


def test_splits():
    task = BracketsTask(BracketsConfig(train_size=7))
    assert [len(task.dataset(split)) for split in ("train", "valid", "test")] == [7, 1000, 5000]
    assert len(BracketsTask().dataset()) == 2**40 and task.string("train", 3) == task.string("train", 3)
    assert [task.string("train", i) for i in range(9)] != [task.string("valid", i) for i in range(9)]
    example = task.dataset("train")[3]
    assert "".join(task.vocabulary.decode(example.tokens[1:])) == task.string("train", 3)
    assert example.fixed == [True] + [False] * (len(example.tokens) - 1)
    assert not set(task.string("train", 0)) - set("".join(PAIRS[:2]))
    with pytest.raises(ValueError): task.string("none", 0)
