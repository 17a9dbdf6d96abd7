"""What is missing where, in one pass: `python experiments/missing_runs.py words middle_out --seconds 20 --seeds 0`.

One letter of a sequence is deleted at a random place. The exact posterior of the sequence that it was is computed by
listing all candidates, under laws that are known: the commonest English words, and the planted law of `regret_runs.py`.
It is compared with `ar`, which scores every candidate, and with ordered insertion, whose gaps and letters are read in
one pass, trained on whole sequences in random orders (`whole`) or on sequences with one letter missing (`one`). They
are trained in turn for equal CPU seconds. Results are KL in nats from the posterior, of the gap alone and of gap and
letter, and CPU milliseconds per sequence. Rows go to experiments/results/missing_runs.json, with cases, settings, seed
and commit."""
import argparse
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch

from gap_runs import row_of
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.base import Method
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig, prompt_of
from loflexmdm.process.states import Example, Vocabulary, collate, filled_example, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.tasks.base import Examples
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer
from regret_runs import LETTERS, NOISE, TRAIN, planted_line, planted_table
from runs import ROOT, note, noted
from training_runs import race
from words_task import WordsTask

RESULTS = ROOT / "experiments" / "results" / "missing_runs.json"
CASES = 200
SIZES = dict(size="nano", max_length=20)
INSERTION = dict(order_size="nano", query_blocks=1, orders=1)
ENTRANTS = dict(
    ar=(Autoregressive, AutoregressiveConfig(**SIZES)),
    whole=(OrderedInsertion, OrderedInsertionConfig(order="uniform", **SIZES | INSERTION)),
    one=(OrderedInsertion, OrderedInsertionConfig(order="left_to_right", **SIZES | INSERTION)),
)


class Words:
    "The commonest English words."
    def __init__(self):
        self.task = WordsTask()
        self.letters = list(self.task.vocabulary.ordinary)

    def draw(self, rng: random.Random) -> str:
        words, sums = self.task.listed
        return rng.choices(words, cum_weights=sums)[0]

    def log_p(self, word: str) -> float:
        return math.log(self.task.law.get(word, 0.0) or 1e-300)


class MiddleOut:
    "Sequences that are made from the middle outwards."
    def __init__(self): self.table, self.letters = planted_table(), list(LETTERS)
    def draw(self, rng: random.Random) -> str: return planted_line(self.table, rng)

    def log_p(self, word: str) -> float:
        "Log-probability, up to a constant that lengths share."
        if len(word) % 2 == 0: return math.log(1e-300)
        middle, found = len(word) // 2, 0.0
        for k in range(middle):
            for side, at, near in (("l", middle - k - 1, word[middle - k:middle + k + 1]),
                                   ("r", middle + k + 1, word[middle - k - 1:middle + k + 1][::-1])):
                made = self.table[side, near[0], near[:2][-1]] == word[at]
                found += math.log(NOISE / len(LETTERS) + (1 - NOISE) * made)
        return found


LAWS = dict(words=Words, middle_out=MiddleOut)


def with_one_missing(word: str, k: int, vocabulary: Vocabulary) -> Example:
    "Return a word of which letter `k` is to be written, anywhere as far as the model knows."
    example = prefix_example("", word, vocabulary)
    return Example(example.tokens, [j != k + 1 for j in range(len(word) + 1)], [False] * (len(word) + 1))


def trainer_of(law, vocabulary: Vocabulary, entrant: str, seed: int, directory: str) -> Trainer:
    "Return the trainer of an entrant."
    def example(i: int) -> Example:
        rng = random.Random(f"{seed} {i}")
        word = law.draw(rng)
        if entrant == "one": return with_one_missing(word, rng.randrange(len(word)), vocabulary)
        return prefix_example("", word, vocabulary)

    torch.manual_seed(seed)
    cls, config = ENTRANTS[entrant]
    train = TrainConfig(**TRAIN | dict(steps=10_000, seed=seed, batch_size=32))
    data = Examples(UNLIMITED, example, dict(seed=seed), dict(name="missing", rows=1, digest=""))
    return Trainer(cls(vocabulary, config), data, train, directory, progress=False)


