"""`make bench`: what a step of training and a sample cost, as JSON, a table and plots, beside a stored snapshot.

    python experiments/bench.py --out bench              # every point, each in a process of its own: minutes
    python experiments/bench.py --out bench --quick      # three small points: seconds
    # what later runs and the page are compared with:
    python experiments/bench.py --out experiments/results/benchmarks.json --snapshot

One thread. Times are seconds of the processor, which other programs on the machine lengthen little; on an idle machine
they are those of the clock, and so are those of several processes. Nothing here needs a GPU."""
import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from runs import COMMIT, ROOT, write_results
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.benchmark import Timer

import loflexmdm
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.base import Method
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.samplers import COUNTERS, EventDriven, TauLeaping
from loflexmdm.support.atomic_files import write_file
from loflexmdm.support.random_numbers import current_launch
from loflexmdm.tasks.base import Examples
from loflexmdm.training.batches import batches
from loflexmdm.training.distributed import process_group, processes_of
from loflexmdm.training.log import JsonLines
from loflexmdm.training.optimisers import TrainConfig, clip_gradients
from loflexmdm.training.trainer import Trainer

SNAPSHOT = ROOT / "experiments" / "results" / "benchmarks.json"
BASE = dict(length=32, batch=32, vocabulary=64, depth=4)  # of the points that grow one of them
GROWTH = dict(length=(16, 64, 128), batch=(8, 128), vocabulary=(512, 4096), depth=(2, 8))
SAMPLED = dict(tau_leaping=TauLeaping(steps=16), tau_leaping_64=TauLeaping(steps=64), exact=EventDriven(),
               frozen=EventDriven(exact=False))
MODELS = "star-tiny", "molecules"
ROWS = 32  # sequences in a batch
# methods of one width that write a token per call: the ordered one in two streams, beside autoregression
PAIR = dict(autoregressive=(Autoregressive, AutoregressiveConfig, {}),
            ordered=(OrderedInsertion, OrderedInsertionConfig, dict(order_size="bench")))
RAGGED = (8, 32)  # shortest and longest sequence of the points with padding
PARALLEL = ((1, 1), (1, 2), (2, 1))  # processes, and threads of each, for one step of 128 rows
# beside Hugging Face models of the same width, depth and heads: rows of 64 tokens
BESIDE = dict(sample_gpt2=(32, 128, 512), train_gpt2=(128,), train_bert=(128,))
# ordered insertion and masks in turns with autoregression: steps of 4,096 tokens, and samples of 64 columns
LENGTHS, SAMPLE_ROWS, SAMPLE_COLUMNS = (32, 128, 512), (1, 32, 128), 64
BY_LENGTH = dict(step=("forward_late", "learned_late", "masks_late"), sample=("forward", "forward_late"))
LONGEST = dict(kind="by_length", what="step", method="forward_late", length=2048)
COLUMNS, ROUNDS, SIDE = 64, 7, "tiny"  # of that size: four blocks of width 128, eight heads
PARTS = "data", "forward", "backward", "optimiser"


def points(quick: bool) -> list[dict]:
    "The settings of every point, by kind."
    if quick:
        small = dict(BASE, length=8, batch=4, depth=1)
        return [dict(kind="train", **small), dict(kind="train", **small | dict(length=16)),
                dict(kind="sample", model="star-tiny", sampler="tau_leaping", n=4)]
    grown = [BASE] + [BASE | {key: value} for key, values in GROWTH.items() for value in values]
    sampled = [dict(model=m, sampler=s, n=ROWS) for m in MODELS for s in SAMPLED]
    pair = [dict(kind=kind, method=m, **more) for m in PAIR for kind, more in (
        ("step", dict(ragged=False)), ("step", dict(ragged=True)), ("write", dict(n=ROWS)), ("write", dict(n=1)))]
    several = [dict(kind="several", processes=n, threads=k) for n, k in PARALLEL]
    beside = [dict(kind="beside", what=what, rows=rows) for what, sizes in BESIDE.items() for rows in sizes]
    cases = dict(step=[dict(length=length) for length in LENGTHS],
                 sample=[dict(length=SAMPLE_COLUMNS, rows=rows) for rows in SAMPLE_ROWS])
    by_length = [dict(kind="by_length", what=what, method=method, **case)
                 for what, methods in BY_LENGTH.items() for method in methods for case in cases[what]]
    by_length.insert(len(LENGTHS), LONGEST)
    if importlib.util.find_spec("transformers") is None: beside = []
    single = [dict(kind="train", **p) for p in grown] + [dict(kind="sample", **p) for p in sampled]
    return single + pair + beside + several + by_length


