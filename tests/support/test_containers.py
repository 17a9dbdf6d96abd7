"What people bring: containers of records, odd delimiters, and small files that would take all memory."
import io
import json
import resource
import time
import zipfile

import pytest

from loflexmdm.support import packed_tables
from loflexmdm.support.limits import CELLS
from loflexmdm.support.records import read_records
from loflexmdm.support.table_writers import TABLE_WRITERS

SHEET = "xl/worksheets/sheet1.xml"
HEADER = '<row><c t="inlineStr"><is><t>text</t></is></c></row>'


def read(path, content, *args):
    "Write a file; return its format, its texts and what is said of it."
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_records(path, *args)
    return found.format, [record.text for record in found.rows], found.about()


# JSON as other programs write it

RECORDS = [dict(text="ACG", n=1), dict(text="AC", n=2)]
COLUMNS = dict(text=["ACG", "AC"], n=[1, 2])


@pytest.mark.parametrize("document", [
    RECORDS,
    COLUMNS,
    dict(columns=["text", "n"], index=[0, 1], data=[["ACG", 1], ["AC", 2]]),
    dict(columns=["text", "n"], data=[["ACG", 1], ["AC", 2]]),
    {"0": RECORDS[0], "1": RECORDS[1]},
    {"first": RECORDS[0], "second": RECORDS[1]},
    dict(text={"0": "ACG", "1": "AC"}, n={"0": 1, "1": 2}),
    dict(text={"a": "ACG", "b": "AC"}, n={"a": 1, "b": 2}),
    dict(data=RECORDS), dict(data=RECORDS, version="1"), dict(meta=dict(by="x"), rows=RECORDS, tags=[]),
    dict(schema=dict(fields=[dict(name="text")]), data=RECORDS) | dict(schema=dict(fields=1)),
    ["ACG", "AC"],
], ids=str)
@pytest.mark.parametrize("indent", [None, 2])
def test_documents_of_other_programs(tmp_path, document, indent):
    name = "a.json"
    found, texts, _ = read(tmp_path / name, json.dumps(document, indent=indent))
    assert (found, texts) == ("json", ["ACG", "AC"])


@pytest.mark.parametrize("document, message", [
    (dict(a=1, b="x"), "another form|neither"),
    (dict(a=[dict(text="A")], b=[dict(text="B")], c=1), "another form|neither"),
    (dict(columns=["a"], data=[1]), "has the columns|another form|neither"), (5, "not JSON|neither a text"),
])
def test_other_documents_are_refused(tmp_path, document, message):
    with pytest.raises(ValueError, match=message): read(tmp_path / "a.json", json.dumps(document, indent=1))


@pytest.mark.parametrize("name, text", [
    ("a.json", "[" * 200_000), ("a.jsonl", '{"text": ' + "[" * 200_000), ("a.txt", '["a", ' + "[" * 200_000),
    ("a.json", '{"a": ' * 200_000), ("a.json", '[\n' * 200_000),
])
def test_deep_documents_are_one_line(tmp_path, name, text):
    with pytest.raises(ValueError, match="nested too deeply") as e: read(tmp_path / name, text)
    assert "\n" not in str(e.value)


def test_a_document_is_not_larger_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_MAX_DESCRIPTION", "30")
    read(tmp_path / "a.json", '["ACG", "AC"]')
    with pytest.raises(ValueError, match="LOFLEXMDM_MAX_DESCRIPTION"): read(tmp_path / "a.json", json.dumps(["A" * 40]))


def test_chats_are_refused_with_the_form_that_is_read(tmp_path):
    row = dict(messages=[dict(role="user", content="AC"), dict(role="assistant", content="CA")])
    lines = "".join(json.dumps(row) + "\n" for _ in range(3))
    with pytest.raises(ValueError, match="messages holds lists of objects, as chats do: write the text"):
        read(tmp_path / "a.jsonl", lines)
    flat = dict(text="AC") | row
    assert read(tmp_path / "b.jsonl", json.dumps(flat) + "\n")[1] == ["AC"]


