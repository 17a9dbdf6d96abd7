"Means, counts and distributions against their exact values."
import math
import subprocess
import sys

import pytest
import torch

from loflexmdm.support.statistics import skewed_interval
from loflexmdm.support.statistics import empirical_variation, estimate, mean_deviation
from loflexmdm.support.statistics import variation_floor, z_count, z_mean


def test_an_error_needs_two_draws():
    with pytest.raises(ValueError, match="samples=1: at least 2"): estimate(lambda: torch.zeros(3), 1)
    mean, error = estimate(lambda: torch.ones(3), 2)
    assert mean.dtype == torch.float64 and mean.tolist() == [1.0] * 3 and error.tolist() == [0.0] * 3


@pytest.mark.slow
def test_z_scores_of_known_figures():
    values = torch.tensor([[1.0, 0.0], [3.0, 4.0]])  # standard deviations sqrt 2 and 2 sqrt 2, errors 1 and 2
    torch.testing.assert_close(z_mean(values, 0.0), torch.tensor([2.0, 1.0]))
    assert z_count(60, 100, 0.5) == 2.0


def test_a_distribution_of_two_outcomes():
    law = {"a": 0.25, "b": 0.75}
    assert empirical_variation({"a": 1, "c": 1}, law) == 0.75
    deviation = sum(math.comb(3, k) * 0.25**k * 0.75**(3 - k) * abs(k - 0.75) for k in range(4))
    assert math.isclose(mean_deviation(3, 0.25), deviation) and math.isclose(variation_floor(law, 3), deviation / 3)
    assert mean_deviation(3, 0.0) == mean_deviation(3, 1.0) == 0.0


def test_counting_does_not_wait_for_torch():
    names = "statistics", "atomic_files", "configs"
    script = f"import sys, {', '.join('loflexmdm.support.' + n for n in names)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_interval_needs_two_draws():
    low, high = skewed_interval([0.0, 1.0])  # without skewness: on both sides of the mean alike
    assert low < 0.5 < high and low + high == pytest.approx(1.0)
    for values in ([], [1.0]):
        with pytest.raises(ValueError, match=f"values: {len(values)} of them"): skewed_interval(values)


def test_z_scores_by_hand():
    values = torch.tensor([[1.0, 0.0], [3.0, 4.0]])  # standard deviations sqrt 2 and 2 sqrt 2, errors 1 and 2
    torch.testing.assert_close(z_mean(values, 0.0), torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(z_mean(values, 1.0), torch.tensor([1.0, 0.5]))
    assert z_count(60, 100, 0.5) == 2.0 and z_count(10, 100, 0.2) == -2.5
    draws = iter(values)
    mean, error = estimate(lambda: next(draws), 2)
    assert mean.tolist() == [2, 2] and error.tolist() == pytest.approx([1, 2])


def test_a_skewed_interval_by_its_equation():
    "Both ends solve Hall's equation T + g T^2 / 3 + g^2 T^3 / 27 + g / 6n = +- z / sqrt n, by moments taken here."
    values, z = [0.0, 0.0, 1.0, 5.0], 1.6448536269514722
    mean, n = sum(values) / 4, 4
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / 3)
    g = sum((v - mean) ** 3 for v in values) / n / deviation**3
    for end, sign in zip(skewed_interval(values, .9), (1, -1)):
        t = (mean - end) / deviation
        assert t + g * t**2 / 3 + g**2 * t**3 / 27 + g / (6 * n) == pytest.approx(sign * z / 2)
    assert skewed_interval([2.0, 2.0]) == (2, 2)
    for level in (0, 1):
        with pytest.raises(ValueError, match=f"level={level}"): skewed_interval(values, level)
