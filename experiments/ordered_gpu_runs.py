"""Ordered insertion on a GPU: `python experiments/ordered_gpu_runs.py --out FILE` adds a row of JSON per measurement.

Steps of whole generations of 512 columns, 128 rows at once, beside GPT-2 of Hugging Face of the same width and depth,
autoregression and LoFlexMDM of the package, as written and compiled; the share of the GPU's peak in bfloat16 counts the
products that torch counts. `--stars SECONDS` trains star-hard at the paper's size. What FILE has is not measured again,
and the training continues from its checkpoints beside FILE, so that a run in short commands ends up whole.
`--device cpu --size nano --rows 2 --columns 32` tries that it runs."""
import argparse
import json
import statistics
import tempfile
import time
import traceback
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import gpt2, stepping, their_step
from gpu_runs import Bench, bandwidth
from loflexmdm.networks.transformer import SIZES
from loflexmdm.support.atomic_files import write_file
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.compiling import fast_products
from loflexmdm.training.recipes import recipe
from ordered_length_runs import FORWARD, LATE, LEARNED, MASKS, model

PEAK = 989e12  # products in bfloat16 of a Hopper card, without sparsity, per second
LO = dict(method="loflexmdm", order="learned", states=2)
# method, rows of the batch relative to --rows, compiled
CASES = (
    ("gpt2", None, 1, False), ("ar", dict(method="ar"), 1, False),
    ("forward", FORWARD, 1, False), ("forward late", FORWARD | LATE, 1, False),
    ("learned late", LEARNED | LATE, 0.5, False), ("loflexmdm", LO, 0.5, False),
    ("masks late", MASKS | LATE, 0.25, False), ("gpt2", None, 1, True), ("ar", dict(method="ar"), 1, True),
    ("loflexmdm", LO, 0.5, True), ("forward late", FORWARD | LATE, 1, True),
)


def products(step) -> float:
    "Count the floating-point operations of the products of a step."
    with FlopCounterMode(display=False) as counter: step()
    return float(counter.get_total_flops())


def step_case(bench: Bench, case: tuple, known: dict):
    "Note seconds, memory and the share of the peak of a training step."
    name, settings, share, compiled = case
    args = bench.args
    rows = max(1, round(args.rows * share))
    bench.fresh()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory, fast_products(bench.device):
        if settings is None:
            made = gpt2(SIZES[args.size], args.columns).to(bench.device)
            ids = torch.randint(4, 60, (rows, args.columns), device=bench.device)
            if compiled: made.compile(dynamic=False)
            step = their_step(made, lambda: dict(input_ids=ids, labels=ids),
                              torch.autocast(bench.device.type, torch.bfloat16))
        else:
            more = dict(order_size=args.size) if "order_size" in settings or name == "loflexmdm" else {}
            made = model(settings | more, args.columns, args.size).to(bench.device)
            step = stepping(made, rows, directory, compile=compiled, precision="bfloat16", log_every=10**6)
        for _ in range(3): step()
        bench.wait()
        compiling = time.perf_counter() - begun
        if name not in known and not compiled: known[name] = products(step)
        times = bench.seconds(step, args.rounds)
    seconds = statistics.median(times)
    bench.note(part="step", method=name, size=args.size, rows=rows, columns=args.columns, compile=compiled,
               seconds=seconds, least=times[0], most=times[-1],
               tokens_per_second=rows * args.columns / seconds, gigabytes=bench.gigabytes(), first=round(compiling, 1),
               products=known.get(name), peak_share=known.get(name, 0) / seconds / PEAK,
               weights=sum(p.numel() for p in made.parameters()))


def stars(bench: Bench, seconds: float, out: Path):
    "Train star-hard by ordered insertion at the paper's size for some seconds, and answer test graphs."
    out.mkdir(exist_ok=True)
    options = dict(size=bench.args.size, order_size="small" if bench.gpu else "nano", query_blocks=1, schedule="flat",
                   batch_size=128 if bench.gpu else 2, lr=1e-3, warmup=50, precision="bfloat16", compile=False,
                   valid_every=10**6, save_every=10**6, workers=0, ema=0.99)
    with tempfile.TemporaryDirectory() as directory:
        tried = recipe("star-hard-ordered", **options).trainer(directory, device=bench.device, progress=False)
        stream = tried.processes.batches(tried.data, tried.config, 0, tried.device)
        for _ in range(3): tried.train_step(stream)
        each = statistics.median(bench.seconds(lambda: tried.train_step(stream), 10))
        stream.close()
    steps = max(10, int(seconds / each))
    planned = out / "steps"  # an interrupted run goes on with its number
    if planned.exists(): steps = int(planned.read_text())
    else: write_file(planned, str(steps))
    options |= dict(steps=steps, order_start=steps // 8, log_every=max(1, steps // 40), save_every=max(1, steps // 20))
    trainer = recipe("star-hard-ordered", **options).trainer(out / "stars", device=bench.device, progress=False)
    begun = time.perf_counter()
    made = trainer.fit(resume=bool(checkpoints(out / "stars")))
    rows = [json.loads(line) for line in (out / "stars" / "metrics.jsonl").read_text().splitlines()]
    curve = [[r["step"], r["seconds"], round(r["bound"], 2)] for r in rows if "bound" in r]
    bench.note(part="stars", steps=steps, seconds=round(time.perf_counter() - begun), curve=curve, options=options,
               gigabytes=bench.gigabytes())
    task = task_from(made.task)
    prompts = task.prompts("test", 256 if bench.gpu else 2)
    scores = task.score("test", made.sample(prompts, seed=1, batch_size=256))
    bench.note(part="stars", graphs=len(prompts), scores=scores)


def rows_of(out: Path) -> list[dict]:
    "Return the rows of a file that may not be there yet."
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def finished(out: Path) -> set[str]:
    "Return the parts that the rows of a file say are done."
    return {row["done"] for row in rows_of(out) if "done" in row}


def attempt(bench: Bench, what, *args):
    "Run a part, unless it is done; what fails is noted, and the others go on."
    label = f"{what.__name__} {[a for a in args if not isinstance(a, dict) or 'method' in a]}"
    if label in finished(bench.out): return
    begun = time.perf_counter()
    try:
        what(bench, *args)
        bench.note(done=label, seconds=round(time.perf_counter() - begun, 1))
    except Exception:
        said = traceback.format_exc()
        bench.note(part=what.__name__, failed=f"{said[:300]} ... {said[-900:]}", about=str(args)[:200])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file to which rows are added")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="medium_paper")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no case begins")
    parser.add_argument("--stars", type=float, default=0, help="seconds of training star-hard")
    args = parser.parse_args()
    bench = Bench(args)
    begun = time.perf_counter()
    known = {row["method"]: row["products"] for row in rows_of(bench.out) if row.get("products")}
    attempt(bench, bandwidth)
    for case in CASES[args.first:]:
        if time.perf_counter() - begun > args.until: break
        if case[3] and not bench.gpu: continue
        attempt(bench, step_case, case, known)
    if args.stars: attempt(bench, stars, args.stars, Path(args.out).with_suffix(".stars"))


if __name__ == "__main__": main()
