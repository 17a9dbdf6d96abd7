"""The table of atom environments: `python experiments/environments.py leads.smi [--check FILE...]`.

Counts how many molecules of a file, made by `lead_molecules.py` of ChEMBL and ZINC, have each environment, and writes
the table of the package. With `--check`, the share of other molecules that are refused, and for what, goes to
experiments/results/environments.json."""
import argparse
from collections import Counter
from pathlib import Path

from loflexmdm.molecules.scores import makeable
from loflexmdm.support.atomic_files import write_file
from rdkit import Chem
from runs import ROOT, note

TABLE = ROOT / "loflexmdm" / "molecules" / "scores" / "environments.tsv.gz"
RESULTS = ROOT / "experiments" / "results" / "environments.json"


def molecules(path: Path) -> list[Chem.Mol]:
    "The molecules of the first words of a file's lines."
    read = (Chem.MolFromSmiles(line.split()[0]) for line in path.read_text().splitlines() if line.strip())
    return [mol for mol in read if mol is not None]


def check(path: Path, known: set[str]):
    "Note the share of molecules that are refused, of those that are not in the table."
    mols = [mol for mol in molecules(path) if Chem.MolToSmiles(mol) not in known]
    why = Counter(makeable.objection(mol) for mol in mols)
    del why[""]
    kinds = Counter("rare environment" if text.startswith("rare environment") else text for text in why.elements())
    row = dict(name=path.stem, n=len(mols), refused=round(sum(why.values()) / len(mols), 4), reasons=dict(kinds))
    note(RESULTS, row | dict(most=dict(why.most_common(8))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--check", nargs="*", type=Path, default=[])
    args = parser.parse_args()
    mols = molecules(args.source)
    write_file(TABLE, makeable.write_table(makeable.count_environments(mols)))
    known = {Chem.MolToSmiles(mol) for mol in mols}
    print(f"{len(mols):,} molecules, {len(makeable.known_environments().counts):,} environments, "
          f"{TABLE.stat().st_size:,} bytes")
    for path in args.check: check(path, known)


if __name__ == "__main__": main()
