"Clock readings at events: their density, their weight and its limits."
import pytest
import torch

from loflexmdm.process.readings import EventProposal, draw_events, event_density

def seeded(seed): return torch.Generator().manual_seed(seed)


def test_the_density_of_two_equal_positions_is_that_of_one():
    tau, b = torch.tensor([0.3, 2.0], dtype=torch.float64), torch.full((2, 2), 3.0, dtype=torch.float64)
    one = event_density(tau, b[:, :1], b[:, :1], torch.ones(2, 1, dtype=torch.bool))
    two = event_density(tau, b, b, torch.ones(2, 2, dtype=torch.bool))
    torch.testing.assert_close(one, two)
    torch.testing.assert_close(one, 3 * (-3 * tau).exp() * (1 + 3 * tau) / 2)  # Exp(3) and Gamma(2, 3), half each


def test_events_of_a_fast_position_come_early():
    b, free = torch.tensor([[1e-3, 1e3]]).repeat(500, 1), torch.tensor([[False, True]]).repeat(500, 1)
    assert draw_events(b, torch.full_like(b, 1e3), free, seeded(0)).max() < 0.1
    assert draw_events(b, torch.full_like(b, 1e3), ~free, seeded(0)).median() > 100


def test_readings_of_a_sequence_without_free_positions_are_those_of_the_clock():
    b, free = torch.ones(64, 3), torch.zeros(64, 3, dtype=torch.bool)
    tau, weight = EventProposal(c=1.5)(b, b, free, seeded(0))
    torch.testing.assert_close(weight, (1.5 + tau) ** 2 / 1.5)


def test_a_weight_is_one_over_the_density_of_the_mixture_and_has_no_gradient():
    "In closed form for one position with both rates 3: Exp(3) and Gamma(2, 3), half each, beside the clock's own."
    b = torch.full((256, 1), 3.0, dtype=torch.float64, requires_grad=True)
    free = torch.ones(256, 1, dtype=torch.bool)
    tau, weight = EventProposal(share=0.75, c=1.5)(b, b, free, seeded(0))
    events = 3 * (-3 * tau).exp() * (1 + 3 * tau) / 2
    torch.testing.assert_close(1 / weight, 0.75 * events + 0.25 * 1.5 / (1.5 + tau) ** 2)
    assert not tau.requires_grad and not weight.requires_grad


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="share"): EventProposal(share=share)
