"""The commonest English words, drawn with their frequencies, whose distribution is known: a task, `kind = "words"`.

Scripts that import this module can train on it. The frequencies are those of wordfreq (Robyn Speer; code Apache-2.0,
data CC BY-SA 4.0), collected from subtitles, books, news and the web."""
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from string import ascii_lowercase
from typing import Annotated

from pydantic import Field

from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.samplers import Samples
from loflexmdm.support.configs import Count, Natural, config
from loflexmdm.support.statistics import empirical_variation, variation_floor
from loflexmdm.tasks.base import Examples, Task, check_split


def commonest(frequencies: Mapping[str, float], count: int, max_letters: int) -> dict[str, float]:
    """Return probabilities of the `count` most frequent words, in order. Words have at most `max_letters` letters a to
    z.

    Words of equal frequency are in alphabetical order. ValueError if there are fewer."""
    fits = lambda word: 0 < len(word) <= max_letters and set(word) <= set(ascii_lowercase)
    fitting = [word for word in frequencies if fits(word)]
    if len(fitting) < count:
        raise ValueError(f"count={count}: there are {len(fitting)} words of at most {max_letters} letters")

    # ties are sorted alphabetically, so that every Python version has the same list
    by_frequency = lambda word: (-frequencies[word], word)
    kept = sorted(fitting, key=by_frequency)[:count]
    total = math.fsum(frequencies[word] for word in kept)
    return {word: frequencies[word] / total for word in kept}


_NEEDED = "the words need the package wordfreq: pip install wordfreq"


def english() -> dict[str, float]:
    "Load frequencies of English words. ImportError without wordfreq."
    try: from wordfreq import get_frequency_dict
    except ImportError: raise ImportError(_NEEDED) from None
    return get_frequency_dict("en")


@config
class WordsConfig:
    "Settings of frequent English words, drawn by frequency."
    count: Annotated[int, Field(ge=2, le=20_000)] = 2000  # number of words
    max_letters: Count = 12  # most letters per word
    train_size: Natural = 0  # words in the training split; 0: unlimited
    seed: Natural = 42  # seed of the data


class WordsTask(Task):
    "English words, letter by letter. The length is generated too."
    kind, Config = "words", WordsConfig
    vocabulary = Vocabulary(ascii_lowercase)
    SIZES = dict(valid=1000, test=5000)  # sizes of the held-out splits

    @property
    def max_length(self) -> int: return 1 + self.config.max_letters

    @cached_property
    def law(self) -> dict[str, float]:
        "Probability of each word. ImportError without wordfreq."
        return commonest(english(), self.config.count, self.config.max_letters)

    @cached_property
    def listed(self) -> tuple[list[str], list[float]]:
        "Words and their cumulative probabilities."
        return list(self.law), list(accumulate(self.law.values()))

    @property
    def entropy(self) -> float:
        "Entropy of the distribution in nats, the lowest expected negative log-likelihood."
        return -math.fsum(p * math.log(p) for p in self.law.values())

    def word(self, split: str, i: int) -> str:
        "Return word number `i` of a split."
        rng = random.Random(f"{self.config.seed} {check_split(split)} {i}")
        words, sums = self.listed
        return rng.choices(words, cum_weights=sums)[0]

    def dataset(self, split: str = "train") -> Examples:
        "Return the words of a split as examples."
        size = self.SIZES.get(check_split(split), self.config.train_size or UNLIMITED)
        example = lambda i: prefix_example("", self.word(split, i), self.vocabulary)
        return Examples(size, example)

    def text(self, tokens: Sequence[str]) -> str:
        "Join the letters."
        return "".join(tokens)

    def made_words(self, samples: Samples) -> list[str]:
        "Decode the generated words."
        return [self.text(self.vocabulary.decode(c)) for c in samples.completions()]

    def length_law(self) -> dict[int, float]:
        "Return the probability of every length in letters."
        law = Counter()
        for word, p in self.law.items(): law[len(word)] += p
        return dict(law)

    def score(self, split: str, samples: Samples) -> dict[str, float]:
        """Score samples against the exact distribution: valid, tv, length_tv, unique. All are fractions; the total
        variations come with the floor of an ideal sampler. ValueError if there are no samples."""
        words = self.made_words(samples)
        n = len(words)

        lengths = self.length_law()
        return dict(
            valid=sum(w in self.law for w in words) / n,
            unique=len(set(words)) / n,
            tv=empirical_variation(Counter(words), self.law),
            tv_floor=variation_floor(self.law, n),
            length_tv=empirical_variation(Counter(map(len, words)), lengths),
            length_tv_floor=variation_floor(lengths, n),
        )

    def correct(self, prompt: Sequence[str], answer: Sequence[str]) -> bool:
        "Return True if the letters form a listed word."
        return self.text(answer) in self.law
