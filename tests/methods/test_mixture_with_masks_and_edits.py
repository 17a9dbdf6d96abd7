"Mixtures of orders with masks, and of edits, against enumeration in float64: the bound, the next event, the gradient."
import itertools

import pytest
import torch
from ordered_models import VOCABULARY, exact_and_estimated, sequences, with_noise

from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.methods.ordered_edits import OrderedEdits, OrderedEditsConfig
from loflexmdm.methods.ordered_masks import OrderedMasks, OrderedMasksConfig
from loflexmdm.process.states import Pairs

pytestmark = pytest.mark.usefixtures("two_blocks")
MASKS, EDITS = (OrderedMasks, OrderedMasksConfig), (OrderedEdits, OrderedEditsConfig)
BOTH = dict(components="uniform,left_to_right,network", unmask="mixture", decisions="at_once,last,learned")
RATES = dict(components="uniform,network", unmask="learned")
CASES = {
    "both orders": (MASKS, BOTH), "one way to decide": (MASKS, RATES),
    "edits": (EDITS, dict(components="uniform,right_to_left,network", coupling="pairs")),
}
cases = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model(case):
    "A model in float64 with random weights everywhere, whose components have unequal weights."
    (method, config), options = CASES[case]
    torch.manual_seed(0)
    sizes = dict(size="test", order_size="test", max_length=9)
    made = with_noise(method(VOCABULARY, config(order="mixture", trial=0, **sizes, **options)), 0.5)
    made.mixture.cost.copy_(torch.linspace(0, 0.6, len(made.mixture.names)))
    made.mixture.steps += 1
    return made.eval()


def clean(m):
    "A clean sequence with two free tokens, or a path of three edits."
    if not isinstance(m, OrderedEdits): return sequences("a|bc")
    return m.edit_paths(Pairs(sequences("|abc"), sequences("|dbda")), torch.Generator().manual_seed(0))


def possible(m, x, past) -> list[int]:
    "Events that may come after those of the past: masks, and decisions of masks; or edits."
    free = x.free[0].nonzero()[:, 0].tolist()
    if not isinstance(m, OrderedMasks): return [c for c in free if c not in past]
    masks, decided = [2 * c for c in free], [2 * c + 1 for c in free if 2 * c in past]
    return [e for e in masks + decided if e not in past]


def all_orders(m, x) -> torch.Tensor:
    done, begun = [], [()]
    while begun:
        past = begun.pop()
        more = possible(m, x, past)
        if not more: done.append(past)
        begun += [(*past, event) for event in more]
    return torch.tensor(done)


def component_laws(m, x, orders) -> torch.Tensor:
    "Probabilities of whole orders under each component, event by event: (orders, components)."
    scores = m.scores(x)[0]
    if isinstance(m, OrderedMasks): scores = scores.flatten(0, 1)
    found = []
    for order in orders.tolist():
        log_p = 0.0
        for k, event in enumerate(order):
            log_p = log_p + scores[event] - scores[possible(m, x, order[:k])].logsumexp(0)
        found.append(log_p.exp())
    return torch.stack(found)


def costs_of(m, x, orders):
    many = x.map(lambda v: v.repeat(len(orders), 1))
    drawn = m.in_order(many, m.prompts_of(x), orders, m.scores(many))
    return m.costs(drawn, m.read_prompts(m.prompts_of(many))), drawn


@cases
def test_an_order_has_the_probability_that_the_components_give_it(case):
    m = model(case)
    x = clean(m)
    orders = all_orders(m, x)
    costs, drawn = costs_of(m, x, orders)
    each = component_laws(m, x, orders) * m.mixture.log_weights.exp()
    torch.testing.assert_close(costs.log_q.sum(-1).exp(), each.sum(-1), atol=1e-12, rtol=0)
    torch.testing.assert_close(drawn.component, each / each.sum(-1, keepdim=True), atol=1e-12, rtol=0)
    assert float(each.sum().detach()) == pytest.approx(1, abs=1e-12) and len(orders) == 6


@cases
def test_the_next_event_has_the_law_of_all_orders_that_begin_alike(case):
    m = model(case)
    x = clean(m)
    orders = all_orders(m, x)
    law = (component_laws(m, x, orders) * m.mixture.log_weights.exp()).sum(-1)
    _, drawn = costs_of(m, x, orders)
    for row, order in enumerate(orders):
        for k, e in itertools.combinations_with_replacement(range(len(order)), 2):
            alike = (orders[:, :k] == order[:k]).all(1)
            by_hand = law[alike & (orders[:, k] == order[e])].sum() / law[alike].sum()
            assert float(drawn.log_q[row, k, e].detach().exp()) == pytest.approx(float(by_hand.detach()), abs=1e-12)


@cases
def test_the_bound_is_above_and_its_samples_have_its_mean(case):
    m = model(case)
    x = clean(m)
    with torch.no_grad(): costs, _ = costs_of(m, x, all_orders(m, x))
    q, log_p = costs.log_q.sum(-1).exp(), costs.log_p
    bound, nll = float((q * costs.total).sum()), -float(log_p.logsumexp(0))
    assert bound > nll + 1e-4
    many = x.map(lambda v: v.repeat(2000, 1))
    with torch.no_grad(): total = m.all_costs(many, 1, torch.Generator().manual_seed(0)).total
    assert abs(float(total.mean()) - bound) < 4 * float(total.std()) / 2000**0.5


