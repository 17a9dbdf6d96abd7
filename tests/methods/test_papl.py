"""Planner weights: known values, gradients, expectations by enumeration, where the loss
rests, and a run from end to end."""
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from loflexmdm.methods.base import method_class
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion, clean_log_probs
from loflexmdm.methods.papl import FORMS, MIXTURES, PAPL, PAPLConfig, papl_weights
from loflexmdm.process.paths import hide_some
from loflexmdm.process.states import MASK, Vocabulary, collate, prefix_example
from loflexmdm.samplers import GREEDY
from loflexmdm.support.notebook import seeded

LETTERS = Vocabulary("ab")
CLEAN = collate([prefix_example("", "ab", LETTERS), prefix_example("", "bba", LETTERS)])
SETS = torch.tensor([s for s in itertools.product([False, True], repeat=3) if any(s)])
PER_SET = torch.tensor([1 / (3 * math.comb(3, n)) for n in SETS.sum(-1).tolist()], dtype=torch.float64)


pytestmark = pytest.mark.usefixtures("pico")


def shaken(cls=PAPL, **kwargs):
    torch.manual_seed(0)
    model = cls(LETTERS, cls.Config(**dict(size="pico", max_length=4) | kwargs))
    with torch.no_grad():
        for p in model.parameters(): p.add_(0.3 * torch.randn(p.shape, generator=seeded(p.numel())))
    return model


def p(*values): return torch.tensor([values], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("alpha", "tau", "value"),
    [
        (0, 1, 1.033698), (0, 0.5, 1.033698), (1, 1, 1.182955), (5, 1, 1.779983),
        (1, 0.5, 1.121440), (5, 0.5, 1.472412), (5, 2, 2.147805),
    ],
)
def test_known_values(alpha, tau, value):
    log_k = p(0.9, 0.5, 0.1)
    weights = papl_weights(log_k, torch.ones(1, 3, dtype=torch.bool), float(alpha), tau)
    assert -(weights * log_k).sum().item() == pytest.approx(value, abs=1e-6)
    assert weights.sum().item() == pytest.approx(1 + alpha / 3, abs=1e-12)


def test_interpolation_keeps_the_planners_share():
    weights = papl_weights(p(0.9, 0.5, 0.1), torch.ones(1, 3, dtype=torch.bool), 5.0, 1.0, "interpolate")
    torch.testing.assert_close(weights, torch.tensor([[1 / 3 + 3, 1 / 3 + 5 / 3, 1 / 3 + 1 / 3]], dtype=torch.float64))


@pytest.mark.parametrize("mixture", MIXTURES)
def test_one_mask_weighs_one_plus_alpha_and_none_nothing(mixture):
    where = torch.tensor([[True, False, False], [False, False, False]])
    weights = papl_weights(p(0.9, 0.5, 0.1).expand(2, -1), where, 4.0, mixture=mixture)
    assert weights.tolist() == [[5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_rows_do_not_share_weights():
    log_k, where = torch.rand(5, 4, generator=seeded(0)).log(), torch.rand(5, 4, generator=seeded(1)) < 0.6
    together = papl_weights(log_k, where, 2.0, 0.5)
    for i in range(5):
        torch.testing.assert_close(together[[i]], papl_weights(log_k[[i]], where[[i]], 2.0, 0.5), rtol=0, atol=0)


@pytest.mark.parametrize("kwargs", [dict(alpha=-1.0), dict(alpha=math.nan), dict(tau=0.0), dict(mixture="mean")])
def test_weights_that_make_no_sense(kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))):
        papl_weights(p(0.5), torch.ones(1, 1, dtype=torch.bool), **kwargs)


def test_gradient_is_that_of_cross_entropy_rescaled():
    logits = torch.randn(6, 4, 5, generator=seeded(0), dtype=torch.float64).requires_grad_()
    tokens, where = torch.randint(5, (6, 4), generator=seeded(1)), torch.rand(6, 4, generator=seeded(2)) < 0.6
    log_d = logits.log_softmax(-1)
    log_k = torch.where(where, log_d.gather(-1, tokens[..., None])[..., 0], 0.0)
    (-(papl_weights(log_k, where, 2.0, 0.5) * log_k).sum()).backward()
    w = torch.where(where, (log_k / 0.5).exp(), 0.0)
    scale = torch.where(where, (1 + 2 * w / w.sum(-1, keepdim=True)) / where.sum(-1, keepdim=True), 0.0)
    torch.testing.assert_close(
        logits.grad, (scale[..., None] * (log_d.exp() - F.one_hot(tokens, 5))).detach(), rtol=1e-12, atol=1e-12
    )


@torch.no_grad()
def enumerated(model, **kwargs):
    "Expectation of L x Eq 7 over both sequences, by all sets of masks."
    x1, c, total = model.canvas(CLEAN), model.config, 0.0
    where = torch.cat([torch.zeros(7, 1, dtype=torch.bool), SETS], 1)
    for i in range(2):
        rows = x1.rows([i] * 7)
        x = rows._replace(tokens=torch.where(where, MASK, rows.tokens))
        log_k = clean_log_probs(model.logits(x, torch.zeros(7)).double(), rows, x)
        weights = papl_weights(log_k, where, **dict(alpha=c.alpha, tau=c.planner_tau, mixture=c.mixture) | kwargs)
        total -= 3 * (PER_SET @ (weights * log_k).sum(-1)).item() / 2
    return total


