"""How the package sounds: openings and first sentences of docstrings, and habits that are not English.

`python tests/house/test_english.py` prints the figures of every room, and with rooms named, what is found there.
The anchors (flow_matching, diffrax, BlackJAX, sbi, fastcore) have first sentences of 6 to 9 words and no openings."""
import ast
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OPENING = re.compile(r"(What|Whether|How|Which|Those|That)\b")
WORDS = 9  # median words of a first sentence
# habits per 1,000 docstrings, as a report: one may be right where it stands
SHARE = 20
HABITS = {
    "fronted phrase": r"^(Of|From|To|With|For|At|In) [^,.]+, [a-z`]",
    "relative clause for a noun":
        r"\b(what|those) (is|are|that|which) (kept|left|there|made|given|said)\b|\bof which\b",
    "person made of a part":
        r"\b(who|whose) (says|asks|knows|reads)|\b(asks?|asked) (for|of)\b|\bis (said|told)\b|\bknows? nothing\b",
    "alone for only": r"\balone\b(?! (?:in|with))",
    "behind for after": r"\b(behind|anew)\b",
    "X included": r"\b(those|ones|token|tokens) (included|apart)\b",
}


class Found(NamedTuple):
    "A docstring's place and text."
    room: str
    where: str
    text: str
    function: bool  # of a function or class; False: of a module


def docstrings(package: Path) -> Iterator[Found]:
    "Yield the docstrings of modules, classes and functions."
    for path in sorted(package.rglob("*.py")):
        if path.name == "_modidx.py": continue
        room = "/".join(path.relative_to(package).parts[:-1]) or "."
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if text := ast.get_docstring(node):
                    name = getattr(node, "name", "module")
                    yield Found(room, f"{path.relative_to(package.parent)} {name}", text, name != "module")


def first_sentence(text: str) -> str:
    "Return the text up to the first full stop or blank line; `et al.` and `Eq.` do not end it."
    return re.split(r"(?<!\bal\.)(?<!\bEq\.)(?<=[.!?])\s|\n\s*\n", text.strip())[0]


def habits(text: str) -> list[str]:
    "Return the names of the habits in a text."
    flat = " ".join(text.split())
    return [name for name, pattern in HABITS.items() if re.search(pattern, flat)]


class Figures(NamedTuple):
    "Counts of a set of docstrings."
    docstrings: int
    openings: int
    words: float  # median of first sentences of functions and classes
    habits: int


def figures(found: list[Found]) -> Figures:
    "Count openings, words and habits."
    words = [len(first_sentence(f.text).split()) for f in found if f.function]
    openings = sum(bool(OPENING.match(f.text)) for f in found)
    return Figures(len(found), openings, statistics.median(words or [0]), sum(len(habits(f.text)) for f in found))


def test_docstrings_open_with_a_verb_or_a_noun_and_are_short():
    found = list(docstrings(ROOT / "loflexmdm"))
    seen = figures(found)
    print(*report(found), sep="\n")
    opened = [f"{f.where}: {first_sentence(f.text)}" for f in found if OPENING.match(f.text)]
    assert not opened, "\n".join([f"{len(opened)} docstrings that open with a question word:", *opened[:40]])
    assert seen.words <= WORDS, f"first sentences have a median of {seen.words} words, at most {WORDS} are allowed"
    assert seen.habits <= SHARE * seen.docstrings / 1000, f"{seen.habits} habits: run python {Path(__file__).name}"


def test_what_the_counts_find():
    assert first_sentence("Fit ranks (Talts et al. 2018). More.") == "Fit ranks (Talts et al. 2018)."
    assert first_sentence("Return x\nand y.\n\nShapes.") == "Return x\nand y."
    samples = [
        Found("a", "m f", "Whether a row is done.", True), Found("a", "m g", "Return the rows alone.", True),
        Found("a", "m", "What it is.", False), Found("a", "m h", "Of a row, the end stays behind it.", True),
    ]
    assert figures(samples) == Figures(docstrings=4, openings=2, words=5, habits=3)
    assert not habits("Return x, also outside of the batch.")


def report(found: list[Found]) -> Iterator[str]:
    "Yield a line per room, then the total."
    yield f"{'room':20} docstrings openings words habits"
    for room in [*sorted({f.room for f in found}), None]:
        n, openings, words, seen = figures([f for f in found if room in (None, f.room)])
        yield f"{room or 'all':20} {n:10} {openings:8} {words:5g} {seen:6}"


if __name__ == "__main__":
    every = list(docstrings(ROOT / "loflexmdm"))
    print(*report(every), sep="\n")
    for f in every:
        if f.room in sys.argv[1:] and (OPENING.match(f.text) or habits(f.text)):
            print(f"{f.where}: {', '.join(habits(f.text)) or 'opening'}: {first_sentence(f.text)}")
