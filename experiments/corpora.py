"""Real texts for the scripts of stored figures, written as files with one sequence per line.

Phrases, pieces of text and lines of code come from Python's standard library (PSF licence), peptides from the wheel
modlamp (BSD-3-Clause; 2,600 antimicrobial peptides of APD3 and as many fragments from UniProt), which is read where it
lies and never imported."""
import ast
import csv
import importlib.util
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from edit_runs import comments, docstrings, library_files, library_phrases
from loflexmdm.support.atomic_files import write_file
from loflexmdm.support.statistics import empirical_variation
from loflexmdm.tasks.base import Task
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


def parses(line: str) -> bool:
    "Whether a line is Python by itself; one that opens a block gets an empty one."
    try: ast.parse(line + " pass" if line.endswith(":") else line)
    except (SyntaxError, ValueError, MemoryError): return False
    return True


def code_lines(shortest: int = 40, longest: int = 96) -> list[str]:
    "Lines of code of the standard library without their indentation, each once: those that parse, no comments."
    lines = (line.strip() for f in library_files() for line in f.read_text(errors="ignore").splitlines())
    fits = lambda s: shortest <= len(s) <= longest and s.isascii() and s.isprintable() and s[0] not in "#\"'"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in texts
        found = sorted(filter(parses, filter(fits, dict.fromkeys(lines))))
    return random.Random(0).sample(found, len(found))


def library_pieces(letters: int = 256) -> list[str]:
    """Docstrings and comments of the standard library, one after another, as lower-case letters and single spaces.

    Cut into pieces of 256 characters, as papers on diffusion cut text8."""
    texts = dict.fromkeys(text for file in library_files() for text in [*docstrings(file), *blocks(file)])
    stream = " ".join(word for text in texts for word in re.findall("[a-z]+", text.lower()))
    return list(dict.fromkeys(stream[i:i + letters] for i in range(0, len(stream) - letters + 1, letters)))


def blocks(file: Path) -> list[str]:
    "Blocks of comment lines of a Python file."
    return [block for block in re.split(r"\n\s*\n", comments(file)) if block.strip()]


def corpus(name: str, sequences: Iterable[str], **more) -> dict:
    "Settings of the task whose sequences are the letters of these lines, which are written to a file."
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_file(FOLDER / f"{name}.txt", "\n".join(sequences) + "\n")
    return dict(kind="text", file=f"runs/corpora/{name}.txt", unit="characters") | more


def text(**more) -> dict: return corpus("phrases", library_phrases(), **more)
def pieces(**more) -> dict: return corpus("pieces", library_pieces(), **more)
def code(**more) -> dict: return corpus("code", code_lines(), **more)
def peptide_task(**more) -> dict: return corpus("peptides", peptides(), **more)


def neighbours(sequences: Iterable[Sequence[str]]) -> Counter[tuple[str, str]]:
    "How often each pair of neighbouring tokens comes, the ends of sequences among them."
    return Counter(pair for s in sequences for pair in zip(["<", *s], [*s, ">"]))


def known_share(task: Task, words: Sequence[str]) -> float:
    "Share of the words that training sequences of the task have."
    known = {word for s in task.splits["train"] for word in task.text(s).split()}
    return sum(word in known for word in words) / max(len(words), 1)


def pair_variation(some: Iterable[Sequence[str]], others: Iterable[Sequence[str]]) -> float:
    "Total variation between the distributions of pairs of neighbouring tokens."
    counts, law = neighbours(some), neighbours(others)
    return empirical_variation(counts, {pair: n / law.total() for pair, n in law.items()})
