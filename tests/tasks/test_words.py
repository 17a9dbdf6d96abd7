"English words by frequency, and how samples of them are judged."
import math
import random
import sys
from pathlib import Path

import pytest

from loflexmdm.process.streams import UNLIMITED
from loflexmdm.samplers import Samples
from loflexmdm.tasks.base import task_from

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from words_task import WordsTask, commonest, english  # noqa: E402

pytest.importorskip("wordfreq", reason="the words need wordfreq")


def as_samples(task, words):
    "Words as a sampler would return them."
    return Samples([task.vocabulary.encode(w) for w in words], [[True] * len(w) for w in words])


def test_the_commonest_words():
    entries = dict(b=0.2, a=0.2, c=0.5, abc=0.9, É=0.9, d=0.01) | {"a'": 0.9, "": 0.9}
    assert commonest(entries, 3, 2) == pytest.approx(dict(c=5 / 9, a=2 / 9, b=2 / 9))
    assert list(commonest(entries, 3, 2)) == ["c", "a", "b"]
    with pytest.raises(ValueError, match="count=6: there are 4 words of at most 2 letters"): commonest(entries, 6, 2)


def test_the_distribution_sums_to_one_and_gives_the_entropy():
    task = WordsTask()
    assert math.isclose(sum(task.law.values()), 1) and math.isclose(sum(task.length_law().values()), 1)
    assert len(task.law) == 2000 and max(map(len, task.law)) <= 12 and next(iter(task.law)) == "the"
    uniform = WordsTask()
    uniform.law = {w: 1 / 64 for w in random.Random(0).sample(list(task.law), 64)}
    assert math.isclose(uniform.entropy, math.log(64))


@pytest.mark.slow
def test_words_are_the_same_in_every_task_and_differ_between_splits():
    one, two, other = (WordsTask.Config(seed=s) for s in (1, 1, 2))

    def read(config, split):
        task = WordsTask(config)
        return [task.word(split, i) for i in range(20)]

    assert read(one, "train") == read(two, "train")
    assert read(one, "train") != read(other, "train") and read(one, "train") != read(one, "valid")
    with pytest.raises(ValueError, match="split"): WordsTask().word("training", 0)


def test_an_example_is_its_word():
    task = task_from(dict(kind="words", count=50, max_letters=5))
    data = task.dataset("valid")
    assert len(data) == 1000 and task.max_length == 6
    for i in range(20):
        assert task.text(task.vocabulary.decode(data[i].tokens[1:])) == task.word("valid", i)
        assert data[i].fixed == [True] + [False] * (len(data[i].tokens) - 1)


def test_score():
    task = WordsTask()
    task.law = {"the": 0.75, "and": 0.25}
    found = task.score("test", as_samples(task, ["the", "the", "and", "xx"]))
    assert (found["valid"], found["unique"], found["tv"], found["length_tv"]) == (0.75, 0.75, 0.25, 0.25)
    assert 0 < found["tv_floor"] < 1 and found["length_tv_floor"] == 0
    assert task.correct([], ["a", "n", "d"]) and not task.correct([], ["a", "n"])
    with pytest.raises(ValueError, match="none to score"): task.score("test", Samples([], []))


def test_a_training_split_is_as_large_as_it_is_set_and_without_that_never_ends():
    settings = dict(kind="words", count=50)
    assert [len(task_from(settings | dict(train_size=n)).dataset()) for n in (7, 0)] == [7, UNLIMITED]


def test_english_names_the_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(ImportError, match="pip install wordfreq"): english()
