"""ReMDM on plain networks, beside PAPL's planners: `python experiments/remasking_runs.py CORPUS SEED...`.

The networks without weights of experiments/papl_curve_runs.py are sampled in ancestral steps that mask clean tokens
again, with several schedules and numbers of steps. Each network adds its scores to
experiments/results/remasking_runs.json, with settings, seed and commit."""
from loflexmdm.samplers import Remasking
from loflexmdm.tasks.base import task_from
from papl_curve_runs import SAMPLES, by_sampler, curve_tables
from papl_runs import train_all
from runs import ROOT, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "remasking_runs.json"
SCHEDULES = {"none": dict(cap=0.0), "capped 0.1": dict(cap=0.1), "rescaled 0.5": dict(share=0.5), "rescaled 1": {}}
STEPS = (12, 32, 128)
WAYS = {f"{name}, {n} steps": Remasking(steps=n, **options) for name, options in SCHEDULES.items() for n in STEPS}


def train(corpus: str, seed: int):
    "Train, or go on with what is trained, sample in every way, and note."
    settings, name = curve_tables(corpus, 0.0, seed), f"{corpus} {seed}"
    if noted(RESULTS, name, settings): return
    model, _, spent = trained(settings, f"papl curve {corpus} 0 {seed}")
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, corpus=corpus, seed=seed, cpu_seconds=spent, **settings, samples=SAMPLES,
                       ways=by_sampler(task, model, WAYS)))


def main(): train_all(__doc__, train, [()])


if __name__ == "__main__": main()
