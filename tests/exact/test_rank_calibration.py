"Rank statistics against enumeration and scipy; a sampler that is right, and ones that are wrong."
import math

import pytest
import torch
from scipy import stats

from loflexmdm.exact.rank_calibration import calibrate, coverage, plot_ranks, randomised_ranks
from loflexmdm.exact.rank_calibration import rank_band, uniformity
from loflexmdm.support.notebook import seeded


def coin(p): return lambda n, g: (torch.rand(n, generator=g) < p).long().tolist()
def answer(p): return lambda seen, g: coin(p)(len(seen), g)


def test_ranks_lie_between_those_below_and_those_not_above():
    g = seeded(0)
    truth, draws = torch.randint(4, (500,), generator=g).double(), torch.randint(4, (500, 7), generator=g).double()
    ranks = randomised_ranks(truth, draws, g)
    below, not_above = (draws < truth[:, None]).sum(1), (draws <= truth[:, None]).sum(1)
    assert (ranks >= below).all() and (ranks <= not_above).all() and (ranks > below).any() and (ranks < not_above).any()


def test_the_band_has_binomial_limits_of_one_level():
    "Both tails at every rank: inside the count is likely enough, one further it is not."
    n, draws = 60, 4
    band = rank_band(n, draws, simulations=500)
    assert 0 < band.gamma < 0.05
    likely = band.gamma * (1 - 1e-6)  # it is one of these tails
    for k in range(draws):
        law, low, high = stats.binom(n, (k + 1) / 5), round(band.lower[k].item() * n), round(band.upper[k].item() * n)
        assert 2 * law.cdf(low) >= likely > 2 * law.cdf(low - 1)
        assert 2 * law.sf(high - 1) >= likely > 2 * law.sf(high)


def test_chi_square_is_scipys():
    ranks = torch.randint(6, (300,), generator=seeded(1))
    found = uniformity(ranks, 5)
    chi2, p = stats.chisquare(found.counts)
    assert found.chi2 == pytest.approx(chi2) and found.chi2_p == pytest.approx(p)


def test_ranks_are_inside_the_band_where_their_p_value_says_so():
    "p above 5 % if and only if the cumulative shares stay within the 95 % band, but for the resolution of p."
    g = seeded(2)
    for _ in range(60):
        ranks = torch.randint(10, (80,), generator=g)
        found, band = uniformity(ranks, 9), rank_band(80, 9)
        shares = found.counts.cumsum(0)[:-1] / 80
        inside = bool(((shares >= band.lower - 1e-9) & (shares <= band.upper + 1e-9)).all())
        if abs(found.band_p - 0.05) > 0.01: assert inside == (found.band_p > 0.05)


@pytest.mark.parametrize("p, right", [(0.3, True), (0.5, False)])
def test_a_coin_is_calibrated_and_another_one_is_not(p, right):
    found = calibrate(coin(0.3), answer(p), {"value": lambda x, y: x, "negative": lambda x, y: -x}, replications=400)
    assert (found.p > 0.01) == right and found.p == min(1.0, 2 * min(t.band_p for t in found.tests.values()))
    assert "negative" in found._repr_markdown_() and repr(found).startswith("Calibration(p=")


def test_what_is_shown_reaches_sampler_and_statistic():
    "Draws that copy what is shown of a truth are right for all of it, and wrong for a part of it."
    whole = calibrate(coin(0.5), lambda seen, g: list(seen), {"same": lambda x, y: x == y}, lambda x, g: x)
    hidden = calibrate(coin(0.5), lambda seen, g: [1 - y for y in seen], {"same": lambda x, y: x == y}, lambda x, g: x)
    assert whole.p > 0.01 > hidden.p


def test_coverage_of_normal_errors():
    g, exact = seeded(3), torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64)
    error = 0.1 + torch.rand(2000, 3, generator=g, dtype=torch.float64)
    mean = exact + error * torch.randn(2000, 3, generator=g, dtype=torch.float64)
    honest, biased = coverage(mean, error, exact, 0.9), coverage(mean + 0.2, error, exact, 0.9)
    assert abs(honest.share - 0.9) < 4 * math.sqrt(0.09 / 6000) and honest.z.abs().max() < 4
    assert honest.test.band_p > 0.01 > biased.test.band_p and biased.z.min() > 4


def test_pictures_need_one_size():
    one, other = (uniformity(torch.randint(5, (n,), generator=seeded(n)), 4) for n in (50, 60))
    ax = plot_ranks({"a": one})
    assert len(ax.lines) == 2 and ax.get_legend() is not None
    with pytest.raises(ValueError, match="tests: sizes"): plot_ranks({"a": one, "b": other})
