"Entropy-bounded sampling: what a call resolves, at its extremes, with prompts and in batches of any size."
import math
from itertools import product

import pytest
import torch

from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import BOS, MASK, PartialSequences
from loflexmdm.samplers import EntropyBounded, Limits, Planner, simulate
from loflexmdm.samplers.entropy_bounded import excess, within
from loflexmdm.support.registries import SAMPLERS

POSITIONS, LETTERS = 3, 2


def network(law):
    "Exact conditional distributions of a law on strings of three positions."
    def intensities(x, tau):
        logits = torch.zeros(*x.tokens.shape, 5, dtype=torch.float64)
        for row, tokens in enumerate(x.tokens[:, 1:].tolist()):
            fits = {s: w for s, w in law.items() if all(t in (MASK, c + 3) for t, c in zip(tokens, s))}
            for i in range(POSITIONS):
                share = [sum(w for s, w in fits.items() if s[i] == v) / sum(fits.values()) for v in range(LETTERS)]
                logits[row, i + 1, 3:] = torch.tensor(share, dtype=torch.float64).log()
        return Intensities(unmask=x.masked.double(), logits=logits)
    return intensities


def drawn(law, sampler, n, shown=()):
    "Samples of a law with the first positions shown."
    tokens = torch.tensor([[BOS, *(v + 3 for v in shown), *[MASK] * (POSITIONS - len(shown))]]).repeat(n, 1)
    x = PartialSequences(tokens, tokens != MASK, torch.ones_like(tokens, dtype=torch.bool))
    return simulate(network(law), x, sampler, range(n), Limits(9.0, POSITIONS + 1, channels=("unmask",)))


def shares(samples):
    "Share of each string."
    n = len(samples.sequences)
    return {s: samples.sequences.count([v + 3 for v in s]) / n for s in product(range(LETTERS), repeat=POSITIONS)}


def distance(seen, law, n):
    "Largest deviation in standard errors, strings of probability 0 included: they must not occur."
    z = []
    for s, share in seen.items():
        q = law.get(s, 0.0)
        z.append(math.inf if not q and share else abs(share - q) / max((q * (1 - q) / n) ** 0.5, 1e-12) if q else 0.0)
    return max(z)


COPIES = {(0, 0, 0): 0.5, (1, 1, 1): 0.5}
INDEPENDENT = {s: math.prod(0.3 if v else 0.7 for v in s) for s in product(range(2), repeat=3)}


def test_copies_of_one_coin_take_two_calls_and_stay_exact():
    samples = drawn(COPIES, EntropyBounded(error=0.01), 400)  # one coin, then both copies, which are certain
    assert samples.row_evaluations == 2 * 400
    assert distance(shares(samples), COPIES, 400) < 4


def test_a_large_allowance_draws_all_at_once_from_the_product():
    samples = drawn(COPIES, EntropyBounded(gamma=3 * math.log(2)), 1000)
    assert samples.row_evaluations == 1000
    assert distance(shares(samples), {s: 0.125 for s in product(range(2), repeat=3)}, 1000) < 4


def test_independence_is_not_known_to_the_bound():
    "Entropies alone cannot tell independent tokens from copies: exact, but one by one."
    samples = drawn(INDEPENDENT, EntropyBounded(error=0.2), 400)
    assert samples.row_evaluations == 3 * 400
    assert distance(shares(samples), INDEPENDENT, 400) < 4


def test_what_is_shown_counts_for_nothing():
    samples = drawn(COPIES, EntropyBounded(error=0.01), 50, shown=(1,))
    assert samples.row_evaluations == 50 and set(map(tuple, samples.sequences)) == {(4, 4, 4)}


def test_gamma_of_zero_is_the_planner_by_entropy_where_nothing_is_certain():
    found = (drawn(INDEPENDENT, s, 30).sequences for s in (EntropyBounded(gamma=0.0), Planner(confidence="entropy")))
    assert next(found) == next(found)


def test_a_window_bounds_what_is_resolved():
    "Certain tokens cost nothing, but the window holds two."
    law = {(0, 1, 0): 1.0}
    assert drawn(law, EntropyBounded(gamma=0.0, window=2), 10).row_evaluations == 2 * 10
    assert drawn(law, EntropyBounded(gamma=0.0), 10).row_evaluations == 10


def test_excess_and_the_longest_set_within():
    lost = excess(torch.tensor([[0.0, 0.5, 0.7, 0.7]], dtype=torch.float64))
    torch.testing.assert_close(lost, torch.tensor([[0.0, 0.0, 0.5, 1.2]], dtype=torch.float64))
    for allowed, masks, count in ((0.0, 4, 2), (0.6, 4, 3), (2.0, 4, 4), (2.0, 3, 3), (2.0, 0, 0)):
        assert within(lost, torch.tensor([[allowed]]).expand(1, 4), torch.tensor([masks])).tolist() == [count]


def test_it_is_among_the_samplers(): assert SAMPLERS["entropy-bounded"] is EntropyBounded


@pytest.mark.parametrize("wrong, words", (
    (dict(error=0.1, gamma=0.1), "give one of the two"),
    (dict(error=0.0), "error=0.0"), (dict(error=math.nan), "error=nan"),
    (dict(gamma=-1.0), "gamma=-1.0"), (dict(gamma=math.inf), "gamma=inf"),
    (dict(error=0.1, confidence="sampled"), "sampled"),
    (dict(error=0.1, temperature=0.7), "temperature=0.7"), (dict(error=0.1, top_p=0.9), "top_p=0.9"),
    (dict(error=0.1, window=0), "window=0"),
))
def test_refusals(wrong, words):
    with pytest.raises(ValueError, match=words): EntropyBounded(**wrong)


@pytest.mark.parametrize("name", ("steps", "remask"))
def test_it_has_no_fields_of_a_planner(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"): EntropyBounded(**{name: None})


def test_the_error_is_a_tenth_unless_said_otherwise(): assert EntropyBounded() == EntropyBounded(error=0.1)
