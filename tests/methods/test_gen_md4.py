"GenMD4 against exact enumeration, its gradient in the rates, and one run from training to samples."
import json
import math
from itertools import product

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, clock_quadrature
from loflexmdm.methods.base import method_class
from loflexmdm.methods.gen_md4 import GenMD4, GenMD4Config, reveal_terms
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.process.matching import leave_one_out
from loflexmdm.process.paths import hidden_log_prob
from loflexmdm.process.states import BOS, MASK, PartialSequences, collate, parse_prompt
from loflexmdm.process.states import prefix_example
from loflexmdm.samplers import Ancestral, EventDriven, TauLeaping
from loflexmdm.support.notebook import seeded
from loflexmdm.support.registries import METHODS
from loflexmdm.training.optimisers import parameter_groups

LAW = ToyLaw.of({"aa": 0.3, "ab": 0.05, "ac": 0.1, "ba": 0.15, "bc": 0.2, "ca": 0.05, "cc": 0.15})
SPEED = (0.4, 1.0, 2.5)


pytestmark = pytest.mark.usefixtures("pico")


class Exact(GenMD4):
    "The exact denoiser of LAW for the model's own rates, or for others and then bent at random: then it is wrong."
    name = "exact genmd4 (test)"
    wrong = False

    def token_logits(self, x, tau):
        x1, speed = LAW.x1.tokens, torch.tensor([1, 1, 1, 0.8, 1.7, 1.2, 1]).double() if self.wrong else self.speed
        agree = (x.masked[:, None] | (x.tokens[:, None] == x1)).all(-1)
        weight = torch.where(
            agree, LAW.probs.log() - tau[:, None] * (speed[x1] * x.masked[:, None]).sum(-1), -torch.inf
        )[..., None]
        out = torch.stack([torch.where(x1 == v, weight, -torch.inf).logsumexp(1) for v in range(7)], -1)
        bend = 0.6 * torch.randn(3, 7, generator=seeded(3)).double() * (1 + torch.tanh(tau))[:, None, None]
        return out + bend if self.wrong else out


class Wrong(Exact):
    name, wrong = "wrong genmd4 (test)", True


def toy(cls=Exact, speed=SPEED, **kwargs):
    model = cls(LAW.vocabulary, GenMD4Config(size="pico", max_length=3, **kwargs)).double()
    r = math.log(model.config.w_range)
    with torch.no_grad(): model.raw_speed[3:6] = r * torch.atanh(torch.tensor(speed).double().log() / r)
    return model


def shaken(vocabulary=LAW.vocabulary, max_length=6, scale=0.15, **kwargs):
    "A small network with random parameters everywhere."
    torch.manual_seed(0)
    model, g = GenMD4(vocabulary, GenMD4Config(size="pico", max_length=max_length, **kwargs)), seeded(1)
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g))
    return model


def enumerated(model, nodes=96):
    """Loss and log-probability of every set of hidden positions at every node, (nodes, strings,
    sets), and the quadrature's weights."""
    tau, weight = clock_quadrature(nodes)
    sets = torch.tensor([(False, *s) for s in product((False, True), repeat=2)])
    shape = nodes, len(LAW.probs), len(sets)
    x1 = LAW.x1.rows(torch.arange(shape[1]).repeat_interleave(shape[2]).repeat(nodes))
    hidden, tau = sets.repeat(nodes * shape[1], 1), tau.repeat_interleave(shape[1] * shape[2])
    log_q = model.state_log_prob(x1, hidden, tau)
    return torch.where(log_q > -600, model.match(x1, hidden, tau), 0.0).view(shape), log_q.view(shape), weight


def bound(model, nodes=96):
    loss, log_q, weight = enumerated(model, nodes)
    return (weight[:, None, None] * log_q.exp() * loss).sum((0, 2))


