"Faults that the other tests would let pass: each against a closed form or an enumeration in float64."

import math
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from safetensors.torch import load_file

from loflexmdm.methods.base import Method
from loflexmdm.methods.flexmdm import filled_example
from loflexmdm.methods.gen_md4 import GenMD4
from loflexmdm.methods.lo_flexmdm import LoFlexMDM
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.matching import LossTerms
from loflexmdm.process.states import CLEAN, Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers import EventDriven, Limits, simulate
from loflexmdm.support.notebook import seeded
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary("abc")
EXAMPLES = (
    prefix_example("ab", "ca", VOCABULARY),
    filled_example(["b", ..., "c"], ["a"], VOCABULARY),
    prefix_example("c", "", VOCABULARY),
)
CONDITIONAL = collate(EXAMPLES)  # every sequence with a prompt, the last with nothing else


pytestmark = pytest.mark.usefixtures("pico")


@pytest.fixture
def double(monkeypatch):
    "Everything in float64, where the package casts to float32 too."
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def shaken(cls=LoFlexMDM, **kwargs):
    "A small model with random parameters everywhere."
    torch.manual_seed(0)
    model = cls(VOCABULARY, cls.Config(**(dict(size="pico", max_length=7) | kwargs)))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=seeded(p.numel())))
    return model


def lo(**kwargs):
    return shaken(**(dict(order_size="pico", unmask="trainable") | kwargs))


def norm(gradients) -> float:
    return math.sqrt(sum(float(g.square().sum()) for g in gradients if g is not None))


# ---- the regulariser sees both schedules


def covering(b: list[float]) -> float:
    "The regulariser of one sequence's schedule parameters, Eqs 85-88 with F(t) = 1 - (1-t)^b written out."
    cdf = lambda t: [1 - (1 - t) ** v for v in b]
    mixture = sum((sum(cdf(t)) / len(b) - t) ** 2 for t in ((i + 0.5) / 100 for i in range(100))) / 100
    ends = sum(
        max(low - 0.05, 0) ** 2 + max(1 - high - 0.05, 0) ** 2 for low, high in zip(cdf(0.01), cdf(0.99), strict=True)
    )
    return mixture + ends / len(b)


@pytest.mark.parametrize("unmask", ["trainable", "frozen"])
def test_the_regulariser_counts_each_schedule_that_is_trained(double, unmask):
    model, free = lo(unmask=unmask), CONDITIONAL.free
    schedules = model.schedule(CONDITIONAL)
    each = [
        sum(covering(b[row][free[row]].tolist()) for row in range(2)) / 3 for b in schedules
    ]  # the third sequence has nothing free
    expected = sum(each) if unmask == "trainable" else each[0]
    assert min(each) > 1e-3 or unmask == "frozen"
    assert float(model.penalty(CONDITIONAL, *schedules).detach()) == pytest.approx(expected, rel=1e-12)
    weighted, without = (
        float(lo(unmask=unmask, regulariser=r).loss(CONDITIONAL, seeded(2)).loss.detach()) for r in (1000.0, 0.0)
    )
    assert (weighted - without) / 1000 == pytest.approx(expected, rel=1e-12)


# ---- prompts have no part in log P(state)


def chances(b_in: float, b_um: float, tau: float) -> tuple[float, float, float]:
    "Probabilities that a token is dropped, masked and clean: T_in ~ Exp(b_in), T_um - T_in ~ Exp(b_um)."
    dropped = math.exp(-b_in * tau)
    masked = b_in * (dropped - math.exp(-b_um * tau)) / (b_um - b_in)
    return dropped, masked, 1 - dropped - masked


def check_states(log_q: torch.Tensor, probs: torch.Tensor, parameters):
    """log P is that of the closed form, and its gradient is 0 on average, without which a score estimator is biased.

    Leave-one-out advantages sum to 0, so a part that all states of a sequence share, as prompts do, cancels in that
    estimator; with any other baseline it stays."""
    torch.testing.assert_close(probs.sum(), torch.ones(()), rtol=1e-12, atol=0)
    torch.testing.assert_close(log_q.detach().exp(), probs, rtol=1e-9, atol=0)
    each = norm(
        torch.autograd.grad((probs * log_q.detach() * log_q).sum(), parameters, retain_graph=True, allow_unused=True)
    )
    assert (
        norm(torch.autograd.grad((probs * log_q).sum(), parameters, allow_unused=True)) < 1e-12 * max(each, 1)
        and each > 0.01
    )


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("tau", [0.3, 2.5])
def test_state_log_prob_is_over_the_generated_positions(double, row, tau):
    model, x1 = lo(), CONDITIONAL.rows([row]).trim()
    b_in, b_um = model.schedule(x1)
    where = x1.free[0].nonzero()[:, 0].tolist()
    every = list(product(range(3), repeat=len(where)))
    state = torch.full((len(every), x1.tokens.shape[1]), CLEAN)
    state[:, where] = torch.tensor(every)
    law = [chances(float(b_in.detach()[0, i]), float(b_um.detach()[0, i]), tau) for i in where]
    probs = torch.tensor([math.prod(p[s] for p, s in zip(law, states, strict=True)) for states in every])
    many = x1.map(lambda v: v.repeat(len(every), 1))
    log_q = model.path.log_prob(
        many, state, torch.full((len(every),), tau), b_in.repeat(len(every), 1), b_um.repeat(len(every), 1)
    )
    check_states(log_q, probs, model.order_parameters)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("tau", [0.3, 2.5])
