"Diffusion with uniform noise against enumeration: the bound, what is generated, prompts, and what every method does."
import itertools
import math

import numpy as np
import pytest
import torch
from brief_runs import at_the_command_line
from scipy import stats

from loflexmdm.methods.sampling import generate
from loflexmdm.methods.uniform_noise import LATEST, SIGNAL, NoiseLevel, UniformNoise, UniformNoiseConfig, start_cost
from loflexmdm.process.states import PartialSequences, Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers import Ancestral, EventDriven, TauLeaping
from loflexmdm.support.notebook import seeded
from loflexmdm.support.random_numbers import ShardGenerator

VOCABULARY = Vocabulary("ab")  # ids 3 and 4; the blank is 5
TOKENS = (3, 4, 5)
FIRST = SIGNAL / 3
BEGINNING = sum(p * math.log(3 * p) for p in [FIRST + (1 - FIRST) / 3, *[(1 - FIRST) / 3] * 2])

pytestmark = pytest.mark.usefixtures("pico")
RUN = dict(method="udlm", size="pico")


def shaken(max_length: int = 3, cls: type[UniformNoise] = UniformNoise, **options) -> UniformNoise:
    "A small model with random parameters everywhere, in double precision."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config, g = UniformNoiseConfig(size="pico", max_length=max_length, **options), seeded(1)
        model = cls(VOCABULARY, config).double()
    with torch.no_grad():
        for p in model.parameters(): p.add_(0.2 * torch.randn(p.shape, generator=g))
        model.time.freq.clamp_(max=4.0)  # what oscillates would need many readings
    return model.eval()


def batch(*strings: str, prompt: str = "") -> PartialSequences:
    return collate([prefix_example(prompt, s, VOCABULARY) for s in strings])


def all_states(x1: PartialSequences) -> PartialSequences:
    "Every canvas that a canvas may become."
    columns = [TOKENS if free else (token,) for token, free in zip(x1.tokens[0].tolist(), x1.free[0].tolist())]
    tokens = torch.tensor(list(itertools.product(*columns)))
    return x1.rows([0] * len(tokens))._replace(tokens=tokens)


def readings(n: int) -> list[tuple[float, float, float]]:
    "Shares of what noise has left, clock readings, and weights of integrals over the clock."
    x, w = np.polynomial.legendre.leggauss(n)
    low, high = math.log(FIRST / (1 - FIRST)), LATEST - math.log(1 - FIRST)
    y, w = low + (x + 1) / 2 * (high - low), w / 2 * (high - low)
    alpha, noise = 1 / (1 + np.exp(-y)), 1 / (1 + np.exp(y))
    return [(a, math.log((1 - FIRST) / b), v * a) for a, b, v in zip(alpha, noise, w)]


def predicted(model: UniformNoise, x: PartialSequences, tau: float) -> list:
    "Predictions of the clean tokens, [state][column][token]."
    reading = torch.full((len(x.tokens),), tau, dtype=torch.float64)
    with torch.no_grad(): return model.denoise(x, reading)[..., 3:].tolist()


def published(clean: int, there: int, prediction: list[float], alpha: float) -> float:
    "UDLM's integrand at one position, per unit of the clock here."
    bar = [3 * alpha * (t == clean) + 1 - alpha for t in TOKENS]
    model = [3 * alpha * p + 1 - alpha for p in prediction]
    i = TOKENS.index(there)
    logs = sum(b / bar[i] * math.log(b / bar[i] * model[i] / m) for b, m in zip(bar, model))
    return (1 - alpha) / alpha / 3 * (3 / model[i] - 3 / bar[i] + logs)


def bound(model: UniformNoise, batch: PartialSequences, n: int = 100) -> float:
    "The bound of one sequence, from all states at all readings."
    x1 = model.canvas(batch)
    x, clean, columns = all_states(x1), x1.tokens[0].tolist(), x1.free[0].nonzero()[:, 0].tolist()
    total = BEGINNING * len(columns)
    for alpha, tau, weight in readings(n):
        for there, prediction in zip(x.tokens.tolist(), predicted(model, x, tau)):
            chance = math.prod(alpha * (there[c] == clean[c]) + (1 - alpha) / 3 for c in columns)
            cost = sum(published(clean[c], there[c], prediction[c], alpha) for c in columns)
            total += weight * chance * cost
    return total


