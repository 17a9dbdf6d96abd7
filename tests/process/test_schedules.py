"""The public contract of loflexmdm.process.schedules: shapes, dtypes, ends, gradients, errors, and exact values on
small cases."""
from itertools import permutations
from math import e, exp, inf, log

import pytest
import torch
from torch.testing import assert_close

from loflexmdm.methods.order_model import ScheduleRegulariser
from loflexmdm.process.clocks import Kumaraswamy
from loflexmdm.process.readings import ClockProposal
from loflexmdm.process.schedules import clock_log_probs, order_log_prob, sample_event_taus
from loflexmdm.process.schedules import sample_states, state_log_probs

D = torch.float64


def d(*values): return torch.tensor(values, dtype=D)


# clock

@pytest.mark.parametrize("a", [0.5, 1.0, 2.0, 5.0])
def test_clock_ends_and_inverse(a):
    clock, t = Kumaraswamy(a), d(0.0, 1e-3, 0.4, 0.999, 1.0)
    tau = clock.tau(t)
    assert tau[0] == 0 and tau[-1] == inf and bool((tau.diff() > 0).all())
    assert_close(clock.time(tau), t, rtol=1e-12, atol=0)


def test_clock_is_accurate_in_float32_at_both_ends():
    t = torch.tensor([1e-30, 1e-7, 0.5, 1 - 2**-24])
    want = [1e-30, 1e-7, log(2), 24 * log(2)]
    assert_close(Kumaraswamy(1.0).tau(t), torch.tensor(want), rtol=3e-7, atol=0)


def test_clock_gradients_are_finite_everywhere():
    for a in (0.5, 1.0, 5.0):
        t = torch.tensor([0.0, 1e-6, 0.5, 1 - 6e-8, 1.0], requires_grad=True)
        b = torch.tensor(0.7, requires_grad=True)
        assert torch.isfinite(torch.autograd.grad(Kumaraswamy(a).tau(t)[:-1].sum(), t)[0]).all()
        assert torch.isfinite(torch.autograd.grad(Kumaraswamy(a).cdf(t, b).sum(), b)[0])


def test_cdf_and_quantile_at_the_ends():
    clock, b = Kumaraswamy(2.0), d(0.3)
    assert clock.cdf(d(0.0, 1.0), b).tolist() == [0, 1]
    assert clock.quantile(d(0.0, 1.0), b).tolist() == [0, 1]


@pytest.mark.parametrize("a", [0.0, -1.0, inf, float("nan")])
def test_clock_refuses_exponents(a):
    with pytest.raises(ValueError, match="a="): Kumaraswamy(a)


# state probabilities

def test_values_known_by_hand():
    p = clock_log_probs(d(1.0), d(1.0), d(1.0)).exp()[0]
    assert_close(p, d(1 / e, 1 / e, 1 - 2 / e), rtol=1e-14, atol=0)
    p = clock_log_probs(d(log(2)), d(2.0), d(1.0)).exp()[0]  # 1/4, 2 (1/2 - 1/4), (1 - 1/2)^2
    assert_close(p, d(0.25, 0.5, 0.25), rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "b_in, b_um", [(1e-3, 1e3), (1e3, 1e-3), (1.0, 1.0), (1.0, 1.0 + 1e-12), (1e3, 1e3), (1e-3, 1e-3)]
)
def test_sums_to_one_and_swapping_rates_leaves_clean_alone(b_in, b_um):
    t = torch.linspace(0, 1, 201, dtype=D)
    p, q = (state_log_probs(t, d(*v), d(*w)) for v, w in (((b_in,), (b_um,)), ((b_um,), (b_in,))))
    assert_close(p.logsumexp(-1), torch.zeros(201, dtype=D), rtol=0, atol=1e-14)
    assert_close(p[:, 2], q[:, 2], rtol=1e-13, atol=0)  # a sum of two exponentials does not know their order


