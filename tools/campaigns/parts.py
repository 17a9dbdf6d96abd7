"""Methods and samplers of the registry, plug-ins included, under hostile hooks, weights, limits, batches and seeds.

An attack survives if one line refuses it, or if the samples keep what was asked for."""
import random
from collections.abc import Callable
from functools import partial

import pytest
import torch
from registered import CASES, SIMULATED, VOCABULARY, WRONG, Hook, build, can_edit, can_sample, clean, complete, data_for
from registered import draw, registered, rewrite, sampler_named, seeded, with_hook

from campaigns.attacks import Tally, isolated_each, what_went_wrong
from loflexmdm.methods.sampling import Request
from loflexmdm.process.states import SPECIAL_TOKENS, PartialSequences
from loflexmdm.samplers import Samples

SECONDS = 60  # of processor time, after which a generation counts as one without end
TEXTS = ["a|bc", "a|", "|d", "|", "abcd|abc", "b|aaaaa"]
NEVER = "nothing", "another shape", "numbers", "a list"  # hooks of which no call may be overlooked
VALUES = [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 1e4, 0.0]
LENGTHS = [-10**30, -1, 0, 9, 100, 10**30]  # that are out of range, or nearly
SEEDS = [-2**63 - 1, -2**63, -1, 0, 2**31, 2**32, 2**32 + 1, 2**63, 2**64 - 1, 2**64, 10**30]


def one_line(error: ValueError):
    "Check that a refusal is one line of words."
    assert len(str(error).splitlines()) == 1, f"refused in several lines: {error}"


def refused_or(check: Callable, call: Callable):
    "Check what a call returns, unless it is refused in one line."
    try: found = call()
    except ValueError as error: return one_line(error)
    check(found)


def check_samples(samples: Samples, n: int, least: int = 0, most: int = 8):
    "Check the number of samples, their lengths with the start token, and that they hold ordinary tokens only."
    assert len(samples) == n, f"{len(samples)} samples in place of {n}"
    lengths = [len(tokens) + 1 for tokens in samples.sequences]
    assert all(least <= length <= most for length in lengths), f"lengths {lengths}, asked {least} to {most}"
    ids = {t for tokens in samples.sequences for t in tokens}
    assert ids <= set(VOCABULARY.encode(VOCABULARY.ordinary)), f"ids {sorted(ids)}"


