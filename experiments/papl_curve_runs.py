"""PAPL along training, by sampling steps and by temperature: `python experiments/papl_curve_runs.py CORPUS SEED...`.

Networks with three weights of the planner, alpha = 0 being masked diffusion, are sampled in the same ways: with P2 at
each checkpoint of training, in fewer and fewer steps, and at several temperatures, there with even unmasking too. Each
network adds its scores to experiments/results/papl_curve_runs.json, with settings, seed and commit."""
from collections.abc import Mapping
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.samplers import Planner, Sampler
from loflexmdm.tasks.base import Task, task_from
from method_runs import CORPORA, TRAIN, tables, text_scores
from papl_runs import train_all
from runs import ROOT, curve_of, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "papl_curve_runs.json"
ALPHAS = (0.0, 1.0, 5.0)
STEPS = {str(n or "all"): Planner(steps=n, remask=1.0) for n in (1, 2, 4, 8, None)}
HEATS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
HEATED = {f"{name} {heat:g}": Planner(remask=remask, temperature=heat)
          for name, remask in (("P2", 1.0), ("even", None)) for heat in HEATS}
SAMPLES, SAVES = 1000, 10


def scored(task: Task, model: Method, sampler: Sampler) -> dict[str, float]:
    "Scores of samples."
    samples = generate(model, n=SAMPLES, sampler=sampler, generator=torch.Generator().manual_seed(0))
    return {k: round(v, 4) for k, v in task.score("test", samples).items()} | text_scores(task, samples)


def by_sampler(task: Task, model: Method, samplers: Mapping[str, Sampler]) -> dict[str, dict]:
    "Scores of samples by several samplers."
    return {name: scored(task, model, sampler) for name, sampler in samplers.items()}


def along(task: Task, kept: list[Path]) -> list[dict]:
    "Scores of P2's samples at each checkpoint that is kept."
    return [dict(checkpoint=path.name) | scored(task, load(path).method, STEPS["all"]) for path in kept]


def curve_tables(corpus: str, alpha: float, seed: int) -> dict:
    "The recipe of a run."
    settings, steps = tables(corpus, "papl", seed, CORPORA[corpus]["steps"], TRAIN["lr"]), CORPORA[corpus]["steps"]
    settings["model"] |= dict(alpha=alpha)
    settings["train"] |= dict(save_every=steps // SAVES, valid_every=steps // SAVES, keep=SAVES)
    return settings


def train(corpus: str, alpha: float, seed: int):
    "Train with one weight of the planner, sample in every way, and note."
    settings, name = curve_tables(corpus, alpha, seed), f"{corpus} {alpha:g} {seed}"
    if noted(RESULTS, name, settings): return
    model, kept, spent = trained(settings, f"papl curve {name}")
    task, curve = task_from(settings["task"]), curve_of(ROOT / "runs" / f"papl-curve-{name.replace(' ', '-')}")
    note(RESULTS, dict(name=name, corpus=corpus, alpha=alpha, seed=seed, cpu_seconds=spent, **settings,
                       samples=SAMPLES, curve=curve, along=along(task, kept), steps=by_sampler(task, model, STEPS),
                       heats=by_sampler(task, model, HEATED)))


def main(): train_all(__doc__, train, [(alpha,) for alpha in ALPHAS])


if __name__ == "__main__": main()
