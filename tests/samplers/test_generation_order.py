"Orders of generation: known answers by hand, ties, undefined cases, agreement with scipy and with real generations."
import math
import random
import warnings

import pytest
import torch

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import MASK
from loflexmdm.samplers import EventDriven, Samples, TauLeaping, Trajectory
from loflexmdm.samplers.generation_order import frames_text, generation_times
from loflexmdm.samplers.generation_order import normalised_order, order_by_kind, order_correlation
from loflexmdm.samplers.generation_order import pearson, plot_order, plot_raster, ranks, raster
from loflexmdm.samplers.generation_order import spearman
from loflexmdm.tasks.star_graphs import StarGraph, StarTask, star_correlations

GRAPH = StarGraph(((7, 2), (4, 7), (7, 9), (2, 5)), 4, 5, (4, 7, 2, 5))
DISTANCES = [1, 0, 0, 1, 1, 2]
INWARDS = [0.4, 0.9, 0.9, 0.4, 0.4, 0.2]
EXACT = -6.5 / math.sqrt(42.5)


class OneGraph(StarTask):
    def graphs(self, split, n): return [GRAPH] * n


def samples_with(*rows):
    "Samples of GRAPH's prompt with the given (answer, settled times)."
    task = OneGraph()
    prompt = task.vocabulary.encode(GRAPH.prompt)
    zeros, ids = [0.0] * len(prompt), [task.vocabulary.encode(a.split()) for a, _ in rows]
    tracks = [
        Trajectory([(0.0, prompt), (1.0, prompt + i)], zeros + [0.0] * len(t), zeros + list(t))
        for i, (_, t) in zip(ids, rows)
    ]
    return task, Samples(
        [prompt + i for i in ids], [[False] * len(prompt) + [True] * len(i) for i in ids],
        row_evaluations=4, trajectories=tracks,
    )


def test_ranks_share_ties():
    assert ranks(INWARDS) == [3, 5.5, 5.5, 3, 3, 1] and ranks([]) == [] and ranks([2, 2]) == [1.5, 1.5]
    assert normalised_order([5.0]) == [0.5] and normalised_order([3, 1, 2]) == [1, 0, 0.5]


def test_known_correlations():
    assert pearson(ranks(INWARDS), DISTANCES) == pytest.approx(EXACT, abs=1e-14) and spearman(INWARDS, DISTANCES) == -1
    assert pearson([1, 2, 3], [2, 4, 6]) == 1 and pearson([0, 1], [1, 0]) == -1


@pytest.mark.parametrize("u, v", [([], []), ([1], [1]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [4, 4, 4])])
def test_undefined_correlations(u, v): assert math.isnan(pearson(u, v)) and math.isnan(spearman(u, v))


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 and 1 values"): pearson([1, 2], [1])
    with pytest.raises(ValueError, match="covariates: 0 for 1"): order_correlation([[1.0]], [])
    with pytest.raises(ValueError, match="method='kendall'"): order_correlation([[1.0]], [[1]], "kendall")
    with pytest.raises(ValueError, match="2 kinds for 1 tokens"): order_by_kind([[1.0]], [["a", "b"]])


def test_against_scipy():
    stats, rng = pytest.importorskip("scipy.stats"), random.Random(0)
    for _ in range(200):
        u, v = ([rng.randint(0, 4) for _ in range(8)] for _ in range(2))
        if len(set(u)) == 1 or len(set(v)) == 1: continue
        assert pearson(u, v) == pytest.approx(stats.pearsonr(u, v)[0], abs=1e-12)
        assert spearman(u, v) == pytest.approx(stats.spearmanr(u, v)[0], abs=1e-12)


def test_means_leave_undefined_cases_out():
    c = order_correlation(
        [INWARDS, INWARDS, [1.0], [2.0, 2.0], INWARDS], [DISTANCES, [2 - d for d in DISTANCES], [0], [0, 1], None]
    )
    assert (c.n, c.undefined) == (2, 3)
    assert c.mean == pytest.approx(0, abs=1e-12)
    assert c.error == pytest.approx(-EXACT, abs=1e-12)
    alone, none = order_correlation([INWARDS], [DISTANCES]), order_correlation([], [])
    assert alone.mean == pytest.approx(EXACT) and math.isnan(alone.error) and none.n == 0 and math.isnan(none.mean)


