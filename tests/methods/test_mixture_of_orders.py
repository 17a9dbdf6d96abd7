"Mixtures of orders against enumeration, in float64: the bound, the law of the next event, the gradient, the trial."
import itertools
import json

import pytest
import torch
from ordered_models import VOCABULARY, exact_and_estimated, sequences, with_noise
from resuming import whole_and_resumed

from loflexmdm.cli.info import describe_model
from loflexmdm.methods.ordered_insertion import DECAY, FLOOR, OrderedInsertion, OrderedInsertionConfig, OrderMixture
from loflexmdm.methods.ordered_insertion import prompt_of
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.process.orders_by_hand import order_named
from loflexmdm.process.plackett_luce import in_order, mixed_log_probs, step_log_probs
from loflexmdm.training.recipes import recipe_from

pytestmark = pytest.mark.usefixtures("two_blocks")
ALL = "uniform,left_to_right,right_to_left,network"


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model(components=ALL, trial=0, **options) -> OrderedInsertion:
    "A model in float64 with random weights everywhere, whose components have unequal weights."
    torch.manual_seed(0)
    config = OrderedInsertionConfig(order="mixture", components=components, trial=trial, size="test", order_size="test",
                                    max_length=9, **options)
    made = with_noise(OrderedInsertion(VOCABULARY, config), 0.5)
    made.mixture.cost.copy_(torch.linspace(0, 0.6, len(made.mixture.names)))
    made.mixture.steps += 1
    return made.eval()


def all_orders(x) -> torch.Tensor:
    return torch.tensor(list(itertools.permutations(x.free[0].nonzero()[:, 0].tolist())))


def component_laws(m, x, orders) -> torch.Tensor:
    "Probabilities of whole orders under each component: (orders, components)."
    many = x.map(lambda v: v.repeat(len(orders), 1))
    scores, valid = m.scores(many), torch.ones_like(orders, dtype=torch.bool)
    tables = (step_log_probs(in_order(own, orders, 0.0), valid) for own in scores.unbind(-1))
    return torch.stack([table.diagonal(dim1=1, dim2=2).sum(-1).exp() for table in tables], -1)


def costs_of(m, x, orders):
    many = x.map(lambda v: v.repeat(len(orders), 1))
    drawn = m.in_order(many, prompt_of(x), orders, m.scores(many))
    return m.costs(drawn, m.read_prompts(prompt_of(many))), drawn


@pytest.mark.parametrize("text", ["|abcd", "ab|cad"])
def test_an_order_has_the_probability_that_the_components_give_it(text):
    m, x = model(), sequences(text)
    orders = all_orders(x)
    costs, drawn = costs_of(m, x, orders)
    each = component_laws(m, x, orders) * m.mixture.log_weights.exp()
    torch.testing.assert_close(costs.log_q.sum(-1).exp(), each.sum(-1), atol=1e-12, rtol=0)
    torch.testing.assert_close(drawn.component, each / each.sum(-1, keepdim=True), atol=1e-12, rtol=0)
    assert float(each.sum().detach()) == pytest.approx(1, abs=1e-12)


def test_the_next_event_has_the_law_of_all_orders_that_begin_alike():
    m, x = model(), sequences("|abcd")
    orders = all_orders(x)
    law = (component_laws(m, x, orders) * m.mixture.log_weights.exp()).sum(-1)
    _, drawn = costs_of(m, x, orders)
    for row, order in enumerate(orders):
        for k in range(4):
            alike = (orders[:, :k] == order[:k]).all(1)
            for e in range(k, 4):
                by_hand = law[alike & (orders[:, k] == order[e])].sum() / law[alike].sum()
                assert float(drawn.log_q[row, k, e].detach().exp()) == pytest.approx(float(by_hand), abs=1e-12)
            assert (drawn.log_q[row, k, :k] == -torch.inf).all()