def test_the_exact_denoiser_is_tight_for_every_string_and_any_rates():
    for speed in (SPEED, (1.0, 1.0, 1.0), (3.0, 0.7, 0.5)):
        model = toy(speed=speed)
        values = bound(model, 160)
        torch.testing.assert_close(values, -LAW.probs.log(), rtol=0, atol=1e-11)
        gradient, = torch.autograd.grad(values[2], model.raw_speed)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-11)


def test_a_timeless_denoiser_is_not_tight():
    model = toy(speed=SPEED)
    same = toy(speed=(1.0, 1.0, 1.0))
    model.token_logits = same.token_logits
    assert bound(model, 160) @ LAW.probs > LAW.entropy + 0.1


def test_leave_one_out_is_unbiased_and_the_naive_gradient_is_not():
    model = toy(Wrong)
    true, = torch.autograd.grad(bound(model) @ LAW.probs, model.raw_speed)
    loss, log_q, weight = enumerated(model)
    i, j = torch.cartesian_prod(*[torch.arange(loss.shape[-1])] * 2).T
    pairs = lambda v: torch.stack([v[..., i], v[..., j]]).flatten(1)
    prob = (
        weight[:, None, None] * LAW.probs[:, None] * log_q.detach()[..., i].exp() * log_q.detach()[..., j].exp()
    ).flatten()
    of = lambda value: torch.autograd.grad(
        torch.where(prob > 0, prob * value, 0.0).sum(), model.raw_speed, retain_graph=True
    )[0]
    torch.testing.assert_close(of(leave_one_out(pairs(loss), pairs(log_q))), true, rtol=1e-9, atol=1e-9)
    naive = of(pairs(loss).mean(0))
    assert (naive[3:6] > 0).all() and (true[3:6] < -0.01).any()


@pytest.mark.parametrize("states", [2, 3])
def test_gradient_of_the_loss(states):
    model, batch = toy(Wrong, states=states), LAW.x1.rows(torch.arange(70) % 7)
    true, = torch.autograd.grad(bound(model).mean(), model.raw_speed)
    drawn = torch.stack(
        [torch.autograd.grad(model.loss(batch, seeded(k)).loss, model.raw_speed)[0] for k in range(200)]
    )[:, 3:6]
    assert ((drawn.mean(0) - true[3:6]) / (drawn.std(0) / 200**0.5)).abs().max() < 4


def test_gradient_of_the_network():
    "A projection of the network's gradient, by z-scores against differentiated enumeration."
    model, g = shaken(max_length=3), seeded(4)
    with torch.no_grad(): model.raw_speed.copy_(toy().raw_speed)
    direction = [torch.randn(p.shape, generator=g) for p in model.parameters()]
    project = lambda value: sum(
        (a * b).sum() for a, b in zip(torch.autograd.grad(value, list(model.parameters())), direction, strict=True)
    ).item()
    double = model.double()
    true = project(bound(double, 64).mean())
    drawn = torch.tensor([project(double.loss(LAW.x1.rows(torch.arange(56) % 7), seeded(k)).loss) for k in range(60)])
    assert abs(drawn.mean() - true) < 4 * drawn.std() / 60**0.5


def test_nll_bound_is_calibrated():
    model = toy(Wrong)
    mean, error = model.nll_bound(LAW.x1.rows(torch.arange(700) % 7), 10, seeded(0))
    mean, error = mean.view(100, 7), error.view(100, 7)
    assert ((mean.mean(0) - bound(model).detach()) / (mean.std(0) / 10)).abs().max() < 4
    torch.testing.assert_close(error.square().mean().sqrt(), mean.var(0).mean().sqrt(), rtol=0.15, atol=0)
    with pytest.raises(ValueError, match="samples=1"): model.nll_bound(LAW.x1, 1)


def test_terms_are_never_negative_and_their_derivative_in_the_rates_neither():
    logits, token = (
        3 * torch.randn(400, 7, generator=seeded(0)).double(),
        torch.randint(0, 7, (400,), generator=seeded(1)),
    )
    speed = (torch.rand(7, generator=seeded(2)).double() + 0.1).requires_grad_()
    terms = reveal_terms(logits, speed, token)
    assert terms.min() >= 0
    assert all((torch.autograd.grad(v, speed, retain_graph=True)[0] >= -1e-15).all() for v in terms[:50])


