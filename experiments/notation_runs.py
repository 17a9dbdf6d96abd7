"""Training runs behind the figures on notations: `python experiments/notation_runs.py SEED... [--notations NAME...]`.

The same network, data and number of rows for each way of writing molecules. Each run adds its curve to
experiments/results/notation_runs.json, with its settings, seed and commit; a run that was interrupted goes
on where it stopped."""
import argparse
from collections import Counter

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.molecules.scores.metrics import molecule_metrics
from loflexmdm.molecules.task import MoleculesTask
from loflexmdm.samplers import EventDriven
from loflexmdm.tasks.base import task_from
from runs import ROOT, bound, curve_of, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "notation_runs.json"
DATA = dict(kind="molecules", source="moses", prompt_share=0.0)
CANONICAL, ANEW = dict(reorder=False), dict(reorder=True)
# canonical texts, or another text of a molecule each time; stored rows of others name the commit of their code
ENTRANTS = {
    "bracket-safe": dict(notation="bracket-safe") | CANONICAL,
    "bracket-safe-anew": dict(notation="bracket-safe") | ANEW,
    "smiles": dict(notation="smiles") | CANONICAL, "smiles-anew": dict(notation="smiles") | ANEW,
    "selfies": dict(notation="selfies") | CANONICAL,
}
MODEL = dict(order="fixed", size="micro")
TRAIN = dict(batch_size=64, optimiser="muon", lr=6e-3, valid_size=256)
STEPS, MOLECULES, SAMPLES = 1000, 150_000, 500
SAMPLED = {"p 1": EventDriven(), "p .7, confidence": EventDriven(exact=True, top_p=0.7, confidence="top_prob")}


def tables(entrant: str, seed: int, steps: int, molecules: int) -> dict:
    "The recipe of a run."
    return dict(task=DATA | dict(limit=molecules) | ENTRANTS[entrant], model=MODEL,
                train=TRAIN | dict(steps=steps, seed=seed, save_every=-(-steps // 4), valid_every=-(-steps // 12)))


def drawn(task: MoleculesTask, method: Method, setting: EventDriven, n: int) -> dict:
    "Figures of `n` samples: states with their numbers, quality, diversity, uniqueness, calls."
    samples = generate(method, n=n, sampler=setting, generator=torch.Generator().manual_seed(0))
    states = Counter(d["state"] for d in task.describe(samples))
    figures = molecule_metrics(task.smiles_of(samples), task.smiles("train"), canonical_reference=True).as_dict()
    kept = {k: round(figures[k], 4) for k in ("validity", "quality", "diversity", "uniqueness", "novelty")}
    return kept | dict(states=dict(states.most_common()), calls=samples.network_calls)


def lengths(task: MoleculesTask) -> dict[str, float]:
    "Molecules of each split, those left out by reason, and tokens per molecule of the test split."
    texts = task.texts("test")
    mean = sum(len(task.tokens_of(t)) for t in texts) / len(texts)
    return dict(sizes=task.sizes(), left_out=task.left_out, tokens=round(mean, 2), vocabulary=len(task.vocabulary) - 3)


def train(entrant: str, seed: int, steps: int, molecules: int, n: int):
    "Train on one notation, sample, and note what came of it."
    settings = tables(entrant, seed, steps, molecules)
    name = f"{entrant} {seed}" + (f" {steps} steps" if steps != STEPS else "")
    if noted(RESULTS, name, settings): return
    method, kept, spent = trained(settings, f"notation {entrant} {seed} {steps}", progress=True)
    task = task_from(method.task)
    sampled = {label: drawn(task, method, setting, n) for label, setting in SAMPLED.items()}
    note(RESULTS, dict(
        name=name, entrant=entrant, seed=seed, steps=steps, samples=n, cpu_seconds=spent, sampled=sampled,
        bound=bound(task, method), curve=curve_of(kept[-1].parents[1]), **lengths(task), **settings,
    ))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--notations", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--molecules", type=int, default=MOLECULES, help="rows of MOSES to read")
    parser.add_argument("-n", type=int, default=SAMPLES, help="samples of each kind")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for entrant in args.notations: train(entrant, seed, args.steps, args.molecules, args.n)


if __name__ == "__main__": main()
