"""Bounds at equal time: `python experiments/ordered_time_runs.py CORPUS --seconds 120 300 --seeds 0 1 2`.

Each run trains for about that many seconds of one processor: its number of steps comes from the time of its first
steps, because the learning rate depends on it. Rows go to experiments/results/ordered_time_runs.json, with settings,
seed and commit. `zinc` needs SMILES, one per line, in runs/corpora/zinc.txt."""
import argparse
import gzip
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

import words_task  # noqa: F401 (its task has a name then)
from corpora import FOLDER, text
from loflexmdm.methods.sampling import generate
from loflexmdm.methods.base import Method
from loflexmdm.support.atomic_files import write_file
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.training.recipes import recipe, recipe_from
from runs import ROOT, bound, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "ordered_time_runs.json"
LINES, HELD_OUT, STATES, GRAPHS = 60_000, 512, 8, 1000
MEASURED, WARM = 15, 5  # steps whose time is measured, after some that are not


def there(name: str) -> dict:
    "Return the settings of a corpus whose file is there: another Python has other phrases."
    file = f"runs/corpora/{name}.txt"
    return dict(kind="text", file=file, unit="characters") if (ROOT / file).exists() else {}


def zinc() -> dict: return there("zinc")
def phrases() -> dict: return there("phrases") or text()
def words() -> dict: return dict(kind="words")
def stars() -> dict: return dict(recipe("star-mixed-ordered").task)


CORPORA = dict(zinc=zinc, phrases=phrases, words=words, stars=stars)
INSERTION = dict(method="ordered-insertion", order="left_to_right", orders=1)
COSINE = dict(batch_size=32, lr=4e-3)
FLAT = dict(batch_size=32, lr=3e-3, schedule="flat")
SMALL = FLAT | dict(batch_size=16)
LATE = dict(query_blocks=1)
METHODS = dict(  # settings of the model and of its training
    ar=(dict(method="ar"), COSINE), ar_flat=(dict(method="ar"), FLAT), ar_small=(dict(method="ar"), SMALL),
    today=(INSERTION, COSINE), flat=(INSERTION, FLAT), late=(INSERTION | LATE, FLAT),
    late_cosine=(INSERTION | LATE, COSINE), late_small=(INSERTION | LATE, SMALL),
    late_two=(INSERTION | dict(query_blocks=2), FLAT), mixture=(INSERTION | LATE | dict(order="mixture"), FLAT),
)
TRAIN = dict(optimiser="muon", warmup=50, ema=0.99, log_every=100, valid_size=64)
STAR = dict(method="ordered-insertion", order="learned", order_size="nano")
STAR_TRAIN = dict(lr=2e-3, warmup=100, weight_decay=0.0, order_lr_scale=0.1)
MIXED = dict(order="mixture", components="uniform,left_to_right,right_to_left,network", trial=100)
ON_STARS = dict(
    ar=(dict(method="ar"), dict(lr=2e-3)), today=(STAR, STAR_TRAIN), flat=(STAR, STAR_TRAIN | dict(schedule="flat")),
    late=(STAR | LATE, STAR_TRAIN | dict(schedule="flat")), late_cosine=(STAR | LATE, STAR_TRAIN),
    mixture=(STAR | LATE | MIXED, STAR_TRAIN | dict(schedule="flat")),
)


def methods_of(corpus: str) -> dict: return ON_STARS if corpus == "stars" else METHODS


def tables(corpus: str, method: str, seed: int, steps: int) -> dict:
    "Return the recipe of a run."
    model, train = methods_of(corpus)[method]
    rare = dict(steps=steps, seed=seed, save_every=max(1, steps // 4), valid_every=steps)
    if corpus == "stars" and model.get("order") == "learned": rare |= dict(order_start=min(500, steps // 6))
    train = TRAIN | dict(batch_size=32) | train | rare
    return dict(task=CORPORA[corpus](), model=dict(size="nano") | model, train=train)


def seconds_per_step(settings: dict) -> float:
    "Measure the processor's time for a training step."
    with tempfile.TemporaryDirectory() as directory:
        trainer = recipe_from(settings).trainer(directory, progress=False)
        stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
        times = []
        for _ in range(WARM + MEASURED):
            begun = time.process_time()
            trainer.train_step(stream)
            times.append(time.process_time() - begun)
        stream.close()
    return statistics.fmean(times[WARM:])


def steps_in(seconds: int, name: str, settings: dict) -> int:
    "Return the number of steps that take about that many seconds; an interrupted run goes on with its number."
    file = ROOT / "runs" / f"{name.replace(' ', '-')}.steps"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        write_file(file, str(max(50, round(seconds / seconds_per_step(settings)))))
    return int(file.read_text())


def exact_answers(task: Task, method: Method) -> dict:
    "Return the scores of answers to test graphs; nothing on other tasks."
    prompts = task.prompts("test", GRAPHS)
    if task.kind != "star": return {}
    samples = generate(method, prompts, seed=1)
    return {k: round(v, 4) for k, v in task.score("test", samples).items()}


def run(corpus: str, method: str, seconds: int, seed: int, commit: str):
    "Train a method on a corpus for some seconds, measure, and note."
    name = f"{corpus} {method} {seconds} {seed}"
    model, train = methods_of(corpus)[method]
    if noted(RESULTS, name, dict(model=tables(corpus, method, seed, 1)["model"])): return
    settings = tables(corpus, method, seed, steps_in(seconds, name, tables(corpus, method, seed, 10_000)))
    made, _, spent = trained(settings, f"time {name}")
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, corpus=corpus, method=method, seed=seed, seconds=seconds, cpu_seconds=spent,
                       **settings, bound=bound(task, made, HELD_OUT, STATES), scores=exact_answers(task, made))
         | (dict(trained_at=commit) if commit else {}))


def write_zinc(source: Path):
    "Write LINES SMILES, drawn at random, where the corpus is read."
    read = gzip.open if source.suffix == ".gz" else open
    with read(source, "rt") as f: lines = [line.split()[0] for line in f if line.strip()]
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_file(FOLDER / "zinc.txt", "\n".join(random.Random(0).sample(lines, min(LINES, len(lines)))) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--seconds", type=int, nargs="+", default=[120])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=["ar", "today", "late"])
    parser.add_argument("--lines", type=Path, help="file of SMILES from which the corpus zinc is written")
    parser.add_argument("--commit", default="", help="commit of the code, where the folder does not tell it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.lines: write_zinc(args.lines)
    for seconds in args.seconds:
        for seed in args.seeds:
            for method in args.methods: run(args.corpus, method, seconds, seed, args.commit)


if __name__ == "__main__": main()
