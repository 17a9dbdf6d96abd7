"""What a GPU gives: `python experiments/gpu_runs.py PART... --out FILE` adds a row of JSON for every measurement.

    python experiments/gpu_runs.py steps kernels beside sample train --out gpu_rows.jsonl      # five minutes of a GPU
    python experiments/gpu_runs.py steps --device cpu --size nano --batch 2 --out try.jsonl   # that it runs

`steps`: seconds and memory of a training step of star-hard at the paper's size, by precision and compilation.
`kernels`: where the time of a step goes. `beside`, `sample`: training and sampling beside Hugging Face models of the
same width, depth and rows. `train`: the first steps of star-hard by its own trainer. `bandwidth`: the machine's limits.
Times are those of the clock, with the GPU waited for."""
import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from bench import BASE, SIDE, beside_model, bert, gpt2, stepping, their_step
from runs import COMMIT

from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.sampling import generate
from loflexmdm.networks.transformer import SIZES
from loflexmdm.training.compiling import fast_products
from loflexmdm.training.recipes import recipe
from loflexmdm.training.trainer import Trainer

WORDS, COLUMNS = BASE["vocabulary"], 128  # of the rows beside Hugging Face models
# precision, compiled, blocks computed again, rows of a batch (of two states each)
STEPS = (
    ("float32", False, False, 64), ("tf32", False, False, 64), ("bfloat16", False, False, 64),
    ("bfloat16", True, False, 64), ("bfloat16", True, False, 256), ("bfloat16", True, True, 256),
    ("bfloat16", True, True, 1024),
)


class Bench:
    "What is measured on, and where the rows go."
    def __init__(self, args):
        self.args = args
        self.device = torch.device(args.device)
        self.out = Path(args.out)
        self.gpu = self.device.type == "cuda"

    def wait(self):
        if self.gpu: torch.cuda.synchronize()

    def seconds(self, call: Callable, rounds: int) -> list[float]:
        "Seconds of each of some calls, the GPU being idle before and after."
        times = []
        for _ in range(rounds):
            self.wait()
            begun = time.perf_counter()
            call()
            self.wait()
            times.append(time.perf_counter() - begun)
        return sorted(times)

    def note(self, **row):
        "Add a row to the file."
        name = torch.cuda.get_device_name() if self.gpu else "cpu"
        row = row | dict(device=name, torch=torch.__version__, commit=COMMIT)
        print(json.dumps(row), flush=True)
        with self.out.open("a") as f: f.write(json.dumps(row) + "\n")

    def fresh(self):
        "Forget what was compiled and the peak of memory."
        torch._dynamo.reset()
        if not self.gpu: return
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def gigabytes(self) -> float | None:
        return round(torch.cuda.max_memory_allocated() / 1e9, 2) if self.gpu else None


def hard_trainer(bench: Bench, directory: str, precision: str, compiled: bool, again: bool, rows: int) -> Trainer:
    "A trainer of star-hard; `tf32` is float32 with products in TF32."
    args = bench.args
    rows = args.batch or rows
    run = recipe("star-hard", precision=precision.replace("tf32", "float32"), compile=compiled, recompute=again,
                 batch_size=rows, size=args.size, order_size=args.size, workers=args.workers, log_every=10**6,
                 valid_every=10**6, save_every=10**6)
    return run.trainer(directory, device=bench.device, progress=False)


def steps(bench: Bench):
    "Seconds of a training step of star-hard, for every setting."
    for setting in STEPS:
        precision, compiled, again, rows = setting
        if bench.args.only and not (precision == "bfloat16" and compiled and not again): continue
        bench.fresh()
        note_step(bench, setting)


def note_step(bench: Bench, setting: tuple):
    "Note the seconds and the memory of a step: one by one, and the mean of several that nothing waits for in between."
    precision, compiled, again, rows = setting
    with tempfile.TemporaryDirectory() as directory, ExitStack() as held:
        if precision != "float32": held.enter_context(fast_products(bench.device))
        trainer = hard_trainer(bench, directory, *setting)
        begun = time.perf_counter()
        trainer.compiler.begin()
        bench.wait()
        compiling = time.perf_counter() - begun

        stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
        held.callback(stream.close)
        for _ in range(bench.args.warm): row = trainer.train_step(stream)
        times = bench.seconds(lambda: trainer.train_step(stream), bench.args.rounds)
        begun = time.perf_counter()
        for _ in range(bench.args.rounds): trainer.train_step(stream)
        bench.wait()
        each = (time.perf_counter() - begun) / bench.args.rounds
    weights = sum(p.numel() for p in trainer.method.parameters())
    bench.note(part="steps", precision=precision, compile=compiled, recompute=again, rows=trainer.config.batch_size,
               seconds=each, median=statistics.median(times), least=times[0], most=times[-1], weights=weights,
               compiling=round(compiling, 1), compiled=bool(trainer.compiler.on), gigabytes=bench.gigabytes(),
               loss=float(row["loss"]), real_columns=float(row["real_columns"]))