def test_hidden_positions_are_drawn_by_their_rates():
    model, tau = toy(), torch.full((30_000,), 0.7, dtype=torch.float64)
    x1 = LAW.x1.rows(torch.full((30_000,), 2))  # "ac"
    hidden = model.hide(x1, tau, seeded(0))
    p = torch.exp(-0.7 * torch.tensor([0.4, 2.5]).double())
    assert not hidden[:, 0].any()
    assert ((hidden[:, 1:].double().mean(0) - p) / (p * (1 - p) / 30_000).sqrt()).abs().max() < 4
    assert abs((hidden[:, 1] & hidden[:, 2]).double().mean() - p.prod()) < 4 * 0.5 / 30_000**0.5


def test_log_probabilities_at_the_ends_of_the_clock():
    model, tau = toy().float(), torch.tensor([0.0, 1e-20, 2e9])
    x1 = LAW.x1.rows(torch.zeros(3, dtype=torch.long))
    hidden = model.hide(x1, tau, seeded(0))
    assert hidden.tolist() == [[False, True, True]] * 2 + [[False] * 3]
    log_p = model.state_log_prob(x1, hidden, tau)
    gradient, = torch.autograd.grad(log_p.sum(), model.raw_speed)
    assert log_p.tolist() == [0.0, pytest.approx(0, abs=1e-19), 0.0] and gradient.isfinite().all()
    assert hidden_log_prob(torch.tensor([math.inf]), torch.tensor([False])).item() == 0


def test_event_driven_sampling_is_exact():
    model = toy()
    samples = generate(model, n=4000, sampler=EventDriven(slack=1.0), generator=seeded(0))
    count = torch.bincount(torch.tensor([LAW.ids.index(s) for s in samples.sequences]), minlength=7)
    assert ((count - 4000 * LAW.probs) / (4000 * LAW.probs * (1 - LAW.probs)).sqrt()).abs().max() < 4
    assert samples.violations == 0


@pytest.mark.slow
def test_one_ancestral_step_uses_the_hidden_token_law_and_many_the_data_law():
    "At the last call all masks are resolved by mu; the marginal of a position is then exact, the pair is not."
    model = toy()
    first = lambda samples: (
        torch.bincount(torch.tensor([s[0] for s in samples.sequences]), minlength=6)[3:].double() / len(samples)
    )
    marginal = torch.tensor([LAW.probs[LAW.x1.tokens[:, 1] == v].sum() for v in (3, 4, 5)])
    z = lambda share: ((share - marginal) / (marginal * (1 - marginal) / 3000).sqrt()).abs().max()
    assert z(first(generate(model, n=3000, sampler=Ancestral(steps=1), generator=seeded(1)))) < 4
    assert z(first(generate(model, n=3000, sampler=Ancestral(steps=32), generator=seeded(2)))) < 4
    shown_first = torch.softmax(
        model.intensities(
            LAW.x1.rows([0])._replace(tokens=torch.tensor([[BOS, MASK, MASK]])), tau=torch.zeros(1)
        ).logits,
        -1,
    )[0, 1, 3:6].double()
    torch.testing.assert_close(
        shown_first,
        marginal * torch.tensor(SPEED) / (marginal @ torch.tensor(SPEED).double()),
        rtol=1e-6,
        atol=1e-6,
        check_dtype=False,
    )
    assert z(shown_first) > 10  # drawing what shows from the law of what is hidden would be seen


def test_infilling_keeps_the_prompt_and_follows_the_conditional_law():
    samples = generate(toy(), [["<mask>", "a"]], n=2000, sampler=EventDriven(slack=1.0), generator=seeded(0))
    p = torch.tensor([0.3, 0.15, 0.05]) / 0.5
    share = torch.bincount(torch.tensor([s[0] for s in samples.sequences]), minlength=6)[3:] / 2000
    assert all(s[1] == 3 for s in samples.sequences) and samples.free == [[True, False]] * 2000
    assert ((share - p) / (p * (1 - p) / 2000).sqrt()).abs().max() < 4


