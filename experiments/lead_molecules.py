"""Molecules to train the lead model on: `python experiments/lead_molecules.py FILE... --out leads.smi`.

Reads SMILES, one per line, keeps the largest part of each, and writes each canonical SMILES once, in random order.
Left out and counted: what RDKit refuses, rare elements, isotopes, radicals, fewer than 8 or more than 50 heavy atoms,
and molecules that contain a drug of `link_cases.toml`, whose linkers are later asked for."""
import argparse
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from rdkit import Chem, RDLogger

from loflexmdm.support.atomic_files import write_file

CASES = Path(__file__).parent / "link_cases.toml"
ELEMENTS = {*"BCNOFSPI", "Si", "Cl", "Br"}
ATOMS = range(8, 51)


def drug(ends: str, linker: str) -> Chem.Mol:
    "Return the molecule of two ends and a linker, without stereo."
    first, second = ends.split(".")
    parts = [first.replace("*", "[*:1]", 1), second.replace("*", "[*:2]", 1),
             linker.replace("[1*]", "[*:1]").replace("[2*]", "[*:2]")]
    return Chem.molzip(Chem.MolFromSmiles(".".join(parts)))


@cache
def drugs() -> list[Chem.Mol]:
    "Return the drugs whose linkers are asked for."
    cases = tomllib.loads(CASES.read_text())
    return [drug(*case) for group in ("known", "second", "approved") for case in cases[group].values()]


def objection(mol: Chem.Mol | None) -> str:
    "Return why a molecule is left out, or an empty string."
    if mol is None: return "refused by RDKit"
    atoms = list(mol.GetAtoms())
    if len(atoms) not in ATOMS: return f"fewer than {ATOMS[0]} or more than {ATOMS[-1]} heavy atoms"
    if any(a.GetSymbol() not in ELEMENTS for a in atoms): return "rare element"
    if any(a.GetIsotope() for a in atoms): return "isotope"
    if any(a.GetNumRadicalElectrons() for a in atoms): return "radical"
    if any(mol.HasSubstructMatch(d) for d in drugs()): return "contains a drug of the link cases"
    return ""


def largest_part(smiles: str) -> Chem.Mol | None:
    "Return the part with the most heavy atoms of what a SMILES describes, or None."
    mol = Chem.MolFromSmiles(smiles)
    if mol is None: return None
    parts = Chem.GetMolFrags(mol, asMols=True)
    return max(parts, key=Chem.Mol.GetNumAtoms, default=None)


def judge(lines: Sequence[str]) -> list[tuple[str, str]]:
    "Return canonical SMILES and objection of each line; one of the two is empty."
    RDLogger.DisableLog("rdApp.*")
    found = []
    for mol in map(largest_part, lines):
        reason = objection(mol)
        found.append(("", reason) if reason else (Chem.MolToSmiles(mol), ""))
    return found


def read(files: Iterable[Path]) -> list[str]:
    "Return the first word of each line."
    return [words[0] for file in files for line in file.read_text().splitlines() if (words := line.split())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    lines = read(args.files)
    chunks = [lines[i:i + 2000] for i in range(0, len(lines), 2000)]
    kept, left = {}, Counter()
    with ProcessPoolExecutor() as pool:
        for judged in pool.map(judge, chunks):
            for smiles, reason in judged:
                if not reason and smiles in kept: reason = "again"
                if reason: left[reason] += 1
                else: kept[smiles] = None
    order = list(kept)
    random.Random(0).shuffle(order)
    write_file(args.out, "\n".join(order) + "\n")
    print(f"{len(lines):,} lines, {len(order):,} molecules; left out: {dict(left.most_common())}")


if __name__ == "__main__": main()