@pytest.mark.parametrize("clean", [batch("ab"), batch("b"), batch("a", prompt="b")], ids=["full", "blank", "prompt"])
def test_the_loss_integrated_is_the_bound(clean):
    "With the cost of the beginning."
    model = shaken()
    x1 = model.canvas(clean)
    x, total = all_states(x1), BEGINNING * x1.free.sum().item()
    many = x1.rows([0] * len(x.tokens))
    for alpha, tau, weight in readings(100):
        with torch.no_grad(): costs = model.match(many, x, torch.full((len(x.tokens),), tau, dtype=torch.float64))
        each = alpha * (x.tokens == x1.tokens).double() + (1 - alpha) / 3
        total += (weight * torch.where(x1.free, each, 1.0).prod(-1) * costs).sum().item()
    assert total == pytest.approx(bound(model, clean), rel=1e-9)
    assert BEGINNING == pytest.approx(start_cost(3), rel=1e-9)


def test_draws_have_the_mean_of_the_bound():
    model, n = shaken(), 6000
    for clean in (batch("ab"), batch("a", prompt="b")):
        many, truth = clean.rows([0] * n), bound(model, clean)
        draws = model.bound_draw(model.canvas(many), seeded(0)).detach()
        for values in (draws, model.nll_bound(many, 2, seeded(1))[0]):
            assert abs(values.mean() - truth) < 4 * values.std() / n**0.5
        terms = model.loss(many, seeded(0))
        assert terms.loss.item() == terms.metrics["bound_tight"].item() == pytest.approx(draws.mean().item())


def test_the_beginning_costs_and_late_readings_do_not(monkeypatch):
    "With 1 for the loss in every state: 0, or the weight of a reading before the end, and the beginning."
    model, n = shaken(), 4000
    monkeypatch.setattr(model, "match", lambda x1, x, tau: torch.ones(n))
    draws = model.bound_draw(model.canvas(batch("ab")).rows([0] * n), seeded(0))
    late = draws < 1
    assert draws[late].tolist() == pytest.approx([2 * BEGINNING] * int(late.sum()), rel=1e-6)
    assert abs(late.double().mean() - 2 / (2 + LATEST)) < 1 / n  # readings are stratified
    assert draws.max() < (2 + LATEST) ** 2 / 2 + 1


def test_rates():
    model = shaken()
    x, alpha = all_states(model.canvas(batch("ab"))), 1 - (1 - FIRST) * math.exp(-0.7)
    with torch.no_grad(): out = model.intensities(x, tau=torch.full((9,), 0.7, dtype=torch.float64))
    found = out.substitute[..., None] * out.logits.softmax(-1)
    for i, (row, prediction) in enumerate(zip(x.tokens.tolist(), predicted(model, x, 0.7))):
        for c in (1, 2):
            q = [alpha * p + (1 - alpha) / 3 for p in prediction[c]]
            rates = [(1 - alpha) / alpha / 3 * v / q[TOKENS.index(row[c])] for v in q]
            rates[TOKENS.index(row[c])] = 0.0
            assert found[i, c].tolist() == pytest.approx([0.0] * 3 + rates, rel=1e-9)
    assert (out.substitute[:, 0] == 0).all()


def law(model: UniformNoise, x: PartialSequences, steps: int = 300) -> torch.Tensor:
    "Probabilities at the end of the chain of even tokens, (states,), by Runge-Kutta; rates written anew."
    rows = x.tokens.tolist()
    apart = lambda a, b: [c for c in range(len(a)) if a[c] != b[c]]
    moves = [(i, j, *apart(a, b), b) for i, a in enumerate(rows) for j, b in enumerate(rows) if len(apart(a, b)) == 1]

    def change(p, y):
        alpha = 1 / (1 + math.exp(-y))
        prediction = predicted(model, x, math.log((1 - FIRST) / (1 - alpha)))
        R = torch.zeros(len(rows), len(rows)).double()
        for i, j, c, b in moves:
            q = [alpha * v + (1 - alpha) / 3 for v in prediction[i][c]]
            R[i, j] = (1 - alpha) / 3 * q[TOKENS.index(b[c])] / q[TOKENS.index(rows[i][c])]
        return p @ (R - torch.diag(R.sum(-1)))
    low = math.log(FIRST / (1 - FIRST))
    p, h = torch.full((len(rows),), 1 / len(rows)).double(), (20 - low) / steps
    for k in range(steps):
        y = low + k * h
        a = change(p, y)
        b = change(p + h / 2 * a, y + h / 2)
        p = p + h * change(p + h * (2 * b - a), y + h) / 6 + h * (a + 4 * b) / 6
    return p


