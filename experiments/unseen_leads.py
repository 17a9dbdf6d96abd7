"""Leads that a model of edits has not seen, to judge it by.

`python experiments/unseen_leads.py SOURCE.smi OUT.smi [-n 50] [--after LINE] [--recipe experiments/lead_edits.toml]`

Writes the first molecules of the source, after a line, that the recipe's task holds out for its test split: none of
them is the lead or the product of a pair that the recipe trains on."""
import argparse
import tomllib
from itertools import islice
from pathlib import Path

from rdkit import Chem

from loflexmdm.molecules.data.cleaning import molecule_split

RECIPE = Path(__file__).with_name("lead_edits.toml")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="SMILES, one molecule a line")
    parser.add_argument("out", type=Path)
    parser.add_argument("-n", type=int, default=50, help="leads [50]")
    parser.add_argument("--after", type=int, default=0, metavar="LINE", help="lines to pass over [0]")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    args = parser.parse_args()
    task = tomllib.loads(args.recipe.read_text())["task"]
    lines = args.source.read_text().splitlines()[args.after:]
    smiles = (Chem.CanonSmiles(line.split()[0]) for line in lines if line.strip())
    held_out = (s for s in smiles if molecule_split(s, task["valid_share"], task["test_share"]) == "test")
    found = list(islice(held_out, args.n))
    if len(found) < args.n: parser.error(f"{args.source}: only {len(found)} molecules are held out")
    args.out.write_text("".join(f"{s}\n" for s in found))


if __name__ == "__main__": main()
