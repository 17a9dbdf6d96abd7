"FlexMDM against exact enumeration, on pairs of schedules; prompts anywhere; a run from training to samples."
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, aligned_batch, as_batch, evaluate, oracle, rate_matrix
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig, filled_example, schedule_of
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import CLEAN, DROPPED, MASK, MASKED, PAD, Vocabulary, collate
from loflexmdm.process.states import contract, parse_prompt
from loflexmdm.samplers import Ancestral, EventDriven, Limits, TauLeaping
from loflexmdm.support.notebook import seeded

LAW = ToyLaw.of({"": 0.05, "0": 0.1, "10": 0.2, "001": 0.3, "11": 0.15, "1011": 0.2})
PAIRS = [
    ("linear", "linear"), ("linear", "power:2"), ("power:2", "cosine"),
    ("cosine", "linear"), ("polynomial:2", "linear"),
]
X1, STATE = aligned_batch(LAW)[:2]
EXACT = oracle(LAW)


class Perfect(FlexMDM):
    "FlexMDM with the exact network for LAW."
    name = "perfect flexmdm (test)"

    def at(self, x, tau):
        out = EXACT(x, tau)
        return out._replace(unmask=torch.where(x.masked, self.unmask_rate(tau)[:, None], 0.0))


pytestmark = pytest.mark.usefixtures("pico")


def made(cls=FlexMDM, pair=PAIRS[0], scale=0.15, vocabulary=LAW.vocabulary, **kwargs):
    "A small model with random parameters everywhere."
    torch.manual_seed(0)
    model, g = cls(vocabulary, FlexMDMConfig(*pair, **(dict(size="pico", max_length=12) | kwargs))), seeded(1)
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g))
    return model


def nodes(n=48, end=30.0):
    u, w = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(n))
    return end * ((u + 1) / 2) ** 2, w * end * (u + 1) / 2


def mask_probability(model, tau):
    """mu at clock readings tau: the integral over u < tau of exp(-u - (sigma(tau) - sigma(u))), sigma
    the unmasking clock; u = tau v^2."""
    u, w = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(64))
    v, tau, sigma = (u + 1) / 2, tau[:, None], model.path.unmask_tau
    return (w * tau * v * torch.exp(-tau * v**2 - (sigma(tau) - sigma(tau * v**2)))).sum(-1)


def state_probs(model, tau):
    mu = mask_probability(model, tau)
    return torch.stack([torch.exp(-tau), mu, -torch.expm1(-tau) - mu], -1)


@pytest.mark.parametrize(
    "pair, exact", [(PAIRS[0], lambda t: -(1 - t) * torch.log1p(-t)), (PAIRS[1], lambda t: (1 - t**2) * torch.atanh(t))]
)
def test_masks_in_closed_form(pair, exact):
    model, t = made(pair=pair), torch.tensor([0.1, 0.5, 0.99], dtype=torch.float64)
    torch.testing.assert_close(mask_probability(model, model.insertion.tau(t)), exact(t), rtol=1e-9, atol=0)


def aligned_probs(model, tau):
    return torch.where(X1.free, state_probs(model, tau).log()[:, STATE], 0.0).sum(-1).exp()


