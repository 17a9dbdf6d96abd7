"""The table of methods on MOSES: `python experiments/moses_runs.py SEED... [--entrants NAME...]`, or `... --model DIR`;
with `--samplers` that of samplers of one model, a row for each.

Every entrant reads the same molecules as canonical SMILES, with the same network and as many generator rows per step.
Each adds its curve and the metrics of its samples to experiments/results/moses_runs.json, with settings,
seed and commit; a run that
was interrupted goes on where it stopped. `--model` judges a saved model, `--real` training molecules. The reference
are test molecules at even distances in the file, for a model of other molecules the test split of its task.
`--reference 0` compares on MOSES' own scale, with all test molecules and 30,000 samples: SNN, and the floor of FCD,
depend on both numbers, so that only such rows stand beside published ones. Needs the wheels molsets and fcd_torch."""
import argparse
import random
import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from loflexmdm.cli.common import add_device, device_name, pick_device
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.molecules.data.sources import benchmark_smiles
from loflexmdm.molecules.scores.metrics import judge, molecule_metrics
from loflexmdm.molecules.task import MoleculesTask
from loflexmdm.samplers import EventDriven, TauLeaping
from loflexmdm.samplers.base import Sampler
from loflexmdm.tasks.base import task_from
from moses_figures import CURVES, Reference, describe_molecules, moses_metrics, moses_reference, reference_from
from runs import FIXED, LEARNED, LEARNED_BOTH, ROOT, bound, curve_of, note, noted, states_per_sequence
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "moses_runs.json"
TASK = dict(kind="molecules", source="moses", notation="smiles", reorder=False, prompt_share=0.0)
INSERTION = dict(method="ordered-insertion", orders=1)
ENTRANTS = dict(
    fixed=FIXED, learned=LEARNED, learned_both=LEARNED_BOTH,
    autoregressive=dict(method="ar"), masked=dict(method="mdm"),
    learned_full_rate=LEARNED,  # which fails in two seeds of three
    # one token per event, without masks and without a clock; `from_left` learns from a start near left to right
    insertion_uniform=INSERTION | dict(order="uniform"), insertion_forward=INSERTION | dict(order="left_to_right"),
    insertion_learned=INSERTION | dict(order="learned", orders=2),
    insertion_from_left=INSERTION | dict(order="learned", orders=2, slope=1.0),
)
TRAIN = dict(optimiser="muon", lr=4e-3, warmup=300, ema=0.999, valid_size=256)
SIZE, ROWS, STEPS, SAMPLES, REFERENCE = "tiny", 64, 1000, 500, 10_000
PUBLISHED = 30_000  # samples of the tables of MOSES
NO_RULE = ("ar", "ordered-insertion")  # methods whose samplers take no rule for positions
DRAWN = {"p 1": EventDriven(), "p .7, confidence": EventDriven(exact=True, top_p=0.7, confidence="top_prob")}

CONFIDENT, LEAPS = EventDriven(exact=True, confidence="top_prob"), TauLeaping(steps=128, confidence="top_prob")
SAMPLERS = {
    "tau-leaping, 32 steps": TauLeaping(steps=32), "tau-leaping, 128 steps": TauLeaping(steps=128),
    "event-driven": EventDriven(), "event-driven, confidence": CONFIDENT,
    "event-driven, confidence, p .7": replace(CONFIDENT, top_p=0.7),
    # FlexMDM's adaptive sampler, and its window of two hyperparameters
    "128 steps, confidence": LEAPS, "128 steps, confidence, window 8": replace(LEAPS, window=8),
    "128 steps, confidence, window 8 or twice as many": replace(LEAPS, window=8, window_ratio=2.0),
    "128 steps, leftmost": replace(LEAPS, confidence="leftmost"),
    "tau-leaping, 512 steps": TauLeaping(steps=512),
}
MOLECULES = 1_500_000  # of the training file, of which the real ones are taken at even distances


