"Enumeration: exact laws, oracle generators, forward equation, bounds."
import math

import pytest
import scipy.linalg
import torch

from loflexmdm.exact.ctmc import ToyLaw, aligned_batch, aligned_log_probs, aligned_rates, as_batch
from loflexmdm.exact.ctmc import clock_quadrature, compare, enumerate_states, evaluate, exit_rates
from loflexmdm.exact.ctmc import final_law, kfe_residual, locate, marginals, oracle, partial_moves
from loflexmdm.exact.ctmc import path_bounds, rate_matrix, resolve_masks, total_variation, uniform_logits
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import CLEAN, DROPPED, MASK, contract

P = {"aab": .35, "ab": .25, "bb": .25, "a": .15}


def wild(seed=0, scale=.6):
    "The toy law with its own random schedule at every position."
    g = torch.Generator().manual_seed(seed)
    def b(sequence): return torch.exp(scale * torch.randn(len(sequence), generator=g, dtype=torch.float64))
    return ToyLaw.of(P, b_in=b, b_um=b)


def times(*values): return torch.tensor(values, dtype=torch.float64)


def test_states_of_two_equal_tokens():
    space = enumerate_states([(3, 3)])
    assert len(space.row) == 9
    assert set(space.partial) == {(), (MASK,), (3,), (MASK, MASK), (MASK, 3), (3, MASK), (3, 3)}


def test_the_law_reads_its_probabilities():
    law = ToyLaw.of(P, b_in=len)
    assert law.entropy == pytest.approx(-sum(p * math.log(p) for p in P.values()))
    assert law.b_in[0].tolist() == [3, 3, 3] and law.b_in[3, 0] == 1
    assert [law.space.partial[i] for i in law.clean] == [tuple(s) for s in law.ids]


@pytest.mark.parametrize(
    "arguments",
    [
        dict(probs={"a": 0.5, "b": 0.6}),
        dict(probs={"a": 1.5, "b": -0.5}),
        dict(probs={"a": 1.0}, b_in=0.0),
        dict(probs={"a": 1.0}, b_um=lambda s: [math.nan]),
    ],
)
def test_bad_laws_are_refused(arguments):
    with pytest.raises(ValueError, match="must be positive"): ToyLaw.of(**arguments)


@pytest.mark.parametrize("seed", range(3))
def test_closed_form_is_the_matrix_exponential(seed):
    law = wild(seed)
    start = torch.tensor(
        [
            float(all(s == DROPPED for s in state[: len(law.ids[k])]))
            for k, state in zip(law.space.row.tolist(), law.space.state.tolist())
        ]
    ).double()
    for tau in (.05, 1., 6.):
        flow = torch.from_numpy(scipy.linalg.expm(tau * aligned_rates(law).numpy()))
        torch.testing.assert_close(aligned_log_probs(law, times(tau))[0].exp(), start @ flow, rtol=1e-10, atol=1e-14)


