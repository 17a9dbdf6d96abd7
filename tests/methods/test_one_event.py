"Learned orders with one rate per position: the loss against a sum over orders, its gradient, and runs to samples."
import math
from itertools import permutations, product

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, clock_quadrature
from loflexmdm.methods.base import horizon
from loflexmdm.methods.one_event import LoInsert, LoUnmask, OneEventConfig, wait_terms
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.matching import leave_one_out
from loflexmdm.process.states import CLEAN, DROPPED, MASK, MASKED, PartialSequences, collate
from loflexmdm.process.states import prefix_example
from loflexmdm.samplers import EventDriven
from loflexmdm.support.notebook import seeded
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe_from

pytestmark = pytest.mark.usefixtures("pico")
LAW = ToyLaw.of({"ab": 0.6, "bb": 0.4})
SPEED = torch.tensor([[3.0, 0.5], [0.8, 2.0]], dtype=torch.float64)
BOTH = pytest.mark.parametrize("cls, away", [(LoUnmask, MASKED), (LoInsert, DROPPED)])


def rate_of(view, place, token):
    "A made-up rate for every event, which ignores time."
    return 0.3 + (7 * len(view) + 5 * sum(view) + 3 * place + 2 * token) % 11 / 5


def made(cls, away, states=2):
    "The method with made-up rates and the order SPEED."
    class Tabled(cls):
        name = f"{cls.name} tabled (test)"

        def schedule(self, x1):
            at = [LAW.ids.index(row[1:]) for row in x1.tokens.tolist()]
            return torch.cat([torch.ones(len(at), 1, dtype=torch.float64), SPEED[at]], 1)

        def at(self, x, tau):
            out = torch.zeros(*x.tokens.shape, 5, dtype=torch.float64)
            for i, (row, n) in enumerate(zip(x.tokens.tolist(), x.lengths.tolist())):
                for place in (range(n) if away == DROPPED else (c for c in range(n) if row[c] == MASK)):
                    for token in (3, 4): out[i, place, token] = rate_of(row[1:n], place, token)
            total = out.sum(-1)
            law = torch.where(total[..., None] > 0, out, 1.0).log()
            return Intensities(insert=total, insert_logits=law) if away == DROPPED else Intensities(
                unmask=total, logits=law)
    config = OneEventConfig(size="pico", order_size="pico", max_length=3, states=states)
    return Tabled(LAW.vocabulary, config)


def aligned():
    "All states of both strings: number of the string, whether each position has jumped."
    return [(k, z) for k in range(2) for z in product((False, True), repeat=2)]


def states_of(away):
    rows = aligned()
    x1 = LAW.x1.rows([k for k, _ in rows])
    state = torch.tensor([[CLEAN, *(CLEAN if there else away for there in z)] for _, z in rows])
    return x1, state, torch.cat([torch.ones(8, 1, dtype=torch.float64), SPEED[[k for k, _ in rows]]], 1)


def path_divergence(k, away):
    "KL of paths of one string: over both orders, the law of each wait and each jump."
    ids, b, total = LAW.ids[k], SPEED[k].tolist(), 0.0
    for order in permutations(range(2)):
        p, there = b[order[0]] / sum(b), set()
        for j in order:
            B = sum(b[i] for i in range(2) if i not in there)
            if away == DROPPED:
                view, place = [ids[i] for i in range(2) if i in there], sum(h in there for h in range(j))
                places = range(len(view) + 1)
            else:
                view, place = [ids[i] if i in there else MASK for i in range(2)], j + 1
                places = [i + 1 for i in range(2) if i not in there]
            L = sum(rate_of(view, at, token) for at in places for token in (3, 4))
            right = rate_of(view, place, ids[j])
            total += p * (math.log(B / L) + L / B - 1 + math.log((b[j] / B) / (right / L)))
            there.add(j)
    return total


@BOTH
def test_loss_is_the_divergence_of_paths(cls, away):
    model, (x1, state, b) = made(cls, away), states_of(away)
    found = torch.zeros(2, dtype=torch.float64)
    row = torch.tensor([k for k, _ in aligned()])
    for tau, weight in zip(*clock_quadrature(48)):
        at = tau.expand(8)
        mass, terms = model.path.log_prob(x1, state, at, b).exp(), model.match(x1, state, at, b)
        inside = torch.tensor([not all(z) for _, z in aligned()])  # not the rates of a complete string
        found.index_add_(0, row, weight * torch.where(inside, mass * terms, 0.0))
    torch.testing.assert_close(found, torch.tensor([path_divergence(k, away) for k in range(2)], dtype=torch.float64))


