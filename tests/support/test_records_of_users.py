"Files of the kinds that users brought are read right, or refused in one line that names the cure."
import io
import json
import unicodedata

import pytest

from loflexmdm.molecules.data.records import molecule_records
from loflexmdm.support.records import read_records

SMILES = ["CCOc1ccccc1", "CCN(CC)CC", "OCc1ccco1", "CC(C)Cc1ccsc1", "Clc1ccccc1", "CC(=O)Nc1ccc(O)cc1"]
ROWS = [dict(smiles=s, pIC50=5.0) for s in SMILES]
CELLS = {"tab_with_commas.tsv": '"value"\t"Canonical_SMILES"\tValue\tnotes\tid\ta,b\n'
         '516.7\tCCO\tC,N 62\t"line\nbreak"\tcomma, inside 847\t"ends\n"\n'
         '636.077\tCCN\t"crlf"\t"line\r\nbreak 285"\tN,7\t"tab\tinside 177"\n12.5\tCCC\tx\ty\tz, w\tq\n'}


def workbook(formula: bool) -> bytes:
    "A workbook whose first sheet is not a table, or with a formula whose value was not stored."
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    if not formula:
        sheet.title, sheet["A1"] = "Readme", "exported on Monday"
        sheet = book.create_sheet("Data")
    sheet.append(["id", "smiles"] + ["length"] * formula)
    for i, s in enumerate(SMILES): sheet.append([i, s] + [f"=LEN(B{i + 2})"] * formula)
    book.save(data := io.BytesIO())
    return data.getvalue()


def tokens_column() -> bytes:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    pq.write_table(pa.table(dict(tokens=[list(s) for s in SMILES])), data := io.BytesIO())
    return data.getvalue()


def accents() -> str:
    "A sentence in both normal forms of Unicode."
    lines = "".join(f"café numéro {i} à l'été\n" for i in range(3))
    return unicodedata.normalize("NFC", lines) + unicodedata.normalize("NFD", lines)


def column(value) -> str: return "smiles,pIC50\n" + "".join(f"{'C' * i}O,{value(i)}\n" for i in range(1, 21))


FILES = CELLS | {
    "censored_mostly_equal.csv": lambda: column(lambda i: 5.0 if i < 15 else i / 2),
    "constant_condition.csv": lambda: column(lambda i: 6.0),
    "data_on_second_sheet.xlsx": lambda: workbook(False), "formula_without_values.xlsx": lambda: workbook(True),
    "grammar_for_gaps.txt": "a dog likes the long road\nthe cat sees a small box\n", "mixed_nfc_nfd.txt": accents,
    "pandas_index.json": json.dumps({str(i): row for i, row in enumerate(ROWS)}),
    "pandas_split.json": json.dumps(dict(
        columns=["smiles", "pIC50"], index=[*range(6)], data=[[s, 5.0] for s in SMILES],
    )),
    "wrapped_records.json": json.dumps(dict(data=[dict(smiles=s) for s in SMILES], version="1")),
    "tab_comma_header.tsv": "a,b\tid\tsmiles\tvalue\nx, y\t1\tCCO\t3.5\nz, w\t2\tCCN\t4.5\nu\t3\tCCC\t5.5\n",
    "tokens_column.parquet": tokens_column,
    "chat_messages.jsonl": json.dumps(dict(messages=[dict(role="user", content="CTAAAG")])) + "\n",
    "inchi_unquoted.csv": "id,structure\n" + "".join(f"{i},InChI=1S/C{i}H6O/c1-2-3/h3H,2H2,1H3\n" for i in range(2, 7)),
}


@pytest.fixture
def path(tmp_path, name):
    made = FILES[name]() if callable(FILES[name]) else FILES[name]
    (tmp_path / name).write_bytes(made if isinstance(made, bytes) else made.encode())
    return tmp_path / name


@pytest.mark.parametrize("name, rows, first, note", [
    ("censored_mostly_equal.csv", 20, "CO", ""),
    ("constant_condition.csv", 20, "CO", ""),
    ("data_on_second_sheet.xlsx", 6, "CCOc1ccccc1", "the sheet Data is read, of Readme, Data"),
    ("formula_without_values.xlsx", 6, "CCOc1ccccc1", "formulas without stored values"),
    ("grammar_for_gaps.txt", 2, "a dog likes the long road", ""),
    ("mixed_nfc_nfd.txt", 6, "café numéro 0 à l'été", "convert the source to NFC"),
    ("pandas_index.json", 6, "CCOc1ccccc1", ""),
    ("pandas_split.json", 6, "CCOc1ccccc1", ""),
    ("tab_comma_header.tsv", 3, "CCO", ""),
    ("tokens_column.parquet", 6, [*"CCOc1ccccc1"], ""),
    ("wrapped_records.json", 6, "CCOc1ccccc1", ""),
])
def test_what_can_be_read_is_read_whole(path, rows, first, note):
    records = read_records(path)
    found = list(records)
    assert len(found) == rows and found[0].text == first
    assert note in " ".join(records.notes) and bool(note) == bool(records.notes)


@pytest.mark.parametrize("name, says", [
    ("chat_messages.jsonl", "messages holds lists of objects, as chats do: write the text"),
    ("inchi_unquoted.csv", "quote cells that contain the delimiter, as InChI may"),
    ("tab_with_commas.tsv", "has the columns value, Canonical_SMILES, Value, notes, id, a,b; name one of them"),
])
def test_what_cannot_be_read_is_told_with_its_cure(path, says):
    with pytest.raises(ValueError, match=r"\A.*\Z") as told: list(read_records(path))
    assert says in str(told.value)


@pytest.mark.parametrize("name, texts", [
    ("data_on_second_sheet.xlsx", SMILES), ("formula_without_values.xlsx", SMILES), ("pandas_split.json", SMILES),
    ("pandas_index.json", SMILES), ("wrapped_records.json", SMILES), ("tab_with_commas.tsv", ["CCO", "CCN", "CCC"]),
    ("tab_comma_header.tsv", ["CCO", "CCN", "CCC"]),
])
def test_molecules_are_found_without_a_name_of_their_column(path, texts):
    assert [row.text for row in molecule_records(path).rows] == texts
