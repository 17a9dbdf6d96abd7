"The penalty on schedules in closed form, and centred rates."
import math

import pytest
import torch

from loflexmdm.methods.order_model import ScheduleRegulariser, centre

T = [(k + .5) / 5 for k in range(5)]  # the grid


def cdf(t: float, b: float) -> float: return 1 - (1 - t) ** b


def test_the_mixture_is_compared_with_uniform_times():
    b = torch.tensor([[1.0, 7.0, 7.0], [2.0, .5, 7.0], [7.0, 7.0, 7.0]], dtype=torch.float64)
    valid = torch.tensor([[True, False, False], [True, True, False], [False] * 3])
    found = ScheduleRegulariser(grid=5).mixture(b, valid)
    second = sum(((cdf(t, 2) + cdf(t, .5)) / 2 - t) ** 2 for t in T) / 5
    assert found.tolist() == pytest.approx([0, second, 0])


def test_ends_may_hold_some_mass():
    penalty = ScheduleRegulariser(t_eps=.1, delta=.2)
    b = torch.tensor([[1.0, 4.0, .5], [9.0, 9.0, 9.0]], dtype=torch.float64)
    valid = torch.tensor([[True, True, True], [False] * 3])
    hinge = lambda b: max(cdf(.1, b) - .2, 0) ** 2 + max(1 - cdf(.9, b) - .2, 0) ** 2
    assert penalty.ends(b, valid).tolist() == pytest.approx([(hinge(4) + hinge(.5)) / 3, 0]) and hinge(1) == 0
    assert penalty(b, valid).equal(penalty.mixture(b, valid) + penalty.ends(b, valid))
    for part in ("mixture", "ends"):
        assert ScheduleRegulariser(t_eps=.1, delta=.2, terms=part)(b, valid).equal(getattr(penalty, part)(b, valid))


def test_rates_are_centred_among_free_positions():
    raw, free = torch.tensor([[1.0, 5.0, 9.0], [2.0, 2.0, 3.0]]), torch.tensor([[True, False, True], [False] * 3])
    assert centre(raw, free).tolist() == [[-4, 0, 4], [0, 0, 0]] and math.isfinite(centre(raw, free).sum())
