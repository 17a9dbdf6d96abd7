"""Insertion against a fixed canvas in a maze: `python experiments/maze_runs.py`.

A planner is told a few cells of a maze, the subgoals, and walks through them in order (FlexMDM, arXiv 2509.01025). The
maze is made from a seed; pairs of start and goal are held out. FlexMDM fills the gaps between subgoals that stay;
masked diffusion writes the whole path after a prompt. Rows go to experiments/results/maze.json; those that are there
are kept. About eight minutes of one core for each of seven runs, which lie in $MAZE_RUNS if it is set."""
import argparse
import hashlib
import json
import math
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, pairwise
from pathlib import Path
from typing import NamedTuple

import torch

from loflexmdm.process.states import BOS, Example, Vocabulary, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.samplers import Samples
from loflexmdm.support.configs import AtLeastTwo, Count, Natural, config, one_of
from loflexmdm.tasks.base import Examples, Task, check_split
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.samplers import Sampler, TauLeaping
from loflexmdm.training.recipes import recipe_from

Cell = tuple[int, int]  # row and column
Ends = tuple[Cell, Cell]  # start and goal of a path


@dataclass(frozen=True)
class Maze:
    "Rectangular grid of cells, some of them walls. Two cells are neighbours if they share a side."
    rows: int  # number of rows
    columns: int  # number of columns
    walls: frozenset[Cell]  # (row, column) of each wall

    @cached_property
    def cells(self) -> list[Cell]:
        "Free cells, row by row."
        every = [(r, c) for r in range(self.rows) for c in range(self.columns)]
        return [cell for cell in every if cell not in self.walls]

    @cached_property
    def near(self) -> dict[Cell, list[Cell]]:
        "Free neighbours of every free cell."
        valid = set(self.cells)
        sides = lambda r, c: ((r - 1, c), (r, c - 1), (r, c + 1), (r + 1, c))
        return {cell: [v for v in sides(*cell) if v in valid] for cell in self.cells}

    @cached_property
    def _distances(self) -> dict[Cell, dict[Cell, int]]: return {}

    def distances(self, goal: Cell) -> dict[Cell, int]:
        "Compute the fewest steps to `goal` from every connected cell (breadth-first, cached)."
        if goal in self._distances: return self._distances[goal]
        steps = {goal: 0}
        queue = [goal]
        for v in queue:
            new = [w for w in self.near[v] if w not in steps]
            steps |= dict.fromkeys(new, steps[v] + 1)
            queue += new
        self._distances[goal] = steps
        return steps

    def is_step(self, v: Cell, w: Cell) -> bool:
        "Return True if two cells are free neighbours."
        return w in self.near.get(v, ())

    def is_walk(self, path: Sequence[Cell]) -> bool:
        "Return True if every step leads to a neighbour."
        return all(self.is_step(v, w) for v, w in pairwise(path))


def divide(top: int, left: int, bottom: int, right: int, rng: random.Random) -> set[Cell]:
    """Divide a chamber by walls, down to corridors. Its first and last row and column are all even; each wall has
    one door."""
    if top == bottom or left == right: return set()
    if rng.random() < 0.5:
        wall = rng.randrange(top + 1, bottom, 2)
        door = rng.randrange(left, right + 1, 2)
        above = divide(top, left, wall - 1, right, rng)
        below = divide(wall + 1, left, bottom, right, rng)
        return {(wall, c) for c in range(left, right + 1) if c != door} | above | below

    wall = rng.randrange(left + 1, right, 2)
    door = rng.randrange(top, bottom + 1, 2)
    before = divide(top, left, bottom, wall - 1, rng)
    behind = divide(top, wall + 1, bottom, right, rng)
    return {(r, wall) for r in range(top, bottom + 1) if r != door} | before | behind


