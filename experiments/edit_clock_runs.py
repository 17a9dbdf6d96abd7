"""The clock of Edit Flows in training: `python experiments/edit_clock_runs.py CORPUS SEED...`.

The network reads the clock tau = -log(1 - kappa), and the loss is one integral over it whatever kappa is. A schedule
decides where in it the states of training are drawn: evenly in time, as published, with a cubic or a linear kappa. Each
network, trained otherwise as experiments/method_runs.py does, adds its bound and scores to
experiments/results/edit_clock_runs.json, with settings, seed and commit; the package's own readings, which do not
depend on a schedule, are `edits` in experiments/results/method_runs.json."""
from loflexmdm.tasks.base import task_from
from method_runs import CORPORA, HELD_OUT, SAMPLES, STATES, TRAIN, mean_tokens, sampled, tables
from papl_runs import train_all
from runs import ROOT, bound, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "edit_clock_runs.json"
CLOCKS = dict(cubic="power:3", linear="linear")


def clock_tables(corpus: str, clock: str, seed: int) -> dict:
    "The recipe of a run."
    settings = tables(corpus, "edits", seed, CORPORA[corpus]["steps"], TRAIN["lr"])
    settings["model"] |= dict(times="uniform", schedule=CLOCKS[clock])
    return settings


def train(corpus: str, clock: str, seed: int):
    "Train with times of a clock, measure, and note."
    settings, name = clock_tables(corpus, clock, seed), f"{corpus} {clock} {seed}"
    if noted(RESULTS, name, settings): return
    model, _, spent = trained(settings, f"edit clock {name}")
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, corpus=corpus, clock=clock, seed=seed, cpu_seconds=spent, **settings,
                       bound=bound(task, model, HELD_OUT, STATES), tokens=mean_tokens(task), samples=SAMPLES,
                       **sampled(task, model)))


def main(): train_all(__doc__, train, [(clock,) for clock in CLOCKS])


if __name__ == "__main__": main()
