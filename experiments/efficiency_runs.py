"""Masked diffusion with many steps, autoregression with few: `python experiments/efficiency_runs.py CORPUS SEED...`.

Each network is trained with a budget of its own, otherwise as experiments/method_runs.py does, and adds its bound on
the validation set to experiments/results/efficiency_runs.json, with the bound on the test set, what the training log
says along the way, settings, seed and commit."""
from loflexmdm.tasks.base import task_from
from method_runs import HELD_OUT, STATES, TRAIN, mean_tokens, tables
from papl_runs import train_all
from runs import ROOT, bound, bound_of, curve_of, held_out, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "efficiency_runs.json"
BUDGETS = dict(autoregressive=(188, 375, 750, 1500), masked=(1500, 3000, 6000))  # steps


def train(corpus: str, method: str, steps: int, seed: int):
    "Train with a budget, measure, and note."
    settings, name = tables(corpus, method, seed, steps, TRAIN["lr"]), f"{corpus} {method} {steps} {seed}"
    if noted(RESULTS, name, settings): return
    directory = f"efficiency {name}"
    model, _, spent = trained(settings, directory)
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, corpus=corpus, method=method, seed=seed, steps=steps, cpu_seconds=spent, **settings,
                       valid=bound_of(model, held_out(task, HELD_OUT, "valid"), STATES),
                       bound=bound(task, model, HELD_OUT, STATES),
                       tokens=mean_tokens(task), curve=curve_of(ROOT / "runs" / directory.replace(" ", "-"))))


def main(): train_all(__doc__, train, [(method, steps) for method, some in BUDGETS.items() for steps in some])


if __name__ == "__main__": main()
