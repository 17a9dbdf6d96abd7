"""The figures of the MOSES benchmark, and Fréchet's ChemNet distance, for the scripts that compare molecules.

The molecules are those of the wheel molsets (`pip install --no-deps molsets`); the distance needs the wheel fcd_torch.
The statistics of the test sets in molsets are pickled Python objects, which are never opened: they are computed from
the molecules once and kept in the cache."""
import csv
import io
import math
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rdkit import Chem, rdBase
from rdkit.Chem import QED, Crippen, Descriptors
from rdkit.Chem.Scaffolds import MurckoScaffold

from loflexmdm.molecules.data.prepared import cache_directory, in_chunks, read_or_make
from loflexmdm.molecules.data.sources import BENCHMARKS, benchmark_files, benchmark_smiles
from loflexmdm.molecules.scores.metrics import bit_rows, judge, sa_scorer, tanimoto, wasserstein
from loflexmdm.support.atomic_files import file_digest, write_file
from loflexmdm.support.worker_pool import worker_pool

PRINT_BITS, LEAST_RINGS = 1024, 2
COMPUTED = dict(logP=Crippen.MolLogP, SA=lambda mol: sa_scorer().calculateScore(mol), QED=QED.qed,
                weight=Descriptors.MolWt)


def brics_fragments(mol: Chem.Mol) -> list[str]:
    "Return SMILES of the BRICS fragments, with environments of attachment points."
    return Chem.MolToSmiles(Chem.FragmentOnBRICSBonds(mol)).split(".")


def scaffold_of(mol: Chem.Mol) -> str:
    "Return SMILES of the Murcko scaffold. '' with fewer than two rings."
    frame = MurckoScaffold.GetScaffoldForMol(mol)
    return Chem.MolToSmiles(frame) if frame.GetRingInfo().NumRings() >= LEAST_RINGS else ""


class Described(NamedTuple):
    "Valid molecules with everything that the metrics need, row by row."
    smiles: list[str]  # canonical SMILES
    prints: np.ndarray  # uint8 (molecules, 128), packed bits
    fragments: list[list[str]]  # fragments of each
    scaffolds: list[str]  # scaffold of each, '' if there is none
    values: dict[str, np.ndarray]  # properties of COMPUTED, float64 (molecules,)
    activations: np.ndarray | None  # ChemNet's activations, (molecules, 512); None without fcd_torch

    def rows(self, index: Sequence[int]) -> "Described":
        "Select molecules by index."
        pick = lambda values: [values[i] for i in index]
        return Described(pick(self.smiles), self.prints[index], pick(self.fragments), pick(self.scaffolds),
                         {k: v[index] for k, v in self.values.items()},
                         None if self.activations is None else self.activations[index])


def _chunk(smiles: Sequence[str]) -> tuple:
    "Compute fingerprints, fragments, scaffolds and properties of valid molecules."
    with rdBase.BlockLogs():
        mols = [Chem.MolFromSmiles(s) for s in smiles]
        values = [[f(m) for f in COMPUTED.values()] for m in mols]
        return bit_rows(mols, PRINT_BITS), [brics_fragments(m) for m in mols], [scaffold_of(m) for m in mols], values


def describe_molecules(smiles: Sequence[str], processes: int = 1, network: bool = True) -> Described:
    """Describe valid SMILES for comparison. `network`: with ChemNet's activations, if `fcd_torch` is installed.

    ValueError for no molecules. A script with several processes needs its `if __name__ == "__main__":`."""
    if not smiles: raise ValueError("smiles: empty, must hold at least one molecule")
    smiles = list(smiles)
    if processes == 1: parts = [_chunk(c) for c in in_chunks(smiles)]
    else:
        with worker_pool(processes, "spawn") as pool: parts = list(pool.map(_chunk, in_chunks(smiles)))
    prints, fragments, scaffolds, values = zip(*parts)
    table = np.concatenate([np.array(v, np.float64) for v in values])
    found = activations(smiles) if network and has_chemnet() else None
    return Described(smiles, np.concatenate(prints), sum(fragments, []), sum(scaffolds, []),
                     dict(zip(COMPUTED, table.T)), found)


WIDTH, LONGEST = 35, 350  # characters that ChemNet knows, and its maximum length


def has_chemnet() -> bool:
    "Return True if the package fcd_torch is usable."
    try: _chemnet()
    except ImportError: return False
    return True


@cache
def _chemnet() -> tuple:
    "Load ChemNet and its SMILES encoder. ImportError explains how to install the package."
    try:
        from fcd_torch import FCD
        from fcd_torch.utils import get_one_hot
    except ImportError as e:
        advice = "pip install fcd_torch"
        raise ImportError(f"the Fréchet ChemNet distance needs fcd_torch: {advice} ({e})") from None
    return FCD(device="cpu").model, get_one_hot