@BOTH
def test_gradient_of_the_order_is_unbiased_over_all_pairs_of_states(cls, away):
    model, (x1, state, _) = made(cls, away), states_of(away)
    log_b = SPEED.log().clone().requires_grad_()
    row, at = torch.tensor([k for k, _ in aligned()]), torch.full((8,), 0.6, dtype=torch.float64)
    b = torch.cat([torch.ones(8, 1, dtype=torch.float64), log_b.exp()[row]], 1)
    losses, log_p = model.match(x1, state, at, b), model.path.log_prob(x1, state, at, b)
    i, j = torch.tensor([(i, j) for i, j in product(range(8), repeat=2) if row[i] == row[j]]).T
    p = (log_p[i] + log_p[j]).exp().detach()
    mean = (p * leave_one_out(losses[torch.stack([i, j])], log_p[torch.stack([i, j])])).sum()
    slope = lambda value: torch.autograd.grad(value, log_b, retain_graph=True)[0]
    torch.testing.assert_close(slope(mean), slope((log_p.exp() * losses).sum()))


@BOTH
def test_loss_compares_states_of_one_sequence_at_one_reading(cls, away):
    model, seen = made(cls, away, states=8).train(), []
    plain = model.match
    model.match = lambda x1, state, tau, b: seen.append((x1, state, tau)) or plain(x1, state, tau, b)
    found = model.loss(LAW.x1, seeded(2))
    (x1, state, tau), = seen
    assert x1.tokens.unflatten(0, (8, 2))[1].tolist() == LAW.x1.tokens.tolist() and len(state.unique(dim=0)) > 1
    assert len({*tau.tolist()}) == 2 and torch.equal(tau[:2], tau[-2:])
    b, (_, weight) = model.schedule(x1), model.proposal(2, seeded(2))
    losses = plain(x1, state, tau, b).unflatten(0, (8, 2)) * weight
    log_p = model.path.log_prob(x1, state, tau, b).unflatten(0, (8, 2))
    surrogate = leave_one_out(losses, log_p).mean() + model.config.regulariser * found.metrics["regulariser"]
    torch.testing.assert_close(found.loss, surrogate)
    assert set(found.metrics) == {"bound_tight", "advantage", "log_b", "log_b_std", "b_min", "b_max", "regulariser"}
    assert math.isclose(found.metrics["b_min"], 0.5) and math.isclose(found.metrics["b_max"], 3.0)
    assert math.isclose(model.slowest.item(), 0.995, rel_tol=1e-5) and model.evaluations_per_loss == 8


def test_terms_by_hand():
    one = lambda v: torch.tensor([[v]], dtype=torch.float64)
    waits, done = torch.tensor([[True]]), torch.tensor([[False]])
    total = torch.ones(1, dtype=torch.float64)
    assert math.isclose(wait_terms(one(2.0), one(0.5).log(), waits, total).item(), 4 * math.log(2) - 1)
    assert wait_terms(one(2.0), one(0.0), done, total).item() == 1