def tables(entrant: str, seed: int, steps: int, size: str) -> dict:
    "The recipe of a run."
    model, every = dict(size=size) | ENTRANTS[entrant], -(-steps // 6)
    train = dict(steps=steps, seed=seed, batch_size=ROWS // states_per_sequence(model), save_every=every,
                 valid_every=every)
    if model.get("order") == "learned":
        train |= dict(order_start=steps // 4, order_lr_scale=1.0 if entrant == "learned_full_rate" else 0.1)
    return dict(task=TASK, model=model, train=TRAIN | train)


def drawn(task: MoleculesTask, method: Method, n: int, sampler: Sampler) -> tuple[list[str | None], dict]:
    "SMILES of n samples; their commonest states, the calls of the network and the CPU seconds per sample."
    start = time.process_time()
    samples = generate(method, n=n, sampler=sampler, generator=torch.Generator().manual_seed(0))
    seconds = round((time.process_time() - start) / n, 4)
    states = Counter(d["state"] for d in task.describe(samples))
    how = dict(states=dict(states.most_common(6)), calls=samples.network_calls, seconds=seconds)
    return task.smiles_of(samples), how


def judged(smiles: list[str | None], known: set[str], reference: Reference) -> dict[str, float]:
    "MOSES' metrics and quality; the share of valid ones alone if there are none."
    if not any(j.smiles for j in judge(smiles)): return dict(valid=0.0)
    figures = moses_metrics(smiles, {"test": reference}, known, unique_at=(len(smiles) // 2,))
    figures["quality"] = molecule_metrics(smiles, known, canonical_reference=True).as_dict()["quality"]
    return {k: round(v, 4) for k, v in figures.items()}


def reference_of(task: MoleculesTask, limit: int = REFERENCE) -> Reference:
    "What samples are compared with: of MOSES `limit` test molecules, all for 0."
    if task.config.source == "moses": return moses_reference(limit=limit)
    return reference_from(describe_molecules(task.smiles("test")))


def figures(method: Method, known: set[str], n: int, reference: Reference) -> dict:
    "Metrics of n samples for each way to draw them; a rule for positions is for models with masks on a clock alone."
    task, out = task_from(method.task), {}
    for label, setting in DRAWN.items():
        sampler = replace(method.default_sampler, top_p=setting.top_p) if method.name in NO_RULE else setting
        smiles, how = drawn(task, method, n, sampler)
        out[label] = how | judged(smiles, known, reference)
    return out


def train(entrant: str, seed: int, steps: int, size: str, n: int, device: torch.device):
    "Train an entrant, sample, and note what came of it; a row of another size or budget has it in its name."
    settings = tables(entrant, seed, steps, size)
    name = f"{entrant} {seed}" + ("" if (size, steps) == (SIZE, STEPS) else f", {size}, {steps} steps")
    if noted(RESULTS, name, settings): return
    method, kept, spent = trained(settings, f"moses {name}".replace(",", ""), device, progress=True)
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, seed=seed, steps=steps, samples=n, cpu_seconds=spent, **settings,
                       device=device_name(device), curve=curve_of(kept[-1].parents[1]), bound=bound(task, method),
                       sampled=figures(method, set(task.smiles("train")), n, reference_of(task))))


def real(n: int, known: set[str], reference: Reference, source: str, scale: str):
    "Note the metrics of n training molecules, what a perfect model would get."
    smiles = random.Random(0).sample(sorted(known), n)
    name = f"real {n}" if source == "moses" else f"real {source} {n}"
    note(RESULTS, dict(name=name + scale, samples=n, sampled=dict(real=judged(smiles, known, reference))))


def distance(smiles: list[str], reference: Reference) -> float:
    "Frechet ChemNet distance of valid molecules from the reference."
    return round(CURVES["FCD"](describe_molecules(smiles), reference), 4)


def compare_samplers(model: str, n: int, device: torch.device, limit: int):
    "A row for each sampler: calls, seconds, shares, and the distance beside that of as many training molecules."
    method, reference = load(model, device).method, moses_reference(limit=limit)
    task, real = task_from(method.task), list(islice(benchmark_smiles("moses"), 0, None, MOLECULES // n))[:n]
    for label, sampler in SAMPLERS.items():
        name, settings = f"{model}, {label}", dict(model=model, sampler=repr(sampler), samples=n)
        if limit != REFERENCE: name += f", {limit or 'all'} test molecules"
        if noted(RESULTS, name, settings): continue
        smiles, how = drawn(task, method, n, sampler)
        valid = [j.smiles for j in judge(smiles) if j.smiles]
        shares = dict(valid=len(valid) / n, unique=round(len({*valid}) / len(valid), 4))
        note(RESULTS, dict(name=name, **settings, seed=0, **how, **shares, distance=distance(valid, reference),
                           floor=distance(random.Random(0).sample(real, len(valid)), reference)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="*")
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--size", default=SIZE, help=f"of the networks [{SIZE}]")
    parser.add_argument("--model", help="a packaged model or the directory of a saved one, to be judged")
    parser.add_argument("--name", help="what its row is called")
    parser.add_argument("--samplers", action="store_true", help="compare samplers of the model instead")
    parser.add_argument("--real", type=int, nargs="*", default=[], help="numbers of training molecules to judge")
    parser.add_argument("--reference", type=int, default=REFERENCE, help="test molecules to compare with; 0: all")
    parser.add_argument("-n", type=int, help=f"samples of each kind [{SAMPLES}, with --reference 0 {PUBLISHED}]")
    add_device(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = pick_device(args.device)
    args.n = args.n or (SAMPLES if args.reference else PUBLISHED)
    scale = "" if args.reference else ", all test molecules"
    if args.seeds and args.reference != REFERENCE: parser.error("--reference: of --model, --samplers and --real alone")
    for seed in args.seeds:
        for entrant in args.entrants: train(entrant, seed, args.steps, args.size, args.n, device)
    if not (args.model or args.real): return
    if args.samplers: return compare_samplers(args.model, args.n, device, args.reference)
    method = load(args.model, device).method if args.model else None
    task = task_from(method.task if method else TASK)
    known, reference = set(task.smiles("train")), reference_of(task, args.reference)
    for n in args.real: real(n, known, reference, task.config.source, scale)
    if not method: return
    note(RESULTS, dict(name=(args.name or Path(args.model).name) + scale, samples=args.n,
                       sampled=figures(method, known, args.n, reference)))


if __name__ == "__main__": main()
