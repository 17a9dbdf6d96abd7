"The insertion process against enumeration, in float64: steps of an order, the bound, gradients of both networks."
import itertools
import math

import pytest
import torch
from ordered_models import VOCABULARY, sequences, with_noise

from loflexmdm.methods.insertion_lm import InsertionLM, InsertionLMConfig
from loflexmdm.methods.insertion_process import InsertionProcess, InsertionProcessConfig, step_of
from loflexmdm.process.matching import leave_one_out
from loflexmdm.process.states import CLEAN, DROPPED, Example, PartialSequences, collate, contract, gap_of

pytestmark = pytest.mark.usefixtures("two_blocks")


def model(seed=0, noise=0.5, **options) -> InsertionProcess:
    "A model in float64 with random weights everywhere."
    torch.manual_seed(seed)
    config = InsertionProcessConfig(size="test", order_size="test", max_length=9, **options)
    return with_noise(InsertionProcess(VOCABULARY, config), noise)


def with_gap() -> PartialSequences:
    "'a' and 'd' given with an open gap between them in which 'bc' is missing; nothing may come after 'd'."
    return collate([Example([2, 3, 4, 5, 6], [True, True, False, False, True], [True, False, False, False, True])])


def all_orders(x1: PartialSequences) -> torch.Tensor:
    return torch.tensor(list(itertools.permutations(x1.free[0].nonzero()[:, 0].tolist())), dtype=torch.long)


def steps_of(m: InsertionProcess, x1: PartialSequences):
    "Costs of all steps of all orders of one sequence, and log q of what came before: (steps, orders) each."
    orders = all_orders(x1)
    many = x1.map(lambda v: v.repeat(len(orders), 1))
    scores = m.scores(many)
    steps = [step_of(many, scores, orders, torch.full((len(orders),), k)) for k in range(orders.shape[1] + 1)]
    return torch.stack([m.step_costs(many, s) for s in steps]), torch.stack([s.log_before for s in steps])


@torch.no_grad()
def followed(m: InsertionProcess, x1: PartialSequences, order) -> torch.Tensor:
    "-log p of the generation that inserts columns of one clean sequence in an order, as the sampler asks for it."
    state = torch.where(x1.free, DROPPED, CLEAN)
    memory, total = m.read_prompts(contract(x1, state)), torch.zeros(())
    for column in order:
        gap, token = gap_of(x1, state)[:, column], x1.tokens[:, column]
        total = total - m.gap_scores(memory)[0, gap] - m.token_logits(memory, gap)[0, token]
        memory = m.insert(memory, gap, token)
        state[:, column] = CLEAN
    return total - m.gap_scores(memory)[:, -1]


@pytest.mark.parametrize("x1", [sequences("|abc"), sequences("|aab"), sequences("ab|caa"), with_gap()])
@torch.no_grad()
def test_steps_are_the_bound(x1):
    "The mean of all steps of all orders, and of whole generations; it is not below -log p."
    m = model()
    costs, before = steps_of(m, x1)
    q = before[-1].exp()
    assert (before[0] == 0).all() and (before.diff(dim=0) <= 0).all()
    runs = torch.cat([followed(m, x1, order) for order in all_orders(x1).tolist()])
    bound = float((q * costs).sum())
    assert float(q.sum()) == pytest.approx(1, abs=1e-12)
    assert bound == pytest.approx(float((q * (before[-1] + runs)).sum()), abs=1e-10)
    assert bound > -float((-runs).logsumexp(0))


def gradient(m: torch.nn.Module, value: torch.Tensor) -> torch.Tensor:
    found = torch.autograd.grad(value, list(m.parameters()), allow_unused=True, retain_graph=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.flatten() for p, g in zip(m.parameters(), found)])


def test_gradient_is_unbiased():
    "The mean of the loss over all pairs of orders and all steps has the gradient of the exact bound."
    m, x1 = model(), sequences("a|bbc")
    costs, before = steps_of(m, x1)
    exact = gradient(m, (before[-1].exp() * costs).sum())
    q, pairs = before[-1].detach().exp(), torch.cartesian_prod(*[torch.arange(costs.shape[1])] * 2).T
    each = torch.stack([leave_one_out(c[pairs], b[pairs]) for c, b in zip(costs, before)])
    torch.testing.assert_close(gradient(m, (q[pairs].prod(0) * each).sum()), exact, atol=1e-10, rtol=0)
    assert exact[-50:].abs().max() > 1e-6  # of the order model, too


