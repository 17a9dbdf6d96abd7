"Star graphs: pinned data, the published format and its damage, scores and verdicts."
import hashlib
import math

import pytest

from loflexmdm.process.states import BOS, Example, collate
from loflexmdm.samplers import Samples
from loflexmdm.samplers.simulate import Trajectory
from loflexmdm.tasks.base import SPLITS
from loflexmdm.tasks.star_graphs import _fit
from loflexmdm.tasks.star_graphs import STAR_PRESETS, StarConfig, StarGraph, StarGraphs, StarTask
from loflexmdm.tasks.star_graphs import draw_star_answer, draw_star_generation, is_path, junction_distances
from loflexmdm.tasks.star_graphs import junction_last, names_junction, radial_layout, read_graphs, star_correlations
from loflexmdm.tasks.star_graphs import star_verdict, to_junction, write_graphs

GRAPH = StarGraph(((7, 2), (4, 7), (7, 9), (2, 5)), 4, 5, (4, 7, 2, 5))
PINNED = {"star-tiny": "cb7b0de68f2a840d",
          "star-easy": "3c76bdb3d4c3feb6",
          "star-medium": "443f890fa6a75070",
          "star-hard": "9d4b957e29638767"}  # first 64 graphs of every split: models in use were trained on them


def fingerprint(name):
    graphs = [
        (g.edges, g.source, g.goal, g.path)
        for s in SPLITS
        for g in map(StarGraphs(STAR_PRESETS[name], s).graph, range(64))
    ]
    return hashlib.sha256(repr(graphs).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", STAR_PRESETS)
def test_graphs_never_change(name): assert fingerprint(name) == PINNED[name]


def test_a_known_graph():
    assert StarGraphs(StarConfig()).graph(0) == StarGraph(
        edges=((1, 9), (9, 3), (7, 5), (1, 7), (1, 4), (4, 2)), source=1, goal=2, path=(1, 4, 2)
    )


@pytest.mark.parametrize("name", STAR_PRESETS)
def test_paths_and_lengths(name):
    c = STAR_PRESETS[name]
    for g in map(StarGraphs(c, "test").graph, range(300)):
        assert is_path(g.edges, g.path, g.source, g.goal) and g.junction in g.path
        assert not is_path(g.edges, g.path[:-1], g.source, g.goal)
        assert not is_path(g.edges, g.path[1:], g.source, g.goal)
        assert c.arm_min <= len(g.path) <= c.arm_max and len(g.path) - 1 - g.path.index(g.junction) >= c.min_plan
        assert len(g.prompt) <= c.prompt_length and len(g.target) <= c.target_length
        assert sum(u == g.junction for u, _ in g.edges) == c.degree


def test_paper_sizes():
    assert [
        (len(t.dataset("train")), len(t.dataset("valid")), len(t.dataset("test")))
        for t in (StarTask(STAR_PRESETS[f"star-{k}"]) for k in ("easy", "medium", "hard"))
    ] == [(50_000, 100, 5_000)] * 3
    assert (
        STAR_PRESETS["star-easy"].prompt_length,
        STAR_PRESETS["star-easy"].target_length,
        STAR_PRESETS["star-hard"].max_length,
    ) == (26, 8, 135)


def test_splits_differ_and_seed_matters():
    graphs = {StarGraphs(STAR_PRESETS["star-hard"], s, seed=k).graph(0) for s in SPLITS for k in (1, 2)}
    assert len(graphs) == 6


@pytest.mark.parametrize(
    "bad, message",
    [
        (dict(degree=0), "degree=0"),
        (dict(arm_min=1), "arm_min=1"),
        (dict(arm_max=2), "arm_min=3, arm_max=2"),
        (dict(min_plan=3), "min_plan=3"),
        (dict(nodes=6), "nodes=6: the largest graph has 7"),
        (dict(train_size=-1), "train_size=-1"),
        (dict(test_size=0), "test_size=0"),
    ],
)
def test_bad_configurations(bad, message):
    with pytest.raises(ValueError, match=message): StarConfig(**bad)


def test_file_round_trip(tmp_path):
    graphs = [StarGraphs(STAR_PRESETS["star-medium"]).graph(i) for i in range(20)]
    write_graphs(graphs, tmp_path / "train.jsonl")
    assert read_graphs(tmp_path / "train.jsonl") == graphs
    task = StarTask(StarConfig(3, 3, 6, 20, 2, file=str(tmp_path / "{split}.jsonl")))
    assert [task.dataset("train").graph(i) for i in range(20)] == graphs and len(task.dataset("train")) == 20
    with pytest.raises(FileNotFoundError, match="valid.jsonl"): task.dataset("valid")


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"edge_list": [[1, 2', "line 2: not valid JSON"),
        ("null\n", "line 2: not a JSON object"),
        ("\n", "line 2: not valid JSON"),
        ('{"edge_list": [], "source": 1, "goal": 2, "path": [1, 2]}', "line 2: edge_list"),
        ('{"edge_list": [[1, true]], "source": 1, "goal": 2, "path": [1, 2]}', "line 2: edge_list"),
        ('{"edge_list": [[1, 2]], "source": "1", "goal": 2, "path": [1, 2]}', "line 2: source='1'"),
        ('{"edge_list": [[1, 2]], "source": 1, "goal": 2, "path": "12"}', "line 2: path"),
        ('{"edge_list": [[1, 2]], "source": 2, "goal": 1, "path": [2, 1]}', "line 2: path"),
        ('{"edge_list": [[1, 2]], "source": 1, "goal": 1, "path": [1]}', "line 2: path"),
        ('{"edge_list": [[1, 12]], "source": 1, "goal": 12, "path": [1, 12]}', "line 2: node 12"),
        (
            '{"edge_list": [[1, 2], [2, 3], [3, 4]], "source": 1, "goal": 4, "path": [1, 2, 3, 4]}',
            "line 2: prompt of 8 and path of 6 tokens",
        ),
    ],
)
def test_damaged_files(tmp_path, text, message):
    write_graphs([StarGraph(((0, 1), (1, 2)), 0, 2, (0, 1, 2))], tmp_path / "a.jsonl")
    with open(tmp_path / "a.jsonl", "a") as f: f.write(text)
    with pytest.raises(ValueError, match=message) as e: read_graphs(tmp_path / "a.jsonl", StarConfig())
    assert "a.jsonl" in str(e.value)


def test_empty_file(tmp_path):
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(ValueError, match="holds no graphs"): read_graphs(tmp_path / "a.jsonl")


def test_scores():
    task = StarTask()
    truths = [task.vocabulary.encode(p + g.target) for p, g in zip(task.prompts("test", 4), task.graphs("test", 4))]
    free = [[False] * 14 + [True] * 4] * 4
    assert task.score("test", Samples(truths, free)) == dict(exact_match=1.0, token_accuracy=1.0)
    spoilt = truths[:3] + [truths[3][:-1]]
    assert task.score("test", Samples(spoilt, free[:3] + [free[3][:-1]])) == dict(
        exact_match=0.75, token_accuracy=pytest.approx(15 / 16)
    )


@pytest.mark.parametrize(
    "answer, kind",
    [
        ("4 7 7 2 2 5", "exact"), ("4 7 7 9", "wrong arm"), ("4 7", "wrong arm"), ("4 7 2 5", "broken path"),
        ("7 2", "broken path"), ("7 4", "invented edge"), ("4 7 7", "no edge list"), ("", "no edge list"),
    ],
)
def test_verdicts(answer, kind): assert star_verdict(GRAPH, answer.split()) == kind


def test_an_answer_of_all_edges_invents_none():
    edges = " ".join(f"{u} {v}" for u, v in GRAPH.edges).split()
    assert star_verdict(GRAPH, edges) == "broken path"


def test_junction_distances():
    assert junction_distances(GRAPH, GRAPH.target) == [1, 0, 0, 1, 1, 2]
    assert junction_distances(GRAPH, "7 2 2 5".split()) == [0, 1, 1, 2]
    assert junction_distances(GRAPH, ["2", "5"]) is None


def test_layout_and_pictures():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    for g in [GRAPH, *map(StarGraphs(STAR_PRESETS["star-hard"]).graph, range(20))]:
        at = radial_layout(g)
        assert all(math.isclose(math.dist(at[u], at[v]), 1) for u, v in g.edges) and len(set(at.values())) == len(at)
    assert draw_star_answer(GRAPH, ["4", "9"]).get_title() == "invented edge"
    lines = [len(draw_star_answer(GRAPH, answer).lines) for answer in ([], ["4", "7"], GRAPH.target)]
    assert lines == [lines[0], lines[0] + 1, lines[0] + 3], "a line for each edge of the answer"
    axes = draw_star_generation(GRAPH, GRAPH.target, range(6), [6, 7, 8, 9, 10, 11], panels=2)
    assert [a.get_title() for a in axes] == ["4 _ _ _ _ _", "4 7 7 2 2 5"]
    assert len(draw_star_generation(GRAPH, [], [], [])) == 4
    plt.close("all")


def test_nodes_are_half_as_wide_as_their_distance():
    "The size of a node in points, from what matplotlib draws of a unit; of a large picture 14."
    plt = pytest.importorskip("matplotlib.pyplot")
    for width, size in ((1.0, None), (40.0, 14.0)):
        fig, ax = plt.subplots(figsize=(width, width))
        found = _fit(ax, {0: (0.0, 0.0), 1: (1.0, 0.0), 2: (0.0, 2.0)})
        fig.canvas.draw()
        (x, _), (right, _) = ax.transData.transform([(0, 0), (1, 0)])
        assert found == pytest.approx(size or 0.5 * (right - x) * 72 / fig.dpi)
        assert ax.get_xlim() == (-0.5, 1.5) and ax.get_ylim() == (-0.5, 2.5)
        plt.close(fig)


def answer_of(prompt, answer):
    return collate([Example([BOS, *prompt, *answer], [True] * (1 + len(prompt)) + [False] * len(answer),
                            [True] * (1 + len(prompt)) + [False] * len(answer))])


def test_orders_from_the_junction():
    "Node 9 is named most often in the prompt; the answer is the path 5 9 9 7, of two tokens per edge."
    x, free = answer_of([9, 5, 9, 7, 9, 8], [5, 9, 9, 7]), slice(7, 11)
    assert names_junction(x)[0].long().tolist() == [0] * 8 + [1, 1, 0]
    # places along the path are 0, 1, 1, 2: a factor of 100 over one node
    assert to_junction(x)[0, free].tolist() == pytest.approx([10, .1, .1, 10])
    longer = answer_of([9, 5, 9, 7, 9, 8], [9, 7, 7, 5, 5, 6])
    assert to_junction(longer, 8.0, 1.0)[0, free.start:].tolist() == pytest.approx([1, 2, 2, 4, 4, 8])
    # back from the goal to the junction's last mention, then on from the source
    moments = [v.log() for v in junction_last(x)[0, free]]
    falls = [float((math.log(10) - v) / math.log(100) * 3) for v in moments]
    assert falls == pytest.approx([2, 3, 1, 0], abs=1e-5)
    without = answer_of([9, 5, 9, 7], [5, 7, 6])
    assert [round(3 * v) / 3 for v in junction_last(without, 1.0, .01)[0, 5:].log10().tolist()] == pytest.approx([-2,
        -1, 0])
    assert to_junction(without, 1.0, .01)[0, 5:].log10().tolist() == pytest.approx([-2, 0, 0], abs=1e-5)


def test_correlations_of_exact_and_of_all_answers():
    task = StarTask(STAR_PRESETS["star-tiny"])
    sequences, free, trajectories = [], [], []
    for k in range(3):
        example = task.dataset("test")[k]
        ids, own = example.tokens[1:], [not f for f in example.fixed[1:]]
        if k == 2: ids = [*ids[:-1], ids[-2]]  # a wrong answer
        times = [float(i) for i in range(len(ids))]
        sequences.append(ids), free.append(own), trajectories.append(Trajectory([], times, times))
    samples = Samples(sequences, free, trajectories=trajectories)
    found = star_correlations(task, "test", samples)
    assert found["exact"] != found["all"] and set(found) == {"exact", "all"}
    two = Samples(sequences[:2], free[:2], trajectories=trajectories[:2])
    assert star_correlations(task, "test", two)["all"] == found["exact"]


def test_edges_are_drawn_once_one_end_is_there():
    "Thin and dotted until both ends are known; at the moment of an insertion it is there."
    plt = pytest.importorskip("matplotlib.pyplot")
    axes = draw_star_generation(GRAPH, GRAPH.target, [0, 1, 2, 3, 5, 5], [1, 1, 3, 3, 6, 6], panels=3)
    plain = len(draw_star_answer(GRAPH, []).lines)
    assert [a.get_title() for a in axes] == ["4 7", "4 7 7 2", "4 7 7 2 2 5"]
    assert [len(a.lines) - plain for a in axes] == [1, 2, 3]
    [first] = draw_star_generation(GRAPH, GRAPH.target, [3, 4, 9, 9, 9, 9], [3, 5, 9, 9, 9, 9], panels=1)
    assert first.get_title() == "4" and len(first.lines) - plain == 1
    plt.close("all")
