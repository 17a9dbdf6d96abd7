"The method against exact enumeration, and its variants."
import math

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, aligned_batch, clock_quadrature, evaluate, final_law
from loflexmdm.exact.ctmc import path_bounds, path_terms
from loflexmdm.methods import lo_flexmdm
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.order_model import ScheduleRegulariser
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.matching import target_rates
from loflexmdm.process.states import CLEAN, DROPPED, collate, contract, parse_prompt, prefix_example
from loflexmdm.support.notebook import seeded

LAW = ToyLaw.of({"aab": 0.35, "ab": 0.25, "bb": 0.25, "a": 0.15})
VARIANTS = [
    dict(order="fixed", states=1), dict(), dict(backbone="shared"), dict(unmask="trainable"),
    dict(backbone="shared", unmask="trainable", states=3), dict(bound="tight", a=2.0),
    dict(order="given", given="slots:2,0.5", states=1), dict(order="given", given="slots:2,0.5", unmask="trainable"),
]


class Vanishing(LoFlexMDM):
    "Insertions that vanish late by construction: bounds are finite for any weights."
    name = "vanishing (test)"

    def at(self, x, tau):
        out = super().at(x, tau)
        return out._replace(insert=out.insert * torch.exp(-tau.clamp_max(60))[:, None])


pytestmark = pytest.mark.usefixtures("pico")


def shaken(cls=LoFlexMDM, seed=1, scale=0.15, **kwargs):
    "A small model with random parameters everywhere."
    torch.manual_seed(0)
    model, g = (
        cls(
            LAW.vocabulary,
            LoFlexMDMConfig(**(dict(size="pico", order_size="pico", max_length=12, regulariser=0.0) | kwargs)),
        ),
        seeded(seed),
    )
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g))
    return model


def own_law(model):
    return LAW.with_schedule(
        *(torch.where(LAW.x1.valid[:, 1:], v[:, 1:], 1.0).double() for v in model.schedule(LAW.x1))
    )


def double(model):
    return lambda x, tau: Intensities(
        *(None if v is None else v.double() for v in model.intensities(x, tau=tau.float()))
    )