@pytest.mark.parametrize(
    ("form", "mixture", "schedule"),
    [
        ("count", "eq7", "linear"), ("count", "interpolate", "linear"),
        ("time", "eq7", "linear"), ("time", "interpolate", "linear"), ("time", "eq7", "cosine"),
    ],
)
def test_loss_and_bound_against_enumeration(form, mixture, schedule):
    "Both forms, and any schedule, have one expectation; the bound in the metrics has no weights."
    model = shaken(alpha=5.0, planner_tau=0.5, form=form, mixture=mixture, schedule=schedule)
    batch = CLEAN.rows(torch.arange(64) % 2)
    with torch.no_grad(): terms = [model.loss(batch, seeded(s)) for s in range(120)]
    for values, target in (
        ([t.loss for t in terms], enumerated(model)),
        ([t.metrics["bound_tight"] for t in terms], enumerated(model, alpha=0.0)),
    ):
        values = torch.stack(values).double()
        assert abs(values.mean() - target) < 4.5 * values.std() / len(values) ** 0.5


def test_nll_bound_is_masked_diffusions():
    weighted, plain = shaken(alpha=5.0), shaken(MaskedDiffusion)
    plain.load_state_dict(weighted.state_dict())
    for a, b in zip(weighted.nll_bound(CLEAN, 8, seeded(0)), plain.nll_bound(CLEAN, 8, seeded(0)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_without_alpha_nothing_is_left_of_the_planner(form):
    model = shaken(alpha=0.0, form=form)
    terms = model.loss(CLEAN, seeded(0))
    torch.testing.assert_close(terms.loss, terms.metrics["bound_tight"])
    if form == "time":
        plain = shaken(MaskedDiffusion)
        plain.load_state_dict(model.state_dict())
        torch.testing.assert_close(terms.loss, plain.loss(CLEAN, seeded(0)).loss)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_counts_are_a_lattice_over_all_sets(n):
    x1 = collate([prefix_example("ab", "b" * n, LETTERS)] * 12)
    x, share = hide_some(x1, seeded(0))
    assert sorted(x.masked.sum(-1).tolist()) == sorted(12 // n * list(range(1, n + 1)))
    assert not x.masked[:, :3].any() and ((share > 0) & (share < 1)).all()


def test_rows_without_anything_free_cost_nothing():
    full = CLEAN.rows([1, 1])
    whole = full._replace(fixed=torch.ones_like(full.fixed), closed=torch.ones_like(full.closed))
    for form in FORMS: assert shaken(form=form).loss(whole, seeded(0)).loss == 0


def test_clock_readings_reach_a_network_that_wants_them():
    terms = [shaken(time=time, alpha=5.0).loss(CLEAN, seeded(0)).loss for time in (False, True)]
    assert all(t.isfinite() for t in terms)


@pytest.mark.parametrize(("alpha", "rest"), [(1.0, (0.734, 0.618)), (5.0, (0.792, 0.648))])
def test_the_loss_rests_at_a_sharper_law(alpha, rest):
    "Two independent bits, q = (.7, .6): descent ends where D ~ q (1 + alpha E[w | y])."
    q, y = torch.tensor([0.7, 0.6], dtype=torch.float64), torch.tensor(list(itertools.product([True, False], repeat=2)))
    chance, logits = torch.where(y, q, 1 - q).prod(-1), torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for _ in range(300):
        log_k = F.logsigmoid(torch.where(y, logits, -logits))
        (gradient,) = torch.autograd.grad(
            -(chance @ (papl_weights(log_k, torch.ones_like(y), alpha) * log_k).sum(-1)), logits
        )
        with torch.no_grad(): logits -= gradient
    d = logits.detach().sigmoid()
    assert d.tolist() == pytest.approx(rest, abs=5e-4)
    conf = torch.where(y, d, 1 - d)
    count = 1 + alpha * conf / conf.sum(-1, keepdim=True)
    mass = torch.stack([(chance[:, None] * count * (y == v)).sum(0) for v in (True, False)])
    torch.testing.assert_close(mass[0] / mass.sum(0), d, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "bad",
    [
        dict(alpha=-1.0), dict(alpha=math.inf), dict(planner_tau=0.0), dict(planner_tau=math.nan),
        dict(form="counts"), dict(mixture="mean"), dict(schedule="quadratic"), dict(size="huge"), dict(max_length=1),
    ],
)
def test_configs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): PAPLConfig(**bad)


def test_it_is_a_masked_diffusion_by_another_name():
    assert method_class("papl") is PAPL and issubclass(PAPL, MaskedDiffusion) and issubclass(PAPLConfig, MaskedConfig)
    assert PAPL.papers[0] == "papl" and shaken().default_sampler == GREEDY
    torch.testing.assert_close(shaken().state_dict(), shaken(MaskedDiffusion).state_dict(), rtol=0, atol=0)
