"""200 tables as people's programs write them: blank lines, quoted newlines, NA, marks, CRLF, delimiters at the end,
headers that come twice, and minus signs of a typesetter."""
import random

import pytest

from loflexmdm.molecules.data.compounds import read_compounds
from loflexmdm.support.records import number_in, read_records

SEED = "28 November"
MOLECULES = "CCO", "c1ccccc1", "C[C@H](N)C(=O)O", "[NH4+]", "C#N", "O=C1CCCN1"
MINUS = "\u2212"


class Hostile:
    "A table with its right texts and numbers."
    def __init__(self, rng, texts):
        self.delimiter = rng.choice(",;\t")
        self.twice, self.trailing = rng.random() < .3, rng.choice(["no", "no", "rows", "all"])
        self.newline, self.marks = rng.choice(["\n", "\r\n"]), rng.choice(["utf-8", "utf-8-sig", "utf-16"])
        self.decimal = "," if self.delimiter == ";" and rng.random() < .5 else "."
        self.kept, self.numbers, self.n, lines = [], [], 0, []
        for i in range(rng.randrange(3, 12)):
            if rng.random() < .15:
                lines.append("")
                self.n += 1
            lines.append(self.row(rng, i, rng.choice(texts)))
        header = ["id", "text", "note", "value"] + ["value"] * self.twice
        head = self.delimiter.join(header) + self.delimiter * (self.trailing == "all")
        self.body = "\n".join([head, *lines]) + "\n" * rng.randrange(2)

    def row(self, rng, i, text):
        value = round(rng.uniform(-9, 9), 2)
        written = f"{value:.2f}".replace(".", self.decimal).replace("-", rng.choice(["-", MINUS]))
        note = rng.choice(["", "plain", '"two\nlines"', '"with "" quotes"', "NA", f'"a{self.delimiter}b"'])
        kind, self.n = rng.random(), self.n + 1
        shown = rng.choice(["NA", "N/A", "", " "]) if kind < .2 else f'"{text}"' if kind < .4 else text
        if kind >= .2:
            self.kept.append(text)
            self.numbers.append(value)
        cells = [str(i), shown, note, written] + ["1"] * self.twice
        return self.delimiter.join(cells) + self.delimiter * (self.trailing != "no")

    def write(self, path):
        path.write_bytes(self.body.replace("\n", self.newline).encode(self.marks))
        return path


def ending(table): return ".tsv" if table.delimiter == "\t" else ".csv"


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_texts_of_hostile_tables(tmp_path, start):
    for seed in range(start, start + 20):
        rng = random.Random(f"{SEED} text {seed}")
        table = Hostile(rng, ["the cat", "a b c", "x", "é ö", "-5", "one; two | three".replace(";", "")])
        found = read_records(table.write(tmp_path / f"{seed}{ending(table)}"), "text")
        where = f"{found.layout} {table.trailing} {table.body!r}"
        assert [r.text for r in found] == table.kept, where
        assert found.kept + found.left_out.total() == table.n, (where, found.left_out)
        if not table.twice and table.kept: assert found.numbers("value") == pytest.approx(table.numbers), where


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_molecules_of_hostile_tables(tmp_path, start):
    for seed in range(start, start + 20):
        rng = random.Random(f"{SEED} molecule {seed}")
        table = Hostile(rng, MOLECULES)
        path = table.write(tmp_path / f"{seed}{ending(table)}")
        if not table.kept: continue
        found = read_compounds(path, "text")
        where = f"{found.layout} {table.trailing} {table.body!r}"
        assert [row.text for row in found.rows if row.smiles] == table.kept, where
        assert len(found.rows) == table.n, where
        named = [row for row in found.rows if row.smiles]
        values = [number_in(row.cell("value"), found.layout.decimal) for row in named]
        assert values == pytest.approx(table.numbers), where
        if table.twice: assert {row.cell("value (2)") for row in named} == {"1"}