@pytest.mark.parametrize("pair", PAIRS)
def test_states_have_the_probabilities_of_the_schedules(pair):
    model, n = made(pair=pair), 20_000
    for t in torch.tensor([[0.2], [0.6], [0.95]], dtype=torch.float64):
        x1 = as_batch([[3] * 10]).rows(torch.zeros(n // 10, dtype=torch.long))
        state = model.path.sample(x1, model.insertion.tau(t).expand(n // 10), generator=seeded(2))[:, 1:]
        p = state_probs(model, model.insertion.tau(t))[0]
        assert (((torch.bincount(state.flatten(), minlength=3) / n - p) / (p * (1 - p) / n).sqrt()).abs() < 4.5).all()


@pytest.mark.parametrize("pair", PAIRS)
def test_states_only_move_forward(pair):
    model, x1 = made(pair=pair), X1.rows(torch.arange(100) % 6)
    a, b = (model.path.sample(x1, torch.full((100,), tau), generator=seeded(3)) for tau in (0.5, 1.5))
    assert (b >= a).all() and (b > a).any() and (a[x1.fixed] == CLEAN).all()


@pytest.mark.parametrize("pair", PAIRS)
def test_unmasking_rate_is_the_slope_of_the_unmasking_clock(pair):
    model, tau = made(pair=pair), torch.linspace(0.05, 8, 40, dtype=torch.float64, requires_grad=True)
    slope, = torch.autograd.grad(model.path.unmask_tau(tau).sum(), tau)
    torch.testing.assert_close(model.unmask_rate(tau.detach()), slope, rtol=1e-7, atol=0)
    x = as_batch([[3, MASK]])
    assert (made(pair=pair).intensities(x, tau=torch.zeros(1)).unmask.isfinite()).all()


@pytest.mark.parametrize("pair", PAIRS)
def test_forward_equation(pair):
    model = made(Perfect, pair)
    def marginal(t):
        joint = aligned_probs(model, model.insertion.tau(t)) * LAW.probs[LAW.space.row]
        return joint.new_zeros(len(t), len(LAW.space.partial)).index_add(1, LAW.space.seen, joint)
    for t in (0.13, 0.77):
        at = torch.tensor([t], dtype=torch.float64)
        slope = torch.autograd.functional.jacobian(lambda s: marginal(s)[0], at)[:, 0]
        R = rate_matrix(
            LAW.space, evaluate(lambda x, tau: model.intensities(x, tau=tau), LAW.space, model.insertion.tau(at))
        )[0]
        torch.testing.assert_close(slope, model.insertion.shape(at) * (marginal(at)[0] @ R), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pair", PAIRS[:3])
def test_the_loss_of_a_perfect_network_is_the_negative_log_likelihood(pair):
    model, total = made(Perfect, pair), torch.zeros(6, dtype=torch.float64)
    for tau, w in zip(*nodes(), strict=True):
        p = aligned_probs(model, tau[None])[0]
        tight = model.match(X1, STATE, tau.expand(len(STATE))).tight
        total.index_add_(0, LAW.space.row, torch.where(p > 1e-40, w * p * tight, 0.0))
    torch.testing.assert_close(total, -LAW.probs.log(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("times", ["uniform", "clock"])
@pytest.mark.parametrize("pair", [PAIRS[0], PAIRS[2]])
def test_estimates_agree_with_the_exact_loss(pair, times):
    model, batch = made(Perfect, pair, times=times), X1.rows(torch.arange(60) % 130)
    exact = -LAW.probs.log()[LAW.space.row[:60]].mean()
    draws = torch.tensor([model.loss(batch, seeded(s)).loss for s in range(12)])
    bounds = torch.stack([model.nll_bound(batch, 3, seeded(s))[0].mean() for s in range(12)])
    for v in (draws, bounds): assert abs((v.mean() - exact) / (v.std() / 12**0.5)) < 5


def test_a_fixed_order_is_flexmdm():
    model, other = made(), LoFlexMDM(LAW.vocabulary, LoFlexMDMConfig(order="fixed", states=1, size="pico"))
    assert other.load_state_dict(model.state_dict(), strict=False).missing_keys == ["slowest"]
    tau, one = torch.linspace(0.01, 6, len(STATE)), torch.ones(STATE.shape)
    with torch.no_grad(): pair = model.match(X1, STATE, tau), other.match(X1, STATE, tau, one, one)
    for a, b in zip(*pair, strict=True): torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert pair[0].tight.std() > 0.1


def test_neither_head_sees_the_unmasking_schedule():
    tau, x = torch.tensor([0.8]), as_batch([[3, MASK, 4]])
    with torch.no_grad(): a, b = (made(pair=pair).intensities(x, tau=tau) for pair in PAIRS[:2])
    assert torch.equal(a.insert, b.insert) and torch.equal(a.logits, b.logits) and not torch.equal(a.unmask, b.unmask)


def test_time_and_clock_reading_agree():
    model, x, t = made(pair=PAIRS[2]), as_batch([[3, MASK, 4]]), torch.tensor([0.6])
    for a, b in zip(model.intensities(x, t)[:3], model.intensities(x, tau=model.insertion.tau(t))[:3], strict=True):
        torch.testing.assert_close(a, b)
    for kwargs in (dict(), dict(t=t, tau=t)):
        with pytest.raises(ValueError, match="either t or tau"): model.intensities(x, **kwargs)


WORDS = Vocabulary("abc,()")
PROMPT = ["(", ..., ",", ..., ")"]


def test_filled_examples_start_from_their_prompt():
    example = filled_example(PROMPT, ["ab", ""], WORDS)
    assert WORDS.decode(example.tokens) == ["<bos>", *"(ab,)"]
    assert example.fixed == [True, True, False, False, True, True]
    x1 = collate([example])
    start, asked = contract(x1, torch.where(x1.free, DROPPED, CLEAN)), collate([parse_prompt(PROMPT, WORDS)])
    assert all(torch.equal(a, b) for a, b in zip(start[:3], asked[:3], strict=True))
    with pytest.raises(ValueError, match="fillings: 1 given"): filled_example(PROMPT, ["a"], WORDS)
    with pytest.raises(ValueError, match="outside the vocabulary"): filled_example(PROMPT, ["x", ""], WORDS)


def test_prompts_cost_nothing_and_come_back():
    model = made(vocabulary=WORDS)
    whole = collate([parse_prompt("ab", WORDS)])._replace(closed=torch.ones(1, 3, dtype=torch.bool))
    assert model.loss(whole, seeded(0)).loss == 0
    x1 = collate([filled_example(PROMPT, ["ab", "c"], WORDS)] * 32)
    state = model.path.sample(x1, torch.full((32,), 0.7), generator=seeded(1))
    assert (state[x1.fixed] == CLEAN).all() and set(state[x1.free].tolist()) == {DROPPED, MASKED, CLEAN}
    for sampler in (EventDriven(), TauLeaping(steps=8, hold="count", confidence="leftmost", window=2)):
        out = generate(model, [PROMPT], n=8, sampler=sampler, generator=seeded(2), max_length=12)
        for tokens, free in zip(out.sequences, out.free, strict=True):
            assert "".join(WORDS.decode(t for t, f in zip(tokens, free, strict=True) if not f)) == "(,)"
        assert any(any(free) for free in out.free)


def test_padding_and_neighbours_change_nothing():
    model, tau = made(pair=PAIRS[1]), torch.tensor([0.8, 0.8])
    pair = as_batch([[3, 4], [4, 3, 3, 4, 3]])
    state = torch.where(pair.valid, torch.tensor([[2, 1, 0, 0, 0, 0], [2, 0, 1, 0, 2, 1]]), DROPPED)
    with torch.no_grad():
        both, alone = model.match(pair, state, tau), model.match(pair.rows([0]).trim(), state[:1, :3], tau[:1])
    for a, b in zip(both, alone, strict=True): torch.testing.assert_close(a[:1], b, rtol=1e-5, atol=1e-6)


def test_tau_leaping_may_hold_the_count():
    "From nothing, with 2.5 tokens missing on average, the first leap inserts 2.5 (1 - exp(-dtau)) masks, or 2.5 dtau."
    for hold, share in (("count", lambda d: 1 - np.exp(-d)), ("rate", lambda d: d)):
        sampler, n = TauLeaping(steps=5, hold=hold), 4000
        state = sampler.init(as_batch([[]] * n), [seeded(i) for i in range(n)], Limits(FlexMDM.tau_max, 40))
        after, _ = sampler.step(EXACT, state)
        mean = 2.5 * share(float(sampler.taus(FlexMDM.tau_max)[1]))
        assert abs((after.x.lengths - 1).double().mean() - mean) < 4.5 * (mean / n) ** 0.5
    with pytest.raises(ValueError, match="hold='all'"): TauLeaping(hold="all")


@pytest.mark.parametrize(
    "bad",
    [
        dict(insertion="quadratic"), dict(unmasking="geometric"), dict(unmasking="shifted:0.1"),
        dict(insertion="power:0"), dict(insertion="polynomial:-1"), dict(times="random"),
        dict(size="huge"), dict(max_length=1),
    ],
)
def test_configs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): FlexMDMConfig(**bad)


def test_what_is_refused():
    model = made()
    padded = LAW.x1._replace(tokens=LAW.x1.tokens.clone())
    padded.tokens[5, 2] = PAD
    hidden = LAW.x1._replace(tokens=torch.where(LAW.x1.free, MASK, LAW.x1.tokens))
    for estimate in (model.loss, model.nll_bound):
        with pytest.raises(ValueError, match="padding .* inside a sequence"): estimate(padded)
        with pytest.raises(ValueError, match="a mask .* in a clean sequence"): estimate(hidden)
    with pytest.raises(ValueError, match="samples=1"): model.nll_bound(LAW.x1, 1)
    with pytest.raises(ValueError, match="is for masked diffusion; flexmdm takes .*EventDriven"):
        generate(model, n=1, sampler=Ancestral())
    with pytest.raises(ValueError, match="<mask>"): generate(model, [["0", "<mask>"]])


@pytest.mark.parametrize("name", ["geometric", "shifted:0.1"])
def test_a_schedule_that_does_not_go_from_0_to_1_is_refused(name):
    with pytest.raises(ValueError, match="FlexMDM needs one from 0 to 1"): schedule_of(name)


@pytest.mark.parametrize("start, end", [(0.0, 0.9), (0.1, 1.0)])
def test_one_wrong_end_is_enough(monkeypatch, start, end):
    clock = SimpleNamespace(kappa=lambda t: start + (end - start) * t)
    monkeypatch.setattr("loflexmdm.methods.flexmdm.clock_named", lambda name: clock)
    with pytest.raises(ValueError, match=f"goes from {start:.3g} to {end:.3g}"): schedule_of("any")
