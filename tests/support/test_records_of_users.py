"Files that users brought are read right, or refused in one line that names the cure."
from pathlib import Path

import pytest

from loflexmdm.support.records import read_records

CASES = Path(__file__).parents[3] / "shared" / "cases" / "2"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the folder of users' cases is not here")


@pytest.mark.parametrize("name, rows, first, note", [
    ("censored_mostly_equal.csv", 40, "CO", ""),
    ("constant_condition.csv", 30, "CO", ""),
    ("data_on_second_sheet.xlsx", 10, "CCOc1ccccc1", "the sheet Data is read, of Readme, Data"),
    ("formula_without_values.xlsx", 10, "CCOc1ccccc1", "formulas without stored values"),
    ("grammar_for_gaps.txt", 400, "a dog likes the long road", ""),
    ("mixed_nfc_nfd.txt", 30, "café numéro 0 à l'été", "convert the source to NFC"),
    ("pandas_index.json", 15, "CCOc1ccccc1", ""),
    ("pandas_split.json", 15, "CCOc1ccccc1", ""),
    ("tab_comma_header.tsv", 3, "CCO", ""),
    ("tokens_column.parquet", 30, [*"CCOc1ccccc1"], ""),
    ("wrapped_records.json", 15, "CCOc1ccccc1", ""),
])
def test_what_can_be_read_is_read_whole(name, rows, first, note):
    if name.endswith("xlsx"): pytest.importorskip("openpyxl")
    records = read_records(CASES / name)
    found = list(records)
    assert len(found) == rows and found[0].text == first
    assert note in " ".join(records.notes) and bool(note) == bool(records.notes)


@pytest.mark.parametrize("name, says", [
    ("chat_messages.jsonl", "messages holds lists of objects, as chats do: write the text"),
    ("inchi_unquoted.csv", "quote cells that contain the delimiter, as InChI may"),
    ("tab_with_commas.tsv", "has the columns value, Canonical_SMILES, Value, notes, id, a,b; name one of them"),
])
def test_what_cannot_be_read_is_told_with_its_cure(name, says):
    with pytest.raises(ValueError, match=r"\A.*\Z") as told: list(read_records(CASES / name))
    assert says in str(told.value)