def candidates(left: str, letters: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    "Return all words with one letter more, with the gaps and letters that make each."
    found: dict[str, list] = {}
    for gap in range(len(left) + 1):
        for letter in letters: found.setdefault(left[:gap] + letter + left[gap:], []).append((gap, letter))
    return found


def normalised(log_weights: dict[str, float]) -> dict[str, float]:
    "Return probabilities."
    most = max(log_weights.values())
    total = math.fsum(math.exp(v - most) for v in log_weights.values())
    return {word: math.exp(v - most) / total for word, v in log_weights.items()}


@torch.no_grad()
def by_scores(method: Method, left: str, made: dict[str, list]) -> dict[str, float]:
    "Score every candidate; as many places of a word give `left` as gaps make the word."
    x1 = collate([prefix_example("", word, method.vocabulary) for word in made])
    log_p = -method.nll_bound(x1, 2)[0]
    return normalised({word: float(v) + math.log(len(ways)) for (word, ways), v in zip(made.items(), log_p)})


@torch.no_grad()
def in_one_pass(method: Method, left: str, made: dict[str, list]) -> dict[str, float]:
    "Read gaps and letters of a sequence, given that one letter is missing."
    prompt = [..., *(piece for letter in left for piece in (letter, ...))]
    x1 = collate([filled_example(prompt, [""] * (len(left) + 1), method.vocabulary)])
    memory = method.read_prompts(prompt_of(x1))
    gaps = method.gap_scores(memory)[0, :-1].log_softmax(-1)
    where = torch.arange(len(left) + 1)
    rows = memory.rows(torch.zeros(len(where), dtype=torch.long))
    tokens = method.token_logits(rows, where).log_softmax(-1)
    log_p = (gaps[:len(where), None] + tokens).double()
    ids = {letter: method.vocabulary.encode(letter)[0] for letter in {a for ways in made.values() for _, a in ways}}
    table = log_p.tolist()
    return normalised({word: math.log(math.fsum(math.exp(table[gap][ids[a]]) for gap, a in ways) or 1e-300)
                       for word, ways in made.items()})


def kl(exact: dict, found: dict) -> float:
    return math.fsum(p * (math.log(p) - math.log(max(found.get(key, 0.0), 1e-300))) for key, p in exact.items() if p)


def of_gaps(law: dict[str, float], made: dict[str, list]) -> dict[int, float]:
    "Return the distribution of the gap; the gaps that make one word share its probability."
    found = Counter()
    for word, p in law.items():
        for gap, _ in made[word]: found[gap] += p / len(made[word])
    return found


def scores(law, method: Method, answer: Callable, cases: Sequence[str]) -> dict:
    "Score answers on cases, of which all candidates are listed."
    joint, gaps, spent = [], [], 0.0
    for left in cases:
        made = candidates(left, law.letters)
        exact = normalised({word: law.log_p(word) + math.log(len(ways)) for word, ways in made.items()})
        begun = time.process_time()
        found = answer(method, left, made)
        spent += time.process_time() - begun
        joint.append(kl(exact, found))
        gaps.append(kl(of_gaps(exact, made), of_gaps(found, made)))
    error = statistics.stdev(joint) / len(joint) ** 0.5
    return dict(kl=round(statistics.fmean(joint), 4), kl_se=round(error, 4), gap_kl=round(statistics.fmean(gaps), 4),
                ms=round(1000 * spent / len(cases), 2), case_kl=[round(v, 3) for v in joint])


def cases_of(law, n: int) -> list[str]:
    "Draw sequences and delete a letter of each."
    rng, found = random.Random("cases"), []
    while len(found) < n:
        word = law.draw(rng)
        k = rng.randrange(len(word))
        if len(word) > 2: found.append(word[:k] + word[k + 1:])
    return found


def run(name: str, seconds: int, seed: int):
    "Train the entrants for some seconds, in turn, score them, and note."
    if all(noted(RESULTS, f"{name} {entrant} {seconds} {seed}", {}) for entrant in ENTRANTS): return
    law = LAWS[name]()
    vocabulary, cases = Vocabulary(law.letters), cases_of(law, CASES)
    made = race({entrant: partial(trainer_of, law, vocabulary, entrant, seed) for entrant in ENTRANTS}, seconds)
    answers = dict(ar=by_scores, whole=in_one_pass, one=in_one_pass)
    uniform = scores(law, None, lambda _, left, made: normalised({w: math.log(len(g)) for w, g in made.items()}), cases)
    note(RESULTS, dict(name=f"{name} cases", law=name, cases=cases, uniform=uniform["kl"],
                       uniform_gap=uniform["gap_kl"]))
    for entrant, racer in made.items():
        found = scores(law, racer.method, answers[entrant], cases)
        note(RESULTS, dict(name=f"{name} {entrant} {seconds} {seed}", law=name, entrant=entrant, seed=seed,
                           seconds=seconds, **row_of(racer), **found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("laws", nargs="+", choices=LAWS)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for name in args.laws: run(name, args.seconds, seed)


if __name__ == "__main__": main()
