"""Train the models of star graphs again: `python experiments/star_models.py DIR [--seeds 0 1 2]`.

Each run has a folder in DIR, which lies outside of the repository, and continues from its newest checkpoint when the
command is repeated. Rows with settings, seed and commit go to DIR/rows.json: exact answers to 2,000 test graphs, and
the bound. Hours of one core; star-hard in stages is `experiments/star_hard_stages.py`, which goes on as well."""
import argparse
from pathlib import Path

import torch

from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import recipe
from runs import bound, note, noted

GRAPHS, HELD_OUT, ORDERS = 2000, 256, 16
FLAT = dict(schedule="flat", compile=False, save_every=250)
MIXTURE = dict(order="mixture", components="uniform,left_to_right,right_to_left,network", trial=100, query_blocks=1)
RUNS = {  # recipe and what it changes
    "tiny": ("star-tiny", FLAT),
    "mixed": ("star-mixed-ordered", FLAT), "mixed mixture": ("star-mixed-ordered", FLAT | MIXTURE),
    "medium": ("star-medium-ordered", FLAT), "medium mixture": ("star-medium-ordered", FLAT | MIXTURE),
    "hard mixture": ("star-hard-ordered", FLAT | MIXTURE),
}


def run(name: str, seed: int, folder: Path):
    "Train a model, or go on with it, and note how it answers."
    label, (kind, options) = f"{name} {seed}", RUNS[name]
    results = folder / "rows.json"
    if noted(results, label, dict(seed=seed)): return
    directory = folder / label.replace(" ", "-")
    trainer = recipe(kind, **options, seed=seed).trainer(directory, progress=False)
    trainer.fit(resume=bool(checkpoints(directory)))
    made = load(checkpoints(directory)[-1])
    task = task_from(made.task)
    scores = task.score("test", generate(made.method, task.prompts("test", GRAPHS), seed=1))
    note(results, dict(name=label, recipe=kind, seed=seed, options=options, scores=scores,
                       bound=bound(task, made.method, HELD_OUT, ORDERS)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.directory.mkdir(parents=True, exist_ok=True)
    for name in args.runs:
        for seed in args.seeds: run(name, seed, args.directory)


if __name__ == "__main__": main()
