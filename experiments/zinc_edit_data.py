"""Molecules to train edits on, far from leads that are to be judged.

`python experiments/zinc_edit_data.py ZINC.smi[.gz] LEADS.smi OUT.smi`

Writes those of ZINC.smi, in an order drawn at random, that are none of the leads nor close to one: a Tanimoto
similarity below 0.6 to each, without regard to stereochemistry."""
import argparse
import gzip
import random
from pathlib import Path

from rdkit import Chem, DataStructs, RDLogger
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

CLOSE, SEED = 0.6, 0
FINGERPRINTS = GetMorganGenerator(radius=2, fpSize=2048)


def first_words(path: Path) -> list[str]:
    "The first word of each line."
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as lines: return [line.split()[0] for line in lines if line.strip()]


def is_far(smiles: str, bits: list) -> bool:
    "Whether a molecule is similar to none of those with these fingerprints."
    mol = Chem.MolFromSmiles(smiles)
    if mol is None: return False
    return max(DataStructs.BulkTanimotoSimilarity(FINGERPRINTS.GetFingerprint(mol), bits)) < CLOSE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("zinc", "leads", "out"): parser.add_argument(name, type=Path)
    args = parser.parse_args()
    RDLogger.DisableLog("rdApp.*")
    bits = [FINGERPRINTS.GetFingerprint(Chem.MolFromSmiles(s)) for s in first_words(args.leads)]
    molecules = first_words(args.zinc)
    kept = [s for s in molecules if is_far(s, bits)]
    random.Random(SEED).shuffle(kept)
    args.out.write_text("\n".join(kept) + "\n")
    print(f"{args.out}: {len(kept):,} of {len(molecules):,} molecules")


if __name__ == "__main__": main()