@pytest.mark.parametrize(
    "sampler",
    [
        EventDriven(), EventDriven(exact=False), TauLeaping(steps=8), Ancestral(steps=1),
        Ancestral(steps=5, grid="cosine"), TauLeaping(steps=8, confidence="top_prob"), None,
    ],
)
def test_every_sampler_generates_ordinary_tokens_around_a_prompt(sampler):
    model = shaken()
    prompts = [["a", ...], ["b", "<mask>", "c"]]
    samples = generate(model, prompts, n=20, sampler=sampler, generator=seeded(0), record=True)
    assert all(3 <= v < 6 or v == MASK for s in samples.sequences for v in s)
    assert not any(MASK in s for s in samples.sequences)
    assert all(s[0] == 3 for s in samples.sequences[:20])
    assert all((s[0], s[2]) == (4, 5) for s in samples.sequences[20:] if len(s) == 3)
    assert len({len(s) for s in samples.sequences[:20]}) > 1  # blanks are gone, and so lengths vary
    assert all(len(p.unmasked_at) == len(s) for p, s in zip(samples.trajectories, samples.sequences, strict=True))


@pytest.mark.parametrize("prompt", [[..., "a", ...], ["a"] * 5, ["a", "<pad>"], ["z"]])
def test_prompts_that_make_no_sense(prompt):
    with pytest.raises(ValueError): generate(shaken(), [prompt], generator=seeded(0))


def test_rates_start_at_one_and_stay_in_range():
    fresh = GenMD4(LAW.vocabulary, GenMD4Config(size="pico"))
    assert (fresh.speed == 1).all() and len(fresh.speed) == len(LAW.vocabulary) + 1
    wild = shaken(scale=9.0, w_range=3.0)
    assert wild.speed.min() >= 1 / 3 * (1 - 1e-6)
    assert wild.speed.max() <= 3 * (1 + 1e-6)
    assert wild.speed.log().abs().max() > 1


def test_intensities_at_masks_alone():
    model = toy(Wrong)
    x = PartialSequences(
        torch.tensor([[BOS, MASK, 4]]), torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 3, dtype=torch.bool)
    )
    t = torch.tensor([0.6], dtype=torch.float64)
    a, b = model.intensities(x, t), model.intensities(x, tau=-torch.log(1 - t))
    torch.testing.assert_close(a.logits, b.logits), torch.testing.assert_close(a.unmask, b.unmask)
    mu = torch.softmax(model.token_logits(x, -torch.log(1 - t)), -1)[0, 1]
    torch.testing.assert_close(
        a.unmask, torch.stack([mu.new_zeros(()), (mu * model.speed).sum(), mu.new_zeros(())])[None]
    )
    torch.testing.assert_close(torch.softmax(a.logits - a.speed.log(), -1)[0, 1], mu)
    assert a.insert is None and (a.speed[0, 1] == model.speed).all()
    for kwargs in (dict(), dict(t=t, tau=t)):
        with pytest.raises(ValueError, match="either t or tau"): model.intensities(x, **kwargs)


def test_the_network_cannot_tell_a_prompt_from_a_token_that_has_shown():
    model, tau = shaken(), torch.tensor([0.5])
    x = PartialSequences(
        torch.tensor([[BOS, 3, MASK, 4, 6, 6]]), torch.ones(1, 6, dtype=torch.bool), torch.ones(1, 6, dtype=torch.bool)
    )
    torch.testing.assert_close(
        model.intensities(x, tau=tau).logits,
        model.intensities(x._replace(fixed=~x.fixed, closed=~x.closed), tau=tau).logits,
        rtol=0,
        atol=0,
    )


