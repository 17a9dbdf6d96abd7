"Mazes: pinned data, both layouts, the closed gaps, splits, scores and what is refused."
import hashlib
import math
import random

import pytest
import torch

from loflexmdm.process.states import CLEAN, DROPPED, collate, contract, parse_prompt
from loflexmdm.samplers import Samples, Trajectory
from loflexmdm.tasks.base import SPLITS, task_from
from loflexmdm.tasks.mazes import MAZE_LAYOUTS, Maze, MazeConfig, MazeTask, Route, _half_cell, _mark_cells, cell_of
from loflexmdm.tasks.mazes import _draw_step, choose_subgoals, draw_maze_path, maze_from, name_of, routes
from loflexmdm.tasks.mazes import maze_verdict, shortest_tour, visits

SMALL = dict(rows=7, columns=9, loops=2, path_max=20)
TASKS = {k: MazeTask(MazeConfig(layout=k)) for k in MAZE_LAYOUTS}
LINE = Maze(1, 5, frozenset({(0, 4)}))  # cells 0 to 3 in a row, then a wall


def samples_of(task, routes):
    examples = [task.example(r) for r in routes]
    return Samples([e.tokens[1:] for e in examples], [[not f for f in e.fixed[1:]] for e in examples])


def answer(task, subgoals, path):
    "Samples with one path as an answer in the prefix layout."
    prompt = task.vocabulary.encode([*map(name_of, subgoals), "|"])
    ids = task.vocabulary.encode([v if isinstance(v, str) else name_of(v) for v in path])
    return Samples([prompt + ids], [[False] * len(prompt) + [True] * len(ids)])


def test_data_never_changes():
    found = [(r.path, r.known) for split in SPLITS for i in range(64) for r in [TASKS["infill"].route(split, i)]]
    text = repr((sorted(MazeConfig().maze.walls), found))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "7ea7f1b8a2884208"  # models in use were trained on it


@pytest.mark.parametrize("rows, columns, loops", [(3, 3, 0), (5, 11, 0), (9, 7, 4), (15, 15, 10)])
def test_mazes_are_connected_with_as_many_loops_as_asked_for(rows, columns, loops):
    for seed in range(10):
        maze = maze_from(rows, columns, loops, seed)
        assert len(maze.distances((0, 0))) == len(maze.cells)
        assert sum(map(len, maze.near.values())) // 2 == len(maze.cells) - 1 + loops
        assert all((r, c) in maze.near for r in range(0, rows, 2) for c in range(0, columns, 2))
    assert len({maze_from(9, 9, 2, s).walls for s in range(5)}) == 5 and maze_from(9, 9, 2, 1) == maze_from(9, 9, 2, 1)


def test_distances_and_walks():
    assert LINE.distances((0, 3)) == {(0, 3): 0, (0, 2): 1, (0, 1): 2, (0, 0): 3}
    assert LINE.is_walk([(0, 0), (0, 1), (0, 0)])
    assert not LINE.is_walk([(0, 0), (0, 2)])
    assert not LINE.is_walk([(0, 3), (0, 4)])
    assert not LINE.is_walk([(0, 1), (0, 1)])


def test_routes_are_distinct_walks_of_controlled_length():
    maze, rng = maze_from(9, 9, 3, 2), random.Random(0)
    for start, goal in [(v, w) for v in maze.cells[::5] for w in maze.cells[::7] if v != w]:
        best = maze.distances(goal)[start]
        found = routes(maze, start, goal, 3, 4, best + 4, rng)
        assert len(found[0]) == best + 1 and len({tuple(p) for p in found}) == len(found) <= 4
        assert all(maze.is_walk(p) and p[0] == start and p[-1] == goal for p in found)
        assert all(best + 1 < len(p) <= best + 4 for p in found[1:])
    assert len(routes(maze, (0, 0), (8, 8), 0, 4, 99, rng)) == 1


