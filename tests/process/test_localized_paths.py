"Localized paths: known probabilities, the factorised limit, prompts and the ends of sequences."
import pytest
import torch

from loflexmdm.process.clocks import clock_named
from loflexmdm.process.localized_paths import LocalizedPath, shown_probability, shown_rate


def test_probabilities_known_before():
    p = shown_probability(LocalizedPath(5.0), 9, 0.5)
    assert abs(p[0] - 0.19200) < 1e-5 and abs(p[4] - 0.25291) < 1e-5
    assert torch.allclose(p, p.flip(0)) and abs(shown_rate(LocalizedPath(5.0), 9, 0.5)[4] - 1.5956) < 5e-5


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_any_clock_and_no_spread_is_the_schedule(name):
    path = LocalizedPath(0.0, clock_named(name))
    kappa = path.clock.kappa(torch.tensor(0.4, dtype=torch.float64))
    torch.testing.assert_close(shown_probability(path, 5, 0.4), kappa.expand(5))


def test_nothing_spreads_over_a_prompt():
    path = LocalizedPath(1e4)
    free = torch.tensor([[True, True, False, True, True]]).expand(400, 5)
    state = path.sample(free, torch.full((400,), 0.7, dtype=torch.float64), torch.Generator().manual_seed(0))
    assert not state.shown[:, 2].any() and (state.rate[:, 2] == 0).all()
    left, right = state.shown[:, :2].any(1), state.shown[:, 3:].any(1)
    assert (left != right).any() and (state.shown[:, 0] == state.shown[:, 1]).float().mean() > 0.95


def test_rates_are_those_of_pending_columns_next_to_what_is_shown():
    path = LocalizedPath(2.0)
    state = path.sample(torch.ones(200, 8, dtype=torch.bool), torch.full((200,), 0.6), torch.Generator().manual_seed(1))
    near = torch.zeros_like(state.shown)
    near[:, 1:] |= state.shown[:, :-1]
    near[:, :-1] |= state.shown[:, 1:]
    assert ((state.rate > 1) == (near & ~state.shown)).all() and ((state.rate > 0) == ~state.shown).all()