def name_of(point: dict) -> str:
    return point["kind"] + " " + " ".join(f"{key}={value}" for key, value in point.items() if key != "kind")


# one point, in a process of its own

def measured(call: Callable, seconds: float) -> float:
    "The median time of a call, by torch's timer."
    timer = Timer("call()", globals=dict(call=call), timer=time.process_time)
    return timer.blocked_autorange(min_run_time=seconds).median


class Operations(TorchDispatchMode):
    "Counts what torch dispatches, gradients, the optimiser and views included."
    count = 0
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **kwargs or {})


def operations(call: Callable) -> int:
    "Return the number of operations of a call: what a small network's time is made of."
    with Operations() as mode: call()
    return mode.count


def trainer_of(length: int, batch: int, vocabulary: int, depth: int, directory: str, steps: int = 10**6,
               **options) -> Trainer:
    "A trainer of random sequences of one length."
    SIZES["bench"] = Size(64, depth, 4, 64)
    words = Vocabulary([f"w{i}" for i in range(vocabulary)])
    torch.manual_seed(0)
    rows = [[f"w{(7 * i + i * k) % vocabulary}" for k in range(length - 1)] for i in range(256)]
    data = Examples(len(rows), lambda i: prefix_example((), rows[i], words))
    method = LoFlexMDM(words, LoFlexMDMConfig(size="bench", order="fixed", states=1, max_length=length))
    config = TrainConfig(steps=steps, batch_size=batch, compile=False, log_every=10)
    return Trainer(method, data, config, directory, progress=False, **options)


def parts_of_a_step(trainer: Trainer, stream) -> list[float]:
    "Seconds of the parts of one step, in the order of PARTS."
    times = [time.process_time()]
    note = lambda: times.append(time.process_time())
    given = next(stream)
    note()
    terms = trainer.method.loss(given, torch.Generator().manual_seed(trainer.step))
    note()
    terms.loss.backward()
    note()
    clip_gradients(trainer.groups, trainer.config.clip)
    trainer.optimizer_step()
    note()
    return [b - a for a, b in zip(times, times[1:])]


def train_point(length: int, batch: int, vocabulary: int, depth: int, seconds: float) -> dict:
    "Seconds of a step, the share of its parts."
    with tempfile.TemporaryDirectory() as directory:
        trainer = trainer_of(length, batch, vocabulary, depth, directory)
        stream = batches(trainer.data, trainer.config, 0, trainer.device)
        for _ in range(3): parts_of_a_step(trainer, stream)
        rows = []
        step = measured(lambda: rows.append(parts_of_a_step(trainer, stream)), seconds)
        count = operations(lambda: parts_of_a_step(trainer, stream))
    parts = [statistics.median(column) for column in zip(*rows)]
    return dict(seconds=step, operations=count, shares={name: p / sum(parts) for name, p in zip(PARTS, parts)})


def sample_point(model: str, sampler: str, n: int, seconds: float) -> dict:
    "Seconds per sequence, and what the sampler counts, for one batch of `n` sequences."
    method = loflexmdm.load(model)
    task = method.task
    prompts = task.prompts("test", n) if not task.named_data else None
    draw = lambda: method.sample(prompts, None if prompts else n, sampler=SAMPLED[sampler], seed=0)
    samples = draw()
    return costs(samples, measured(draw, seconds))


def costs(samples, seconds: float) -> dict:
    "Seconds per sequence and per generated token of samples that took `seconds` in all, and what they count."
    tokens = sum(map(sum, samples.free))
    counts = {key: v for key in COUNTERS if (v := getattr(samples, key))}
    return dict(seconds=seconds / len(samples), per_token=seconds / max(tokens, 1), tokens=tokens, counts=counts)


def one_of_the_pair(method: str) -> tuple[Method, list[list[str]]]:
    "A new model of 4 blocks of width 64, and sequences of 31 tokens."
    SIZES["bench"] = Size(64, BASE["depth"], 4, 64)
    kind, settings, options = PAIR[method]
    words = [f"w{i}" for i in range(BASE["vocabulary"])]
    torch.manual_seed(0)
    model = kind(Vocabulary(words), settings(size="bench", max_length=RAGGED[1] + 2, **options))
    return model, [[words[(7 * i + i * k) % len(words)] for k in range(RAGGED[1] - 1)] for i in range(256)]