def test_subgoals_are_positions():
    path = [(0, 0), (0, 1), (0, 0), (0, 1), (0, 2)]
    known = {choose_subgoals(path, 3, random.Random(s)).known for s in range(50)}
    assert known == {(0, 1, 4), (0, 2, 4), (0, 3, 4)}
    assert choose_subgoals(path, 5, random.Random(0)).known == (0, 1, 2, 3, 4)
    for number in (1, 6):
        with pytest.raises(ValueError, match=f"number={number}: must lie in 2..5"):
            choose_subgoals(path, number, random.Random(0))


def test_infill_prompts_are_what_training_starts_from():
    task = TASKS["infill"]
    x1 = collate([task.dataset("test")[i] for i in range(200)])
    assert not (x1.closed[:, :-1] & x1.free[:, 1:]).any() and not x1.open[:, 0].any()
    x0 = contract(x1, torch.where(x1.free, DROPPED, CLEAN))
    start = collate([parse_prompt(p, task.vocabulary) for p in task.prompts("test", 200)])
    for key in ("tokens", "fixed", "closed"): assert torch.equal(getattr(x0, key), getattr(start, key))
    # one gap between each two subgoals; the start token is fixed too
    assert (start.open.sum(-1) == start.fixed.sum(-1) - 2).all()


def test_prefix_examples_hold_the_same_routes():
    infill, prefix = TASKS["infill"], TASKS["prefix"]
    assert prefix.max_length == infill.max_length + 8 and len(prefix.vocabulary) == len(infill.vocabulary) + 1
    for i in range(50):
        route, e = infill.route("valid", i), prefix.dataset("valid")[i]
        k = len(route.known) + 1
        assert prefix.vocabulary.decode(e.tokens[1:]) == [*map(name_of, route.subgoals), "|", *map(name_of, route.path)]
        assert e.fixed == [True] * (k + 1) + [False] * len(route.path)
        assert e.closed[:k] == [True] * k
        assert not any(e.closed[k:])


@pytest.mark.parametrize("layout", MAZE_LAYOUTS)
def test_splits_lengths_and_numbers_of_subgoals(layout):
    task, c = TASKS[layout], TASKS[layout].config
    pairs = {k: {frozenset(p) for p in v} for k, v in task.pairs.items()}
    assert not pairs["train"] & pairs["valid"]
    assert not pairs["train"] & pairs["test"]
    assert not pairs["valid"] & pairs["test"]
    assert 0.7 < len(task.pairs["train"]) / sum(map(len, task.pairs.values())) < 0.9
    assert (len(task.dataset("train")), len(task.dataset("valid")), len(task.dataset("test"))) == (2**40, 1000, 2000)
    for split in SPLITS:
        for i in range(200):
            r = task.route(split, i)
            assert (r.path[0], r.path[-1]) in task.pairs[split]
            assert c.path_min <= len(r.path) <= c.path_max
            assert 2 <= len(r.known) <= 7
            assert r.known[0] == 0 and r.known[-1] == len(r.path) - 1 and len(task.example(r).tokens) <= task.max_length
    assert {
        task.route("valid", i).path[0 :: len(task.route("valid", i).path) - 1] for i in range(len(task.pairs["valid"]))
    } == set(task.pairs["valid"])


def test_the_number_of_subgoals_leaves_the_path_alone():
    task = TASKS["infill"]
    for k in (2, 4, 8):
        prompts = task.prompts("test", 40, subgoals=k)
        assert all(task.route("test", i, k).path == task.route("test", i).path for i in range(40))
        assert all(
            len(p) == 2 * k - 1 and (p[0], p[-1]) == (name_of(r.path[0]), name_of(r.path[-1]))
            for p, r in zip(prompts, map(lambda i: task.route("test", i), range(40)))
        )
    for k in (1, 9):
        with pytest.raises(ValueError, match=f"subgoals={k}: must lie in 2..path_min=8"):
            task.prompts("test", 1, subgoals=k)


