"Localized paths: known probabilities, the factorised limit, prompts and the ends of sequences."
import torch

from loflexmdm.process.localized_paths import LocalizedPath


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
