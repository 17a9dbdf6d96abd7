"""Orders set by hand: their rates, how they are written, and how they are refused."""
import math
from dataclasses import fields

import pytest
import torch
from registered import ALL_METHODS

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.order_model import Ordered
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.process.orders_by_hand import GIVEN_ORDERS, given_order, order_named
from loflexmdm.process.states import Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abc")
X1 = collate([prefix_example("c", "aab", VOCABULARY), prefix_example("", "b", VOCABULARY)])


@pytest.mark.parametrize("text, rates", [
    ("slots:7,0.5", [7, .5, .5, 7]), ("forward:8,2", [8, 4, 2, 8]), ("backward:8,2", [2, 4, 8, 2]),
    ("kinds:7,1,0.5", [7, 1, .5, 7]),
])
def test_rates_by_position(text, rates):
    b = order_named(text)(X1)
    torch.testing.assert_close(b[X1.free], torch.tensor(rates, dtype=torch.float32))
    assert (b[~X1.free] == 1).all()


@pytest.mark.parametrize("text, message", [
    ("slots:7,0", "'0' must be a positive"), ("slots:7,-1", "'-1'"), ("slots:nan", "'nan'"), ("slots", "at least one"),
    ("sluts:1", "did you mean 'slots'"), ("kinds:1,2,3,4", "cannot be computed"),
])
def test_refused_texts(text, message):
    with pytest.raises(ValueError, match=message): order_named(text)(X1)


@pytest.mark.parametrize("result, message", [
    (lambda x1: 1 / 0, "ZeroDivisionError"), (lambda x1: torch.ones(3), r"\(3,\)"), (lambda x1: 2.0, "float"),
    (lambda x1: torch.zeros(x1.tokens.shape), "positive"),
    (lambda x1: torch.full(x1.tokens.shape, torch.nan), "finite"),
])
def test_refused_functions(result, message):
    given_order("mine")(result)
    try:
        with pytest.raises(ValueError, match=message): order_named("mine")(X1)
    finally: del GIVEN_ORDERS.classes["mine"]


def test_saved_with_the_model(tmp_path):
    config = LoFlexMDMConfig(order="given", given="slots:7,0.5", size="nano", max_length=8)
    model = LoFlexMDM(VOCABULARY, config)
    assert model.order_parameters == [] and model.evaluations_per_loss == 1
    save_method(model, tmp_path / "m")
    again = load_method(tmp_path / "m")
    torch.testing.assert_close(again.schedule(X1)[0], model.schedule(X1)[0])
    for _ in range(3): model.train().loss(X1)
    assert float(model.slowest) < 1  # generation lasts until the slowest position has come


BY_RATES = sorted(
    name for name, cls in ALL_METHODS.items()
    if issubclass(cls, Ordered) and "given" in {field.name for field in fields(cls.Config)}
)


def insertion_rates(method):
    "Rates of the free positions: of insertion, for a method that has others too."
    found = method.schedule(X1)
    return (found[0] if isinstance(found, tuple) else found)[X1.free]


@pytest.mark.parametrize("name", BY_RATES)
def test_a_learned_order_starts_at_one_by_hand(name, tmp_path):
    cls = ALL_METHODS[name]
    model = cls(VOCABULARY, cls.first_config(order="learned", given="backward:2,0.5"))
    assert model.given_order is None and model.order_parameters
    start = 10 ** math.tanh(math.log10(2))
    torch.testing.assert_close(insertion_rates(model), torch.tensor([1 / start, 1, start, 1 / start]))
    insertion_rates(model)[0].backward()
    assert model.order.insert.out.bias.grad.abs() > 0
    save_method(model, tmp_path / "m")
    torch.testing.assert_close(insertion_rates(load_method(tmp_path / "m")), insertion_rates(model))


@pytest.mark.parametrize("wrong", [
    dict(order="given"), dict(order="fixed", given="slots:7"), dict(order="given", given="slots:0"),
])
def test_settings_that_do_not_fit(wrong):
    with pytest.raises(ValueError, match="given="): LoFlexMDMConfig(**wrong)