def test_a_limited_training_split():
    task = MazeTask(MazeConfig(train_size=5))
    assert [e.tokens for e in task.dataset()] == [TASKS["infill"].dataset()[i].tokens for i in range(5)]


@pytest.mark.parametrize(
    "subgoals, path, kind",
    [
        ("03", "0123", "solved"), ("023", "0123", "solved"), ("03", "01123", "jump"),
        ("03", "0101123", "jump"), ("03", "010123", "solved"), ("0213", "012123", "solved"),
        ("0213", "0123", "missed"), ("0113", "0123", "missed"), ("03", "123", "missed"),
        ("03", "012", "missed"), ("02", "0123", "missed"), ("02", "01232", "solved"),
        ("03", "", "missed"), ("03", "013", "jump"), ("03", "01234", "wall"), ("03", "01x3", "wall"),
    ],
)
def test_verdicts(subgoals, path, kind):
    cells = [None if v == "x" else (0, int(v)) for v in path]
    assert maze_verdict(LINE, [(0, int(v)) for v in subgoals], cells) == kind


def test_visits_of_an_empty_path(): assert not visits([], [(0, 0)]) and visits([(0, 0)], [(0, 0)])


def test_names(): assert all(cell_of(name_of(v)) == v for v in [(0, 0), (10, 3)]) and cell_of("|") is None


@pytest.mark.parametrize("layout", MAZE_LAYOUTS)
def test_the_data_is_solved(layout):
    task = TASKS[layout]
    chosen = [task.route("test", i) for i in range(100)]
    score, maze = task.score("test", samples_of(task, chosen)), task.config.maze
    excess = sum(len(r.path) - 1 - shortest_tour(maze, r.subgoals) for r in chosen) / 100
    assert score == dict(success=1.0, wall=0.0, jump=0.0, missed=0.0, legal=1.0, excess=pytest.approx(excess))
    assert excess > 0
    short = [Route(tuple(r.subgoals), tuple(range(len(r.known)))) for r in chosen[:99]] + chosen[99:]
    score = task.score("test", samples_of(task, short))
    assert score["success"] == 0.01 and score["jump"] == 0.99 and score["legal"] < 0.5


def test_descriptions_and_odd_answers():
    task = TASKS["prefix"]
    route = task.route("test", 0)
    assert task.describe(answer(task, route.subgoals, route.path))[0] == dict(
        state="solved",
        subgoals=len(route.known),
        steps=len(route.path) - 1,
        excess=len(route.path) - 1 - shortest_tour(task.config.maze, route.subgoals),
    )
    assert task.describe(answer(task, route.subgoals, []))[0] == dict(
        state="missed", subgoals=len(route.known), steps=0, excess=None
    )
    assert task.describe(answer(task, route.subgoals, [route.path[0], "|", *route.path[1:]]))[0]["state"] == "wall"
    nothing = task.score("test", answer(task, route.subgoals, []))
    assert nothing["success"] == 0
    assert nothing["missed"] == 1
    assert nothing["legal"] == 0
    assert math.isnan(nothing["excess"])
    with pytest.raises(ValueError, match="none to score"): task.score("test", Samples([], []))
    with pytest.raises(ValueError, match="sample 0: its prompt names no subgoals"):
        TASKS["infill"].score("test", Samples([[5]], [[True]]))


