"""Guidance by any Python function, through weighted samples; and the values that conditional models generate."""
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from loflexmdm.molecules.scores.metrics import judge


class Resampled(NamedTuple):
    "Resampled molecules with weights, effective sample size and failures."
    smiles: list[str]  # resampled molecules, canonical SMILES
    weights: np.ndarray  # normalised weights of all samples; 0 without molecule or score
    effective: float  # effective sample size
    failed: int  # molecules whose function raised an error or returned no number


def resample(
    smiles: Sequence[str | None],
    function: Callable[[str], float],
    strength: float,
    n: int,
    seed: int = 0,
) -> Resampled:
    """Resample `n` samples with weights exp(strength function(SMILES)). Resampling is systematic.

    ValueError if `n` < 1, the strength is not finite, or no sample has a score."""
    if n < 1: raise ValueError(f"n={n}: must be at least 1")
    if not math.isfinite(strength): raise ValueError(f"strength={strength}: must be finite")

    # the function may be slow: call it once per molecule
    molecules = [j.smiles for j in judge(smiles)]
    known = {s: _value(function, s) for s in dict.fromkeys(molecules) if s is not None}
    values = np.array([known.get(s, math.nan) for s in molecules], np.float64)
    there = np.isfinite(values)
    if not there.any(): raise ValueError("smiles: no molecule has a score")

    # subtract the largest exponent to avoid overflow
    exponents = strength * values[there]
    weights = np.zeros(len(values))
    weights[there] = np.exp(exponents - exponents.max())
    weights /= weights.sum()

    # one random number for all places: fewer ties than independent draws
    places = (np.arange(n) + np.random.default_rng(seed).random()) / n
    last = there.nonzero()[0][-1]
    drawn = np.minimum(np.searchsorted(weights.cumsum(), places, side="right"), last)

    failed = sum(s is not None and not ok for s, ok in zip(molecules, there))
    effective = float(1 / (weights**2).sum())
    return Resampled([molecules[i] for i in drawn], weights, effective, failed)


def _value(function: Callable[[str], float], smiles: str) -> float:
    try: return float(function(smiles))
    except Exception: return math.nan


class Delivered(NamedTuple):
    "Values generated for one requested class."
    asked: int  # class, from 0
    n: int  # number of molecules with a value
    share: float  # fraction of values in the class; nan without any
    mean: float  # mean of the values
    low: float  # 10 % quantile of the values
    high: float  # 90 % quantile of the values


def compare_with_requests(asked: Sequence[int], values: Sequence[float], bounds: Sequence[float]) -> list[Delivered]:
    """Compare requested classes with values. Returns a row per class. Classes lie between the bounds, a bound belongs
    to the class above; nan: no molecule.

    ValueError for bounds that do not increase and for unknown classes."""
    edges = np.asarray(bounds, float)
    a = np.asarray(asked)
    v = np.asarray(values, float)
    if len(a) != len(v): raise ValueError(f"asked: {len(a)} classes for {len(v)} values")
    if (np.diff(edges) <= 0).any(): raise ValueError(f"bounds={list(bounds)}: must increase")
    if len(a) and not (0 <= a.min() and a.max() <= len(edges)):
        raise ValueError(f"asked: classes from 0 to {len(edges)}, not {a.min()} to {a.max()}")
    return [_delivered(k, v[(a == k) & ~np.isnan(v)], edges) for k in range(len(edges) + 1)]


def _delivered(k: int, values: np.ndarray, edges: np.ndarray) -> Delivered:
    if not len(values): return Delivered(k, 0, *[math.nan] * 4)
    inside = np.searchsorted(edges, values, side="right") == k
    spread = map(float, np.quantile(values, (0.1, 0.9)))
    return Delivered(k, len(values), float(inside.mean()), float(values.mean()), *spread)


def plot_requests(rows: Sequence[Delivered], bounds: Sequence[float], label: str = "property", ax=None):
    "Plot mean and central 80 % of values for each requested class. Classes are bands; returns the axes."
    import matplotlib.pyplot as plt
    if ax is None: ax = plt.subplots(layout="constrained")[1]
    there = [r for r in rows if r.n]
    low = min([*bounds, *(r.low for r in there)])
    high = max([*bounds, *(r.high for r in there)])

    # the outer classes are open-ended
    margin = 0.1 * (high - low)
    edges = [low - margin, *bounds, high + margin]
    for k in range(len(rows)):
        ax.fill_between([k - 0.4, k + 0.4], edges[k], edges[k + 1], color="C0", alpha=0.15)

    below = [r.mean - r.low for r in there]
    above = [r.high - r.mean for r in there]
    classes = [r.asked for r in there]
    means = [r.mean for r in there]
    ax.errorbar(classes, means, [below, above], fmt="o", color="C1", capsize=3)
    ax.set(xticks=range(len(rows)), xlabel=f"class of {label} asked for", ylabel=f"{label} got")
    ax.set_ylim(edges[0], edges[-1])
    return ax