def maze_from(rows: int, columns: int, loops: int = 0, seed: int = 0) -> Maze:
    """Build a maze by recursive division, with `loops` additional doors.

    ValueError unless both sides are odd and at least 3, and there are walls enough for the doors."""
    for key, value in dict(rows=rows, columns=columns).items():
        if value < 3 or value % 2 == 0:
            raise ValueError(f"{key}={value}: must be odd and at least 3")
    rng = random.Random(f"maze {rows} {columns} {seed}")
    walls = divide(0, 0, rows - 1, columns - 1, rng)

    # a door needs a room on either side: not where row and column are both odd
    between = sorted(w for w in walls if sum(w) % 2)
    if not 0 <= loops <= len(between):
        raise ValueError(f"loops={loops}: must lie in 0..{len(between)}, the walls between two rooms")
    doors = rng.sample(between, loops)
    return Maze(rows, columns, frozenset(walls.difference(doors)))


def shortest_path(maze: Maze, start: Cell, goal: Cell, rng: random.Random) -> list[Cell]:
    "Draw a shortest path, both ends included. Ties are broken at random."
    steps = maze.distances(goal)
    path = [start]
    while path[-1] != goal:
        nearer = [v for v in maze.near[path[-1]] if steps[v] < steps[path[-1]]]
        path.append(rng.choice(nearer))
    return path


def routes(
    maze: Maze, start: Cell, goal: Cell, detours: int, slack: int, longest: int, rng: random.Random
) -> list[list[Cell]]:
    """Draw distinct paths: a shortest one, then up to `detours` via another cell. Each has at most `slack`
    additional steps and at most `longest` cells."""
    found = [shortest_path(maze, start, goal, rng)]

    # via v it takes d(start, v) + d(v, goal) steps
    away, back = maze.distances(start), maze.distances(goal)
    fewest = back[start]
    most = min(fewest + slack, longest - 1)
    via = [v for v in maze.cells if fewest < away[v] + back[v] <= most]
    for v in rng.sample(via, len(via)):
        if len(found) > detours: break
        there = shortest_path(maze, start, v, rng)
        path = there + shortest_path(maze, v, goal, rng)[1:]
        if path not in found: found.append(path)
    return found


class Route(NamedTuple):
    "Path through the maze and its known positions, in order. The first and the last position are always known."
    path: tuple[Cell, ...]  # cells, in order
    known: tuple[int, ...]  # positions in the path

    @property
    def subgoals(self) -> list[Cell]:
        "Known cells, from start to goal."
        return [self.path[i] for i in self.known]


def choose_subgoals(path: Sequence[Cell], number: int, rng: random.Random) -> Route:
    "Choose `number` known positions of a path, ends included. ValueError if the path has fewer, or number < 2."
    if not 2 <= number <= len(path):
        raise ValueError(f"number={number}: must lie in 2..{len(path)}, the cells of the path")
    last = len(path) - 1
    inner = rng.sample(range(1, last), number - 2)
    return Route(tuple(path), (0, *sorted(inner), last))


_SEPARATOR = "|"  # between subgoals and path, in layout `prefix`


def name_of(cell: Cell) -> str:
    "Return a cell's token."
    return f"{cell[0]},{cell[1]}"


def cell_of(name: str) -> Cell | None:
    "Parse a token as a cell. None if it is not one."
    row, comma, column = name.partition(",")
    return (int(row), int(column)) if comma else None


def route_example(route: Route, vocabulary: Vocabulary) -> Example:
    "Build the example of a path with its known positions fixed. Gaps are open from start to goal, and closed outside."
    ids = vocabulary.encode(map(name_of, route.path))
    fixed = [i in route.known for i in range(len(ids))]
    closed = [False] * (len(ids) - 1) + [True]
    return Example([BOS, *ids], [True, *fixed], [True, *closed])


def infill_prompt(subgoals: Iterable[Cell]) -> list:
    "Return the subgoals with open gaps between them."
    prompt = []
    for v in subgoals: prompt += [..., name_of(v)]
    return prompt[1:]


def prefix_prompt(subgoals: Iterable[Cell]) -> list[str]:
    "Return the subgoals and the separator that precedes the path."
    return [*map(name_of, subgoals), _SEPARATOR]


MAZE_LAYOUTS = ("infill", "prefix")


