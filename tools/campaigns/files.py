"""Files that hold far more than their size, which must be read or refused in one line within a little memory, and rows
in every format, which must come back as they were written unless the writer says what it changed."""
import gzip
import io
import json
import math
import random
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from molecules.test_read_back import ODD, SMILES

from campaigns.attacks import Tally, isolated_each, what_went_wrong
from campaigns.jobs import commands_like
from loflexmdm.molecules.data.compounds import read_compounds
from loflexmdm.molecules.data.tables import LIBRARY_WRITERS
from loflexmdm.support.records import read_records
from loflexmdm.support.table_writers import TABLE_WRITERS
from loflexmdm.support.writers import WRITERS, write_texts

SECONDS, MEMORY = 180, 2**30  # of processor time, and bytes, for a bomb: 50 MB of SMILES may be read, and take so long
SPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
HEADER = '<row><c t="inlineStr"><is><t>smiles</t></is></c></row>'


def often(rng: random.Random, most: float = 6) -> int:
    "Return a number between 10 and 10 to the power of `most`, of any magnitude."
    return int(10**rng.uniform(1, most))


def workbook_bomb(rng: random.Random, path: Path) -> Path:
    "A workbook with a part that is one thing many times over."
    cell = lambda place: f'<c {place} t="inlineStr"><is><t>CCO</t></is></c>'
    rows = [
        "<row/>", f"<row>{cell('')}</row>", "<row>" + "<c/>" * often(rng, 4) + "</row>", f'<row r="{often(rng, 9)}">',
        f"<row>{cell('r=' + chr(34) + rng.choice(['XFD', 'B', 'ZZZZ', '']) + str(often(rng, 8)) + chr(34))}</row>",
        f'<row><c t="inlineStr"><is><t>{"C" * often(rng, 4)}</t></is></c></row>', "<row><c t='s'><v>1</v></c></row>",
    ]
    below = rng.choice(["", "<mergeCells>" + '<mergeCell ref="A1:XFD9"/>' * often(rng) + "</mergeCells>"])
    row = rng.choice(rows)
    body = row * min(often(rng), 5 * 10**7 // len(row)) + cell("r='A2'").join(["<row>", "</row>"])
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    sheet = f'<worksheet xmlns="{SPACE}"><sheetData>{HEADER}{body}</sheetData>{below}</worksheet>'
    parts = {
        "xl/worksheets/sheet1.xml": sheet,
        "xl/sharedStrings.xml": f'<sst xmlns="{SPACE}">' + "<si><t>x</t></si>" * often(rng) + "</sst>",
        "xl/styles.xml": f'<!DOCTYPE x [<!ENTITY e0 "y">{entities}]><styleSheet xmlns="{SPACE}">&e11;</styleSheet>',
        "xl/workbook.xml": "<sheets>" * often(rng),
    }
    names = rng.sample(list(parts), rng.choice([1, 1, 2]))
    base = TABLE_WRITERS[".xlsx"]([dict(smiles="CCO", n=1)])
    with zipfile.ZipFile(io.BytesIO(base)) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        kept = [info for info in old.infolist() if info.filename not in names]
        for info in kept: new.writestr(info, old.read(info))
        for name in names: new.writestr(name, parts[name])
    return path


def parquet_bomb(rng: random.Random, path: Path) -> Path:
    "A Parquet file whose columns repeat one value, nothing or a list."
    import pyarrow as pa
    import pyarrow.parquet as pq
    n = often(rng)
    column = rng.choice([
        lambda: pa.nulls(n, pa.string()), lambda: pa.array([0] * n),
        lambda: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), ["C" * often(rng, 5)]),
        lambda: pa.array([["C"] * often(rng, 5)] * (1 + n // 10**5)),
    ])()
    pq.write_table(pa.table({"smiles": column}), path, compression=rng.choice(["zstd", "gzip", "none"]))
    if rng.random() < 0.5: return path
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 6)): data[-rng.randint(1, min(400, len(data)))] = rng.randrange(256)
    path.write_bytes(data)
    return path


