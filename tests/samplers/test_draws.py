"Draws of single numbers and choices, which all samplers share: a wrong one fails here before it fails in a sampler."
import math

import pytest
import torch
from pushing import LIMITS, prompts, pushy

from loflexmdm.process.intensities import Intensities
from loflexmdm.samplers import CONFIDENCES, Sampler, inverse_cdf, most_confident, nucleus, poisson_quantile, possible
from loflexmdm.samplers import race, row_uniforms


def test_nucleus():
    p = torch.tensor([0.15, 0.45, 0.3, 0.1], dtype=torch.float64)
    for top_p, kept in ((1e-9, 1), (0.44, 1), (0.46, 2), (0.76, 3), (0.91, 4), (1.0, 4)):
        assert (nucleus(p.log(), top_p) > 0).sum() == kept
        torch.testing.assert_close(nucleus(p.log(), top_p).sum(), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(nucleus(p.log(), temperature=0.5), p**2 / (p**2).sum())
    assert (nucleus(torch.tensor([0.0, -50.0])) > 0).all(), "a nucleus of all is the distribution"
    assert nucleus(torch.tensor([1000.0, 999.0, -torch.inf]), temperature=1e-300).tolist() == [1, 0, 0]


def test_outcomes_of_probability_zero_are_never_drawn():
    p = torch.tensor([0.0, 0.2, 0.0, 0.8, 0.0], dtype=torch.float64).expand(4, 5)
    assert inverse_cdf(p, torch.tensor([1e-300, 0.2, 0.5, 1 - 2.0**-53], dtype=torch.float64)).tolist() == [1, 3, 3, 3]


def test_poisson_quantile_means():
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    for rate in (0.0, 0.01, 1.0, 30.0):
        k = poisson_quantile(u, torch.full_like(u, rate)).double()
        torch.testing.assert_close(
            torch.stack([k.mean(), k.var()]), torch.full((2,), rate, dtype=torch.float64), rtol=2e-3, atol=1e-4
        )


def test_uniforms_belong_to_rows():
    generators = lambda: [torch.Generator().manual_seed(s) for s in (3, 4)]
    u = row_uniforms(generators(), torch.tensor([2, 5]))
    torch.testing.assert_close(u[1], torch.rand(5, generator=generators()[1], dtype=torch.float64), rtol=0, atol=0)
    assert (u[0, 2:] == 0.5).all() and (u > 0).all() and (u < 1).all()


def test_race_prefers_in_proportion():
    n = 20_000
    out = Intensities(
        torch.tensor([[1.0, 0.0, 2.0]]).double().expand(n, 3), torch.tensor([[0.0, 0.5, 0.0]]).double().expand(n, 3)
    )
    events, elapsed = race(
        out,
        torch.rand(n, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        torch.full((n,), torch.inf, dtype=torch.float64),
    )
    fire, counts = events["unmask"], events["insert"]
    share, want = (
        torch.stack([counts[:, 0].sum(), fire[:, 1].sum(), counts[:, 2].sum()]) / n,
        torch.tensor([1.0, 0.5, 2.0]) / 3.5,
    )
    assert ((share - want) / (want * (1 - want) / n).sqrt()).abs().max() < 4
    assert abs(elapsed.mean().item() * 3.5 - 1) < 4 / n**0.5 and (fire.sum(1) + counts.sum(1) == 1).all()


def test_a_mask_fires_once():
    out = Intensities(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.0, 9.0]], dtype=torch.float64))
    events, elapsed = race(
        out, torch.full((1, 4, 2), 0.5, dtype=torch.float64), torch.tensor([5.0], dtype=torch.float64)
    )
    assert events["unmask"].tolist() == [[0, 1]] and events["insert"].sum() == 0 and elapsed.isinf().all()


@pytest.mark.parametrize("name", CONFIDENCES)
def test_confidence_ranks_the_sure_first(name):
    k = torch.tensor([[[0.1, 0.9], [0.5, 0.5], [0.3, 0.7]]], dtype=torch.float64)
    rate = torch.tensor([[3.0, 1.0, 2.0]], dtype=torch.float64)
    score = CONFIDENCES[name](k, rate, torch.tensor([[1, 1, 1]]))
    chosen = most_confident(torch.tensor([[False, True, True]]), torch.ones(1, 3, dtype=torch.bool), score)
    assert chosen.tolist() == [[True, False, True] if name != "leftmost" else [True, True, False]]


def test_possible_removes_the_impossible():
    state = Sampler().init(prompts([["a", ..., "b"]]), [torch.Generator()], LIMITS)
    out = possible(pushy(state.x, state.tau), state)
    assert (out.insert > 0).tolist() == [[False, True, False]]
    assert not out.unmask.any()
    assert out.logits[..., :3].isneginf().all()
    assert not possible(pushy(state.x, state.tau), state._replace(full=torch.tensor([True]))).insert.any()


def test_a_poisson_count_is_the_smallest_above_the_number():
    "With rate log 2: P(N <= 0) = 1/2, so that 1/2 itself is a count of 1."
    rate = torch.full((3,), math.log(2), dtype=torch.float64)
    u = torch.tensor([math.nextafter(0.5, 0), 0.5, 0.5 * (1 + math.log(2)) + 1e-12], dtype=torch.float64)
    assert poisson_quantile(u, rate).tolist() == [0, 1, 2]
    assert poisson_quantile(torch.zeros(2), torch.tensor([0.0, 9.0])).tolist() == [0, 0]
