"""What bfloat16 costs and saves on this processor: `python experiments/precision_runs.py --seeds 0 1 2`.

Autoregression learns short lines, family names (`regret_runs.names`), and long ones, of a made-up log (`log_lines`),
with float32 and with bfloat16 from the same first weights and on the same batches, a step of one after a step of the
other, so that the processor's seconds of both meet the same load. The bounds of both, in nats per line, are computed in
float32, on the same held-out lines. A row has both, the ratio of the median steps, and which instructions for bfloat16
the processor has. Rows go to experiments/results/precision_runs.json."""
import argparse
import re
import statistics
import tempfile
import time
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.process.states import PartialSequences
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe_from
from corpora import corpus
from log_lines import lines
from regret_runs import names
from runs import ROOT, bound_of, held_out, note, noted, processor

RESULTS = ROOT / "experiments" / "results" / "precision_runs.json"
PRECISIONS = "float32", "bfloat16"
STEPS, BATCH, HELD_OUT = dict(nano=300, small=24), 16, 1024
CORPORA = dict(names=names, logs=lambda: corpus("logs", lines(20_000)))
INSTRUCTIONS = "avx2", "avx512f", "avx512_bf16", "amx_bf16"


def instructions() -> list[str]:
    "Return those of INSTRUCTIONS that the processor has, where the system tells it."
    info = Path("/proc/cpuinfo")
    flags = re.search(r"^flags\s*:(.*)", info.read_text() if info.exists() else "", re.M)
    return [name for name in INSTRUCTIONS if flags and name in flags[1].split()]


def run(name: str, size: str, seed: int, task: dict):
    "Train both precisions in turns, measure and note."
    row = dict(name=f"{name} {size} {seed} {processor()}", corpus=name, size=size, seed=seed, steps=STEPS[size],
               batch_size=BATCH)
    if noted(RESULTS, row["name"], row): return
    with tempfile.TemporaryDirectory() as directory:
        trainers, times = {}, {precision: [] for precision in PRECISIONS}
        for precision in PRECISIONS:
            train = dict(seed=seed, batch_size=BATCH, steps=STEPS[size], compile=False, precision=precision)
            recipe = recipe_from(dict(task=task, model=dict(method="ar", size=size), train=train))
            trainers[precision] = recipe.trainer(f"{directory}/{precision}", progress=False)
        streams = {p: t.processes.batches(t.data, t.config, 0, t.device) for p, t in trainers.items()}
        for _ in range(STEPS[size]):
            for precision, trainer in trainers.items():
                begun = time.process_time()
                trainer.train_step(streams[precision])
                times[precision].append(time.process_time() - begun)
        held = held_out(task_from(task), HELD_OUT)
        bounds = {p: bound_of(t.ema.module.eval(), held, 2) for p, t in trainers.items()}
        apart = [round(v, 4) for v in difference(*(t.ema.module for t in trainers.values()), held)]
    median = {precision: round(1e3 * statistics.median(own), 1) for precision, own in times.items()}
    note(RESULTS, row | dict(bounds=bounds, worse=apart, milliseconds=median, instructions=instructions(),
                             pace=round(median["float32"] / median["bfloat16"], 3)))


def difference(one: Method, other: Method, held: PartialSequences) -> tuple[float, float]:
    "Return how much higher the bound of the other method is, with the standard error of the pairs."
    pairs = [m.nll_bound(held, 2, generator=torch.Generator().manual_seed(1))[0] for m in (one, other)]
    apart = pairs[1] - pairs[0]
    return float(apart.mean()), float(apart.std() / len(apart) ** 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="*", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--sizes", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.corpora:
        task = CORPORA[name]()
        for seed in args.seeds:
            for size in args.sizes: run(name, size, seed, task)


if __name__ == "__main__": main()