def test_prompts_cost_nothing():
    model = shaken()
    whole = collate([parse_prompt("ab", LAW.vocabulary)])._replace(closed=torch.ones(1, 3, dtype=torch.bool))
    out = model.train().loss(whole, seeded(0))
    out.loss.backward()
    assert out.loss == 0 and out.metrics["bound_tight"] == 0 and model.slowest == 1
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_rows_do_not_see_each_other():
    model = shaken()
    batch = collate([prefix_example("b", "ab", LAW.vocabulary), prefix_example("", "aabab", LAW.vocabulary)])
    x1, tau = model.canvas(batch), torch.tensor([0.8, 0.3])
    hidden = x1.free & (torch.arange(6) % 2 == 0)
    both, one = model.match(x1, hidden, tau), model.match(x1.rows([0]), hidden[:1], tau[:1])
    torch.testing.assert_close(both[:1], one)
    assert (model.match(x1, torch.zeros_like(hidden), tau) == 0).all()


@pytest.mark.parametrize("states", [2, 3])
def test_every_state_has_the_weight_of_its_own_reading(states):
    "Two readings: at the first all is hidden, at the second nothing is, so that its huge weight must not matter."
    model, x1 = toy(Wrong, states=states), LAW.x1.rows([0, 1])
    model.proposal = lambda n, generator, device: (
        torch.tensor([0.0, 60.0]).double(),
        torch.tensor([1.0, 1e9]).double(),
    )
    expected = model.match(x1.rows([0]), torch.tensor([[False, True, True]]), torch.zeros(1).double()) / 2
    torch.testing.assert_close(model.loss(x1, seeded(0)).metrics["bound_tight"], expected[0].detach())
    torch.testing.assert_close(model.loss(x1, seeded(0)).loss, expected[0])  # equal states: nothing to compare


def test_mixed_precision_keeps_the_closed_forms_in_float32():
    model = shaken()
    with torch.autocast("cpu", torch.bfloat16): out = model.loss(LAW.x1, seeded(0)).loss
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, model.loss(LAW.x1, seeded(0)).loss, rtol=0.1, atol=0.1)


def test_generation_ends_later_for_slower_rates_in_the_data():
    model = shaken(scale=0.0).train()
    with torch.no_grad(): model.raw_speed[3], model.raw_speed[5] = -1.0, -5.0
    batch = collate([prefix_example("c", "ab", LAW.vocabulary)])  # c only as a prompt
    for _ in range(800): model.track_slowest(model.canvas(batch))
    torch.testing.assert_close(model.slowest, model.speed[3].detach(), rtol=1e-2, atol=0)
    assert model.tau_max == pytest.approx(math.log(1e4) / model.slowest.item())


@pytest.mark.parametrize(
    "bad",
    [
        dict(states=1), dict(w_range=1.0), dict(w_range=math.inf), dict(w_range=math.nan),
        dict(size="huge"), dict(proposal=0.0), dict(proposal=math.nan), dict(max_length=1),
    ],
)
def test_configs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): GenMD4Config(**bad)


def test_rates_learn_apart_and_without_weight_decay():
    model = shaken()
    (group,) = [
        g for g in parameter_groups(model, 0.01, lambda p: True) if any(p is model.raw_speed for p in g["params"])
    ]
    assert group["order"] and group["weight_decay"] == 0 and len(group["params"]) == 1
    assert model.evaluations_per_loss == 2 and method_class("genmd4") is METHODS["genmd4"] is GenMD4


def test_another_methods_weights_are_refused(tmp_path):
    path = save_method(shaken(), tmp_path / "model")
    saved = json.loads((path / "config.json").read_text())
    text = json.dumps({key: value for key, value in saved.items() if key != "digest"})
    (path / "config.json").write_text(text.replace('"w_range"', '"w_rang"'))
    with pytest.raises(ValueError, match="w_rang"): load_method(path)
    (path / "config.json").write_text(text.replace('"a"', '"z"').replace('"b",', ""))
    with pytest.raises(ValueError, match="weights of another model"): load_method(path)