def kernels(bench: Bench):
    "Where the time of a step goes, by operation, as written and compiled."
    for compiled in (False, True): kernels_of(bench, compiled)


def kernels_of(bench: Bench, compiled: bool):
    "A table of the operations of one step, in a file beside the rows."
    from torch.profiler import ProfilerActivity, profile
    bench.fresh()
    with tempfile.TemporaryDirectory() as directory, fast_products(bench.device):
        trainer = hard_trainer(bench, directory, "bfloat16", compiled, False, 64)
        trainer.compiler.begin()
        stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
        for _ in range(4): trainer.train_step(stream)
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * bench.gpu
        with profile(activities=activities) as found:
            begun = time.perf_counter()
            trainer.train_step(stream)
            bench.wait()
            took = time.perf_counter() - begun
        stream.close()

    events = found.key_averages()
    on_device = sum(e.self_device_time_total for e in events) / 1e6
    launches = sum(e.count for e in events if "LaunchKernel" in e.key)
    bench.note(part="kernels", compiled=compiled, took=took, on_device=on_device, launches=launches)
    for order in ("self_cuda_time_total", "self_cpu_time_total"):
        if not bench.gpu and "cuda" in order: continue
        table = events.table(sort_by=order, row_limit=25, max_name_column_width=70)
        bench.out.with_suffix(f".{order[5:8]}{int(compiled)}.txt").write_text(table)


def beside(bench: Bench):
    "Training beside Hugging Face models, in turns and in bfloat16."
    device = bench.device
    for size, rows in ((SIDE, 128), (bench.args.size, 128)):
        if bench.args.only and size == SIDE: continue
        rows = bench.args.batch or rows
        ids = torch.randint(4, WORDS + 4, (rows, COLUMNS), device=device)

        def hidden():
            hide = torch.rand(rows, 1, device=device) > torch.rand(rows, COLUMNS, device=device)
            return dict(input_ids=ids.masked_fill(hide, 1), labels=ids.masked_fill(~hide, -100))
        kinds = dict(
            train_gpt2=((Autoregressive, AutoregressiveConfig), gpt2, lambda: dict(input_ids=ids, labels=ids)),
            train_bert=((MaskedDiffusion, MaskedConfig), bert, hidden),
        )
        for what, (own, other, read) in kinds.items():
            for compiled in (False, True):
                if compiled and (what, size) != ("train_gpt2", bench.args.size): continue
                bench.fresh()
                with tempfile.TemporaryDirectory() as directory, fast_products(device):
                    model = beside_model(*own, size, COLUMNS).to(device)
                    mine = stepping(model, rows, directory, compile=compiled, precision="bfloat16", log_every=10**6)
                    model = other(SIZES[size], COLUMNS).to(device)
                    if compiled: model.compile(dynamic=False)
                    theirs = their_step(model, read, torch.autocast(device.type, torch.bfloat16))
                    in_turns(bench, dict(what=what, size=size, rows=rows, compile=compiled), mine, theirs)


def in_turns(bench: Bench, about: dict, mine: Callable, theirs: Callable):
    "Note the seconds of both, called in turns, and their ratio."
    for _ in range(bench.args.warm): mine(), theirs()
    times = [[], []]
    for k in range(bench.args.rounds):
        for which in (0, 1) if k % 2 else (1, 0):
            call = (mine, theirs)[which]
            times[which] += bench.seconds(lambda: [call() for _ in range(bench.args.each)], 1)
    own, other = (statistics.median(t) / bench.args.each for t in times)
    over = sorted(b / a for a, b in zip(*times))
    bench.note(part="beside", **about, seconds=own, theirs=other, over=[over[0], statistics.median(over), over[-1]])