# delimiters are those of records

@pytest.mark.parametrize("name, text, names, texts", [
    ("a.tsv", 'note\ttext\n"a, b\nc, d"\tACG\n"e, f\ng, h"\tAC\n', ("note", "text"), ["ACG", "AC"]),
    ("a.tsv", '"a,b"\t"text"\nx, y\tACG\n"z, \nw"\tAC\n', ("a,b", "text"), ["ACG", "AC"]),
    ("a.tsv", "a,b\ttext\nx, y\tACG\nz, w\tAC\n", ("a,b", "text"), ["ACG", "AC"]),
    ("a.tab", "a;b\ttext\nx; y\tACG\nz; w\tAC\n", ("a;b", "text"), ["ACG", "AC"]),
    ("a.tsv", "note,text\nx,ACG\ny,AC\n", ("note", "text"), ["ACG", "AC"]),
    ("a.csv", 'text;note\nACG;"a, b\nc, d"\nAC;"e, f"\n', ("text", "note"), ["ACG", "AC"]),
    ("a.txt", 'text\tnote\nACG\t"one\ntwo, three"\nAC\tfour\n', ("text", "note"), ["ACG", "AC"]),
    ("a.csv", 'Report of today\n\n"text",n\nACG,1\nAC,2\n', ("text", "n"), ["ACG", "AC"]),
    ("a.csv", '"Report, by hand"\ntext,n\nACG,1\nAC,2\n', ("text", "n"), ["ACG", "AC"]),
    ("a.csv", "sep=;\r\ntext;n\r\nACG;1\r\nAC;2\r\n", ("text", "n"), ["ACG", "AC"]),
])
def test_delimiters(tmp_path, name, text, names, texts):
    path = tmp_path / name
    format, found, _ = read(path, text, "text")
    assert (format, read_records(path, "text").names, found) == ("table", names, texts)


def test_cells_with_the_delimiter_need_quotes(tmp_path):
    lines = "id,structure\n" + "".join(f"{i},InChI=1S/CH4/h1,2H{i}\n" for i in range(3))
    with pytest.raises(ValueError, match="most rows have more cells than the header; quote cells"):
        read(tmp_path / "a.csv", lines)
    with pytest.raises(ValueError, match="none of 3 records.*quote cells"): read(tmp_path / "a.csv", lines, "structure")


# texts

def test_two_spellings_of_a_letter_are_said_once(tmp_path):
    composed, apart = "caf\u00e9", "cafe\u0301"
    assert "in two ways, as one character in 2 texts and as several in 1" in read(
        tmp_path / "a.txt", f"{composed}\n{apart}\n{composed}\nplain\n")[2]
    for text in (composed, apart): assert "two ways" not in read(tmp_path / "b.txt", f"{text}\n{text}\n\u4e2d\n")[2]


