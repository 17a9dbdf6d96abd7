"Leaning samples towards a function, and what is delivered for each class: by hand and by enumerated laws."
import math

import numpy as np
import pytest

from loflexmdm.molecules.scores.conditioning import compare_with_requests, plot_requests, resample


def test_weights_are_the_tilted_law_of_the_sample():
    found = resample(["C", "OCC", "CCO", "x", None], len, 1.0, 10)
    wanted = np.exp([1.0, 3.0, 3.0, -math.inf, -math.inf])
    np.testing.assert_allclose(found.weights, wanted / wanted.sum())
    assert math.isclose(found.effective, 1 / (found.weights**2).sum()) and found.failed == 0
    assert set(found.smiles) <= {"C", "CCO"} and len(found.smiles) == 10


@pytest.mark.parametrize("seed", range(20))
def test_each_sample_is_drawn_again_as_often_as_it_weighs(seed):
    found = resample(["C" * k for k in range(1, 7)], len, 0.3, 100, seed)
    assert all(abs(found.smiles.count("C" * k) - 100 * w) < 1 for k, w in enumerate(found.weights, 1))


def test_no_strength_no_change_and_a_function_that_fails():
    assert resample(["C", "CC"], len, 0.0, 4).smiles == ["C", "C", "CC", "CC"]
    found = resample(["C", "CC", "CCC"], lambda s: {"C": 1.0, "CC": math.nan}[s], 1.0, 3)
    assert found.smiles == ["C"] * 3 and found.failed == 2 and found.effective == 1


@pytest.mark.parametrize("change, message", [
    (dict(n=0), "n=0"), (dict(strength=math.nan), "strength"), (dict(smiles=["x"]), "no molecule"),
    (dict(smiles=[]), "smiles"),
])
def test_bad_input(change, message):
    options = dict(smiles=["C"], function=len, strength=1.0, n=1) | change
    with pytest.raises(ValueError, match=message): resample(**options)


def test_classes_by_hand():
    values = [0.5, 0.1, 0.5, math.nan, 0.2]
    low, high = compare_with_requests([0, 0, 1, 1, 1], values, [0.5])  # a value at the bound is above
    assert (low.n, low.share, low.mean) == (2, 0.5, 0.3) and (high.n, high.share, high.mean) == (2, 0.5, 0.35)
    assert plot_requests([low, high], [0.5]).get_xlabel() == "class of property asked for"
    with pytest.raises(ValueError, match="increase"): compare_with_requests([0], [1.0], [2.0, 1.0])


def test_strong_tilts_stay_finite():
    for strength, best in ((1e4, "CCC"), (-1e4, "C")):
        found = resample(["C", "CC", "CCC"], len, strength, 4)
        assert found.smiles == [best] * 4 and found.effective == 1 and sorted(found.weights) == [0, 0, 1]


def test_what_is_delivered_for_each_class_by_hand():
    "Class 1 holds 1 and what is below 2; nobody asked for class 2, and one value of class 0 is not there."
    low, middle, none = compare_with_requests([0, 0, 1, 1, 1], [0.5, math.nan, 1.0, 1.5, 2.0], [1.0, 2.0])
    assert tuple(low) == (0, 1, 1.0, 0.5, 0.5, 0.5)
    assert tuple(middle) == pytest.approx((1, 3, 2 / 3, 1.5, 1.1, 1.9), abs=1e-15)
    assert tuple(none)[:2] == (2, 0) and len(none) == 6 and all(map(math.isnan, none[2:]))


@pytest.mark.parametrize("asked, bounds, message", [
    ([0], [1.0], "1 classes for 2 values"), ([0, 1], [1.0, 1.0], "increase"), ([0, 1], [2.0, 1.0], "increase"),
    ([0, 2], [1.0], "classes from 0 to 1, not 0 to 2"), ([-1, 1], [1.0], "not -1 to 1"),
])
def test_classes_that_are_not_there(asked, bounds, message):
    with pytest.raises(ValueError, match=message): compare_with_requests(asked, [0.5, 1.5], bounds)