def activations(smiles: Sequence[str], batch: int = 128) -> np.ndarray:
    "Compute ChemNet's last hidden layer for canonical SMILES: float64 (molecules, 512). ImportError without fcd_torch."
    network, one_hot = _chemnet()
    out = []
    for chunk in in_chunks(smiles, batch):
        x = torch.tensor(np.stack([one_hot(s, LONGEST) for s in chunk]) / WIDTH, dtype=torch.float32)
        with torch.no_grad(): out.append(network(x.transpose(1, 2)).numpy().astype(np.float64))
    return np.concatenate(out)


def gaussian(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    "Compute mean (columns,) and covariance (columns, columns), dividing by n - 1."
    return values.mean(0), np.cov(values.T)


def frechet(mean: np.ndarray, covariance: np.ndarray, mean_2: np.ndarray, covariance_2: np.ndarray) -> float:
    "Compute the Fréchet distance (squared Wasserstein-2) of two Gaussians."
    weights, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(weights.clip(0))) @ vectors.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ covariance_2 @ root).clip(0)).sum()
    return float(((mean - mean_2) ** 2).sum() + np.trace(covariance) + np.trace(covariance_2) - 2 * shared)


TILE_ROWS = 1000


def nearest(prints: np.ndarray, reference: np.ndarray) -> np.ndarray:
    "Compute each fingerprint's highest Tanimoto similarity to the reference: float64 (molecules,)."
    out = np.zeros(len(prints))
    for i in range(0, len(prints), TILE_ROWS):
        for j in range(0, len(reference), TILE_ROWS):
            found = tanimoto(prints[i:i + TILE_ROWS], reference[j:j + TILE_ROWS]).max(1)
            out[i:i + TILE_ROWS] = np.maximum(out[i:i + TILE_ROWS], found)
    return out


def internal_diversity(prints: np.ndarray, p: int = 1) -> float:
    "Compute IntDiv of packed fingerprints, as in the code of MOSES."
    n, roots = len(prints), []
    for i in range(0, n, TILE_ROWS):
        rows = prints[i:i + TILE_ROWS]
        total = sum((tanimoto(rows, prints[j:j + TILE_ROWS]) ** p).sum(1) for j in range(0, n, TILE_ROWS))
        roots.append((total / n) ** (1 / p))
    return float(1 - np.concatenate(roots).mean())


def cosine(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    "Compute the cosine similarity of two counts. nan if one is empty."
    if not a or not b: return math.nan
    shared = sum(n * b[k] for k, n in a.items() if k in b)
    norm = lambda counts: math.sqrt(sum(n * n for n in counts.values()))
    return shared / (norm(a) * norm(b))


def count_fragments(found: Described) -> Counter: return Counter(f for row in found.fragments for f in row)
def count_scaffolds(found: Described) -> Counter: return Counter(s for s in found.scaffolds if s)


ALLOWED = {"C", "N", "S", "O", "F", "Cl", "Br", "H"}


@cache
def filter_patterns() -> tuple[Chem.Mol, ...]:
    "Load the medicinal chemistry filters and PAINS. ValueError without the wheel of MOSES."
    folder = benchmark_files("moses")[0].parents[2] / "metrics"
    try:
        with open(folder / "mcf.csv", newline="", encoding="utf-8") as f:
            rows = [row["smarts"] for row in csv.DictReader(f)]
        with open(folder / "wehi_pains.csv", newline="", encoding="utf-8") as f:
            rows += [row[0].strip() for row in csv.reader(f)]
    except OSError as e: raise ValueError(f"source='moses': molsets has no filters ({e}); "
                                          "pip install --no-deps molsets") from None
    return tuple(map(Chem.MolFromSmarts, rows))


def passes_filters(smiles: str, patterns: Sequence[Chem.Mol] = ()) -> bool:
    """Return True if a valid SMILES passes the MOSES filters. It has allowed atoms, rings and charges, and none of
    the patterns."""
    mol = Chem.MolFromSmiles(smiles)
    atoms = list(mol.GetAtoms())
    if any(len(ring) >= 8 for ring in mol.GetRingInfo().AtomRings()): return False
    if any(a.GetFormalCharge() or a.GetSymbol() not in ALLOWED for a in atoms): return False
    full = Chem.AddHs(mol)
    return not any(full.HasSubstructMatch(p) for p in patterns)


class Reference(NamedTuple):
    "Reference set for the comparison of generated molecules."
    prints: np.ndarray  # uint8 (molecules, 128)
    fragments: Counter  # counts over all molecules
    scaffolds: Counter  # counts over all molecules
    values: dict[str, np.ndarray]  # properties of COMPUTED
    mean: np.ndarray | None  # mean of ChemNet's activations, (512,); None without fcd_torch
    covariance: np.ndarray | None  # covariance of the activations, (512, 512)


def reference_from(found: Described) -> Reference:
    "Summarise a set of molecules as a reference."
    moments = (None, None) if found.activations is None else gaussian(found.activations)
    return Reference(found.prints, count_fragments(found), count_scaffolds(found), found.values, *moments)


def store_reference(reference: Reference, path: Path):
    "Write a reference as a .npz file of plain arrays."
    arrays = dict(prints=reference.prints) | {f"value {k}": v for k, v in reference.values.items()}
    for name in ("fragments", "scaffolds"):
        counts = getattr(reference, name)
        arrays |= {name: np.array(list(counts)), f"{name} counts": np.array(list(counts.values()))}
    if reference.mean is not None: arrays |= dict(mean=reference.mean, covariance=reference.covariance)
    np.savez_compressed(packed := io.BytesIO(), **arrays)
    write_file(path, packed.getvalue())


def stored_reference(path: Path) -> Reference | None:
    "Load a stored reference; None if missing or damaged."
    try:
        with np.load(path, allow_pickle=False) as f: arrays = dict(f)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile): return None
    counts = lambda name: Counter(dict(zip(arrays[name].tolist(), arrays[f"{name} counts"].tolist())))
    values = {k: arrays[f"value {k}"] for k in COMPUTED}
    return Reference(arrays["prints"], counts("fragments"), counts("scaffolds"), values,
                     arrays.get("mean"), arrays.get("covariance"))