def test_monotone_and_bounded_across_branches():
    tau = torch.logspace(-8, 3, 4000)
    p = clock_log_probs(tau, torch.tensor(3.0), torch.tensor(0.4))
    assert bool((p <= 0).all())
    assert bool((p[:, 0].diff() <= 0).all()) and bool((p[:, 2].diff() >= -2e-6).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keeps_dtype_and_broadcasts(dtype):
    out = state_log_probs(torch.linspace(0.1, 0.9, 4)[:, None].to(dtype), torch.ones(3, dtype=dtype), 2.0)
    assert out.shape == (4, 3, 3) and out.dtype == dtype and torch.isfinite(out).all()


def test_python_numbers_take_the_dtype_of_the_tensors():
    assert state_log_probs(0.3, 1.0, 2.0).dtype == torch.get_default_dtype()
    assert_close(state_log_probs(0.3, d(1.0), 2.0)[0, 0], torch.tensor(log(0.7), dtype=D), rtol=1e-15, atol=0)
    assert state_log_probs(1, 1, 1).tolist() == [-inf, -inf, 0]


@pytest.mark.parametrize("a", [0.5, 1.0, 2.0, 5.0])
def test_ends_are_exact_and_gradients_finite(a):
    t, b, c = (
        torch.tensor(v, requires_grad=True)
        for v in ([0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 50.0, 0.01], [1.0, 1.0, 0.01, 50.0])
    )
    out = state_log_probs(t, b, c, a)
    assert out.tolist() == [[0, -inf, -inf], [-inf, -inf, 0]] * 2
    for k in range(3):
        for g in torch.autograd.grad(out[:, k].sum(), (t, b, c), retain_graph=True): assert g.tolist() == [0] * 4


def test_underflow_of_one_rate_is_the_start_and_not_the_end():
    out = clock_log_probs(torch.tensor(1e-44), torch.tensor(1e3), torch.tensor(1e-3))  # b_um tau is 0 in float32
    assert out.tolist() == [0, -inf, -inf]


@pytest.mark.parametrize("gap", [0.0, 1e-7, -1e-7, 1e-3])
def test_gradients_at_and_near_ties(gap):
    tau, b = 1.7, 1.3
    b_in, b_um = (torch.tensor(v, dtype=D, requires_grad=True) for v in (b + gap, b))
    g_in, g_um = torch.autograd.grad(clock_log_probs(torch.tensor(tau, dtype=D), b_in, b_um)[1], (b_in, b_um))
    assert g_in.item() == pytest.approx(1 / b - tau / 2, abs=2 * abs(gap) + 1e-13)
    assert g_um.item() == pytest.approx(-tau / 2, abs=2 * abs(gap) + 1e-13)


def test_gradients_keep_their_digits_where_terms_cancel():
    # P[M] = b/(b-c) (e^-c tau - e^-b tau); for b tau >> 1, d log P[M] / d b = 1/b - 1/(b-c) = -c / (b (b-c))
    b, c = torch.tensor(1e3, requires_grad=True), torch.tensor(1e-3)
    g = torch.autograd.grad(clock_log_probs(torch.tensor(5.0), b, c)[1], b)[0]
    assert g.item() == pytest.approx(-1e-3 / (1e3 * (1e3 - 1e-3)), rel=1e-5)


@pytest.mark.parametrize(
    "x, y", [(1.0, 0.3), (1.0, 1.0), (2.0, 1.0), (1.0 + 1e-12, 0.4), (3.0, 1.5), (0.2, 4.0), (1e-9, 1e-9), (40.0, 1e-6)]
)
def test_gradcheck_at_the_borders_of_the_branches(x, y):
    inputs = [torch.tensor(log(v), dtype=D, requires_grad=True) for v in (1.0, x, y)]
    assert torch.autograd.gradcheck(lambda *v: clock_log_probs(*(w.exp() for w in v)), inputs, rtol=1e-6, atol=1e-7)


def test_second_derivatives_at_a_tie():
    inputs = [torch.tensor(v, dtype=D, requires_grad=True) for v in (0.8, 1.5, 1.5)]
    assert torch.autograd.gradgradcheck(clock_log_probs, inputs, rtol=1e-4)


@pytest.mark.parametrize(
    "bad, name",
    [
        (dict(t=1.0001), "t="), (dict(t=torch.tensor([0.5, -1e-9])), "t="), (dict(t=float("nan")), "t="),
        (dict(b_in=0.0), "b_in="), (dict(b_in=torch.tensor([1.0, -1.0])), "b_in=-1"),
        (dict(b_um=float("nan")), "b_um="), (dict(b_um=inf), "b_um="), (dict(a=0.0), "a="),
    ],
)
def test_state_log_probs_refuses(bad, name):
    with pytest.raises(ValueError, match=name): state_log_probs(**(dict(t=0.5, b_in=1.0, b_um=1.0) | bad))


# sampling

def test_event_times_reproduce_and_are_ordered():
    draw = lambda seed: sample_event_taus(
        torch.tensor([[0.1], [9.0]], dtype=D), torch.ones(1, 500, dtype=D), torch.Generator().manual_seed(seed)
    )
    (tau_in, tau_um), again, other = draw(1), draw(1), draw(2)
    assert tau_in.shape == tau_um.shape == (2, 500) and bool((tau_um > tau_in).all())
    assert torch.equal(tau_in, again[0]) and torch.equal(tau_um, again[1]) and not torch.equal(tau_in, other[0])


def test_library_draws_leave_the_global_generator_alone_when_given_one():
    before = torch.get_rng_state()
    sample_states(torch.tensor(1.0), torch.ones(5), torch.ones(5), torch.Generator().manual_seed(0))
    ClockProposal()(5, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


def test_states_at_the_ends():
    b = torch.ones(100)
    assert sample_states(torch.tensor(0.0), b, b).tolist() == [0] * 100
    assert sample_states(torch.tensor(inf), b, b).tolist() == [2] * 100


def test_state_frequencies():
    n, b_in, b_um = 100_000, torch.tensor(0.5, dtype=D), torch.tensor(4.0, dtype=D)
    states = sample_states(torch.tensor(1.2, dtype=D), b_in.expand(n), b_um.expand(n), torch.Generator().manual_seed(3))
    p = clock_log_probs(torch.tensor(1.2, dtype=D), b_in, b_um).exp()
    z = (states.bincount(minlength=3) / n - p) / (p * (1 - p) / n).sqrt()
    assert z.abs().max() < 4


# order of insertion

def test_order_by_hand():
    assert order_log_prob(d(4, 1), torch.tensor([0, 1])).item() == pytest.approx(log(0.8), rel=1e-14)
    assert order_log_prob(d(2, 1, 5), torch.tensor([2, 0, 1])).item() == pytest.approx(log(5 / 8 * 2 / 3), rel=1e-14)


def test_order_sums_to_one_and_is_free_of_scale():
    b, orders = d(1e-3, 1.0, 7.0, 1e3), torch.tensor(list(permutations(range(4))))
    assert order_log_prob(b, orders).logsumexp(0).item() == pytest.approx(0, abs=1e-13)
    assert_close(order_log_prob(b, orders), order_log_prob(37 * b, orders), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", list(permutations(range(4))))
def test_order_ignores_invalid_positions_wherever_they_stand(place):
    b, valid = (
        torch.tensor([2.0, -1.0, 3.0, float("nan")], dtype=D, requires_grad=True),
        torch.tensor([True, False, True, False]),
    )
    got = order_log_prob(b, torch.tensor(place), valid)
    first = next(p for p in place if p in (0, 2))
    assert got.item() == pytest.approx(log({0: 2, 2: 3}[first] / 5), rel=1e-13)
    g = torch.autograd.grad(got, b)[0]
    assert torch.isfinite(g).all() and g[1] == 0 and g[3] == 0


def test_order_gradient():
    b = d(0.5, 2.0, 3.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: order_log_prob(v, torch.tensor([[1, 0, 2], [2, 1, 0]])), [b])


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1], [0, 1, 3], [-1, 0, 1], [[0, 1, 2], [0, 2, 2]]])
def test_order_refuses_what_is_no_permutation(order):
    with pytest.raises(ValueError, match="permutation"):
        order_log_prob(torch.ones(3), torch.tensor(order), torch.tensor([True, True, False]))