@config
class MazeConfig:
    "Settings of a maze and the paths through it."
    rows: int = 11  # rows of cells
    columns: int = 11  # columns of cells
    loops: int = 6         # doors beyond those of a maze without loops
    seed: int = 0          # seed of the maze, the paths and the splits
    layout: one_of(MAZE_LAYOUTS) = "infill"  # infill (subgoals within the path) | prefix (subgoals, then path)
    subgoals_min: AtLeastTwo = 2  # fewest subgoals in training, start and goal included
    subgoals_max: int = 7  # most subgoals in a prompt
    path_min: int = 8      # fewest cells of a shortest path
    path_max: int = 32     # most cells of any path
    detours: Natural = 3  # paths per pair besides a shortest one
    slack: Natural = 6  # additional steps allowed in a detour
    train_size: Natural = 0  # paths in the training split; 0: unlimited
    valid_size: Count = 1000  # paths held out for validation
    test_size: Count = 2000  # paths held out for testing

    def __post_init__(self):
        low, high, path_min = self.subgoals_min, self.subgoals_max, self.path_min
        if not low <= high <= path_min:
            needed = f"subgoals_min <= subgoals_max <= path_min={path_min}"
            raise ValueError(f"subgoals_min={low}, subgoals_max={high}: need {needed}")
        if self.path_max < path_min:
            raise ValueError(f"path_max={self.path_max}: must be at least path_min={path_min}")

    @cached_property
    def maze(self) -> Maze:
        "Maze of these settings. ValueError for even sides or too many loops."
        return maze_from(self.rows, self.columns, self.loops, self.seed)

    @property
    def max_length(self) -> int:
        "Length of start token, prompt in layout `prefix`, and longest path."
        prompt = self.subgoals_max + 1 if self.layout == "prefix" else 0
        return 1 + prompt + self.path_max


def pair_split(a: Cell, b: Cell, seed: int) -> str:
    "Assign an unordered pair of cells to a split: 80 % train, 10 % valid, 10 % test."
    digest = hashlib.sha256(f"{seed} {sorted((a, b))}".encode()).digest()
    held_out = int.from_bytes(digest[1:5], "big") < 0.2 * 2**32
    if not held_out: return "train"
    return "test" if digest[0] % 2 else "valid"


def _split_pairs(c: MazeConfig) -> dict[str, list[Ends]]:
    "List the (start, goal) pairs of each split, shuffled."
    found = dict(train=[], valid=[], test=[])
    for start in c.maze.cells:
        for goal, steps in c.maze.distances(start).items():
            takes_part = c.path_min <= steps + 1 <= c.path_max
            if takes_part: found[pair_split(start, goal, c.seed)].append((start, goal))

    shuffled = lambda split, pairs: random.Random(f"{c.seed} {split}").sample(sorted(pairs), len(pairs))
    return {split: shuffled(split, pairs) for split, pairs in found.items()}


