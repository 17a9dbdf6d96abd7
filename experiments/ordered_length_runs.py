"""What a step of ordered insertion costs by length: `python experiments/ordered_length_runs.py --lengths 32 128 512`.

Methods take steps in turns in one process, on as many tokens at every length; the processor's seconds of each step are
divided by those of autoregression in the same round. Rows go to experiments/results/ordered_length_runs.json."""
import argparse
import resource
import statistics
import tempfile
import time

import torch

from bench import stepping
from loflexmdm.methods.base import Method, method_class
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


def length_point(length: int, names: list[str], rounds: int) -> dict:
    "Measure steps of all methods in turns: medians in ms, and what they are of autoregression's, least and most."
    rows = max(1, TOKENS // length)
    with tempfile.TemporaryDirectory() as directory:
        calls = {name: stepping(model(METHODS[name], length), rows, f"{directory}/{name}") for name in names}
        times = {name: [] for name in names}
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="now", help="of the code, in the names of the rows")
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = ["ar", *(m for m in args.methods if m != "ar")]
    for length in args.lengths:
        found = length_point(length, names, args.rounds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        note(RESULTS, dict(name=f"{args.name} {length}", length=length, rows=max(1, TOKENS // length), size=SIZE,
                           steps=found, megabytes=peak))


if __name__ == "__main__": main()