def text_bomb(rng: random.Random, path: Path) -> Path:
    "A text in one of the formats that nests deeply, or repeats something, packed or not."
    n = often(rng)
    mol = LIBRARY_WRITERS[".sdf"]([dict(smiles="CCO", name="a")])
    lines = 1 + n // 1000
    texts = {
        ".json": [
            "[" * n, "[{" * n, '{"a":' * n, "[" * n + "]" * n, json.dumps([{"smiles": "C" * n}]), "[" + "9" * n + "]",
            "[" + "1," * n + "1]", '{"data": ' + '{"smiles": ' * n + "1" + "}" * n + "}",
        ],
        ".jsonl": ["[" * n + "\n", '{"smiles": "CCO"}\n' * (n // 10), '{"a":' * n + "1" + "}" * n + "\n"],
        ".csv": [
            "smiles," * n + "\n", "smiles\n" + '"' * n, "smiles\n" + "," * n, "smiles\n" + "CCO\n" * (n // 10),
            '"\n' * n,
        ],
        ".tsv": ["\t" * n + "\nCCO", "smiles\tn\n" + "CCO\t" * n],
        ".sdf": [
            mol * lines, mol.replace("  3  2  0", "999999  0"), mol.replace("M  END", ""), "\n" * n + mol,
            mol.replace("M  END", "M  END\n> <a>\n" + "x\n" * n),
        ],
        ".smi": [
            "C" * n, "C(" * n, "[" * n, "C1" * n, "C%99" * n, "(" * n + ")" * n, "CCO a\n" * (n // 10), "[nH]" * n,
            "*" * n, "C.C" * n,
        ],
        ".fasta": [">" * n, ">a\n" + "ACG\n" * (n // 4), ">a\n" * n],
        ".txt": ["a" * n, "\n" * n, "\x00" * n, "a b " * n, "\ufeff" * n],
    }
    ending = rng.choice(list(texts))
    data = rng.choice(texts[ending]).encode()
    if rng.random() < 0.4: ending, data = f"{ending}.gz", gzip.compress(data)
    path = path.with_suffix(ending)
    path.write_bytes(data)
    return path


def read_whole(path: Path):
    "Read a file as texts, then as molecules. Each is read or refused."
    told = [commands_like(lambda: list(read_records(path))), commands_like(lambda: list(read_compounds(path).rows))]
    return max(told, key=lambda code: code or 0)


def bomb(seed: int, number: int, place: Path):
    "Make a bomb and read it."
    rng = random.Random(f"{seed} bomb {number}")
    make = rng.choice([workbook_bomb, parquet_bomb, text_bomb, text_bomb])
    return read_whole(make(rng, place / f"bomb.{make.__name__.replace('workbook', 'xlsx').partition('_')[0]}"))


def odd_text(rng: random.Random) -> str:
    "One of the odd texts, a part of one, or two joined by something."
    one = rng.choice(ODD)
    if rng.random() < 0.3: return one
    if rng.random() < 0.5: one = one[rng.randrange(1 + len(one) // 2):][:200]
    return one + rng.choice(["", " ", "\n", ",", "\t", '"', "\r", "|", ">"]) + rng.choice(ODD)[:200]


def molecules_come_back(rng: random.Random, place: Path) -> str:
    "Write rows of molecules in one format and read them; return what is wrong."
    ending = rng.choice(list(LIBRARY_WRITERS))
    key, of_lines, of_sdf = rng.choice(["note", "note", odd_text(rng)]), ending == ".smi", "sdf" in ending
    if key in ("smiles", "name", "id", "score", ""): key = "note"
    rows = [{"name": odd_text(rng), "smiles": rng.choice(SMILES), key: odd_text(rng), "score": i + .5}
            for i in range(rng.randint(2, 6))]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = LIBRARY_WRITERS[ending](rows)
    path = place / f"rows{ending}"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    found = read_compounds(path, "" if of_lines or of_sdf else "smiles")
    if [row.smiles for row in found.rows] != [row["smiles"] for row in rows]: return f"{ending}: other molecules"
    strip = str.strip if of_lines or of_sdf else str
    same = [strip(row.cell("name")) for row in found.rows] == [row["name"] for row in rows]
    if not of_lines:
        if found.numbers("score") != [row["score"] for row in rows]: return f"{ending}: other numbers"
        same = same and key in found.columns and [row.cell(key) for row in found.rows] == [row[key] for row in rows]
    return "" if same or said else f"{ending}: other names or properties without a word"


def texts_come_back(rng: random.Random, place: Path) -> str:
    "Write texts in one format and read them; return what is wrong."
    ending = rng.choice(list(WRITERS))
    texts = [odd_text(rng) for _ in range(rng.randint(1, 6))]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try: path = write_texts(place / f"texts{ending}", texts)
        except ValueError as e: return "" if "\n" not in str(e) else f"{ending}: refused in several lines"
    if said: return ""
    try: found = read_records(path, "" if ending in (".txt", ".fasta") else "text")
    except ValueError as e: return f"{ending}: {e}"
    kept = [record.text for record in found]
    lost = sum(found.left_out.values())
    rest = iter(texts)
    if all(text in rest for text in kept) and len(kept) + lost == len(texts): return ""
    return f"{ending}: {len(kept)} kept and {lost} left out of {len(texts)}, or others"


def read_back(seed: int, number: int, place: Path) -> int:
    "Make rows and compare them with what is read."
    rng = random.Random(f"{seed} rows {number}")
    wrong = rng.choice([molecules_come_back, molecules_come_back, texts_come_back])(rng, place)
    if wrong: raise AssertionError(wrong)
    return 0


KINDS: dict[str, Callable] = {"bombs": bomb, "read back": read_back}


def campaign(place: Path, tally: Tally, seed: int, numbers: range, together: int = 25):
    "Files of both kinds, some in each process; number `i` depends on `seed` and `i` alone."
    for kind, attack in KINDS.items():
        some = numbers[:math.ceil(len(numbers) / 4)] if kind == "bombs" else numbers
        for first in range(0, len(some), together):
            part = some[first:first + together]
            told = isolated_each([partial(attack, seed, i, place) for i in part], SECONDS, MEMORY)
            for i, one in zip(part, told): tally.note(kind, f"seed {seed}, number {i}", what_went_wrong(one))