@pytest.mark.parametrize("cls", [LoUnmask, LoInsert])
def test_from_random_weights_to_samples_and_back(cls, tmp_path):
    torch.manual_seed(0)
    model = cls(LAW.vocabulary, OneEventConfig(size="pico", order_size="pico", max_length=5))
    for p in model.parameters(): torch.nn.init.normal_(p, std=0.3)
    model.loss(LAW.x1, seeded(0)).loss.backward()
    trained = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert any(n.startswith("order.insert") for n in trained) and any(n.startswith("order_backbone") for n in trained)
    samples = generate(model.eval(), n=20, seed=1, sampler=EventDriven(slack=3.0))
    assert len(samples) == 20 and all(MASK not in s and len(s) <= 5 for s in samples.sequences)
    save_method(model, tmp_path / "m")
    again = load_method(tmp_path / "m")
    assert generate(again, n=20, seed=1, sampler=EventDriven(slack=3.0)).sequences == samples.sequences
    assert torch.equal(again.nll_bound(LAW.x1, 2, seeded(0))[0], model.nll_bound(LAW.x1, 2, seeded(0))[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lounmask", "loinsert"])
def test_key_task_by_recipe(name, tmp_path):
    tables = dict(
        task=dict(kind="key", n=2, q=2, layout="masks" if name == "lounmask" else "infill"),
        model=dict(method=name, network="adder", order_network="adder", size="nano", order_size="nano"),
        train=dict(steps=12, batch_size=8, valid_every=6, warmup=2, order_start=2),
    )
    model = recipe_from(tables).trainer(tmp_path / "run", progress=False).fit()
    task = task_from(tables["task"])
    samples = model.sample(task.prompts("test", 4), seed=0)
    assert model.method.name == name and task.score("test", samples).keys() == {"exact_match", "complete"}
    rates = model.method.schedule(model.method.align(examples_of(task)))
    assert rates.std() > 0 and 0.1 <= rates.min() and rates.max() <= 10


def examples_of(task):
    return collate([task.dataset("test")[i] for i in range(4)])


def test_given_and_fixed_orders_have_no_order_model():
    given = LoUnmask(LAW.vocabulary, OneEventConfig(size="pico", max_length=3, order="given", given="slots:7,0.5"))
    fixed = LoUnmask(LAW.vocabulary, OneEventConfig(size="pico", max_length=3, order="fixed"))
    assert given.order_parameters == fixed.order_parameters == [] and fixed.unmask is None
    assert given.schedule(given.align(LAW.x1))[0, 1:].tolist() == [7.0, 0.5]
    assert given.evaluations_per_loss == fixed.evaluations_per_loss == 1 and fixed.tau_max == -math.log(1e-4)


@pytest.mark.parametrize("options, message", [
    (dict(states=1), "states=1: a learned order needs at least 2"), (dict(size="huge"), "size='huge'"),
    (dict(order="fixed", given="forward"), "given='forward': must be empty if order is 'fixed'"),
    (dict(order="given"), "given='': must name the order"), (dict(order="given", given="sideways"), "sideways"),
    (dict(order_network="mlp"), "order_network='mlp'"),
])
def test_refused_settings(options, message):
    with pytest.raises(ValueError, match=message): OneEventConfig(**options)


def test_a_network_sees_which_tokens_were_given():
    model = LoUnmask(LAW.vocabulary, OneEventConfig(size="pico", max_length=3, order="fixed"))
    flag = torch.tensor([[True, True, False]])
    x = PartialSequences(torch.tensor([[2, 3, MASK]]), flag, torch.ones_like(flag))
    assert model.network_input(x).fixed.tolist() == flag.tolist()


def test_either_time_or_reading():
    for cls in (LoUnmask, LoInsert):
        model, x = cls(LAW.vocabulary, OneEventConfig(size="pico", order="fixed", max_length=3)), LAW.x1
        half = torch.full((2,), 0.5)
        with pytest.raises(ValueError, match="either t or tau"): model.intensities(x)
        for a, b in zip(model.intensities(x, half), model.intensities(x, tau=-half.log())):
            if a is not None: torch.testing.assert_close(a, b)


@pytest.mark.parametrize("cls", [LoUnmask, LoInsert])
@pytest.mark.slow
def test_the_bound_ends_at_the_horizon(cls, monkeypatch):
    "The integral over the clock of a loss of 1 is the reading at which the bound ends."
    torch.manual_seed(0)
    model = cls(LAW.vocabulary, OneEventConfig(size="pico", max_length=4, order="fixed")).eval()
    assert horizon(model) == pytest.approx(-3 * math.log(1e-4))
    monkeypatch.setattr(model, "match", lambda x1, state, tau, b: torch.ones(len(tau)))
    mean, error = model.nll_bound(LAW.x1, samples=20_000, generator=seeded(1))
    assert ((mean - horizon(model)).abs() < 4 * error).all() and (error < 0.5).all()


@pytest.mark.parametrize("cls", [LoUnmask, LoInsert])
def test_centred_rates_have_no_common_mode(cls):
    "log b is r tanh(raw / r) with r = log 10: undone, it has mean 0 over the free positions of each row."
    torch.manual_seed(0)
    options = dict(size="pico", order_size="pico", max_length=9, centre=True)
    model = cls(LAW.vocabulary, OneEventConfig(**options)).eval()
    with torch.no_grad():
        for p in model.order.parameters(): p.add_(torch.randn(p.shape))
    rows = [prefix_example("ab", "ba", LAW.vocabulary), prefix_example("", "abbab", LAW.vocabulary)]
    x1 = model.align(collate(rows))
    with torch.no_grad(): b = model.schedule(x1).double()
    r = math.log(10)
    raw = r * torch.atanh(b.log() / r)
    mean = torch.where(x1.free, raw, 0.0).sum(-1) / x1.free.sum(-1)
    assert mean.abs().max() < 1e-5 and raw[x1.free].abs().max() > 0.1

    # and one row of the batch does not see how long the other is
    alone = model.schedule(model.align(collate(rows[:1])))
    torch.testing.assert_close(alone[0].double(), b[0, :alone.shape[1]], rtol=1e-5, atol=1e-6)