class MazeTask(Task):
    "Paths through one maze via known cells."
    kind, Config = "maze", MazeConfig

    def __init__(self, config: MazeConfig | None = None):
        super().__init__(config)
        if all(self.pairs.values()): return
        low, high = self.config.path_min, self.config.path_max
        raise ValueError(f"path_min={low}, path_max={high}: too few pairs of cells are that far apart in this maze")

    @property
    def in_path(self) -> bool:
        "True if subgoals are within the path (layout `infill`), not before it."
        return self.config.layout == "infill"

    @cached_property
    def vocabulary(self) -> Vocabulary:
        "Vocabulary of all cells, walls included, and the separator in layout `prefix`."
        rows, columns = range(self.config.rows), range(self.config.columns)
        cells = [name_of((r, c)) for r in rows for c in columns]
        return Vocabulary(cells if self.in_path else [*cells, _SEPARATOR])

    @property
    def max_length(self) -> int: return self.config.max_length

    @cached_property
    def pairs(self) -> dict[str, list[Ends]]:
        "Shuffled (start, goal) pairs of each split."
        return _split_pairs(self.config)

    @cached_property
    def _routes(self) -> dict[Ends, list[list[Cell]]]: return {}

    def routes(self, start: Cell, goal: Cell) -> list[list[Cell]]:
        "Return the paths of a pair in the data."
        c, key = self.config, (start, goal)
        if key not in self._routes:
            rng = random.Random(f"{c.seed} {key}")
            self._routes[key] = routes(c.maze, start, goal, c.detours, c.slack, c.path_max, rng)
        return self._routes[key]

    def route_at(self, split: str, i: int, subgoals: int | None = None) -> Route:
        """Return route number `i` of a split. Valid and test cycle through their pairs.

        `subgoals` sets the number of known cells without changing the path (ValueError unless 2..path_min); by
        default it is drawn."""
        c = self.config
        pairs = self.pairs[check_split(split)]
        if subgoals is not None and not 2 <= subgoals <= c.path_min:
            raise ValueError(f"subgoals={subgoals}: must lie in 2..path_min={c.path_min}")

        rng = random.Random(f"{c.seed} {split} {i}")
        start, goal = rng.choice(pairs) if split == "train" else pairs[i % len(pairs)]
        path = rng.choice(self.routes(start, goal))
        drawn = rng.randint(c.subgoals_min, c.subgoals_max)  # always drawn: the path must not change
        return choose_subgoals(path, subgoals or drawn, rng)

    def example(self, route: Route) -> Example:
        "Convert a route to a training sequence."
        if self.in_path: return route_example(route, self.vocabulary)
        path = [name_of(v) for v in route.path]
        return prefix_example(prefix_prompt(route.subgoals), path, self.vocabulary)

    def dataset(self, split: str = "train") -> Examples:
        "Return the routes of a split as examples."
        size = getattr(self.config, f"{check_split(split)}_size") or UNLIMITED
        return Examples(size, lambda i: self.example(self.route_at(split, i)))

    def prompts(self, split: str = "test", n: int = 8, subgoals: int | None = None) -> list[list]:
        """Return the subgoals of a split's first `n` routes, in the task's layout. `subgoals` sets their number for
        all routes. ValueError if the split has fewer routes."""
        size = len(self.dataset(split))
        if not 0 < n <= size:
            raise ValueError(f"n={n}: the {split} split has {size} routes")
        prompt_of = infill_prompt if self.in_path else prefix_prompt
        return [prompt_of(self.route_at(split, i, subgoals).subgoals) for i in range(n)]

    def answers(self, samples: Samples) -> list[tuple[list[Cell], list[Cell | None]]]:
        "Decode the subgoals and path of each sample. ValueError if a prompt has no subgoals."
        found = []
        for i, (ids, free) in enumerate(zip(samples.sequences, samples.free)):
            names = self.vocabulary.decode(ids)
            subgoals = [cell_of(v) for v, f in zip(names, free) if not f and v != _SEPARATOR]
            if not subgoals: raise ValueError(f"sample {i}: its prompt names no subgoals")
            path = [cell_of(v) for v in compress(names, self._in_answer(free))]
            found.append((subgoals, path))
        return found

    def _in_answer(self, free: Sequence[bool]) -> Sequence[bool]:
        "Return the mask of the path's tokens: generated ones, and subgoals in layout `infill`."
        return [True] * len(free) if self.in_path else free

    def describe(self, samples: Samples, prompt_text: str = "") -> list[dict]:
        """Return verdict (`state`), subgoals, steps and excess of each sample. Excess is the number of steps beyond
        a shortest tour, for solved samples."""
        maze, rows = self.config.maze, []
        for subgoals, path in self.answers(samples):
            state = maze_verdict(maze, subgoals, path)
            steps = max(len(path) - 1, 0)
            excess = steps - shortest_tour(maze, subgoals) if state == "solved" else None
            rows.append(dict(state=state, subgoals=len(subgoals), steps=steps, excess=excess))
        return rows

    def score(self, split: str, samples: Samples) -> dict[str, float]:
        """Compute success, wall, jump, missed, legal and excess. The first four are fractions of samples, legal of
        all steps; excess is the mean number of unnecessary steps of solved samples (nan if there are none)."""
        rows = self.describe(samples)
        count = Counter(row["state"] for row in rows)
        excess = [row["excess"] for row in rows if row["state"] == "solved"]

        # steps count one by one, whatever the verdict on their path
        steps = [step for _, path in self.answers(samples) for step in pairwise(path)]
        legal = sum(self.config.maze.is_step(*step) for step in steps)
        return dict(
            success=count["solved"] / len(rows),
            wall=count["wall"] / len(rows),
            jump=count["jump"] / len(rows),
            missed=count["missed"] / len(rows),
            legal=legal / max(len(steps), 1),
            excess=sum(excess) / len(excess) if excess else math.nan,
        )


