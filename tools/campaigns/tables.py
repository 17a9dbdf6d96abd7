"Generated tables, with what Python's `csv.DictReader` reads in them as the values that should come out."
import csv
import random
import re
from pathlib import Path

from campaigns.attacks import Tally
from loflexmdm.tasks.inputs import TaskInputs
from loflexmdm.molecules.data.records import smiles_and_texts
from loflexmdm.support.records import BLANK, MISSING

CELLS = [
    "", "1", "2.5", "1,5", "1_2", "NA", '"', "a\nb", "3\n", " 4 ", "\n\n", ">7", "x,y", "\u2028", "\x0c", 'q"q',
    "5.0\n(repeat 2)",
]
WIDTHS = 3, 3, 3, 2, 1, 0  # cells of a row; of the header 3
TOO_WIDE = ["CCO", "1", "2", "345"]
DELIMITERS = {"t.csv": ",", "t.tsv": "\t"}


def generated(rng: random.Random) -> list[list[str]]:
    "One to twelve rows with line breaks, quotes and missing cells; in every fifth table one is wider than the header."
    smiles = lambda: rng.choice(["C" * rng.randint(1, 9) + "O", "C\nO", ""])
    cells = lambda: [smiles(), rng.choice(CELLS), rng.choice(CELLS)]
    rows = [cells()[:rng.choice(WIDTHS)] for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.2: rows[rng.randrange(len(rows))] = TOO_WIDE
    return rows


def by_python(path: Path, delimiter: str) -> list[tuple[str, str]]:
    "SMILES and value of the rows that fit the header and are not blank, lines ended as the package ends them."
    with open(path, newline="") as f: rows = list(csv.DictReader(f, delimiter=delimiter))
    shown = lambda text: (text or "").replace("\r\n", "\n")
    return [(shown(r["smiles"]), shown(r["value"])) for r in rows if None not in r]


def pointed(value: str) -> str:
    "A decimal comma as a point, and no white space around."
    return re.sub(r"^([+-]?\d+),(\d+)$", r"\1.\2", value.strip())


def attack(rng: random.Random, place: Path) -> str:
    "Write a table and read it; what is wrong, empty if nothing is."
    name, rows = rng.choice(list(DELIMITERS)), generated(rng)
    path, end = place / name, rng.choice(["\n", "\r\n"])
    with open(path, "w", newline="") as f:
        csv.writer(f, delimiter=DELIMITERS[name], lineterminator=end).writerows([["smiles", "note", "value"], *rows])
    expected = by_python(path, DELIMITERS[name])

    # every row is used, or told with a reason
    found = list(smiles_and_texts(path, "", "value"))
    if len(found) != len(rows): return f"{len(found)} records of {len(rows)} rows"
    used = [(smiles, value) for smiles, value in found if isinstance(smiles, str)]
    wanted = [(smiles, pointed(v)) for smiles, v in expected if smiles]
    if [(smiles, pointed(v)) for smiles, v in used] != wanted: return "values of other molecules"
    texts = [v for v in (v.rstrip(BLANK) for _, v in expected) if v and v not in MISSING]
    try: edited = TaskInputs().sequences(path, "value").rows
    except ValueError as e: return f"edit: {e}" if texts else ""
    if len(edited) != len(rows): return "edit: rows are missing"
    if [row.text for row in edited if not row.reason] != texts: return "edit: other cells"
    return ""


def campaign(place: Path, tally: Tally, seed: int, numbers: range):
    "Tables; number `i` depends on `seed` and `i` alone."
    for i in numbers:
        tally.note("tables", f"seed {seed}, number {i}", attack(random.Random(f"{seed} table {i}"), place))