def sample(bench: Bench):
    "Sampling beside `generate`, in turns, and the calls of star-hard's sampler."
    for size in (SIDE, bench.args.size):
        for rows in (128, 512) if size == SIDE else (512,):
            rows = bench.args.batch or rows
            own = beside_model(Autoregressive, AutoregressiveConfig, size, COLUMNS).eval().to(bench.device)
            other = gpt2(SIZES[size], COLUMNS).eval().to(bench.device)
            start = torch.full((rows, 1), 2, device=bench.device)
            options = dict(do_sample=True, top_k=0, max_new_tokens=COLUMNS - 1, attention_mask=torch.ones_like(start))
            for low in (False, True):
                cast = torch.autocast(bench.device.type, torch.bfloat16, enabled=low)
                warm, each = bench.args.warm, bench.args.each
                bench.args.warm = bench.args.each = 1
                rounds, bench.args.rounds = bench.args.rounds, 3
                with cast, fast_products(bench.device):
                    in_turns(bench, dict(what="sample_gpt2", size=size, rows=rows, bfloat16=low),
                             lambda: generate(own, n=rows, seed=0), lambda: other.generate(start, **options))
                bench.args.warm, bench.args.each, bench.args.rounds = warm, each, rounds
    hard_samples(bench)


def hard_samples(bench: Bench):
    "Calls of the sampler of star-hard, whose weights are new."
    task, model = recipe("star-hard", size=bench.args.size, order_size=bench.args.size).build(bench.device)
    prompts = task.prompts("test", bench.args.batch or 128)
    model.eval()
    for low in (False, True):
        found = []
        cast = torch.autocast(bench.device.type, torch.bfloat16, enabled=low)
        with cast, fast_products(bench.device):
            draw = lambda: found.append(generate(model, prompts, seed=0, batch_size=len(prompts)))
            generate(model, prompts[:2], seed=0)
            times = bench.seconds(draw, 1)
        bench.note(part="sample", what="star-hard", rows=len(prompts), bfloat16=low, seconds=times[0],
                   calls=found[0].network_calls, evaluations=found[0].row_evaluations)


def train(bench: Bench):
    "The first steps of star-hard by its own trainer: bounds, seconds, and then samples."
    steps = bench.args.steps
    options = dict(steps=steps, warmup=min(1000, steps), valid_every=steps // 2, save_every=steps, log_every=20,
                   valid_size=32, valid_samples=4, size=bench.args.size, order_size=bench.args.size,
                   workers=bench.args.workers) | ({"batch_size": bench.args.batch} if bench.args.batch else {})
    with tempfile.TemporaryDirectory() as directory:
        trainer = recipe("star-hard", **options).trainer(directory, device=bench.device)
        begun = time.perf_counter()
        model = trainer.fit()
        took = time.perf_counter() - begun
        rows = [json.loads(line) for line in Path(directory, "metrics.jsonl").read_text().splitlines()]
    bounds = [[r["step"], r["valid_nll"], r["valid_se"]] for r in rows if "valid_nll" in r]
    losses = [[r["step"], r["seconds"], r["loss"], r["bound_tight"]] for r in rows if "loss" in r]
    bench.note(part="train", steps=steps, took=took, bounds=bounds, losses=losses, gigabytes=bench.gigabytes())
    prompts = recipe("star-hard").build()[0].prompts("test", 64)
    begun = time.perf_counter()
    samples = model.sample(prompts, seed=0, batch_size=64)
    bench.note(part="train", what="samples", rows=64, seconds=time.perf_counter() - begun, calls=samples.network_calls)


def bandwidth(bench: Bench):
    "A product of large matrices and a copy: the limits with which other figures are compared."
    n = 8192 if bench.gpu else 512
    a, b = (torch.randn(n, n, device=bench.device, dtype=torch.bfloat16) for _ in range(2))
    times = bench.seconds(lambda: a @ b, 20)
    source = torch.empty(2**30 if bench.gpu else 2**20, device=bench.device)
    target = torch.empty_like(source)
    copies = bench.seconds(lambda: target.copy_(source), 10)
    bench.note(part="bandwidth", teraflops=2 * n**3 / statistics.median(times) / 1e12,
               terabytes=2 * source.numel() * 4 / statistics.median(copies) / 1e12)


PARTS = dict(bandwidth=bandwidth, steps=steps, kernels=kernels, beside=beside, sample=sample, train=train)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", required=True, help="file to which rows are added")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="medium_paper")
    parser.add_argument("--batch", type=int, default=0, help="rows of every batch [those of the measurement]")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--warm", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=600, help="of training [600]")
    parser.add_argument("--only", action="store_true", help="compiled steps in bfloat16 alone")
    parser.add_argument("--each", type=int, default=3)
    args = parser.parse_args()
    bench = Bench(args)
    for part in args.parts:
        begun = time.perf_counter()
        try: PARTS[part](bench)
        except Exception: bench.note(part=part, failed=traceback.format_exc()[-1500:])
        bench.note(part=part, took=round(time.perf_counter() - begun, 1))


if __name__ == "__main__": main()