def step_point(method: str, ragged: bool, seconds: float) -> dict:
    "Seconds of a training step of one of the pair, of rows of one length or, `ragged`, of 8 to 32 columns."
    model, rows = one_of_the_pair(method)
    if ragged: rows = [row[:RAGGED[0] - 1 + i % (RAGGED[1] - RAGGED[0] + 1)] for i, row in enumerate(rows)]
    data = Examples(len(rows), lambda i: prefix_example((), rows[i], model.vocabulary))
    config = TrainConfig(steps=10**6, batch_size=ROWS, compile=False)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(model, data, config, directory, progress=False)
        stream = batches(trainer.data, trainer.config, 0, trainer.device)
        for _ in range(3): trainer.train_step(stream)
        spent = measured(lambda: trainer.train_step(stream), seconds)
        real = [trainer.train_step(stream)["real_columns"].item() for _ in range(8)]
        count = operations(lambda: trainer.train_step(stream))
    tokens = ROWS * sum(map(len, rows)) / len(rows)
    padding = 1 - sum(real) / len(real)
    return dict(seconds=spent, per_token=spent / tokens, operations=count, shares=dict(padding=padding))


def write_point(method: str, n: int, seconds: float) -> dict:
    "Seconds of sequences of 31 tokens by a new model of the pair, which costs as much as a trained one."
    model, _ = one_of_the_pair(method)
    length = RAGGED[1]
    draw = lambda: generate(model.eval(), n=n, min_length=length, max_length=length, seed=0)
    samples = draw()
    return costs(samples, measured(draw, seconds))


def beside_model(kind: type[Method], settings: type, size: str = SIDE, columns: int = COLUMNS) -> Method:
    "A new model that never ends a sequence early."
    torch.manual_seed(0)
    words = Vocabulary([f"w{i}" for i in range(BASE["vocabulary"])])
    model = kind(words, settings(size=size, max_length=columns))
    with torch.no_grad(): model.token.out.bias[-1] = -99.0
    return model


def stepping(model: Method, rows: int, directory: str, **options) -> Callable:
    "A training step of ours, with options of training."
    tokens, columns = model.vocabulary.tokens[3:], model.config.max_length
    texts = [[tokens[(7 * i + i * k) % len(tokens)] for k in range(columns - 1)] for i in range(2 * rows)]
    data = Examples(len(texts), lambda i: prefix_example((), texts[i], model.vocabulary))
    config = TrainConfig(steps=10**6, batch_size=rows, **dict(compile=False, precision="float32") | options)
    trainer = Trainer(model, data, config, directory, progress=False)
    trainer.compiler.begin()
    stream = batches(trainer.data, trainer.config, 0, trainer.device)
    return lambda: trainer.train_step(stream)