def test_loss_is_the_surrogate_of_drawn_steps():
    "From the same draws; the logged bound has the mean of the exact one."
    m, x1 = model(orders=3), sequences("|abc", "ab|d", "a|bd")
    loss = m.loss(x1, torch.Generator().manual_seed(3))
    many, step = m.draw_step(x1, m.scores(x1), torch.Generator().manual_seed(3))
    costs = (m.step_costs(many, step) * (many.free.sum(-1) + 1)).unflatten(0, (3, -1))
    torch.testing.assert_close(loss.loss, leave_one_out(costs, step.log_before.unflatten(0, (3, -1))).mean())
    torch.testing.assert_close(loss.metrics["bound"], costs.mean().detach())
    assert (step.missing.unflatten(0, (3, -1)).sum(-1).diff(dim=0) == 0).all(), "orders of a sequence come equally far"


@pytest.mark.slow
def test_sampled_bound():
    m, x1 = model(), sequences("|abc")
    with torch.no_grad(): costs, before = steps_of(m, x1)
    exact = float((before[-1].exp() * costs).sum())
    value, error = m.nll_bound(x1, 3_000, torch.Generator().manual_seed(1))
    assert abs(value.item() - exact) < 4 * error.item()
    with pytest.raises(ValueError, match="samples=1: at least 2"): m.nll_bound(x1, 1)


@torch.no_grad()
def test_uniform_orders_are_insertion_language_models():
    m, x1 = model(), sequences("|aab")
    m.scores = lambda x: torch.zeros(x.tokens.shape, dtype=torch.float64)
    ilm = InsertionLM(VOCABULARY, InsertionLMConfig(size="test", max_length=9)).double()
    ilm.load_state_dict({k: v for k, v in m.state_dict().items() if not k.startswith("order")})
    costs, before = steps_of(m, x1)
    states = [torch.tensor([[CLEAN, *s]]) for s in itertools.product((DROPPED, CLEAN), repeat=3)]
    own = sum(ilm.costs(x1, s).item() / math.comb(3, int((s == DROPPED).sum())) for s in states) - math.lgamma(4)
    assert float((before[-1].exp() * costs).sum()) == pytest.approx(own, abs=1e-10)


def test_where_learning_starts():
    "Scores fall by the slope from one free token to the next, before anything is learned."
    config = InsertionProcessConfig(slope=2.0, size="test", order_size="test", max_length=9)
    assert InsertionProcess(VOCABULARY, config).scores(sequences("a|bcd"))[0, 2:].tolist() == [0.0, -2.0, -4.0]


def test_padding_changes_nothing():
    m, x = model(), sequences("ab|cd", "abcd|abca", "|b", "ab|")
    many, step = m.draw_step(x, m.scores(x), torch.Generator().manual_seed(1))
    together = m.step_costs(many, step)
    for i in range(4):
        alone = x.rows([i]).trim()
        n = alone.tokens.shape[1]
        part = type(step)(step.state[i:i + 1, :n], step.log_next[i:i + 1, :n], step.log_before[i:i + 1])
        torch.testing.assert_close(m.step_costs(alone, part), together[i:i + 1])
    m.loss(x, torch.Generator().manual_seed(1)).loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in m.parameters())


@pytest.mark.parametrize("options, message", [
    (dict(orders=1), "orders=1"), (dict(slope=math.inf), "slope=inf"), (dict(order_size="huge"), "size='huge'"),
    (dict(stop_at=2.0), "stop_at=2.0"), (dict(network="mlp"), "network='mlp'"),
])
def test_refused_settings(options, message):
    with pytest.raises(ValueError, match=message): InsertionProcessConfig(**options)


@torch.no_grad()
def test_the_bound_is_of_drawn_steps():
    "(n + 1) times the mean cost of a step of the orders of a draw, by the same random numbers."
    m, x1 = model(orders=3), sequences("|abc", "ab|d")
    mean, error = m.nll_bound(x1, 2, torch.Generator().manual_seed(2))
    g, scores = torch.Generator().manual_seed(2), m.scores(x1)
    draws = [m.step_costs(*m.draw_step(x1, scores, g)).view(3, 2).mean(0) for _ in range(2)]
    values = torch.tensor([4.0, 2.0]).double() * torch.stack(draws)
    torch.testing.assert_close(mean, values.mean(0))
    torch.testing.assert_close(error, values.std(0) / 2 ** .5)