def visits(path: Sequence[Cell], subgoals: Sequence[Cell]) -> bool:
    "Return True if the path visits all subgoals in order. It must start at the first and end at the last."
    if not path or path[0] != subgoals[0] or path[-1] != subgoals[-1]: return False
    # each search continues after the previous match
    rest = iter(path)
    return all(v in rest for v in subgoals)


def maze_verdict(maze: Maze, subgoals: Sequence[Cell], path: Sequence[Cell | None]) -> str:
    "Classify a path by its first error: solved | wall | jump | missed."
    if any(v not in maze.near for v in path): return "wall"
    if not maze.is_walk(path): return "jump"
    return "solved" if visits(path, subgoals) else "missed"


def shortest_tour(maze: Maze, subgoals: Sequence[Cell]) -> int:
    "Count the fewest steps that visit the subgoals in order."
    return sum(maze.distances(b)[a] for a, b in pairwise(subgoals))

HERE = Path(__file__).parent
TRAIN = dict(steps=4000, batch_size=64, optimiser="muon", lr=6e-3, warmup=100, ema=0.99, valid_every=1000,
             valid_size=128)
RECIPES = {  # layout, method and its options, seeds
    "FlexMDM": ("infill", dict(method="flexmdm"), (0, 1, 2)),
    "FlexMDM, even times": ("infill", dict(method="flexmdm", times="uniform"), (0,)),
    "masked diffusion": ("prefix", dict(method="mdm"), (0, 1, 2)),
}
SAMPLERS = {
    "event-driven": None, "tau-leaping, 64": TauLeaping(steps=64),
    "tau-leaping, 64, top_prob": TauLeaping(steps=64, confidence="top_prob"),
}


def trained(label: str, seed: int, runs: Path) -> tuple[MazeTask, Method]:
    "Train a method from a seed, or continue; return task and model."
    layout, model, _ = RECIPES[label]
    tables = dict(task=dict(kind="maze", layout=layout), model=dict(size="nano") | model, train=TRAIN | dict(seed=seed))
    run = recipe_from(tables)
    return run.build()[0], run.trainer(runs / f"{label}-{seed}", progress=False).fit(resume=True).method


def miscounted(task: MazeTask, samples: Samples) -> float:
    "Compute the fraction of samples with an impossible number of steps between subgoals, by the cells' colours."
    lost = 0
    for ids, free in zip(samples.sequences, samples.free):
        cells, at = [cell_of(v) for v in task.vocabulary.decode(ids)], [i for i, f in enumerate(free) if not f]
        spare = [j - i - task.config.maze.distances(cells[j])[cells[i]] for i, j in zip(at, at[1:])]
        lost += any(v < 0 or v % 2 for v in spare)
    return lost / len(samples)


def measured(label: str, seed: int, samplers: dict[str, Sampler | None], runs: Path) -> Iterable[dict]:
    "Yield a row for every sampler and number of subgoals of a run: scores on the pairs of the test split."
    task, model = trained(label, seed, runs)
    for name, sampler in samplers.items():
        for k in (2, 4, 7):
            prompts = task.prompts("test", len(task.pairs["test"]), k)
            samples = generate(model, prompts, sampler=sampler, generator=torch.Generator().manual_seed(0))
            row = dict(model=label, seed=seed, sampler=name, subgoals=k, network_calls=samples.network_calls,
                       row_evaluations=samples.row_evaluations) | task.score("test", samples)
            if task.in_path: row |= dict(miscounted=miscounted(task, samples))
            yield {key: round(v, 5) if isinstance(v, float) else v for key, v in row.items()}


def main():
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    runs = Path(os.environ.get("MAZE_RUNS") or tempfile.mkdtemp())
    file = HERE / "results" / "maze.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    known = {(r["model"], r["seed"], r["sampler"]) for r in rows}
    for label, (_, _, seeds) in RECIPES.items():
        for seed in seeds:
            new = {name: sampler for name, sampler in SAMPLERS.items() if (label, seed, name) not in known}
            if new: rows += measured(label, seed, new, runs)
    file.write_text("[" + ",\n".join(map(json.dumps, rows)) + "]\n")


if __name__ == "__main__": main()
