"What the scripts of stored figures share: settings, figures of a run, its commit, and the file that they go to."
import json
import platform
import re
import subprocess
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.process.states import PartialSequences, collate
from loflexmdm.support.atomic_files import lock_file, write_file
from loflexmdm.tasks.base import Task
from loflexmdm.training.log import JsonLines

ROOT = Path(__file__).parents[1]
COMMIT = subprocess.run(
    ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
).stdout.strip()  # of the code when the run began
FIXED = dict(order="fixed", states=1, readings="event")  # settings of models
LEARNED = dict(
    order="learned", order_size="nano", states=2, readings="event", centre=True, regulariser=0.0, unmask="frozen",
)
LEARNED_BOTH = LEARNED | dict(unmask="trainable")  # orders of insertion, and of decisions too


def states_per_sequence(model: dict) -> int:
    "States, or orders, that a step draws of each sequence, from the settings of a model."
    return model.get("states") or model.get("orders") or 1


def processor() -> str:
    "Name of the processor, where the system tells it: CPU seconds are comparable on one kind alone."
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor()


def as_json(value, inside: bool = False) -> str:
    "Return stored results as JSON with a line per row, and per entry of a table around the rows."
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    if inside or not isinstance(value, dict): return json.dumps(value)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {as_json(part, True)}" for key, part in value.items()) + "\n}"


def write_results(results: str | Path, value): write_file(results, as_json(value) + "\n")


def note(results: Path, row: dict):
    "Add a row, with the commit and the processor, to the results; one of the same name takes its place."
    row = without_nan(row | dict(commit=COMMIT, processor=processor()))
    with lock_file(results.with_name(f".{results.name}.lock")):
        rows = json.loads(results.read_text()) if results.exists() else []
        rows = sorted([r for r in rows if r["name"] != row["name"]] + [row], key=lambda r: r["name"])
        write_results(results, rows)
    print(json.dumps(row), flush=True)


def noted(results: Path, name: str, settings: dict) -> bool:
    "Whether the results have a row of this name with these settings, so that a list of runs goes on with the next."
    rows = json.loads(results.read_text()) if results.exists() else []
    return any(row["name"] == name and settings.items() <= row.items() for row in rows)


def without_nan(value):
    "The same with None in place of NaN, which JSON does not know."
    if isinstance(value, dict): return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list): return [without_nan(v) for v in value]
    return None if isinstance(value, float) and value != value else value


def held_out(task: Task, n: int, split: str = "test") -> PartialSequences:
    "The first n sequences of a split, or all if there are fewer."
    data = task.dataset(split)
    return collate([data[i] for i in range(min(n, len(data)))])


def bound(task: Task, method: Method, n: int = 512, states: int = 16) -> list[float]:
    "Bound on the negative log-likelihood per test sequence (nats), and its standard error."
    return bound_of(method, held_out(task, n), states)


def bound_of(method: Method, x1: PartialSequences, states: int) -> list[float]:
    "Mean bound on the negative log-likelihood of some sequences (nats), and its standard error."
    values, _ = method.nll_bound(x1.to(method.device), states, generator=torch.Generator(method.device).manual_seed(1))
    return [round(float(values.mean()), 3), round(float(values.std() / len(values) ** 0.5), 3)]


def logged(directory: Path, key: str) -> dict[int, float]:
    "What the training log has under a key, by step."
    return {r["step"]: r[key] for r in JsonLines(directory / "metrics.jsonl").rows() if key in r}


def curve_of(directory: Path) -> list[list[float]]:
    "Step and validation bound, as the training log has them."
    return [[step, round(value, 3)] for step, value in logged(directory, "valid_nll").items()]
