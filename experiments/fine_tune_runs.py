"""What 300 molecules change in a model: `python experiments/fine_tune_runs.py MODEL SEED... [--steps N]`.

300 of MOSES' test molecules with an indole, which no model of it was trained on, are what a model is trained further
on; 100 others are held out. A row tells, for the model before and after and for one trained on the 300 alone: the
bound per molecule of the held-out ones and of 100 without an indole, and how samples are. Each run adds its figures to
experiments/results/fine_tune_runs.json, with its settings, seed and commit. Needs the wheel molsets."""
import argparse
import random
import time
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from rdkit import Chem

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.molecules.data.sources import benchmark_smiles
from loflexmdm.molecules.scores.metrics import judge, molecule_metrics
from loflexmdm.molecules.task import MoleculesTask
from loflexmdm.process.states import PartialSequences, collate
from loflexmdm.support.atomic_files import write_file
from loflexmdm.training.recipes import recipe
from moses_figures import describe_molecules, nearest
from runs import ROOT, bound_of, note

RESULTS, FOLDER = ROOT / "experiments" / "results" / "fine_tune_runs.json", ROOT / "runs" / "fine_tune"
WANTED = Chem.MolFromSmarts("c1ccc2[nH]ccc2c1")  # an indole
TRAIN = dict(batch_size=32, optimiser="muon", lr=1e-3, warmup=20, ema=0.98, valid_size=30, valid_every=20)
FEW, HELD_OUT, SAMPLES, STATES, READ = 300, 100, 500, 64, 40_000


def has_wanted(smiles: str) -> bool: return Chem.MolFromSmiles(smiles).HasSubstructMatch(WANTED)


def molecules() -> tuple[list[str], list[str], list[str]]:
    "Molecules with the fragment to train on, those held out, and others: canonical SMILES from the test set."
    read = [j.smiles for j in judge(list(islice(benchmark_smiles("moses-test"), READ))) if j.smiles]
    wanted = list(islice(filter(has_wanted, read), FEW + HELD_OUT))
    if len(wanted) < FEW + HELD_OUT: raise ValueError(f"READ={READ}: only {len(wanted)} have the fragment")
    return wanted[:FEW], wanted[FEW:], list(islice((s for s in read if not has_wanted(s)), HELD_OUT))


def sequences(task: MoleculesTask, method: Method, smiles: list[str]) -> PartialSequences:
    "Molecules as clean sequences, of those that the vocabulary can write."
    known = set(method.vocabulary.tokens)
    return collate([task.example(s, random.Random(0)) for s in smiles if set(task.tokens_of(s)) <= known])


def similarity(smiles: list[str], few: list[str]) -> float:
    "Mean Tanimoto similarity to the nearest of a few molecules."
    prints = lambda some: describe_molecules(some, network=False).prints
    return float(nearest(prints(smiles), prints(few)).mean()) if smiles else 0.0


def figures(task: MoleculesTask, method: Method, few: list[str], held_out: list[str], others: list[str]) -> dict:
    "Bounds, and shares of samples drawn from the whole distribution: valid, with the fragment, among the few."
    samples = generate(method, n=SAMPLES, generator=torch.Generator().manual_seed(0))
    smiles = task.smiles_of(samples)
    valid = [j.smiles for j in judge(smiles) if j.smiles]
    found = molecule_metrics(smiles, few, canonical_reference=True).as_dict()
    shares = dict(fragment=sum(map(has_wanted, valid)) / max(len(valid), 1), copied=sum(s in few for s in valid),
                  nearest=similarity(valid, few), **{k: found[k] for k in ("validity", "uniqueness", "quality")})
    nats = lambda some: bound_of(method, sequences(task, method, some), STATES)
    return dict(held_out=nats(held_out), others=nats(others)) | {k: round(v, 4) for k, v in shares.items()}


def trained(name: str, method: str, file: Path, seed: int, steps: int, **more) -> Method:
    "The model of that name trained further on the file, or with `start_from=''` one like it from random weights."
    directory = FOLDER / f"{method}-{seed}-{steps}{'-fresh' if more else ''}"
    data = dict(source=str(file), prompt_share=0.0, valid_share=0.1, test_share=0.0)
    settings = recipe(name, **data, **TRAIN, **more, steps=steps, seed=seed, task_seed=seed, save_every=steps)
    return settings.trainer(directory, progress=False).fit().method


def run(name: str, seed: int, steps: int):
    "A model before and after, and one that knows the few molecules alone."
    base, start = load(name), time.process_time()
    few, held_out, others = molecules()
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_file(FOLDER / "few.smi", "\n".join(few) + "\n")
    train = partial(trained, name, base.method.name, FOLDER / "few.smi", seed, steps)
    models = dict(before=base.method, after=train(), fresh=train(start_from=""))
    task = base.task
    rows = {k: figures(task, m, few, held_out, others) for k, m in models.items()}
    note(RESULTS, dict(name=f"{Path(name).name} {seed}", model=Path(name).name, seed=seed, steps=steps, train=TRAIN,
                       samples=SAMPLES, few=len(few), cpu_seconds=round(time.process_time() - start), **rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a packaged model or the directory of a saved one")
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds: run(args.model, seed, args.steps)


if __name__ == "__main__": main()