def moses_reference(name: str = "moses-test", limit: int = 0, processes: int = 1) -> Reference:
    """Return the reference of a benchmark's molecules, all or `limit` evenly spaced ones; it is cached.

    The complete test set takes about a quarter of an hour on one core. ValueError if the wheel is missing."""
    def make():
        step = max(BENCHMARKS[name].rows // limit, 1) if limit else 1
        smiles = islice(benchmark_smiles(name), 0, step * limit or None, step)
        return reference_from(describe_molecules([j.smiles for j in judge(list(smiles)) if j.smiles], processes))
    parts = [file_digest(f)[:16] for f in benchmark_files(name)] + [f"{limit}-spaced", rdBase.rdkitVersion]
    path = cache_directory() / "moses" / f"{'-'.join(parts)}{'' if has_chemnet() else '-without-fcd'}.npz"
    return read_or_make(path, make, stored_reference, store_reference)


def compare_with_reference(found: Described, reference: Reference) -> dict[str, float]:
    "Compute FCD, SNN, Frag and Scaf against a reference. nan if not computable."
    known = found.activations is not None and reference.mean is not None and len(found.smiles) > 1
    return dict(
        FCD=frechet(*gaussian(found.activations), reference.mean, reference.covariance) if known else math.nan,
        SNN=float(nearest(found.prints, reference.prints).mean()),
        Frag=cosine(count_fragments(found), reference.fragments),
        Scaf=cosine(count_scaffolds(found), reference.scaffolds),
    )


def moses_metrics(
    smiles: Sequence[str | None],
    references: Mapping[str, Reference],
    train: Iterable[str] | None = None,
    unique_at: Sequence[int] = (1000, 10_000),
    processes: int = 1,
) -> dict[str, float]:
    """Compute the MOSES table for generated SMILES (None: undecodable).

    `references`: by name, the first also for the distances of properties; `train`: canonical SMILES, for novelty.
    Unlike MOSES, several components or an open attachment point are invalid here. ValueError if no molecule is
    valid."""
    judged = judge(smiles)
    valid = [j.smiles for j in judged if j.smiles]
    if not valid: raise ValueError(f"smiles: none of {len(judged)} is a valid molecule")
    found, first = describe_molecules(valid, processes), next(iter(references.values()))
    out = dict(valid=len(valid) / len(judged))
    out |= {f"unique@{k}": len(set(valid[:k])) / k if len(valid) >= k else math.nan for k in unique_at}
    for name, reference in references.items():
        out |= {f"{k}/{name}": v for k, v in compare_with_reference(found, reference).items()}
    out |= dict(IntDiv=internal_diversity(found.prints), IntDiv2=internal_diversity(found.prints, 2))
    try: out["Filters"] = sum(passes_filters(s, filter_patterns()) for s in valid) / len(valid)
    except ValueError: out["Filters"] = math.nan
    out |= {k: wasserstein(found.values[k], first.values[k]) for k in COMPUTED}
    known = math.nan if train is None else len(set(valid) - set(train)) / len(set(valid))
    return out | dict(Novelty=known)


CURVES = dict(
    unique=lambda found, reference: len(set(found.smiles)) / len(found.smiles),
    FCD=lambda found, reference: frechet(*gaussian(found.activations), reference.mean, reference.covariance),
    SNN=lambda found, reference: float(nearest(found.prints, reference.prints).mean()),
    Frag=lambda found, reference: cosine(count_fragments(found), reference.fragments),
    Scaf=lambda found, reference: cosine(count_scaffolds(found), reference.scaffolds),
    IntDiv=lambda found, reference: internal_diversity(found.prints),
)
