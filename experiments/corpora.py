"""Real texts for the scripts of stored figures, written as files with one sequence per line.

Phrases come from Python's standard library (PSF licence), peptides from the wheel modlamp (BSD-3-Clause; 2,600
antimicrobial peptides of APD3 and as many fragments from UniProt), which is read where it lies and never imported."""
import csv
import importlib.util
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from edit_runs import library_phrases
from loflexmdm.support.atomic_files import write_file
from loflexmdm.support.statistics import empirical_variation
from runs import ROOT

FOLDER = ROOT / "runs" / "corpora"
PEPTIDES = "data/AMPvsUniProt.csv"


def peptides() -> list[str]:
    "Peptides of 2 to 30 amino acids, each once. ValueError without the wheel."
    found = importlib.util.find_spec("modlamp")
    if found is None: raise ValueError("modlamp is not installed; pip install --no-deps modlamp")
    with open(Path(found.submodule_search_locations[0], PEPTIDES), newline="") as f:
        rows = [row[0].strip() for row in csv.reader(f)][1:]  # the first row counts the others
    return [p for p in dict.fromkeys(rows) if 2 <= len(p) <= 30]


def corpus(name: str, sequences: Iterable[str], **more) -> dict:
    "Settings of the task whose sequences are the letters of these lines, which are written to a file."
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_file(FOLDER / f"{name}.txt", "\n".join(sequences) + "\n")
    return dict(kind="text", file=f"runs/corpora/{name}.txt", unit="characters") | more


def text(**more) -> dict: return corpus("phrases", library_phrases(), **more)
def peptide_task(**more) -> dict: return corpus("peptides", peptides(), **more)


def neighbours(sequences: Iterable[Sequence[str]]) -> Counter[tuple[str, str]]:
    "How often each pair of neighbouring tokens comes, the ends of sequences among them."
    return Counter(pair for s in sequences for pair in zip(["<", *s], [*s, ">"]))


def pair_variation(some: Iterable[Sequence[str]], others: Iterable[Sequence[str]]) -> float:
    "Total variation between the distributions of pairs of neighbouring tokens."
    counts, law = neighbours(some), neighbours(others)
    return empirical_variation(counts, {pair: n / law.total() for pair, n in law.items()})