@cases
def test_the_gradient_is_unbiased(case):
    "The mean of the surrogate's gradient over all pairs of orders is the gradient of the exact bound."
    m = model(case)
    x = clean(m)
    orders = all_orders(m, x)
    exact, estimate = exact_and_estimated(m, orders, lambda some: costs_of(m, x, some)[0])
    torch.testing.assert_close(estimate, exact, atol=1e-10, rtol=0)
    for part in ("order.", "unmask."):
        names = [name for name, _ in m.named_parameters()]
        of_part = torch.cat([torch.full((p.numel(),), name.startswith(part)) for name, p in m.named_parameters()])
        if any(name.startswith(part) for name in names): assert exact[of_part].abs().max() > 1e-7


def test_orders_are_drawn_as_often_as_the_mixture_says():
    m = model("both orders")
    x = clean(m)
    orders = all_orders(m, x)
    law = (component_laws(m, x, orders) * m.mixture.log_weights.exp()).sum(-1).detach()
    drawn = m.draw(x.map(lambda v: v.repeat(4000, 1)), 1, torch.Generator().manual_seed(0)).order
    for order, p in zip(orders, law.tolist()):
        share = float((drawn == order).all(1).double().mean())
        assert abs(share - p) < 4.5 * (p * (1 - p) / 4000) ** 0.5 + 1e-9


def test_ways_to_decide_are_learned_whatever_the_order_of_insertion():
    "An order of insertion without weights of its own leaves the gradient of how masks are decided."
    torch.manual_seed(0)
    config = OrderedMasksConfig(order="uniform", unmask="learned", size="test", order_size="test", max_length=9)
    made = with_noise(OrderedMasks(VOCABULARY, config), 0.5)
    made.loss(sequences("|abcd", "a|bcd"), torch.Generator().manual_seed(0)).loss.backward()
    assert made.unmask.score.weight.grad.abs().max() > 1e-3


def test_components_are_the_pairs_that_are_possible():
    of = lambda **options: OrderedMasksConfig(order="mixture", **options).names
    assert of(**BOTH) == ("uniform+at_once", "uniform+last", "uniform+learned", "left_to_right+at_once",
                          "left_to_right+last", "network+at_once", "network+last", "network+learned")
    assert of(unmask="last") == ("uniform", "left_to_right", "right_to_left")


def test_a_certain_order_of_all_events_is_drawn_once():
    drawn = lambda unmask: OrderedMasksConfig(order="left_to_right", unmask=unmask).draws(2)
    assert drawn("at_once") == 1 and drawn("last") == 2  # masks that wait for the last are decided in any order


@pytest.mark.parametrize("method, config, settings", [
    (OrderedMasks, OrderedMasksConfig, dict(order="right_to_left", unmask="at_once")),
    (OrderedEdits, OrderedEditsConfig, dict(order="left_to_right", coupling="uniform", tokens=4)),
])
def test_a_certain_order_has_the_loss_and_the_gradient_of_its_whole_table(method, config, settings, monkeypatch):
    torch.manual_seed(0)
    m, found = with_noise(method(VOCABULARY, config(size="test", max_length=9, **settings)), 0.5), []
    for certain in (True, False):
        monkeypatch.setattr(config, "certain", certain)
        m.zero_grad()
        terms = m.loss(sequences("abc", "b"), torch.Generator().manual_seed(0))
        terms.loss.backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in m.parameters()]
        found.append([terms.loss.detach(), *terms.metrics.values(), *grads])
    for own, other in zip(*found): torch.testing.assert_close(own, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("method, config, settings", [
    (OrderedInsertion, OrderedInsertionConfig, dict(order="right_to_left")),
    (OrderedMasks, OrderedMasksConfig, dict(order="left_to_right", unmask="at_once")),
])
def test_a_bound_evaluates_a_certain_order_once(method, config, settings, monkeypatch):
    torch.manual_seed(0)
    m = with_noise(method(VOCABULARY, config(size="test", max_length=9, **settings)), 0.5).eval()
    x = sequences("abc", "b")
    three = m.all_costs(x, 3).total.unflatten(0, (3, -1))
    passes, laws = [], m.backbone.laws
    monkeypatch.setattr(m.backbone, "laws", lambda *args: passes.append(1) or laws(*args))
    value, error = m.nll_bound(x, 64)
    torch.testing.assert_close(value.expand(3, -1), three, atol=1e-12, rtol=0)
    torch.testing.assert_close(m.tight_bound(x, 64), value, atol=1e-12, rtol=0)
    assert len(passes) == 2 and float(error.max()) < 1e-12


def test_what_is_refused():
    for options, said in (
        (dict(order="mixture"), "unmask='learned': needs an order of insertion with rates"),
        (dict(order="left_to_right", unmask="mixture"), "needs order='mixture'"),
        (dict(order="mixture", unmask="mixture", decisions="at_once"), "two different ways"),
        (dict(order="mixture", unmask="mixture", decisions="at_once,never"), "'never' is not one of"),
        (dict(BOTH, order="mixture", orders=1), "needs at least 2"),
    ):
        with pytest.raises(ValueError, match=said): OrderedMasksConfig(**options)
