"""The fragment benchmark of packaged models:
`python experiments/fragment_runs.py fragments.csv SEED... [--model NAME]`.

A model that inserts samples from prompts, one of SMILES from the spelling that it fills best and, for a core without
points, at five places as `sample` does; one that writes SMILES from left to right grows the fragments. Models of SMILES
have two temperatures, and draw once more until all of a case's molecules are different, at the first temperature and
at a lower one; those that insert once more under the rule `valid`. A table for each seed goes to
experiments/results/fragment_benchmark.json, with its settings, the SHA-256 of the CSV and the commit. 100 samples of
each case take two to four minutes of one core, or ten for a model of masks."""
import argparse
import csv
from pathlib import Path

import torch

import loflexmdm
from loflexmdm.cli.resumable_rows import model_digest
from loflexmdm.models.model import Model
from loflexmdm.molecules.growth import grows_rightwards
from loflexmdm.molecules.notation.fragments import FragmentCase
from fragment_benchmark import FragmentSamples, fragment_table, read_benchmark
from fragment_benchmark import fill_fragments, grow_fragments
from fragment_benchmark import sample_fragments, usable_cases
from loflexmdm.samplers import EventDriven
from loflexmdm.samplers.event_by_event import EventByEvent
from loflexmdm.support.atomic_files import file_digest
from runs import ROOT, note, noted

RESULTS = ROOT / "experiments" / "results" / "fragment_benchmark.json"
SUPERSTRUCTURE = "superstructure_generation"
SAMPLER = EventDriven(exact=True, top_p=0.5, confidence="top_prob")
WAYS = {"temperature 1": {}, "temperature 1.3": dict(temperature=1.3), "all different": dict(distinct=True),
        "all different, temperature 0.7": dict(distinct=True, temperature=0.7),
        "valid, all different, temperature 0.7": dict(distinct=True, rule="valid", temperature=0.7)}


def inserted(model: Model, cases: list[FragmentCase], n: int, seed: int) -> list[FragmentSamples]:
    "Samples of a model that inserts, from the prompts of the cases that it can take."
    usable, refused = usable_cases(model, cases)
    for _, why in refused: print(f"left out: {why}", flush=True)
    return sample_fragments(model, usable, n, SAMPLER, torch.Generator().manual_seed(seed))


def fills_smiles(model: Model) -> bool:
    "Whether a model inserts into SMILES."
    return not grows_rightwards(model.method) and model.task.config.notation == "smiles"


def with_cores(cases: list[FragmentCase], path: Path) -> list[FragmentCase]:
    "Return the cases with the cores of the file, without a point, in place of cores with one at random."
    with path.open(newline="") as file: cores = {row["name"]: row[SUPERSTRUCTURE] for row in csv.DictReader(file)}
    return [c._replace(fragment=cores[c.name]) if c.task == SUPERSTRUCTURE else c for c in cases]


def run(model: Model, cases: list[FragmentCase], name: str, settings: dict, **options):
    "Sample, and note the table; `options` go to `grow`."
    if noted(RESULTS, name, settings): return
    make = inserted
    if fills_smiles(model): make = fill_fragments
    if grows_rightwards(model.method): make = grow_fragments
    results = make(model, cases, settings["n"], settings["seed"], **options)
    table = fragment_table(results)
    note(RESULTS, dict(name=name, **settings, rows=table.rows, means=table.means))
    print(table._repr_markdown_())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--model", default="molecules-moses-ar")
    parser.add_argument("-n", type=int, default=100, help="samples of each case")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="of models of SMILES")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, cases = loflexmdm.load(args.model), read_benchmark(args.csv)
    made = dict(model=Path(args.model).name, n=args.n, csv=file_digest(args.csv))
    if fills_smiles(model): made["weights"] = model_digest(model.method)[:12]
    for seed in args.seeds:
        name, settings = f"{made['model']} {seed}", made | dict(seed=seed)
        ways = {}
        if grows_rightwards(model.method) or fills_smiles(model): ways = {way: WAYS[way] for way in args.ways}
        if grows_rightwards(model.method): ways = {way: how for way, how in ways.items() if "rule" not in how}
        if fills_smiles(model): settings, cases = settings | dict(cores="five places"), with_cores(cases, args.csv)
        for label, options in ways.items():
            asked = dict(options)
            if fills_smiles(model): asked["sampler"] = EventByEvent(temperature=asked.pop("temperature", 1.0))
            run(model, cases, f"{name}, {label}", settings | dict(label=label, **options), **asked)
        if not ways: run(model, cases, name, settings | dict(sampler=repr(SAMPLER)))


if __name__ == "__main__": main()
