"Schedules as clocks: the papers' formulas, inverses, rates; times of a batch."
import math

import pytest
import torch
from scipy import stats

from loflexmdm.process.clocks import Cosine, Geometric, Kumaraswamy, Linear
from loflexmdm.process.clocks import Polynomial, Power, Shifted, clock_named, lattice_times
from loflexmdm.support.registries import SCHEDULES

NAMES = [
    "linear", "polynomial:0.3", "polynomial:2", "power:2", "power:0.5", "cosine", "geometric", "shifted", "shifted:0.2",
]
ALPHA = {
    "linear": lambda s: 1 - s,
    "polynomial:0.3": lambda s: 1 - s**0.3,
    "polynomial:2": lambda s: 1 - s**2,
    "power:2": lambda s: (1 - s) ** 2,
    "power:0.5": lambda s: (1 - s) ** 0.5,
    "cosine": lambda s: 1 - torch.cos(math.pi / 2 * (1 - s)),
    "geometric": lambda s: torch.exp(-(1e-5 ** (1 - s)) * 20**s),
    "shifted": lambda s: (1 - 2e-4) * (1 - s) + 1e-4,
    "shifted:0.2": lambda s: 0.6 * (1 - s) + 0.2,
}


def inside(n=500): return torch.linspace(0.002, 0.998, n, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_kappa_is_the_published_alpha_with_time_turned(name):
    t = inside()
    torch.testing.assert_close(clock_named(name).kappa(t), ALPHA[name](1 - t), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_time_and_reading_are_inverses(name):
    clock, t = clock_named(name), inside()
    torch.testing.assert_close(clock.time(clock.tau(t)), t, rtol=1e-13, atol=0)
    torch.testing.assert_close(clock.tau(clock.time(clock.tau(t))), clock.tau(t), rtol=1e-12, atol=0)
    assert clock.tau(t).diff().min() > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_rate_is_the_derivative(name):
    clock, t = clock_named(name), inside().requires_grad_()
    torch.testing.assert_close(
        torch.autograd.grad(clock.tau(t).sum(), t)[0], clock.shape(t.detach()), rtol=1e-12, atol=0
    )
    by_hand = torch.autograd.grad(ALPHA[name](1 - t).sum(), t)[0] / (1 - ALPHA[name](1 - t.detach()))
    torch.testing.assert_close(clock.shape(t.detach()), by_hand, rtol=1e-8, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_ends(name):
    "0 and all at the ends, but for the clocks that miss a little there."
    clock, ends = clock_named(name), torch.tensor([0.0, 1.0], dtype=torch.float64)
    missed = dict(geometric=(math.exp(-20), -math.expm1(-1e-5)), shifted=(1e-4, 1e-4)) | {"shifted:0.2": (0.2, 0.2)}
    low, high = missed.get(name, (0.0, 0.0))
    torch.testing.assert_close(
        clock.kappa(ends), torch.tensor([low, 1 - high], dtype=torch.float64), rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 2e-12), (torch.float32, 1e-6)])
def test_the_cosine_keeps_its_digits_near_zero(dtype, tolerance):
    t = torch.tensor([1e-6, 1e-3], dtype=dtype)
    x = (math.pi / 2 * t.double()) ** 2
    torch.testing.assert_close(Cosine().tau(t).double(), x / 2 + x**2 / 12, rtol=tolerance, atol=0)
    torch.testing.assert_close(Cosine().time(Cosine().tau(t)), t, rtol=tolerance, atol=0)


def test_shapes_and_dtypes_are_kept():
    t = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    for name in NAMES:
        clock = clock_named(name)
        for value in (clock.tau(t), clock.shape(t), clock.kappa(t), clock.time(clock.tau(t))):
            assert value.shape == t.shape and value.dtype == t.dtype


def test_power_is_the_kumaraswamy_clock():
    t = inside()
    assert torch.equal(Power(2.5).tau(t), Kumaraswamy(2.5).tau(t))
    assert torch.equal(Power(2.5).shape(t), Kumaraswamy(2.5).shape(t))


def test_names():
    assert [clock_named(n) for n in ("linear", "polynomial:2", "power:0.5", "cosine", "geometric", "shifted")] == [
        Linear(), Polynomial(2.0), Power(0.5), Cosine(), Geometric(), Shifted(1e-4),
    ]
    assert clock_named("polynomial") == Polynomial(1.0)
    own = {name for name, cls in SCHEDULES.classes.items() if cls.__module__ == "loflexmdm.process.clocks"}
    assert own == {"linear", "polynomial", "power", "cosine", "geometric", "shifted"}


@pytest.mark.parametrize(
    "name",
    [
        "quadratic", "", "Linear", "polynomial:0", "polynomial:-1", "polynomial:nan", "polynomial:inf",
        "polynomial:two", "polynomial:", "power:0", "shifted:0", "shifted:0.5", "linear:2", "cosine:1", None, 3,
    ],
)
def test_bad_names(name):
    with pytest.raises(ValueError, match="schedule"): clock_named(name)


def test_bad_geometric():
    for low, high in ((0.0, 1.0), (2.0, 1.0), (1.0, 1.0), (1.0, math.inf)):
        with pytest.raises(ValueError, match="0 < low < high"): Geometric(low, high)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_times_are_a_lattice(n):
    t = lattice_times(n, torch.Generator().manual_seed(n)).sort().values
    torch.testing.assert_close(t.diff(), torch.full((n - 1,), 1 / n, dtype=torch.float64), rtol=0, atol=1e-15)
    assert t.dtype == torch.float64 and 0 <= t[0] and t[-1] < 1
    assert torch.equal(
        lattice_times(n, torch.Generator().manual_seed(n)), lattice_times(n, torch.Generator().manual_seed(n))
    )


def test_each_time_is_uniform_and_in_random_order():
    g = torch.Generator().manual_seed(0)
    draws = torch.stack([lattice_times(8, g) for _ in range(2000)])
    assert min(stats.kstest(draws[:, i].numpy(), "uniform").pvalue for i in range(8)) > 1e-4
    step = ((draws[:, 1] - draws[:, 0]) % 1 * 8).round().long().bincount(minlength=8)  # without shuffling always 1
    assert step[0] == 0 and stats.chisquare(step[1:].numpy()).pvalue > 1e-4


@pytest.mark.parametrize("n", [0, -1])
def test_no_times(n):
    with pytest.raises(ValueError, match=f"n={n}"): lattice_times(n)