def test_star_correlations_filter_exact_matches():
    task, samples = samples_with(
        ("4 7 7 2 2 5", INWARDS), ("4 7 7 2 2 4", [-t for t in INWARDS]), ("4 9", [1, 2]), ("7", [1]), ("", [])
    )
    c = star_correlations(task, "test", samples)
    assert c["exact"].n == 1 and c["exact"].mean == pytest.approx(EXACT)
    assert (c["all"].n, c["all"].undefined) == (2, 3) and c["all"].mean == pytest.approx(0, abs=1e-12)
    assert star_correlations(task, "test", samples, method="spearman")["exact"].mean == -1
    assert star_correlations(task, "test", samples, "inserted")["exact"].undefined == 1  # all inserted at once


def test_times_need_trajectories():
    task, samples = samples_with(("4 7", [1, 2]))
    assert generation_times(samples) == [[1, 2]] and generation_times(samples, "inserted") == [[0, 0]]
    with pytest.raises(ValueError, match="event='masked'"): generation_times(samples, "masked")
    samples.trajectories = None
    with pytest.raises(ValueError, match="record=True"): generation_times(samples)


def test_kinds_count_sequences():
    found = order_by_kind([[0.0, 1.0, 2.0], [1.0, 0.0]], [["a", "a", "b"], ["b", "a"]])
    assert found["a"] == (pytest.approx(0.125), pytest.approx(0.125), 2) and found["b"] == (1.0, 0.0, 2)
    assert math.isnan(order_by_kind([[1.0]], [["a"]])["a"][1])


@pytest.mark.parametrize(
    "sampler", [EventDriven(), EventDriven(exact=False), TauLeaping(steps=16)], ids=["exact", "frozen", "tau"]
)
def test_times_agree_with_frames(sampler):
    task = StarTask()
    torch.manual_seed(0)
    model = LoFlexMDM(
        task.vocabulary, LoFlexMDMConfig(size="nano", order_size="nano", max_length=task.max_length)
    ).eval()
    samples = generate(
            model,
        task.prompts("test", 8), sampler=sampler, generator=torch.Generator().manual_seed(0), record=True
    )
    for t, s in zip(samples.trajectories, samples.sequences):
        assert t.frames[-1][1] == s
        assert len(t.inserted_at) == len(t.unmasked_at) == len(s)
        assert all(b <= u for b, u in zip(t.inserted_at, t.unmasked_at))
        for now, tokens in dict(t.frames).items():  # the last frame of each clock reading
            there = [(b <= now) + (u <= now) for b, u in zip(t.inserted_at, t.unmasked_at)]
            assert there.count(1) == tokens.count(MASK) and there.count(2) == len(tokens) - tokens.count(MASK)


def test_raster_and_text():
    t = Trajectory([(0.0, [5]), (0.5, [5, MASK]), (1.0, [5, 4])], [0.0, 0.5], [0.0, 1.0])
    moments, grid = raster(t)
    assert moments == [0.0, 0.5, 1.0] and grid.tolist() == [[2, 2, 2], [0, 1, 2]]
    assert raster(t, [False, True])[1].tolist() == [[1, 2]] and raster(t, [False, False])[1].shape == (0, 0)
    assert frames_text(t, StarTask().vocabulary) == ["2", "2 _", "2 1"]
    assert frames_text(t, StarTask().vocabulary, skip=1, most=2) == ["", "1"]


def test_figures_return_axes():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    ax = plot_order([INWARDS, [1.0]], [DISTANCES, None], "inwards")
    assert plot_order([INWARDS], [DISTANCES], ax=ax) is ax and ax.get_xlabel()
    assert plot_raster(Trajectory([], [0.0], [1.0]), ["a"]).get_ylabel() == "token"
    assert plot_raster(Trajectory([], [], [])) is not None
    plt.close("all")


def test_one_sequence_has_no_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = order_correlation([[1.0, 2.0, 3.0]], [[0, 1, 2]])
    assert found.mean == pytest.approx(1) and math.isnan(found.error) and found.n == 1
