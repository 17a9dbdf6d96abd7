"""What ordered insertion costs by length: `python experiments/ordered_length_runs.py --lengths 32 128 512`.

Methods take steps in turns in one process, on as many tokens at every length; the processor's seconds of each step are
divided by those of autoregression in the same round. Memory is the peak of a process that takes steps of one method,
beyond that of the imported package. `--sample` does the same for sequences of full length. Rows go to
experiments/results/ordered_length_runs.json."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench import stepping
from loflexmdm.methods.base import Method, method_class
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import Vocabulary
from loflexmdm.support.configs import config_from
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "ordered_length_runs.json"
TOKENS, WORDS, SIZE = 4096, 60, "tiny"  # in a step, in the vocabulary; four blocks of width 128
FORWARD = dict(method="ordered-insertion", order="left_to_right", orders=1)
LEARNED = dict(method="ordered-insertion", order="learned", orders=2, order_size=SIZE)
MASKS = dict(method="ordered-masks", order="learned", unmask="learned", orders=2, order_size=SIZE)
LATE = dict(query_blocks=1)
METHODS = dict(
    ar=dict(method="ar"), forward=FORWARD, forward_late=FORWARD | LATE, learned=LEARNED, learned_late=LEARNED | LATE,
    masks_late=MASKS | LATE,
)


def model(settings: dict, columns: int, size: str = SIZE) -> Method:
    "Return a new model of sequences of that many columns."
    table = dict(settings, size=size, max_length=columns)
    kind = method_class(table.pop("method"))
    torch.manual_seed(0)
    return kind(Vocabulary([f"w{i}" for i in range(WORDS)]), config_from(kind.Config, table, "model"))


def in_turns(calls: dict[str, Callable], rounds: int) -> dict[str, dict]:
    "Measure calls in turns: medians in ms, and what they are of autoregression's, least, median and most."
    times = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            begun = time.process_time()
            call()
            if number: times[name].append(time.process_time() - begun)  # the first is to warm up
    found = {}
    for name, own in times.items():
        over = sorted(a / b for a, b in zip(own, times["ar"], strict=True))
        found[name] = dict(ms=round(1e3 * statistics.median(own), 1),
                           of_ar=[round(v, 2) for v in (over[0], statistics.median(over), over[-1])])
    return found


def rows_of(length: int) -> int: return max(1, TOKENS // length)


def step_calls(length: int, names: list[str], directory: str) -> dict[str, Callable]:
    "Return a training step of each method."
    return {name: stepping(model(METHODS[name], length), rows_of(length), f"{directory}/{name}") for name in names}


def sample_calls(length: int, names: list[str], rows: int = 16) -> dict[str, Callable]:
    "Return the sampling of sequences of full length by new models, which cost as much as trained ones."
    whole = dict(n=rows, min_length=length - 1, max_length=length - 1, seed=0)
    made = {name: model(METHODS[name], length).eval() for name in names}
    return {name: lambda m=m: generate(m, **whole) for name, m in made.items()}


def high_water() -> int:
    "Return the most memory of this process so far, in MB; resource's number counts that of the process before it."
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def peak(length: int, name: str):
    "Print the memory of some steps of a method, in MB beyond what was there before."
    before = high_water()
    with tempfile.TemporaryDirectory() as directory:
        call = stepping(model(METHODS[name], length), rows_of(length), directory)
        for _ in range(2): call()
    print(json.dumps(high_water() - before))


def memory(length: int, names: list[str]) -> dict[str, int]:
    "Measure the memory of training steps, each method in a process of its own."
    found = {}
    for name in names:
        command = [sys.executable, __file__, "--lengths", str(length), "--peak", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True,
                              env=os.environ | dict(OMP_NUM_THREADS="1"))
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample", action="store_true", help="sequences, not steps")
    parser.add_argument("--name", default="now", help="of the code, in the names of the rows")
    parser.add_argument("--peak", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak: return peak(args.lengths[0], args.peak)
    names = ["ar", *(m for m in args.methods if m != "ar")]
    for length in args.lengths:
        row = dict(length=length, rows=rows_of(length), size=SIZE)
        if args.sample:
            found = in_turns(sample_calls(length, names), args.rounds)
            row |= dict(name=f"{args.name} sample {length}", rows=16, samples=found)
        else:
            with tempfile.TemporaryDirectory() as directory:
                found = in_turns(step_calls(length, names, directory), args.rounds)
            row |= dict(name=f"{args.name} {length}", steps=found, megabytes=memory(length, names))
        note(RESULTS, row)


if __name__ == "__main__": main()