def test_a_law_with_the_first_weights_throughout_is_another():
    "What would be wrong: components weighed without the events that have happened."
    m, x = model(), sequences("|abcd")
    orders = all_orders(x)
    scores, valid = m.scores(x.map(lambda v: v.repeat(24, 1))), torch.ones_like(orders, dtype=torch.bool)
    tables = torch.stack([step_log_probs(in_order(own, orders, 0.0), valid) for own in scores.unbind(-1)], -1)
    right, _ = mixed_log_probs(tables, m.mixture.log_weights)
    wrong = (tables.clamp_min(-1e30) + m.mixture.log_weights).logsumexp(-1)
    assert (right.exp() - wrong.exp()).abs().max() > 0.1


@pytest.mark.slow
def test_the_bound_is_above():
    m, x = model(), sequences("|abca")
    costs, _ = costs_of(m, x, all_orders(x))
    q, log_p = costs.log_q.sum(-1).exp(), costs.log_p
    bound, nll = float((q * costs.total).sum()), -float(log_p.logsumexp(0))
    assert bound > nll + 1e-3
    estimate, error = m.nll_bound(x, 2000, torch.Generator().manual_seed(0))
    assert abs(float(estimate) - bound) < 4 * float(error)


def test_the_gradient_is_unbiased():
    "The mean of the surrogate's gradient over all pairs of orders is the gradient of the exact bound."
    m, x = model(), sequences("a|bcd")
    orders = all_orders(x)
    exact, estimate = exact_and_estimated(m, orders, lambda some: costs_of(m, x, some)[0])
    torch.testing.assert_close(estimate, exact, atol=1e-10, rtol=0)
    of_order = torch.cat([torch.full((p.numel(),), name.startswith("order")) for name, p in m.named_parameters()])
    assert exact[of_order].abs().max() > 1e-6


def test_orders_are_drawn_with_the_weights():
    m, x = model("left_to_right,right_to_left", orders=1), sequences("|abcd")
    drawn = m.draw(x.map(lambda v: v.repeat(4000, 1)), 1, torch.Generator().manual_seed(0))
    share = (drawn.order == torch.arange(1, 5)).all(1).double().mean()
    expected = m.mixture.log_weights.exp()[0]
    assert abs(float(share - expected)) < 4 * float(expected * (1 - expected) / 4000) ** 0.5


def test_weights_are_equal_during_the_trial_and_follow_the_costs_after_it():
    mixture = OrderMixture(("uniform", "left_to_right"), trial=3)
    component = torch.eye(2).repeat(4, 1)
    for step in range(5):
        mixture.count(training=True)
        mixture.observe(torch.tensor([9.0, 7.0]).repeat(4), component)
        mixture.update()
        weights = mixture.eval().log_weights.exp()
        if step < 3: torch.testing.assert_close(weights, torch.full((2,), 0.5))
    torch.testing.assert_close(mixture.cost, torch.tensor([9.0, 7.0]))
    assert weights[1] > 0.95 and mixture.train().log_weights.exp()[0] >= FLOOR / 2
    mixture.observe(torch.full((1,), 100.0), torch.tensor([[0.0, 1.0]]))  # the other was not drawn
    mixture.update()
    assert mixture.cost[0] == 9.0 and mixture.cost[1] == pytest.approx(7 + 93 * max(1 - DECAY, 1 / 5))


def test_what_is_refused():
    for components, said in (("uniform", "two different"), ("uniform,uniform", "two different"),
                             ("uniform,sideways", "'sideways' is not one of"),
                             ("uniform,backward:8,-1", "'-1' is not one of"), ("uniform,backward:x", "'x' must be")):
        with pytest.raises(ValueError, match=said):
            OrderedInsertionConfig(order="mixture", components=components)
    with pytest.raises(ValueError, match="needs at least 2"):
        OrderedInsertionConfig(order="mixture", components=ALL, orders=1)
    with pytest.raises(ValueError, match="merge=True"): OrderedInsertionConfig(order="mixture", merge=True)


