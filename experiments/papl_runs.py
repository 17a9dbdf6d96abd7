"""PAPL's alpha and tau on real data: `python experiments/papl_runs.py CORPUS SEED...`.

One network per setting, sampled with three planners; alpha = 0 is masked diffusion. Each setting adds its bound and
scores to experiments/results/papl_runs.json, with seed and commit; a run that was interrupted goes on where
it stopped."""
import argparse
from collections.abc import Callable, Sequence

import torch

from loflexmdm.samplers import GREEDY, Planner
from loflexmdm.tasks.base import Task, task_from
from method_runs import CORPORA, HELD_OUT, STATES, TRAIN, mean_tokens, sampled, tables, token_entropy
from runs import ROOT, bound, held_out, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "papl_runs.json"
SETTINGS = [(0.0, 1.0), (1.0, 1.0), (5.0, 1.0), (1.0, 0.3), (5.0, 0.3)]  # alpha and tau
SAMPLERS = {"even": Planner(), "greedy": GREEDY, "P2": Planner(remask=1.0)}
SAMPLES = 1000


def real_entropy(task: Task) -> float:
    "Entropy of the frequencies of the generated tokens of the test set (nats)."
    x1 = held_out(task, 10 * SAMPLES)
    return token_entropy([row[free].tolist() for row, free in zip(x1.tokens, x1.free)])["token_entropy"]


def train(corpus: str, alpha: float, tau: float, seed: int):
    "Train with one setting, sample with each planner, and note."
    settings = tables(corpus, "papl", seed, CORPORA[corpus]["steps"], TRAIN["lr"])
    settings["model"] |= dict(alpha=alpha, planner_tau=tau)
    name = f"{corpus} {alpha:g} {tau:g} {seed}"
    if noted(RESULTS, name, settings): return
    model, *_ = trained(settings, f"papl {name}")
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, corpus=corpus, alpha=alpha, tau=tau, seed=seed, **settings, tokens=mean_tokens(task),
                       bound=bound(task, model, HELD_OUT, STATES), real_entropy=real_entropy(task),
                       sampled={k: sampled(task, model, SAMPLES, v) for k, v in SAMPLERS.items()}))


def train_all(about: str, train: Callable, settings: Sequence[tuple]):
    "Train with each of the settings and seeds, on the corpus that the command line names."
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("seeds", type=int, nargs="+")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for setting in settings: train(args.corpus, *setting, seed)


def main(): train_all(__doc__, train, SETTINGS)


if __name__ == "__main__": main()