def test_rate_matrices_conserve_probability():
    law = wild()
    R = rate_matrix(law.space, evaluate(law.oracle(), law.space, times(.5, 2.)))
    torch.testing.assert_close(R.sum(-1), torch.zeros(2, len(R[0])).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(aligned_rates(law).sum(-1), torch.zeros(48).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(marginals(law, times(.5, 2.)).sum(-1), torch.ones(2).double())


@pytest.mark.parametrize("seed", range(3))
def test_projected_rates_generate_the_marginals(seed):
    law = wild(seed)
    for tau in (.02, .7, 5.): assert kfe_residual(law, law.oracle(), tau).abs().max() < 1e-12


def test_the_forward_equation_notices_wrong_rates():
    law = wild()
    def late(x, tau): return law.oracle()(x, tau + .05)
    def fast(x, tau): return (out := law.oracle()(x, tau))._replace(unmask=out.unmask * 1.1)
    for model in (late, fast): assert kfe_residual(law, model, 1.).abs().max() > 1e-3


def test_the_oracle_ends_at_the_data_law():
    law = wild(1)
    end = final_law(law.space, law.oracle(), tau_max=120.)
    assert end.error < 1e-8
    torch.testing.assert_close(end.probs[law.clean], law.probs, rtol=0, atol=1e-7)


def test_too_few_steps_are_an_error():
    law = wild()
    with pytest.raises(RuntimeError, match="tol=1e-30"): final_law(law.space, law.oracle(), tol=1e-30, most=512)


def test_mass_that_leaves_the_space_is_missing():
    law = ToyLaw.of({"a": 1.})
    def eager(x, tau):
        return Intensities(torch.exp(-tau)[:, None] * x.open, x.masked.double(), law.oracle()(x, tau).logits)
    probs = final_law(law.space, eager, tau_max=40.).probs
    # the integral of e^{-s} e^{-2(1-s)}: one insertion at s, none in the two gaps after it
    one = math.exp(-1) - math.exp(-2)
    assert probs[law.clean].item() == pytest.approx(one, abs=1e-7)
    assert probs.sum().item() == pytest.approx(one + math.exp(-1), abs=1e-7)


def test_oracle_interface():
    law = wild()
    x = as_batch([(), (MASK, 4), (MASK,) * 4, (3, 3, 4)])
    out = law.oracle()(x, torch.tensor([.1, 1., 2., 3.]))
    assert out.insert.shape == out.unmask.shape == x.tokens.shape
    assert out.logits.shape == (*x.tokens.shape, len(law.vocabulary))
    assert out.insert[2].sum() == 0 and torch.equal(out.unmask[2], x.masked[2].double())  # outside the law
    anything = uniform_logits(law.vocabulary)
    torch.testing.assert_close(out.logits[2], anything.expand_as(out.logits[2]))
    torch.testing.assert_close(out.logits[1][~x.masked[1]], anything.expand_as(out.logits[1][~x.masked[1]]))
    law_of_tokens = out.logits.softmax(-1)
    assert law_of_tokens.isfinite().all() and (law_of_tokens[..., :3] == 0).all()
    assert (out.insert * ~x.open == 0).all() and (out.unmask * ~x.masked == 0).all()
    alone = law.oracle()(as_batch([(MASK, 4)]), 1.)
    torch.testing.assert_close(alone.insert[0], out.insert[1, :3])
    for edge in (0., math.inf): assert all(v.isfinite().all() for v in law.oracle()(x, torch.tensor([edge]))[:2])


def test_locate_and_aligned_batch():
    law = wild()
    x1, state, b_in, b_um = aligned_batch(law)
    assert torch.equal(locate(law.space, contract(x1, state)), law.space.seen)
    assert (state[:, 0] == CLEAN).all() and b_in.shape == b_um.shape == state.shape
    assert locate(law.space, as_batch([(5, 5)])).tolist() == [-1]


def test_partial_moves_count():
    space = enumerate_states([(3, 4)])
    moves = partial_moves(space, 5)
    masks = sum(x.count(MASK) for x in space.partial)
    gaps = sum(len(x) + 1 for x in space.partial)
    assert len(moves.source) == gaps + 2 * masks
    after = [
        space.partial[t]
        for t, s in zip(moves.target.tolist(), moves.source.tolist())
        if space.partial[s] == (MASK,) and t >= 0
    ]
    assert sorted(after) == [(MASK, MASK), (MASK, MASK), (3,), (4,)]


def test_quadrature_integrates_exponentials():
    tau, weight = clock_quadrature()
    for k in range(4):
        assert (weight @ (tau ** k * torch.exp(-tau))).item() == pytest.approx(math.factorial(k), rel=1e-10)


def test_the_tight_bound_of_a_constant_schedule_is_the_entropy():
    law = ToyLaw.of(P, b_in=2., b_um=.5)
    bounds = path_bounds(law, law.oracle())
    assert (law.probs @ bounds.tight).item() == pytest.approx(law.entropy, abs=1e-10)
    # for every sequence, not only on average
    torch.testing.assert_close(bounds.tight, -law.probs.log(), rtol=0, atol=1e-9)
    assert (law.probs @ bounds.paper).item() == pytest.approx(2.2379751553, abs=1e-9)


def test_bounds_are_differentiable():
    law, (tau, weight) = wild(), clock_quadrature(32)
    b_in = law.b_in.clone().requires_grad_()
    def value(b, which):
        other = law.with_schedule(b_in=b)
        return law.probs @ getattr(path_bounds(other, other.oracle(), (tau[tau < 60], weight[tau < 60])), which)
    for which in ("paper", "tight"):
        slope, = torch.autograd.grad(value(b_in, which), b_in)
        step = torch.zeros_like(law.b_in)
        step[0, 1] = 1e-5
        numeric = (value(law.b_in + step, which) - value(law.b_in - step, which)).item() / 2e-5
        assert slope.isfinite().all() and slope[0, 1].item() == pytest.approx(numeric, abs=1e-7)


def hurried(law, factor):
    def model(x, tau): return (out := law.oracle()(x, tau))._replace(unmask=out.unmask * factor)
    end = final_law(law.space, model, 40., tol=1e-7).probs
    return total_variation(resolve_masks(law.space, model, end, 40.)[law.clean], law.probs).item()


def test_any_order_decoding_is_exact_only_for_constant_schedules():
    for factor in (0., .5): assert hurried(ToyLaw.of(P, b_in=2., b_um=.7), factor) < 1e-6
    assert hurried(ToyLaw.of(P, b_in=lambda s: 1 / len(s)), 0.) > .3
    assert hurried(ToyLaw.of(P, b_in=lambda s: 1 / len(s)), .5) > .01


def test_exit_rates_are_what_the_matrix_loses():
    law = wild()
    out = evaluate(law.oracle(), law.space, times(.4))
    torch.testing.assert_close(-rate_matrix(law.space, out)[0].diagonal(), exit_rates(out)[0])


def test_compare():
    law = ToyLaw.of(P)
    exact = [law.ids[i] for i, n in enumerate((35, 25, 25, 15)) for _ in range(n)]
    result = compare(law, exact)
    assert result.tv == pytest.approx(0, abs=1e-12)
    assert result.outside == 0
    assert result.worst_z == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(result.lengths, torch.tensor([0, .15, .5, .35]))
    torch.testing.assert_close(result.expected, torch.tensor([0, .15, .5, .35]).double())
    foreign = compare(law, exact[:-10] + [[3, 3, 3, 3, 3]] * 10)
    assert foreign.outside == .1 and foreign.tv == pytest.approx(.1) and len(foreign.lengths) == 6


def test_oracle_function_and_method_agree():
    law, x = wild(), as_batch([(MASK,)])
    torch.testing.assert_close(oracle(law)(x, .5), law.oracle()(x, .5))


def test_frequencies_are_compared_by_hand():
    "Of four samples three are a, which has 1/4: its spread is the root of 1/4 3/4 / 4."
    law = ToyLaw.of({"a": 0.25, "bb": 0.75})
    a, bb = (list(ids) for ids in law.ids)
    found = compare(law, [a, a, a, bb])
    spread = math.sqrt(0.25 * 0.75 / 4)
    assert math.isclose(found.worst_z, 0.5 / spread) and math.isclose(found.tv, 0.5) and found.outside == 0
    assert math.isclose(found.floor, 2 * spread / math.sqrt(2 * math.pi))
    assert found.lengths.tolist() == [0, 0.75, 0.25] and found.expected.tolist() == [0, 0.25, 0.75]
    assert compare(law, [a, [*bb, 9], [9], bb]).outside == 0.5