def test_a_rule_is_a_component():
    rule = "backward:8,0.5"
    m, x = model(f"uniform,{rule},left_to_right", orders=1), sequences("|abcd")
    assert m.config.mixed == ("uniform", rule, "left_to_right")
    torch.testing.assert_close(m.scores(x)[..., 1], order_named(rule)(x).log().double())
    orders = all_orders(x)
    costs, _ = costs_of(m, x, orders)
    each = component_laws(m, x, orders) * m.mixture.log_weights.exp()
    torch.testing.assert_close(costs.log_q.sum(-1).exp(), each.sum(-1), atol=1e-12, rtol=0)
    rates = 0.5 * 16 ** (torch.arange(4) / 3)  # from .5 at the first position to 8 at the last
    first = rates[3] / rates.sum() * rates[2] / rates[:3].sum() * rates[1] / rates[:2].sum()  # backwards
    backwards = (orders == torch.tensor([4, 3, 2, 1])).all(1)
    torch.testing.assert_close(component_laws(m, x, orders)[backwards, 1], first[None], atol=1e-6, rtol=0)


def test_parts_of_a_batch_are_one_step_of_the_costs():
    "Costs move once a step, by all of its generations, however the rows are read."
    whole, parts = (OrderMixture(("uniform", "left_to_right"), trial=3) for _ in range(2))
    total, component = torch.arange(8.0), torch.eye(2).repeat(4, 1)
    for mixture, pieces in ((whole, [slice(8)]), (parts, [slice(3), slice(3, 8)])):
        mixture.count(training=True)
        for rows in pieces: mixture.observe(total[rows], component[rows])
        mixture.update()
    torch.testing.assert_close(parts.cost, whole.cost)
    torch.testing.assert_close(whole.cost, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("given, steps, trial", [({}, 50, 25), ({}, 9000, 200), (dict(trial=40), 50, 40)])
def test_a_trial_ends_before_the_run(given, steps, trial):
    model = dict(method="ordered-insertion", order="mixture") | given
    tables = dict(task=dict(kind="brackets"), model=model, train=dict(steps=steps))
    assert recipe_from(tables).model["trial"] == trial
    assert recipe_from(recipe_from(tables).as_dict()) == recipe_from(tables)
    with pytest.raises(ValueError, match=f"trial={steps}: must be below steps={steps}"):
        recipe_from(tables | dict(model=model | dict(trial=steps)))


def trained_briefly(tmp_path, steps=6):
    torch.set_default_dtype(torch.float32)
    model = dict(method="ordered-insertion", order="mixture", trial=2, components=ALL, size="test", order_size="test")
    train = dict(steps=steps, batch_size=8, warmup=2, save_every=3, valid_size=8, log_every=2)
    recipe = recipe_from(dict(task=dict(kind="brackets"), model=model, train=train))
    return recipe.trainer(tmp_path / "run", progress=False)


def test_a_resumed_run_has_the_weights_of_one_that_was_not_cut_off(tmp_path):
    whole, found = whole_and_resumed(trained_briefly, tmp_path, 4)
    assert all(torch.equal(found[key], value) for key, value in whole.items())
    assert whole["mixture.steps"] == 6 and (whole["mixture.cost"] > 0).all()


def test_the_training_log_has_the_weights(tmp_path):
    trained_briefly(tmp_path).fit()
    row = logged(tmp_path / "run")
    shares = [row[f"share_{name}"] for name in ALL.split(",")]
    assert sum(shares) == pytest.approx(1, abs=1e-3) and min(shares) > 0


def logged(directory) -> dict:
    "The last row of a training log that has a loss."
    rows = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if "loss" in row][-1]


def test_saved_and_loaded(tmp_path):
    torch.set_default_dtype(torch.float32)
    made = model("uniform,right_to_left").float()
    again = load_method(save_method(made, tmp_path / "model"))
    assert torch.equal(again.mixture.log_weights, made.mixture.log_weights)
    assert generate(again, n=3, seed=0).sequences == generate(made, n=3, seed=0).sequences
    line = next(text for text in describe_model(str(tmp_path / "model")).splitlines() if text.startswith("orders: "))
    weights = made.mixture.log_weights.exp().tolist()
    assert line == f"orders: uniform {weights[0]:.3f}, right_to_left {weights[1]:.3f}"