class Raw(UniformNoise):
    "Whose samples keep their blanks."
    name = "udlm, raw (tests)"
    def finish(self, samples): return samples


@pytest.mark.slow
def test_what_is_generated_and_that_the_bound_lies_above():
    model, n = shaken(cls=Raw), 1000
    x = all_states(model.canvas(batch("ab")))
    p = law(model, x)
    assert p.sum().item() == pytest.approx(1)
    out = generate(model, n=n, sampler=TauLeaping(steps=100, grid="clock"), generator=seeded(0), batch_size=n)
    found = [(2, *s) for s in out.sequences]
    assert stats.chisquare([found.count(tuple(row)) for row in x.tokens.tolist()], n * p.numpy()).pvalue > 1e-4
    for text in ("ab", "b"):
        nll = -p[x.tokens.tolist().index(model.canvas(batch(text)).tokens[0].tolist())].log().item()
        assert nll < bound(model, batch(text)) < nll + 5


def test_the_own_token_is_divided_out():
    "What is predicted given all tokens, divided by the probability of the token that is there."
    alls, others = shaken(predicts="all"), shaken()
    x, tau = all_states(others.canvas(batch("ab"))), torch.full((9,), 0.7, dtype=torch.float64)
    alpha = 1 - (1 - FIRST) * math.exp(-0.7)
    with torch.no_grad(): found, given_all = (m.denoise(x, tau)[:, 1:, 3:] for m in (alls, others))
    there = torch.tensor([[[alpha * (t == v) + (1 - alpha) / 3 for v in TOKENS] for t in row[1:]] for row in x.tokens])
    by_hand = given_all / there
    torch.testing.assert_close(found, by_hand / by_hand.sum(-1, keepdim=True))


@pytest.mark.parametrize("sampler", [None, EventDriven(), EventDriven(exact=False), TauLeaping(steps=5, top_p=0.9)])
def test_every_sampler(sampler):
    "Prompts stay, no special token or blank is left, and a sequence depends on its seed, not on its batch."
    model, given = shaken(8), [["a"], ["a", "<mask>", "b"], ["b", ..., "a"], []]
    a, b = (generate(model, given, n=3, sampler=sampler, generator=seeded(1), batch_size=size) for size in (512, 5))
    assert a.sequences == b.sequences and a.free == b.free
    assert all(t in (3, 4) for s in a.sequences for t in s) and max(map(len, a.sequences)) <= 7
    kept = [[t for t, free in zip(s, f) if not free] for s, f in zip(a.sequences, a.free)]
    assert kept == [[3]] * 3 + [[3, 4]] * 3 + [[4, 3]] * 3 + [[]] * 3
    assert all(len(s) <= 3 and s[0] == 3 and s[-1] == 4 for s in a.sequences[3:6])


def test_recordings_end_with_the_sample():
    out = generate(shaken(8), n=5, generator=seeded(2), record=True, max_length=4)
    assert max(map(len, out.sequences)) <= 3
    for s, path in zip(out.sequences, out.trajectories): assert path.frames[-1][1] == s


def test_refused_prompts_and_samplers():
    model = shaken(8)
    with pytest.raises(ValueError, match="several gaps"): generate(model, [["a", ..., "b", ...]])
    with pytest.raises(ValueError, match="nothing to fill"): generate(model, [list("abababa")])
    with pytest.raises(ValueError, match="sampler=Ancestral"): generate(model, n=1, sampler=Ancestral())
    with pytest.raises(ValueError, match="confidence"): generate(model, n=1, sampler=TauLeaping(confidence="top_prob"))