def test_a_column_of_lists_is_tokens(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    table = dict(tokens=[["A", "C"], ["G"], None], name=["NA", "b", "c"], count=[1, 2, 3])
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    found = read_records(tmp_path / "a.parquet")
    assert [r.text for r in found] == [["A", "C"], ["G"]] and found.left_out == {"empty": 1}
    assert found.numbers("count") == [1, 2] and found.values("name") == ["NA", "b"]


# workbooks

def workbook(path, sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, cells in sheets.items():
        sheet = book.create_sheet(title)
        for place, value in cells.items(): sheet[place] = value
    book.save(path)
    return path


TABLE = dict(A1="id", B1="text", A2=1, B2="ACG", A3=2, B3="AC")


@pytest.mark.parametrize("sheets, title, notes", [
    (dict(S=TABLE), "S", []),
    (dict(Readme=dict(A1="exported"), Data=TABLE), "Data", ["the sheet Data is read, of Readme, Data"]),
    (dict(Empty={}, Data=TABLE), "Data", ["the sheet Data is read, of Empty, Data"]),
    (dict(Data=TABLE, Other=TABLE), "Data", ["the sheet Data is read, of Data, Other"]),
    (dict(Names=dict(A1="name", B1="value", A2="x", B2="y"), Data=TABLE), "Data", ["is read, of Names, Data"]),
    (dict(S=dict(A1="a report", A4="id", B4="text", A5=1, B5="ACG", A9=2, B9="AC")), "S", ["3 lines above the header"]),
    (dict(S=TABLE | dict(XFD1000000="stray")), "S", ["left out: 1 more cells than the header"]),
    (dict(S=TABLE | dict(C1="n", C2="=LEN(B2)", C3="=B3")), "S", ["formulas without stored values, such as '=LEN("]),
])
def test_sheets(tmp_path, sheets, title, notes):
    found = read_records(workbook(tmp_path / "a.xlsx", sheets), "text")
    assert [r.text for r in found] == ["ACG", "AC"] and found.layout.sheet == title
    assert all(note in found.about() for note in notes), found.about()
    assert ("; " in found.about()) == bool(notes)


def test_surplus_cells_of_a_row_are_counted(tmp_path):
    cells = TABLE | dict(A4=3, B4="A", C4="more", A5=4, B5="G", D5=" ")
    found = read_records(workbook(tmp_path / "a.xlsx", dict(S=cells)), "text")
    assert [r.text for r in found] == ["ACG", "AC", "G"] and found.left_out == {"more cells than the header": 1}
    assert found.examples == {"more cells than the header": (4, "3 A more")}


def test_an_empty_workbook(tmp_path):
    with pytest.raises(ValueError, match="is empty"): read_records(workbook(tmp_path / "a.xlsx", dict(S={}, T={})))


# bombs: each is refused in one line before it takes memory

def packed(path, **parts):
    "Write a workbook in which some parts are others."
    pytest.importorskip("openpyxl")
    base = TABLE_WRITERS[".xlsx"]([dict(text="ACG", n=1)])
    with zipfile.ZipFile(io.BytesIO(base)) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist(): new.writestr(info, parts.get(info.filename, old.read(info)))
    return path


def sheet(body, below=""):
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    return f'<worksheet xmlns="{space}"><sheetData>{HEADER}{body}</sheetData>{below}</worksheet>'


@pytest.mark.parametrize("body, below, message", [
    ("<row/>" * 4000, "", "cells in a workbook; at most 900 are allowed; set LOFLEXMDM_MAX_CELLS"),
    ("<row>" + "<c/>" * 700 + "</row>", "", "more than 600 marks of XML within a row"),
    ("", "<mergeCells>" + '<mergeCell ref="A1:B2"/>' * 700 + "</mergeCells>", "more than 600 marks"),
    ('<row r="999999999"><c t="inlineStr"><is><t>x</t></is></c></row>', "", "a row beyond 1,048,576"),
    ('<row><c t="s"><v>77</v></c></row>', "", "cannot be read as .xlsx"),
    ('<row><c r="??"><v>77</v></c></row>', "", "cannot be read as .xlsx"), ("<row><c>", "", "cannot be read as .xlsx"),
])
def test_workbooks_that_take_memory(tmp_path, monkeypatch, body, below, message):
    monkeypatch.setenv(CELLS.variable, "900")
    monkeypatch.setattr(packed_tables, "STRETCH", 600)
    path = packed(tmp_path / "a.xlsx", **{SHEET: sheet(body, below)})
    with pytest.raises(ValueError, match=message) as e: list(read_records(path, "text"))
    assert str(e.value).startswith(str(path)) and "\n" not in str(e.value)


def test_a_workbook_that_unpacks_to_far_more(tmp_path, monkeypatch):
    monkeypatch.setattr(packed_tables, "ALWAYS", 10**5)
    long = f'<row><c t="inlineStr"><is><t>{"A" * 10**7}</t></is></c></row>'
    with pytest.raises(ValueError, match="times its size when unpacked"):
        read_records(packed(tmp_path / "a.xlsx", **{SHEET: sheet(long)}), "text")


@pytest.mark.parametrize("rows", ["<row/>", "<row><c/><c/></row>"])
def test_a_small_workbook_takes_neither_memory_nor_a_minute(tmp_path, rows):
    path = packed(tmp_path / "a.xlsx", **{SHEET: sheet(rows * 2_000_000)})
    assert path.stat().st_size < 10**5
    memory, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match="times its size when unpacked"): read_records(path, "text")
    assert time.process_time() - begun < 2 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 400_000


def test_a_large_workbook_of_equal_rows_is_read(tmp_path):
    cells = "".join(f'<row r="{i}"><c r="A{i}" t="inlineStr"><is><t>ACG</t></is></c></row>' for i in range(2, 40_000))
    path = packed(tmp_path / "a.xlsx", **{SHEET: sheet(cells)})
    packed_tables.check_package(path)
    assert cells.count("<") > packed_tables.STRETCH


def test_parquet_files_that_take_memory_or_time(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    path = tmp_path / "a.parquet"
    places = pa.array([0] * 2000, pa.int32())
    pq.write_table(pa.table(dict(text=pa.DictionaryArray.from_arrays(places, ["A" * 10**5]))), path, compression="zstd")
    with pytest.raises(ValueError, match="times its size when unpacked"): list(read_records(path))
    pq.write_table(pa.table(dict(text=pa.nulls(10**6, pa.string()))), path, compression="zstd")
    with pytest.raises(ValueError, match="times its size when unpacked"): read_records(path)


@pytest.mark.parametrize("cut", [40, 100, 300])
def test_a_damaged_parquet_file_is_one_line(tmp_path, cut):
    pytest.importorskip("pyarrow")
    whole = TABLE_WRITERS[".parquet"]([dict(text="ACG", n=i) for i in range(9)])
    (tmp_path / "a.parquet").write_bytes(whole[:4] + whole[cut:])
    with pytest.raises(ValueError, match="cannot be read as .parquet") as e: list(read_records(tmp_path / "a.parquet"))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bytes_of_packed_files_are_one_line_or_read(tmp_path, seed):
    "Whatever a reader of another package raises is a ValueError of one line that names the file."
    import random
    pytest.importorskip("openpyxl")
    rng, ending = random.Random(seed), (".xlsx", ".parquet")[seed % 2]
    data = bytearray(TABLE_WRITERS[ending]([dict(text="ACG", n=i) for i in range(9)]))
    for _ in range(rng.randrange(1, 9)): data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / f"a{ending}"
    path.write_bytes(data)
    try: list(read_records(path, "text"))
    except ValueError as e: assert "\n" not in str(e) and ("a" + ending) in str(e)


@pytest.mark.parametrize("rows, refused", [(30, False), (40, True)])
def test_cells_of_a_parquet_count_for_sixteen_bytes_each(tmp_path, monkeypatch, rows, refused):
    "However few bytes they take: 10 columns of one value, once there are more cells than are looked at."
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({f"c{k}": [1] * rows for k in range(10)}), path)
    most = 16 * 35 * 10 // path.stat().st_size
    monkeypatch.setattr(packed_tables, "STRETCH", 10)
    monkeypatch.setattr(packed_tables, "EXPANSION", packed_tables.EXPANSION._replace(most=most))
    if not refused: assert len(packed_tables.parquet_columns(path)) == 10
    else:
        with pytest.raises(ValueError): packed_tables.parquet_columns(path)
    monkeypatch.setattr(packed_tables, "STRETCH", 400)
    assert len(packed_tables.parquet_columns(path)) == 10


def test_a_formula_without_a_value_is_found_among_cells_that_are_empty(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in ([1, "=A1", 3], [2, 5, 6]): book.active.append(row)
    book.save(path := tmp_path / "a.xlsx")
    title = book.active.title
    assert packed_tables.unsaved_formula(path, title, [(1, (1, None, 3))], 1) == "=A1"
    assert packed_tables.unsaved_formula(path, title, [(1, (1, None, 3)), (2, (2, 5, 6))], 9) == "=A1"
    assert packed_tables.unsaved_formula(path, title, [(1, (1, 7, 3))], 1) == ""