def generate(method, rng: random.Random, n: int = 4, **settings) -> Samples:
    "Samples, or edits where a method has both or these alone."
    editing = can_edit(method) and (not can_sample(method) or rng.random() < 0.3)
    if editing: return rewrite(method, rng.choices([["a"], ["b", "c"], ["d", "a", "a"]], k=2), n=n // 2, **settings)
    return draw(method, rng.choices([[], ["a"], ["b", "c"]], k=2), n // 2, **settings)


class Late(Hook):
    "A hook that is wrong from one of its calls on."
    def __init__(self, change, of, first): super().__init__(self.late, of); self.own, self.left = change, first
    def late(self, values):
        self.left -= 1
        return values if self.left >= 0 else self.own(values)


def special(values, rng: random.Random):
    "Scores that prefer a special token, or several."
    raised = values.clone()
    raised[..., rng.randrange(len(SPECIAL_TOKENS)):len(SPECIAL_TOKENS)] = rng.choice([5.0, 50.0, 1e30])
    return raised


def hooks(rng: random.Random):
    "A hook of a sampler that is wrong, now or later."
    name, case = rng.choice([(n, c) for n, c in SIMULATED if getattr(sampler_named(n), "hooked", True)])
    wrong = rng.choice([*WRONG, "special"])
    of = ("tokens",) if wrong == "special" else rng.choice([("gaps",), ("tokens",), ("gaps", "tokens")])
    change = WRONG.get(wrong) or partial(special, rng=rng)
    hook = Late(change, of, rng.choice([0, 0, 1, 2, 5]))
    sampler = with_hook(sampler_named(name), hook)

    def check(samples):
        check_samples(samples, 4)
        assert wrong not in NEVER or hook.left >= 0, f"{name} for {case}: {wrong} was taken"
    method = build(case)
    refused_or(check, lambda: generate(method, rng, sampler=sampler, seed=rng.randrange(2**62)))


def weights(rng: random.Random):
    "Some weights that are NaN, infinite or far too large."
    name, case = rng.choice(SIMULATED)
    method, value, all_of = build(case), rng.choice(VALUES), rng.random() < 0.3
    parameters = list(method.parameters())
    with torch.no_grad():
        for p in parameters if all_of else [rng.choice(parameters)]:
            flat, kind = p.view(-1), rng.randrange(3)
            if kind == 0: flat[rng.randrange(len(flat))] = value
            elif kind == 1: p.fill_(value)
            else: p.mul_(value)
    settings = dict(sampler=sampler_named(name), seed=rng.randrange(2**62))
    refused_or(lambda found: check_samples(found, 4), lambda: generate(method, rng, **settings))


def limits(rng: random.Random):
    "Smallest and largest lengths."
    name, case = rng.choice(SIMULATED)
    least = rng.choice([0, 0, 0, rng.randint(1, 4), rng.choice(LENGTHS)])
    most = rng.choice([None, *[rng.randint(1, 8)] * 4, rng.choice(LENGTHS)])
    sampler = sampler_named(name) if rng.random() < 0.7 else None
    settings = dict(sampler=sampler, seed=rng.randrange(2**62), min_length=least, max_length=most)
    if rng.random() < 0.3: settings["batch_size"] = rng.choice([-1, 0, 1, 3, 10**30])
    check = lambda found: check_samples(found, 4, least, 8 if most is None else min(most, 8))
    method = build(case, shake=rng.choice([0.3, 1.0, 3.0]))
    refused_or(check, lambda: generate(method, rng, **settings))


def spoilt_batch(rng: random.Random) -> tuple[PartialSequences, bool]:
    "A batch of no rows, or with rows in which nothing is generated, and whether it has rows."
    kind = rng.randrange(4)
    if kind == 0: return clean(*rng.choices(TEXTS, k=2)).rows(slice(0, 0)), False
    if kind == 1: return complete(*rng.choices(["a", "ab", "abcd"], k=rng.randint(1, 3))), True
    return clean(*rng.choices(TEXTS[1::2] if kind == 2 else TEXTS, k=rng.randint(1, 5))), True


def empty(rng: random.Random):
    "Losses and bounds of batches with nothing in them, or with little."
    case = rng.choice(list(CASES))
    method, (batch, rows) = build(case), spoilt_batch(rng)
    batch = data_for(method, batch)

    def check(found):
        assert rows, f"{case}: a batch of no rows is taken"
        loss, (mean, error) = found
        assert loss.isfinite() and mean.shape == error.shape == (len(batch.tokens),), f"{case}: {loss} {mean}"
        assert mean.isfinite().all() and error.isfinite().all(), f"{case}: {mean} {error}"
    seed = rng.randrange(2**62)
    both = lambda: (method.loss(batch, seeded(seed)).loss, method.nll_bound(batch, 3, seeded(seed)))
    refused_or(check, both)


def seeds(rng: random.Random):
    "Seeds of more than 32 bits: another bit gives other rows, another batch size the same."
    name, case = rng.choice(SIMULATED)
    seed = rng.choice(SEEDS) if rng.random() < 0.3 else rng.randrange(-2**63, 2**64)
    method, sampler = build(case).double(), sampler_named(name)

    def check(samples):
        check_samples(samples, 4)
        assert -2**63 <= seed < 2**64, f"seed {seed} is taken"
        parts = drawn(batch_size=rng.choice([1, 3]))
        assert parts.sequences == samples.sequences, f"{name} for {case}: other samples in other batches"
        other = seed ^ 1 << rng.randrange(32, 63)
        assert Request(seed=other).seeds(4) != Request(seed=seed).seeds(4), f"seeds {seed} and {other} agree"
    state = rng.getstate()

    def drawn(**settings):
        again = random.Random()
        again.setstate(state)
        return generate(method, again, sampler=sampler, seed=seed, **settings)
    refused_or(check, drawn)


KINDS = dict(hooks=hooks, weights=weights, limits=limits, empty=empty, seeds=seeds)


def kind_of(number: int) -> str: return list(KINDS)[number % len(KINDS)]


def attack(seed: int, number: int): KINDS[kind_of(number)](random.Random(f"{seed} parts {number}"))


def campaign(tally: Tally, seed: int, numbers: range, together: int = 25):
    "Attack parts of the registry, some attacks in each process; number `i` depends on `seed` and `i` alone."
    with pytest.MonkeyPatch.context() as patch:
        registered(patch)
        for first in range(numbers.start, numbers.stop, together):
            some = range(first, min(first + together, numbers.stop))
            for i, told in zip(some, isolated_each([partial(attack, seed, i) for i in some], SECONDS)):
                tally.note(kind_of(i), f"seed {seed}, number {i}", what_went_wrong(told))