def their_step(model: torch.nn.Module, read: Callable, cast: AbstractContextManager = nullcontext()) -> Callable:
    "A training step of theirs, with AdamW in one kernel, clipped gradients and no dropout."
    optimiser = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)
    def step():
        with cast: loss = model(**read()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return step


def gpt2(size: Size = SIZES[SIDE], columns: int = COLUMNS) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel
    off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = dict(vocab_size=BASE["vocabulary"] + 4, n_positions=columns, n_embd=size.width, n_layer=size.depth,
                 n_head=size.heads)
    return GPT2LMHeadModel(GPT2Config(**sizes, **off, bos_token_id=2, eos_token_id=None, pad_token_id=0))


def bert(size: Size = SIZES[SIDE], columns: int = COLUMNS) -> torch.nn.Module:
    from transformers import BertConfig, BertForMaskedLM
    off = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    sizes = dict(vocab_size=BASE["vocabulary"] + 4, max_position_embeddings=columns, hidden_size=size.width,
                 num_hidden_layers=size.depth, num_attention_heads=size.heads, intermediate_size=4 * size.width,
                 type_vocab_size=1)
    return BertForMaskedLM(BertConfig(**sizes, **off, hidden_act="gelu_pytorch_tanh"))


def sample_gpt2(rows: int, directory: str) -> tuple[Callable, Callable]:
    "Sequences from left to right, ours and by `generate`, with keys and values kept."
    model, other = beside_model(Autoregressive, AutoregressiveConfig), gpt2().eval()
    start = torch.full((rows, 1), 2)
    options = dict(do_sample=True, top_k=0, max_new_tokens=COLUMNS - 1, attention_mask=torch.ones_like(start))
    return lambda: generate(model, n=rows, seed=0), lambda: other.generate(start, **options)


def train_gpt2(rows: int, directory: str) -> tuple[Callable, Callable]:
    "A step of autoregression."
    ids = torch.randint(4, BASE["vocabulary"] + 4, (rows, COLUMNS))
    ours = stepping(beside_model(Autoregressive, AutoregressiveConfig), rows, directory)
    return ours, their_step(gpt2(), lambda: dict(input_ids=ids, labels=ids))


def train_bert(rows: int, directory: str) -> tuple[Callable, Callable]:
    "A step with a random share of each row hidden; the loss at what is hidden."
    ids = torch.randint(4, BASE["vocabulary"] + 4, (rows, COLUMNS))
    def hidden():
        hide = torch.rand(rows, 1) > torch.rand(rows, COLUMNS)
        return dict(input_ids=ids.masked_fill(hide, 1), labels=ids.masked_fill(~hide, -100))
    ours = stepping(beside_model(MaskedDiffusion, MaskedConfig), rows, directory)
    return ours, their_step(bert(), hidden)


def beside_point(what: str, rows: int, seconds: float) -> dict:
    "Seconds of ours and of theirs, in turns: medians, and how theirs over ours varied."
    with tempfile.TemporaryDirectory() as directory:
        calls = dict(sample_gpt2=sample_gpt2, train_gpt2=train_gpt2, train_bert=train_bert)[what](rows, directory)
        times = [[], []]
        for k in range(ROUNDS + 1):
            for which in (0, 1) if k % 2 else (1, 0):
                begun = time.process_time()
                calls[which]()
                if k: times[which].append(time.process_time() - begun)  # the first is to warm up
    ours, theirs = map(statistics.median, times)
    over = sorted(b / a for a, b in zip(*times))
    return dict(seconds=ours, theirs=theirs, over=[over[0], statistics.median(over), over[-1]])


def by_length_point(what: str, method: str, length: int, seconds: float, **rows) -> dict:
    """Seconds and operations of a step or a sample, and of autoregression in turns with it.

    `over` is the ratio of seconds: least, median, most."""
    from ordered_length_runs import in_turns, sample_calls, step_calls
    with tempfile.TemporaryDirectory() as directory:
        names = ["ar", method]
        calls = step_calls(length, names, directory) if what == "step" else sample_calls(length, names, **rows)
        found = in_turns(calls, 3 if seconds else 1)
        counts = {name: operations(call) for name, call in calls.items()}
    return dict(seconds=found[method]["ms"] / 1e3, theirs=found["ar"]["ms"] / 1e3, over=found[method]["of_ar"],
                operations=counts[method], operations_of_theirs=counts["ar"])


FIRST, LAST = 20, 60  # steps of the log between which several processes are timed


def share_a_run(directory: str, last: int):
    "Train as one of the processes that were started together, to step `last`; the log is in the directory."
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with process_group(current_launch(), torch.device("cpu")):
        processes = processes_of(current_launch())
        trainer_of(**BASE | dict(batch=128), directory=directory, steps=last, processes=processes).fit()


def several_point(processes: int, threads: int, seconds: float) -> dict:
    "Seconds of the clock per step of a run that several processes share, over fewer steps if `seconds` is 0."
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    first, last = (FIRST, LAST) if seconds else (10, 20)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, *launcher * (processes > 1), __file__, "--share", directory, str(last)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | dict(OMP_NUM_THREADS=str(threads)))
        at = {r["step"]: r["seconds"] for r in JsonLines(Path(directory, "metrics.jsonl")).rows() if "loss" in r}
    return dict(seconds=(at[last] - at[first]) / (last - first))


POINTS = dict(
    train=train_point, sample=sample_point, step=step_point, write=write_point, beside=beside_point,
    several=several_point, by_length=by_length_point,
)


def run_point(point: dict, seconds: float) -> dict:
    "What a point costs, in this process: its figures and the memory beyond that of the imported package, in MB."
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings = {key: value for key, value in point.items() if key != "kind"}
    found = POINTS[point["kind"]](**settings, seconds=seconds)
    whose = resource.RUSAGE_CHILDREN if point["kind"] == "several" else resource.RUSAGE_SELF
    peak = resource.getrusage(whose).ru_maxrss
    load = round(os.getloadavg()[0], 1)
    return dict(name=name_of(point), **point) | found | dict(megabytes=round((peak - before) / 1024, 1), load=load)


# all points

def machine() -> dict:
    "What the figures depend on besides the code."
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return dict(cpu=cpu, cores=os.cpu_count(), threads=1, torch=torch.__version__, python=platform.python_version(),
                commit=COMMIT, load=round(os.getloadavg()[0], 1), date=time.strftime("%Y-%m-%d"))