def test_order_refuses_rates():
    with pytest.raises(ValueError, match="b=0"): order_log_prob(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]))


# proposal and regulariser

def test_proposal_is_stratified_and_weighted_by_its_density():
    tau, weight = ClockProposal(3.0)(64, torch.Generator().manual_seed(0), dtype=D)
    u = tau / (3 + tau)
    assert sorted((u * 64).long().tolist()) == list(range(64)) and (u * 64).long().tolist() != list(range(64))
    assert_close(weight, (3 + tau) ** 2 / 3)


def test_proposal_refuses():
    with pytest.raises(ValueError, match="c=0"): ClockProposal(0.0)
    with pytest.raises(ValueError, match="n=0"): ClockProposal()(0)


def test_regulariser_by_hand():
    regulariser = ScheduleRegulariser(grid=2, t_eps=0.1, delta=0.25)
    b, valid = (
        torch.tensor([[3.0, 1.0, float("nan")], [1.0, 1.0, 1.0], [9.0, 9.0, 9.0]], dtype=D),
        torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]]).bool(),
    )
    mixture = sum((1 - ((1 - t) ** 3 + (1 - t)) / 2 - t) ** 2 for t in (0.25, 0.75)) / 2
    ends = (1 - 0.9**3 - 0.25) ** 2 / 2
    assert_close(regulariser(b, valid), d(mixture + ends, 0, 0), rtol=1e-12, atol=1e-15)


def test_regulariser_is_zero_for_the_uniform_schedule_and_differentiable():
    b = torch.ones(2, 4, requires_grad=True)
    value = ScheduleRegulariser()(b, torch.ones(2, 4, dtype=torch.bool))
    assert value.max() < 1e-12
    assert torch.isfinite(torch.autograd.grad(value.sum(), b)[0]).all()


@pytest.mark.parametrize("bad", [dict(grid=0), dict(t_eps=0.5), dict(t_eps=0.0), dict(delta=1.0), dict(delta=-0.1)])
def test_regulariser_refuses(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): ScheduleRegulariser(**bad)


def test_finalisation_is_not_insertion_order():
    n = 50_000
    done = sample_event_taus(d(4, 1).expand(n, 2), torch.ones(n, 2, dtype=D), torch.Generator().manual_seed(0))
    share_in, share_um = ((v[:, 0] < v[:, 1]).double().mean().item() for v in done)
    assert share_in == pytest.approx(exp(order_log_prob(d(4, 1), torch.tensor([0, 1])).item()), abs=0.008)
    assert share_um == pytest.approx(17 / 25, abs=0.009)
