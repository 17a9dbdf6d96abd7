"""What models deliver that are asked for a property:
`python experiments/property_runs.py SEED... [--conditions NAME...]`.

Small molecules of QM9, whose training examples begin with the class of a property. As many molecules are sampled per
class, without guidance and with it, and their values compared with what was asked for. A condition is a property, or a
column of QM9, whose values are known of the molecules of QM9 alone. Each run adds its figures to
experiments/results/property_runs.json, with its settings, seed and commit; a run that was interrupted goes
on where it stopped."""
import argparse
from functools import partial

import torch

from guidance_runs import drawn
from loflexmdm.methods.base import Method
from conditioning import compare_with_requests
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.molecules.task import MoleculesTask, bounds_from
from loflexmdm.samplers import Samples
from loflexmdm.tasks.base import task_from
from runs import ROOT, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "property_runs.json"
TASK = dict(kind="molecules", source="qm9", notation="smiles", reorder=False, prompt_share=0.0, classes=5)
METHODS = dict(autoregressive=dict(method="ar", size="nano"),
               fixed=dict(order="fixed", states=1, readings="event", size="nano"))
TRAIN = dict(lr=2e-3, warmup=100, ema=0.99, optimiser="muon", valid_size=256, batch_size=64)
GAP = "HOMO_LUMO_gap_au"  # hartree
CONDITIONS, STEPS, EACH, WEIGHTS = ("logp", "qed", GAP), 3000, 400, (0, 1, 2)


def molecules_of(task: MoleculesTask, samples: Samples) -> list[str | None]:
    "Canonical SMILES of each sample, None for one that is not a molecule."
    return [judge([d.smiles])[0].smiles if d.smiles else None for d in task.decode_samples(samples)]


def delivered(task: MoleculesTask, method: Method, weight: float) -> dict:
    """For each class: molecules with a value, share in it, mean and middle 80 %; the share of valid molecules, and
    of these with a value; how many are in the splits not trained on, and the share of them in the class."""
    tokens, bounds = task.conditions(), bounds_from(task.bounds_text)
    made = drawn(method, tokens, EACH, 0, weight)
    smiles = [s for t in tokens for s in molecules_of(task, made[t])]
    asked = [k for k in range(len(tokens)) for _ in range(EACH)]
    valid, held_out = [s for s in smiles if s], {*task.smiles("valid"), *task.smiles("test")}
    value = dict(zip(valid, task.property_of(valid)))
    rows = compare_with_requests(asked, [value.get(s, float("nan")) for s in smiles], bounds)
    new = compare_with_requests(asked, [value[s] if s in held_out else float("nan") for s in smiles], bounds)
    n = sum(r.n for r in new)
    shares = dict(valid=len(valid) / len(smiles), known=sum(r.n for r in rows) / len(valid),
                  held_out=n, held_out_share=sum(r.n * r.share for r in new if r.n) / max(n, 1))
    return {k: round(v, 4) for k, v in shares.items()} | dict(classes=[[round(v, 4) for v in r] for r in rows])


def train(condition: str, way: str, seed: int, steps: int):
    "Train one method with one condition, sample, and note what came of it."
    every = -(-steps // 5)
    settings = dict(task=TASK | dict(condition=condition), model=METHODS[way],
                    train=TRAIN | dict(steps=steps, seed=seed, save_every=every, valid_every=every))
    name = f"{condition} {way} {seed}"
    if noted(RESULTS, name, settings): return
    method, _, spent = trained(settings, f"property {name} {steps}")
    task, got = task_from(method.task), partial(delivered, task_from(method.task), method)
    note(RESULTS, dict(name=name, condition=condition, method=way, seed=seed, steps=steps, each=EACH, **settings,
                       cpu_seconds=spent, bounds=bounds_from(task.bounds_text),
                       guided={str(w): got(w) for w in WEIGHTS}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS), help="properties, or columns of QM9")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for condition in args.conditions:
            for way in args.methods: train(condition, way, seed, args.steps)


if __name__ == "__main__": main()