@pytest.mark.parametrize("kwargs", VARIANTS)
def test_terms_at_every_aligned_state(kwargs):
    model = shaken(**kwargs)
    with torch.no_grad():
        law = own_law(model)
        x1, state, b_in, b_um = aligned_batch(law)
        for tau in (0.1, 2.0):
            terms = model.match(x1, state, torch.full((len(state),), tau), b_in.float(), b_um.float())
            exact = path_terms(law, evaluate(double(model), law.space, torch.tensor([tau], dtype=torch.float64)))
            torch.testing.assert_close(terms.loss.double(), exact.paper[0], rtol=2e-5, atol=2e-5)
            torch.testing.assert_close(terms.tight.double(), exact.tight[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kwargs", VARIANTS[1:5])
def test_every_random_model_obeys_the_bounds(kwargs):
    model = shaken(Vanishing, **kwargs)
    with torch.no_grad():
        exact = path_bounds(own_law(model), double(model))
        nll = -final_law(LAW.space, double(model), tau_max=30.0, tol=1e-5).probs[LAW.clean].log()
    assert (nll <= exact.tight).all() and (exact.tight <= exact.paper + 1e-9).all()


def test_an_untrained_model_never_stops():
    torch.manual_seed(0)
    model = LoFlexMDM(LAW.vocabulary, LoFlexMDMConfig(order="fixed", states=1, size="pico"))
    with torch.no_grad():
        p = [
            final_law(LAW.space, double(model), tau_max=T, tol=1e-6).probs[LAW.clean].sum().item()
            for T in (4.0, 8.0, 16.0)
        ]
    assert p[1] < 0.1 * p[0] and p[2] < 0.1 * p[1]


def test_nll_bound_is_calibrated():
    model = shaken(Vanishing, unmask="trainable")
    with torch.no_grad(): exact = path_bounds(own_law(model), double(model)).tight
    calls = [model.nll_bound(LAW.x1.rows(torch.arange(80) % 4), 25, seeded(s)) for s in range(10)]
    mean, error = (torch.stack(v).view(10, 20, 4) for v in zip(*calls, strict=True))
    z = (mean.mean((0, 1)) - exact) / (mean.mean(1).std(0) / 10**0.5)
    excess = ((mean - exact).square() - error.square()).flatten(0, 1)
    assert z.abs().max() < 5 and (excess.mean(0) / (excess.std(0) / 200**0.5)).abs().max() < 4
    with pytest.raises(ValueError, match="samples=1"): model.nll_bound(LAW.x1, 1)


@pytest.mark.parametrize("kwargs", [
    dict(), dict(bound="tight", unmask="trainable"), dict(backbone="shared", states=3), dict(centre=True),
    dict(readings="event", bound="tight", unmask="trainable"),
])
def test_gradients_of_both_networks(kwargs):
    "Projections on random directions against the gradient of enumeration and quadrature, by z-scores."
    model = shaken(Vanishing, **kwargs)
    g = seeded(5)
    directions = [
        [torch.randn(p.shape, generator=g) * n.startswith("order") ** k for n, p in model.named_parameters()]
        for k in (0, 0, 1, 1)
    ]
    project = lambda: torch.stack(
        [
            sum((p.grad * v).sum() for p, v in zip(model.parameters(), d, strict=True) if p.grad is not None)
            for d in directions
        ]
    ).double()
    getattr(path_bounds(own_law(model), double(model), clock_quadrature(64)), model.config.bound).mean().backward()
    exact, found = project(), []
    for s in range(40):
        model.zero_grad()
        model.loss(LAW.x1.rows(torch.arange(128) % 4), seeded(s)).loss.backward()
        found.append(project())
    found = torch.stack(found)
    assert ((found.mean(0) - exact) / (found.std(0) / 40**0.5)).abs().max() < 4.5


@pytest.mark.parametrize("kwargs", VARIANTS)
def test_padding_and_neighbours_change_nothing(kwargs):
    model = shaken(**kwargs)
    pair = collate([prefix_example("b", "ab", LAW.vocabulary), prefix_example("", "aabab", LAW.vocabulary)])
    state = torch.where(pair.valid, torch.tensor([[2, 2, 1, 0, 0, 0], [2, 0, 1, 0, 2, 1]]), DROPPED)
    tau = torch.tensor([0.8, 0.8])
    with torch.no_grad():
        both = model.match(pair, state, tau, *model.schedule(pair))
        one = pair.rows([0]).trim()
        alone = model.match(one, state[:1, :4], tau[:1], *model.schedule(one))
    for a, b in zip(both, alone, strict=True): torch.testing.assert_close(a[:1], b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kwargs", VARIANTS)
def test_prompts_cost_nothing(kwargs):
    model = shaken(**kwargs)
    whole = collate([parse_prompt("ab", LAW.vocabulary)])._replace(closed=torch.ones(1, 3, dtype=torch.bool))
    state, tau = torch.full((1, 3), CLEAN), torch.tensor([0.5])
    assert all(v == 0 for v in model.match(whole, state, tau, *model.schedule(whole)))
    assert model.loss(whole, seeded(0)).metrics["bound"] == 0


def test_prompts_are_never_hidden(monkeypatch):
    model, seen = shaken(), []
    monkeypatch.setattr(
        lo_flexmdm,
        "target_rates",
        lambda x1, state, *rest: (seen.append((x1, state)), target_rates(x1, state, *rest))[1],
    )
    batch = collate([prefix_example("ab", "ba", LAW.vocabulary)] * 64)
    model.loss(batch, seeded(0)), model.nll_bound(batch, 4, seeded(0))
    assert all((state[x1.fixed] == CLEAN).all() for x1, state in seen)
    assert any((state[x1.free] != CLEAN).any() for x1, state in seen)


def test_fixed_order_is_flexmdm():
    "L_tight = FlexMDM's loss - |x1|, whose gap term g - n log g counts the n missing tokens."
    model = shaken(Vanishing, order="fixed", states=1)
    x1, state, one, _ = aligned_batch(LAW)
    tau = torch.linspace(0.1, 5, len(state))
    with torch.no_grad(): terms = model.match(x1, state, tau, one.float(), one.float())
    missing = ((state == DROPPED) & x1.valid).sum(-1)
    torch.testing.assert_close(terms.unmask, torch.zeros_like(terms.unmask))
    torch.testing.assert_close(terms.gap_tight + missing, flexmdm_gaps(model, x1, state, tau), rtol=1e-5, atol=1e-5)


def flexmdm_gaps(model, x1, state, tau):
    x, total = contract(x1, state), []
    with torch.no_grad(): g = model.intensities(x, tau=tau).insert.tolist()
    for i, row in enumerate(state.tolist()):
        n, column = [0] * len(g[i]), -1
        for j, s in enumerate(row):
            if not x1.valid[i, j]: continue
            if s == DROPPED: n[column] += 1
            else: column += 1
        total.append(sum(v - k * math.log(v) for v, k, o in zip(g[i], n, x.open[i].tolist(), strict=True) if o))
    return torch.tensor(total)


def test_time_and_clock_reading_agree():
    model = shaken(a=2.0, unmask="trainable")
    x, t = collate([parse_prompt(["a", ..., "b"], LAW.vocabulary)]), torch.tensor([0.6])
    for a, b in zip(model.intensities(x, t), model.intensities(x, tau=model.clock.tau(t)), strict=True):
        torch.testing.assert_close(a, b)
    for kwargs in (dict(), dict(t=t, tau=t)):
        with pytest.raises(ValueError, match="either t or tau"): model.intensities(x, **kwargs)


def test_schedules_stay_in_range_and_start_at_one():
    fresh, mild, wild = (shaken(scale=v, unmask="trainable", b_range=4.0) for v in (0.0, 0.15, 1.0))
    assert all((b == 1).all() for b in fresh.schedule(LAW.x1))
    assert all(b[LAW.x1.free].std() > 0.05 for b in mild.schedule(LAW.x1))
    for b in wild.schedule(LAW.x1):
        assert b.min() >= 0.25 * (1 - 1e-6) and b.max() <= 4 * (1 + 1e-6) and (b.log().abs() > 1.3).any()
    assert (shaken(scale=1.0).schedule(LAW.x1)[1] == 1).all()  # frozen


def test_the_regulariser_enters_with_its_weight():
    a, b = (shaken(regulariser=w).loss(LAW.x1, seeded(0)) for w in (0.0, 50.0))
    torch.testing.assert_close(b.loss - a.loss, 50 * a.metrics["regulariser"], rtol=1e-3, atol=1e-2)
    model = shaken()
    expected = ScheduleRegulariser()(model.schedule(LAW.x1)[0], LAW.x1.free).mean()
    torch.testing.assert_close(a.metrics["regulariser"], expected)


def test_metrics_are_detached_and_finite():
    for kwargs in VARIANTS:
        metrics = shaken(**kwargs).loss(LAW.x1, seeded(0)).metrics
        assert all(
            not torch.as_tensor(v).requires_grad and torch.isfinite(torch.as_tensor(v)) for v in metrics.values()
        )


def test_generation_ends_later_for_slower_schedules():
    model = shaken(scale=1.0).train()
    for s in range(200): model.loss(LAW.x1, seeded(s))
    low = model.schedule(LAW.x1)[0][LAW.x1.free].min().clamp_max(1)
    torch.testing.assert_close(model.slowest, low.detach(), rtol=0.25, atol=0)
    assert model.tau_max == pytest.approx(math.log(1e4) / model.slowest.item())


@pytest.mark.parametrize(
    "bad",
    [
        dict(order="random"), dict(backbone="two"), dict(unmask="learned"), dict(bound="loose"),
        dict(size="huge"), dict(states=1), dict(a=0.0), dict(a=float("nan")), dict(b_range=1.0),
        dict(regulariser=-1.0), dict(max_length=1), dict(proposal=0.0),
        dict(planner_alpha=1.0), dict(planner_tau=0.5),
    ],
)
def test_configs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): LoFlexMDMConfig(**bad)


def test_variants_of_the_regulariser_are_the_configurations():
    law = LAW.x1
    for options in (dict(terms="mixture"), dict(terms="ends"), dict(t_eps=0.1, delta=0.2), dict(delta=0.01)):
        model = shaken(regulariser=1.0, **options)
        b_in, b_um = model.schedule(law)
        expected = ScheduleRegulariser(**options)(b_in, law.free, 1.0).mean()
        torch.testing.assert_close(model.loss(law, seeded(0)).metrics["regulariser"], expected.detach())


@pytest.mark.parametrize("bad", (dict(terms="kl"), dict(t_eps=0.5), dict(t_eps=0.0), dict(delta=1.0)))
def test_variants_of_the_regulariser_that_are_none(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): LoFlexMDMConfig(**bad)


def test_an_order_by_hand_is_of_insertion_and_of_decisions_if_these_have_rates():
    x1 = collate([prefix_example((), "aab", LAW.vocabulary)])
    by_hand = torch.tensor([2.0, 0.5, 0.5])
    for unmask, of_decisions in (("frozen", torch.ones(3)), ("trainable", by_hand)):
        model = LoFlexMDM(LAW.vocabulary, LoFlexMDMConfig(
            size="pico", max_length=4, order="given", given="slots:2,0.5", unmask=unmask))
        b_in, b_um = (b[x1.free] for b in model.schedule(x1))
        torch.testing.assert_close(b_in, by_hand, rtol=0, atol=0)
        torch.testing.assert_close(b_um, of_decisions, rtol=0, atol=0)
