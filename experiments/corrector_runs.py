"""Correctors of Edit Flows on trained models: `python experiments/corrector_runs.py CORPUS SEED...`.

The models are those of `edits` in experiments/method_runs.py, which only insert. They are sampled with the paper's
corrector, alpha = c t^1.5 (1 - t)^0.5 on the cubic clock, from none to c = 60: by thinning, where more events take more
calls, and in leaps, as many for each strength. Each model adds scores and calls to
experiments/results/corrector_runs.json, with settings, seed and commit."""
import time

import torch

from correctors import corrector_strength, sample_corrected
from loflexmdm.methods.edit_flows import EditFlow
from loflexmdm.tasks.base import Task, task_from
from method_runs import CORPORA, TRAIN, tables, text_scores
from papl_runs import train_all
from runs import ROOT, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "corrector_runs.json"
SCALES = (0.0, 5.0, 20.0, 60.0)
WAYS = {"thinning": None, "32 leaps": 32, "128 leaps": 128}
SAMPLES = 1000


def scored(task: Task, model: EditFlow, scale: float, steps: int | None) -> dict:
    "Scores of samples with a corrector, states that the network was asked about per sample, and what else happened."
    start, generator = time.process_time(), torch.Generator().manual_seed(0)
    samples = sample_corrected(model, SAMPLES, corrector_strength(scale), steps, generator)
    counts = dict(evaluations=samples.row_evaluations / SAMPLES, violations=samples.violations / SAMPLES,
                  full=samples.overflowing / SAMPLES, seconds=round(time.process_time() - start, 1))
    return counts | {k: round(v, 4) for k, v in task.score("test", samples).items()} | text_scores(task, samples)


def train(corpus: str, seed: int):
    "Train, or go on with what is trained, sample in every way, and note."
    steps = CORPORA[corpus]["steps"]
    settings, name = tables(corpus, "edits", seed, steps, TRAIN["lr"]), f"{corpus} {seed}"
    if noted(RESULTS, name, settings): return
    model, _, spent = trained(settings, f"{corpus} edits {seed} {steps}")
    task = task_from(settings["task"])
    ways = {way: {f"{scale:g}": scored(task, model, scale, n) for scale in SCALES} for way, n in WAYS.items()}
    note(RESULTS, dict(name=name, corpus=corpus, seed=seed, cpu_seconds=spent, **settings, samples=SAMPLES, ways=ways))


def main(): train_all(__doc__, train, [()])


if __name__ == "__main__": main()