def test_the_beginning_is_random_and_depends_on_the_seed():
    "Of ordinary tokens and the blank alone; conditions are told, and never drawn."
    model = UniformNoise(Vocabulary(["a", "b", "<size:small>", "<any>"]), UniformNoiseConfig(size="pico", max_length=5))
    assert model.written.nonzero()[:, 0].tolist() == [3, 4, 7] and model.outcomes == 3
    prompts = collate([parse_prompt(["<size:small>", ..., "b"], model.vocabulary)] * 2000)
    x = model.begin(prompts, 5, range(2000))
    assert (x.tokens[:, [0, 1, 4]] == torch.tensor([2, 5, 4])).all() and not x.masked.any()
    assert x.free.tolist() == [[False, False, True, True, False]] * 2000
    assert torch.equal(model.begin(prompts.rows([7]), 5, [7]).tokens[0], x.tokens[7])
    counts = (x.tokens[:, 2] * 8 + x.tokens[:, 3]).bincount(minlength=64)
    assert stats.chisquare([counts[a * 8 + b] for a in (3, 4, 7) for b in (3, 4, 7)]).pvalue > 1e-4
    with torch.no_grad(): assert (model.denoise(x, torch.ones(2000))[..., [0, 1, 2, 5, 6]] == 0).all()


def test_noise():
    "A token is as it was with alpha + (1 - alpha) / 3, what is given always."
    model, n = shaken(), 20_000
    x1 = model.canvas(batch("a", prompt="b")).rows([0] * n)
    for tau in (0.0, 0.7):
        x = model.corrupt(x1, torch.full((n,), tau), seeded(0))
        assert (x.tokens[:, :2] == x1.tokens[:, :2]).all()
        alpha = 1 - (1 - FIRST) * math.exp(-tau)
        counts = x.tokens[:, 2].bincount(minlength=6)[3:].tolist()
        assert stats.chisquare(counts, [n * (alpha * (t == 3) + (1 - alpha) / 3) for t in TOKENS]).pvalue > 1e-4


def test_two_processes_draw_the_states_of_one():
    model = shaken()
    x1 = model.canvas(batch(*["ab", "b", "a", ""] * 2))
    whole = model.bound_draw(x1, seeded(0))
    parts = [model.bound_draw(x1.rows(slice(k, None, 2)), ShardGenerator("cpu", k, 2).manual_seed(0)) for k in (0, 1)]
    torch.testing.assert_close(torch.stack(parts, 1).flatten(), whole)


def test_the_network_sees_what_is_given_and_the_clock():
    model = shaken(4)
    x = model.canvas(batch("ab"))
    one = model.intensities(x, tau=torch.ones(1))
    given = x._replace(fixed=torch.tensor([[True, True, False, False]]))
    assert not torch.equal(model.intensities(given, tau=torch.ones(1)).substitute[:, 2:], one.substitute[:, 2:])
    assert torch.equal(model.intensities(x._replace(closed=~x.closed), tau=torch.ones(1)).substitute, one.substitute)
    assert (model.intensities(given, tau=torch.ones(1)).substitute[:, :2] == 0).all()
    assert not torch.equal(model.intensities(x, tau=torch.ones(1) * 2).substitute, one.substitute)
    half = model.intensities(x, torch.tensor([0.5])), model.intensities(x, tau=torch.tensor([math.log(2)]))
    torch.testing.assert_close(*(v.substitute for v in half))
    for wrong in ({}, dict(t=torch.ones(1), tau=torch.ones(1))):
        with pytest.raises(ValueError, match="either t or tau"): model.intensities(x, **wrong)


def test_gradients_are_finite_at_all_readings():
    x1 = shaken(4).canvas(batch("ab", "b", "", "aba"))
    for predicts, tau in itertools.product(("others", "all"), (0.0, 1e-4, 1.0, 20.0, LATEST, 1e9)):
        model = shaken(4, predicts=predicts).float()
        level = NoiseLevel.at(torch.tensor([tau]), 3)
        assert level.rate.isfinite().all() and (level.noise > 0).all()
        model.match(x1, model.corrupt(x1, torch.full((4,), tau), seeded(0)), torch.full((4,), tau)).sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())


def test_nothing_free_costs_nothing():
    model, x1 = shaken(), batch("ab")
    shut = x1._replace(fixed=torch.ones_like(x1.fixed), closed=torch.ones_like(x1.closed))
    assert model.nll_bound(shut, 2)[0].tolist() == [0.0] and model.loss(shut).loss == 0


@pytest.mark.parametrize("options, message", [
    (dict(size="huge"), "size='huge'"), (dict(network="mlp"), "network='mlp'"), (dict(proposal=0.0), "proposal=0.0"),
    (dict(max_length=1), "max_length=1"), (dict(predicts="masks"), "predicts='masks'"),
])
def test_refused_settings(options, message):
    with pytest.raises(ValueError, match=message): UniformNoiseConfig(**options)


def test_at_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at_the_command_line(tmp_path, RUN, capsys, "--steps", "4")