@pytest.mark.parametrize(
    "bad, message",
    [
        (dict(rows=10), "rows=10: must be odd"),
        (dict(columns=1), "columns=1: must be odd and at least 3"),
        (dict(loops=99), "loops=99: must lie in 0.."),
        (dict(layout="grid"), "layout='grid'"),
        (dict(subgoals_min=1), "subgoals_min=1"),
        (dict(subgoals_min=8), "subgoals_min=8"),
        (dict(subgoals_max=9), "subgoals_max=9"),
        (dict(path_max=7), "path_max=7: must be at least path_min=8"),
        (dict(rows=3, columns=3, loops=0), "path_min=8, path_max=32: too few pairs"),
        (dict(detours=-1), "detours=-1"),
        (dict(slack=-1), "slack=-1"),
        (dict(train_size=-1), "train_size=-1"),
        (dict(test_size=0), "test_size=0"),
        (dict(walls=3), "unknown key 'walls'"),
    ],
)
def test_what_is_refused(bad, message):
    with pytest.raises(ValueError, match=message): task_from(dict(kind="maze") | bad)


def test_task_round_trip_and_splits():
    task = task_from(dict(kind="maze", layout="prefix", **SMALL))
    again = task_from(task.as_dict())
    assert again.as_dict() == task.as_dict() and again.prompts("test", 5) == task.prompts("test", 5)
    with pytest.raises(ValueError, match="split='dev'"): task.dataset("dev")
    with pytest.raises(ValueError, match="n=2001: the test split has 2000 routes"): task.prompts("test", 2001)


def test_pictures():
    plt = pytest.importorskip("matplotlib.pyplot")
    task = TASKS["infill"]
    route = task.route("test", 0)
    n = len(route.path)
    plain = samples_of(task, [route])
    assert len(task.draw("test", plain).lines) > n - 1
    times = [0.0 if i in route.known else i / n for i in range(n)]
    plain.trajectories = [Trajectory([], times, [2 * t for t in times])]
    axes = task.draw("test", plain, panels=3)
    assert [a.get_title() for a in axes][0::2] == [f"{len(route.known)} cells, 0 masks", f"{n} cells, 0 masks"]
    prefix = TASKS["prefix"]
    odd = answer(prefix, route.subgoals, [route.path[0], "|", (0, 0), (0, 1)])
    prefix.draw("test", odd)
    odd.trajectories = [Trajectory([], [0.0] * len(odd.sequences[0]), list(map(float, range(len(odd.sequences[0])))))]
    assert len(prefix.draw("test", odd)) == 4
    draw_maze_path(LINE, [(0, 0), (0, 4)], [(0, 0)])
    plt.close("all")


@pytest.mark.parametrize("rows, columns, size", [(2, 5, (4, 1)), (5, 2, (1, 4))])
def test_marks_have_the_size_of_cells(rows, columns, size):
    "In points, from what matplotlib draws of a unit: the smaller side of a cell; numbers shrink as they get longer."
    plt = pytest.importorskip("matplotlib.pyplot")
    maze = Maze(rows, columns, frozenset())
    fig, ax = plt.subplots(figsize=size)
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(-0.5, rows - 0.5))
    fig.canvas.draw()
    (x, y), (right, up) = ax.transData.transform([(0, 0), (1, 1)])
    half = 0.5 * min(right - x, up - y) * 72 / fig.dpi
    assert _half_cell(maze, ax) == pytest.approx(half)

    _mark_cells(maze, [(0, 0), (1, 1), (0, 0)], ax)
    assert [t.get_text() for t in ax.texts] == ["1,3", "2"]
    assert [t.get_fontsize() for t in ax.texts] == pytest.approx([1.5 * half / 3 ** 0.5, 1.5 * half])
    assert [line.get_markersize() for line in ax.lines] == pytest.approx([2.2 * half] * 2)
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[0, 0]], [[1, 1]]]
    plt.close(fig)


def test_the_colour_of_a_step_says_how_far_along_the_path_it_is():
    mpl = pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots()
    for at in (0.0, 0.5, 1.0): _draw_step(LINE, (0, 1), (0, 2), at, ax)
    colours = mpl.colormaps["viridis"]([0.0, 0.45, 0.9])  # its yellow end is hard to see on white
    assert [mpl.colors.to_rgba(line.get_color()) for line in ax.lines] == [tuple(c) for c in colours]
    plt.close(fig)