def test_hidden_log_prob_is_over_the_generated_positions(double, row, tau):
    model = shaken(GenMD4, max_length=6)
    x1 = model.canvas(CONDITIONAL.rows([row]).trim())
    where = x1.free[0].nonzero()[:, 0].tolist()
    every = list(product((False, True), repeat=len(where)))
    hidden = torch.zeros(len(every), x1.tokens.shape[1], dtype=torch.bool)
    hidden[:, where] = torch.tensor(every)
    waits = [float(model.speed.detach()[x1.tokens[0, i]]) * tau for i in where]
    probs = torch.tensor(
        [math.prod(math.exp(-w) if h else 1 - math.exp(-w) for w, h in zip(waits, some, strict=True)) for some in every]
    )
    log_q = model.state_log_prob(x1.map(lambda v: v.repeat(len(every), 1)), hidden, torch.full((len(every),), tau))
    check_states(log_q, probs, [model.raw_speed])


# ---- the end of the clock waits for the slowest event of either kind


@pytest.mark.parametrize("slow", ["b_in", "b_um"])
def test_the_slowest_schedule_parameter_is_of_either_kind(double, slow):
    model = lo()
    b = dict(b_in=torch.full(CONDITIONAL.tokens.shape, 3.0), b_um=torch.full(CONDITIONAL.tokens.shape, 2.0))
    b[slow][0, 3] = 0.25  # of a generated position
    b["b_in"][0, 1] = b["b_um"][0, 1] = 0.01  # of a prompt
    assert CONDITIONAL.free[0, 3] and not CONDITIONAL.free[0, 1]
    for step in range(1, 4):
        model.track_slowest(CONDITIONAL, b["b_in"], b["b_um"])
        assert model.tau_max == pytest.approx(math.log(1e4) / (0.25 + 0.75 * 0.99**step), rel=1e-12)


def test_training_moves_the_end_of_the_clock(double):
    for seed in range(8):
        model = lo()
        with torch.no_grad():
            model.order.unmask.out.bias.sub_(seed / 4)
        b = [v.detach()[CONDITIONAL.free] for v in model.schedule(CONDITIONAL)]
        model.train().loss(CONDITIONAL, seeded(seed))
        low = min(1.0, float(torch.cat(b).min()))
        assert model.tau_max == pytest.approx(math.log(1e4) / (1 + 0.01 * (low - 1)), rel=1e-12)
    assert float(b[1].min()) < float(b[0].min())  # unmasking was the slower


# ---- validation and the best weights are the average's


@dataclass(frozen=True)
class PointConfig:
    max_length: int = 8


class Point(Method):
    "One number that is to become 0."

    name, Config = "point (test)", PointConfig

    def __init__(self, vocabulary, config=PointConfig(), task=None):
        super().__init__(vocabulary, config, task)
        self.w, self.seen = torch.nn.Parameter(torch.ones(1, dtype=torch.float64)), []

    def loss(self, batch, generator=None):
        self.seen.append(float(self.w.detach()))
        value = self.w.square().sum()
        return LossTerms(value, dict(bound_tight=value.detach()))

    def nll_bound(self, x1, samples=64, generator=None):
        value = self.w.detach().square().expand(len(x1.tokens))
        return value, torch.zeros_like(value)


def averages(raw: list[float], decay: float) -> list[float]:
    "The average after each step: the first is the weight itself, then the decay is min(decay, (1 + n)/(10 + n))."
    out = raw[:1]
    for n, w in enumerate(raw[1:], 1):
        out.append(w + min(decay, (1 + n) / (10 + n)) * (out[-1] - w))
    return out


@pytest.mark.parametrize("ema", [0.5, 0.999])
def test_validation_and_best_are_of_the_averaged_weights(tmp_path, ema):
    method = Point(VOCABULARY)
    config = TrainConfig(
        steps=16, batch_size=3, lr=0.15, warmup=0, weight_decay=0.0, ema=ema, valid_every=1, log_every=1
    )
    trainer = Trainer(method, EXAMPLES, config, tmp_path, valid=EXAMPLES, progress=False)
    trainer.fit()
    raw = [*method.seen[1:], float(method.w.detach())]
    mean = averages(raw, ema)
    expected, found = [w**2 for w in mean], [r["valid_nll"] for r in trainer.log.rows() if "valid_nll" in r]
    assert min(range(16), key=lambda i: raw[i] ** 2) != (
        best := min(range(16), key=expected.__getitem__)
    )  # the raw weights' best step is another
    assert found == [float(f"{v:.6g}") for v in expected]
    assert trainer.best == pytest.approx(expected[best], rel=1e-12)
    assert float(load_file(tmp_path / "best" / "model.safetensors")["w"]) == pytest.approx(mean[best], rel=1e-12)


# ---- thinning tells when its bound did not hold


@pytest.mark.parametrize("slack", [1.0, 1.5, 4.0])
@pytest.mark.parametrize("excess, violations", [(1e-5, 1), (0.2, 1), (0.0, 0), (-1e-9, 0), (-0.2, 0)])
def test_thinning_counts_a_total_above_its_bound(slack, excess, violations):
    "The first total, 1, sets the proposal's bound to `slack`; the second is slack x (1 + excess); then none grows."
    calls = []

    def model(x, tau):
        calls.append(float(tau[0]))
        first = torch.arange(x.tokens.shape[1]) == 0
        rate = {1: 1.0, 2: slack * (1 + excess)}.get(len(calls), 0.0)
        return Intensities(
            (rate * first).double().expand(x.tokens.shape),
            x.masked.double(),
            torch.zeros(*x.tokens.shape, len(VOCABULARY)),
        )

    samples = simulate(model, collate([parse_prompt([], VOCABULARY)]), EventDriven(slack=slack), [0], Limits(1e9, 9))
    assert calls[0] == 0 < calls[1] < 1e9
    assert samples.violations == violations
