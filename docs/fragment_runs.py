"""The fragment benchmark of a packaged model: `python docs/fragment_runs.py fragments.csv [--model NAME] [--n N]`.

The table goes to nbs/fragment_benchmark.json with the settings, the seed, the SHA-256 of the CSV and the commit. About
ten minutes of one core for 100 samples of each case."""
import argparse
import json
from pathlib import Path

import torch

import loflexmdm
from loflexmdm.files import file_digest, write_file
from loflexmdm.molecules.benchmarks.fragment_constrained import fragment_table, sample_fragments, usable_cases
from loflexmdm.molecules.fragments import read_benchmark
from loflexmdm.samplers import EventDriven
from runs import COMMIT, ROOT, without_nan

RESULTS = ROOT / "nbs" / "fragment_benchmark.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=Path)
    parser.add_argument("--model", default="molecules")
    parser.add_argument("--n", type=int, default=100, help="samples of each case")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, sampler = loflexmdm.load(args.model), EventDriven(top_p=0.5, confidence="top_prob")
    cases, refused = usable_cases(model, read_benchmark(args.csv))
    for _, why in refused: print(f"left out: {why}", flush=True)
    table = fragment_table(sample_fragments(model, cases, args.n, sampler, torch.Generator().manual_seed(args.seed)))
    settings = dict(model=args.model, n=args.n, seed=args.seed, sampler=repr(sampler), refused=len(refused))
    content = settings | dict(commit=COMMIT, csv=file_digest(args.csv), rows=table.rows, means=table.means)
    write_file(RESULTS, json.dumps(without_nan(content), indent=1) + "\n")
    print(table._repr_markdown_())


if __name__ == "__main__": main()