def in_process(point: dict, seconds: float) -> dict:
    "The figures of a point that runs in a process of its own."
    command = [sys.executable, __file__, "--point", json.dumps(point), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | dict(OMP_NUM_THREADS="1"))
    if done.returncode: raise SystemExit(f"{name_of(point)}: failed\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def ratios(rows: list[dict], snapshot: Path) -> list[dict]:
    "The rows with their times and memory over those of the snapshot; None where it has no such point."
    known = {r["name"]: r for r in json.loads(snapshot.read_text())["points"]} if snapshot.exists() else {}

    def over(row: dict, key: str) -> float | None:
        before = known.get(row["name"], {}).get(key)
        return row[key] / before if before else None
    return [r | dict(ratio=over(r, "seconds"), memory=over(r, "megabytes")) for r in rows]


def table(rows: list[dict]) -> str:
    "The figures as Markdown."
    def line(r: dict) -> str:
        said = ", ".join(f"{name} {share:.0%}" for name, share in r.get("shares", {}).items())
        said = said or ", ".join(f"{v} {COUNTERS[key]}" for key, v in r.get("counts", {}).items())
        time_over, memory_over = ("" if r.get(key) is None else f"{r[key]:.2f}" for key in ("ratio", "memory"))
        token = f"{r['per_token'] * 1000:.3g}" if "per_token" in r else ""
        count = f"{r['operations']:,}" if "operations" in r else ""
        return (f"| {r['name']} | {r['seconds'] * 1000:.3g} | {token} | {count} | {r['megabytes']:g} | {said} | "
                f"{time_over} | {memory_over} | {r.get('load', '')} |")
    head = ["| point | ms per step or sequence | ms per token | operations | MB | of which | time over the snapshot | "
            "memory over it | load |", "|---|--:|--:|--:|--:|---|--:|--:|--:|"]
    return "\n".join(head + [line(r) for r in rows]) + "\n"


def plot(rows: list[dict], path: Path | None = None):
    "Growth of the step with each setting, and the time of samplers; returns the figure."
    import matplotlib.pyplot as plt
    train, sampled = ([r for r in rows if r["kind"] == kind] for kind in ("train", "sample"))
    fig, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    for key in BASE:
        grown = [r for r in train if all(r[k] == v for k, v in BASE.items() if k != key)]
        if len(grown) < 2: continue
        grown = sorted(grown, key=lambda r: r[key])
        for ax, of, scale in ((axes[0], "seconds", 1000), (axes[1], "megabytes", 1)):
            ax.plot([r[key] / BASE[key] for r in grown], [scale * r[of] for r in grown], "o-", label=key)
    axes[0].set(xlabel="times the base setting", ylabel="ms per step")
    axes[1].set(xlabel="times the base setting", ylabel="peak MB beyond the import")
    if axes[0].lines:
        axes[0].set(xscale="log", yscale="log")
        axes[1].set(xscale="log")
        axes[0].legend(frameon=False)
    names = [f"{r['model']}\n{r['sampler']}" for r in sampled]
    axes[2].barh(names, [r["seconds"] for r in sampled])
    axes[2].set(xlabel="seconds per sequence")
    axes[2].tick_params(axis="y", labelsize=7)
    if path: fig.savefig(path, dpi=120)
    return fig


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="bench", help="a directory, or with --snapshot a .json file [bench]")
    parser.add_argument("--quick", action="store_true", help="three small points")
    parser.add_argument("--snapshot", action="store_true", help="only write the figures, to a file")
    parser.add_argument("--against", type=Path, default=SNAPSHOT, help="the snapshot to compare with [the stored one]")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring for each point [2]")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    parser.add_argument("--share", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.share: return share_a_run(args.share[0], int(args.share[1]))
    if args.point: return print(json.dumps(run_point(json.loads(args.point), args.seconds)))
    if not args.against.exists() and not args.snapshot: parser.error(f"--against {args.against}: no such file")
    about, rows = machine(), []
    for point in points(args.quick):
        rows.append(in_process(point, args.seconds))
        print(f"{rows[-1]['name']}: {rows[-1]['seconds'] * 1000:.3g} ms at a load of {rows[-1]['load']}", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    about["total"] = round(used.ru_utime + used.ru_stime)
    found = dict(machine=about, points=rows)
    if args.snapshot: return write_results(args.out, found)
    (out := Path(args.out)).mkdir(parents=True, exist_ok=True)
    compared = ratios(rows, args.against)
    write_results(out / "bench.json", found)
    write_file(out / "bench.md", table(compared))
    plot(rows, out / "bench.png")
    print(table(compared))


if __name__ == "__main__": main()
