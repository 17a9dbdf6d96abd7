"Records of any source: content decides the format, and each record is kept or counted with its reason."
import gzip
import io
import json
import pickle
import random
import tarfile
from pathlib import Path

import pytest
import torch

from loflexmdm.support import readers
from loflexmdm.support.records import LeftOut, number_in, read_records, text_of

CASES = Path(__file__).parents[3] / "shared" / "cases"


def read(path, text, *args, **options):
    "Write a file and return its records, read once."
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_records(path, *args, **options)
    assert len(found.rows) == found.kept
    return found


def texts(found): return [record.text for record in found.rows]


# 500 files over all formats: what goes in is kept or counted

LETTERS = "ACGT abcé,;|'\"(){}[].:-=#@>/\t"


def some_text(rng):
    "A text that begins with a letter, possibly blank, or with spaces at its end."
    if rng.random() < .1: return rng.choice(["", " ", "\t"])
    return rng.choice("ACGTxyz") + "".join(rng.choices(LETTERS, k=rng.randrange(12))) + " " * rng.randrange(2)


def sequences(rng, n): return ["".join(rng.choices("ACDEFGHIKLMN", k=rng.randrange(9))) for _ in range(n)]


def cell(text, delimiter, rng):
    "A cell as spreadsheets write it: quoted if it must be, or by chance."
    must = any(c in text for c in (delimiter, '"', "\n", "\r")) or text[:1].isspace()
    return '"' + text.replace('"', '""') + '"' if must or rng.random() < .2 else text


def as_lines(rng, n):
    rows = [some_text(rng).replace("\t", " ") for _ in range(n)]
    return rows, "".join(r + "\n" for r in rows), rng.choice([".txt", ".dat", ".seq", ""])


def as_fasta(rng, n):
    rows = sequences(rng, n - 1) + ["ACD"]
    cut = lambda s: s[:4] + "\n" * bool(s[4:]) + s[4:] + "\n"
    body = "".join(f">s{i} of {n}\n{cut(r) if r else ''}" for i, r in enumerate(rows))
    return rows, body, rng.choice([".fasta", ".fas", ".a3m", ".fa", ".txt"] if rows[0] else [".fasta", ".fas"])


def as_fastq(rng, n):
    rows = ["".join(rng.choices("ACGT", k=rng.randrange(1, 9))) for _ in range(n)]
    mark = lambda s: "".join(rng.choices("@+>IJK#", k=len(s)))
    body = "".join(f"@r{i} x\n{r}\n+\n{mark(r)}\n" for i, r in enumerate(rows))
    return rows, body, rng.choice([".fastq", ".fq", ".txt"])


def as_objects(rng, n):
    rows = [some_text(rng) for _ in range(n)]
    return rows, [{"id": i, "text": r} if rng.random() < .9 else {"id": i, "text": None} for i, r in enumerate(rows)]


def as_json_lines(rng, n):
    rows, objects = as_objects(rng, n)
    rows = ["" if o["text"] is None else r for r, o in zip(rows, objects)]
    return rows, "".join(json.dumps(o) + "\n" for o in objects), rng.choice([".jsonl", ".json", ".ndjson", ".txt"])


def as_json(rng, n):
    rows, objects = as_objects(rng, n)
    rows = ["" if o["text"] is None else r for r, o in zip(rows, objects)]
    form = rng.choice([objects, rows, {"text": rows, "n": list(range(n))}])
    return rows, json.dumps(form, indent=rng.choice([None, 1])), ".json"


def as_table(rng, n):
    delimiter = rng.choice(",;\t|")
    ending = {",": ".csv", ";": ".csv", "\t": rng.choice([".tsv", ".tab", ".csv"]), "|": ".csv"}[delimiter]
    rows, lines = [], [delimiter.join(["id", "text", "n"])]
    for i in range(n):
        text = rng.choice([some_text(rng), some_text(rng), "NA", "two\nlines"])
        cells = [str(i), cell(text, delimiter, rng), "1.5"]
        kind = rng.random()
        if kind < .1: cells, text = [*cells, "more"], ""
        elif kind < .15: cells, text = cells[:1], ""
        lines.append(delimiter.join(cells))
        rows.append("" if text == "NA" else text)
    said = f"sep={delimiter}\n" * (rng.random() < .2)
    return rows, said + "\n".join(lines) + "\n" * rng.randrange(2), ending


TEXT_FORMATS = as_lines, as_fasta, as_fastq, as_json_lines, as_json, as_table


def written(path, body, rng):
    "Write a text file: packed or not, in several encodings and with several line ends."
    newline = rng.choice(["\n", "\n", "\r\n"])
    data = body.replace("\n", newline).encode(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"]))
    packed = rng.random() < .2
    path = path.with_name(path.name + ".gz" * packed)
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    return path


@pytest.mark.parametrize("make", TEXT_FORMATS)
def test_records_in_are_kept_or_counted(tmp_path, make):
    for seed in range(80):
        rng = random.Random(f"{make.__name__} {seed}")
        rows, body, ending = make(rng, n := rng.randrange(2, 12))
        path = written(tmp_path / f"{seed}{ending}", body, rng)
        found = read_records(path, "text" if make is as_table or make is as_json_lines else "")
        kept = [record.text for record in found]
        where = f"{path.name}: {found.layout} {body!r}"
        assert kept == [r.rstrip(" \t") for r in rows if r.strip(" \t")], where
        assert found.kept + found.left_out.total() == n == len(rows), where
        assert sum(isinstance(r, LeftOut) for r in found.every()) == found.left_out.total()


@pytest.mark.parametrize("seed", range(20))
def test_workbooks_and_parquet(tmp_path, seed):
    openpyxl, pa = pytest.importorskip("openpyxl"), pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    rng = random.Random(seed)
    rows = [rng.choice([some_text(rng), None, "NA"]) for _ in range(rng.randrange(1, 9))] + ["ACG"]
    book = openpyxl.Workbook()
    for row in [("id", "text", "n"), *((i, r, i + .5) for i, r in enumerate(rows))]: book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    pq.write_table(pa.table(dict(id=list(range(len(rows))), text=pa.array(rows, pa.string()))), tmp_path / "a.parquet")
    for name in ("a.xlsx", "a.parquet"):
        found = read_records(tmp_path / name)
        assert [r.text for r in found] == [r.rstrip(" \t") for r in rows if r and r.strip(" \t") and r != "NA"]
        assert found.kept + found.left_out.total() == len(rows)


# each kind of file that was misread, with the right values

@pytest.mark.parametrize("name, text, format, expected", [
    ("a.fas", ">p0 OS=Test\nWVF\nNYS\n>p1\nDYA\n", "fasta", ["WVFNYS", "DYA"]),
    ("a.txt", ">p0 OS=Test\nWVF\n>p1\nDYA\n", "fasta", ["WVF", "DYA"]),
    ("a.a3m", "#A3M#\n>p0\nAC-d\n>p1\nA\n", "fasta", ["AC-d", "A"]),
    ("a.fastq", "@r0\nACG\n+\nIII\n@r1\nAC\n+r1\n@I\n", "fastq", ["ACG", "AC"]),
    ("a.txt", "@r0\nA\nCG\n+\nIII\n@r1\nAC\n+\nII\n", "fastq", ["ACG", "AC"]),
    ("a.txt", "@r0\nACG\n+\n@@@\n@r1\nA\nC\n+\nII\n", "fastq", ["ACG", "AC"]),
    ("a.json", '{"text": "WVF"}\n{"text": "DYA"}\n', "json lines", ["WVF", "DYA"]),
    ("a.ndjson", '{"text": "WVF"}\n', "json lines", ["WVF"]),
    ("a.json", '["WVF", "DYA"]', "json", ["WVF", "DYA"]),
    ("a.json", '[\n {"text": "WVF", "n": 1},\n {"n": 2, "text": "DYA"}\n]\n', "json", ["WVF", "DYA"]),
    ("a.json", '{"text": {"0": "WVF", "1": "DYA"}, "n": {"0": 1, "1": 2}}', "json", ["WVF", "DYA"]),
    ("a.tab", "seq\tlabel\nAGATT\tx\nTC\ty\n", "table", ["AGATT", "TC"]),
    ("a.dat", "seq;label\nAGATT;x\nTC;y\n", "table", ["AGATT", "TC"]),
    ("a.csv", "sep=|\ntext|n\na, b|1\n", "table", ["a, b"]),
    ("a.csv", "text\tn\na, b\t1\n", "table", ["a, b"]),
    ("a.csv", "Text;n\na;5,00\nb;5,01\n", "table", ["a", "b"]),
    ("a.csv", ",text,n\n0,a,1\n1,b,2\n", "table", ["a", "b"]),
    ("a.csv", "text,n,\na,1,\nb,2,\n", "table", ["a", "b"]),
    ("a.txt", "(.)\n((.))..\n", "lines", ["(.)", "((.)).."]),
    ("a.txt", "[]\n[[]]\n", "lines", ["[]", "[[]]"]),
    ("a.txt", "[INFO] start\n{x} end\n", "lines", ["[INFO] start", "{x} end"]),
    ("a.txt", "one, two\nthree, four\n", "lines", ["one, two", "three, four"]),
    ("a.txt", "> a quotation\nan answer\n", "lines", ["> a quotation", "an answer"]),
])
def test_content_decides(tmp_path, name, text, format, expected):
    found = read(tmp_path / name, text)
    assert (found.format, texts(found)) == (format, expected)
    packed = read(tmp_path / f"{name}.gz", gzip.compress(text.encode()))
    assert (packed.format, texts(packed)) == (format, expected)


def test_names_and_other_columns_are_kept(tmp_path):
    found = read(tmp_path / "a.fas", ">prot0 OS=Test organism\nWVF\n>prot1\nDYA\n")
    assert found.names == ("text", "name", "description")
    assert found.values("name") == ["prot0", "prot1"] and found.values("description") == ["OS=Test organism", ""]
    table = read(tmp_path / "a.csv", "id;text;value\nx;a;5,25\ny;b;<1\nz;c;n/a\n")
    assert table.values("id") == ["x", "y", "z"] and table.layout.decimal == ","
    number, relation, missing = table.numbers("value")
    assert (number, relation) == (5.25, None) and missing != missing


@pytest.mark.parametrize("text, decimal, value", [
    ("5,00", ",", 5.0), ("5.5", ".", 5.5), ("5,5", ".", None), ("5.5", ",", None), (">10", ".", None),
    ("1_0", ".", None), ("1e1", ".", 10.0), ("6.5 uM", ".", None), ("inf", ".", None), ("1.234,5", ",", None),
])
def test_numbers_are_read_or_not_at_all(text, decimal, value): assert number_in(text, decimal) == value


@pytest.mark.parametrize("text", ["", " ", "NA", "#N/A", "<NA>", "NaN", "null", "-", "n/a"])
def test_blank_numbers(text): assert number_in(text) != number_in(text)


def test_a_comma_is_no_decimal_sign_where_it_may_part_thousands(tmp_path):
    assert read(tmp_path / "a.csv", "text;n\na;1,234\nb;5,678\n").layout.decimal == "."
    assert read(tmp_path / "a.csv", "text;n\na;1,5\nb;2.5\n").layout.decimal == "."


def test_extra_empty_cells_are_said_unless_every_row_has_them(tmp_path):
    found = read(tmp_path / "a.csv", "text,n,m,k\na,1,2,3\nb,5,3,7.1,\n")
    assert texts(found) == ["a", "b"] and "1 records have an extra empty cell, the first is line 3" in found.line()
    assert "extra empty" not in read(tmp_path / "a.csv", "text,n\na,1,\nb,2,\n").line()


def test_na_and_spaces_have_one_rule(tmp_path):
    found = read(tmp_path / "a.csv", "text,n\nNA,1\nab  ,2\n ab,3\n")
    assert texts(found) == ["ab", " ab"] and found.left_out == {"missing (NA)": 1}
    assert "white space at the end of 1 texts is removed" in found.line()
    assert texts(read(tmp_path / "a.txt", "NA\nab \n")) == ["NA", "ab"]


def test_the_line_has_counts_reasons_layout_alphabet_and_lengths(tmp_path):
    line = read(tmp_path / "a.csv", "text;n\nACG;1,5\n;2,0\nAC;1\nA;2;3\n").line()
    assert line == (
        f"read: {tmp_path}/a.csv: table (';', decimal comma), column text: 4 records, 2 kept; "
        "left out: 1 empty, 1 more cells than the header; 3 different characters 'ACG'; length: median 2, longest 3"
    )
    assert "5 different tokens; length" not in line


def tar() -> bytes:
    "Return an archive of one file."
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive: archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    return made.getvalue()


@pytest.mark.parametrize("name, text, message", [
    ("a.fasta", "ACG\nAC\n", "a.fasta, line 1: not FASTA.*rename it to .txt"), ("a.fastq", "ACG\n", "not FASTQ"),
    ("a.jsonl", "ACG\n", "not JSON lines"), ("a.jsonl", '{"text": "a"}\n{"text": "b', "line 2: not valid JSON"),
    ("a.txt", "<html>\n", "is a web page"), ("a.txt", b"%PDF-1.4\n", "is PDF"), ("a.csv", b"\xd0\xcf\x11\xe0", "old"),
    ("a.txt", gzip.compress(b"a b", mtime=0), "is gzip; name it with .gz"),
    ("a.txt", "# STOCKHOLM 1.0\n", "convert it to"), ("a.tar", tar(), "is a tar archive; unpack it first"),
    ("a.tar.gz", gzip.compress(tar(), mtime=0), "is a tar archive; unpack it first"),
    ("a.npy", b"\x93NUMPY\x01\x00", "is a NumPy array"), ("a.pkl", pickle.dumps(["a"]), "is a pickle"),
    ("a.xlsx", "text\na\n", "cannot be read as .xlsx"), ("a.parquet", "text\n", "cannot be read as .parquet"),
    ("a.sdf", "\n\n\n  0  0\nM  END\n$$$$\n", "is an SDF"), ("a.csv", "n,m\na,b\n", "has the columns n, m; name one"),
    ("a.csv", ",n,m\na,1,2\n", "has the columns n, m; name one"), ("a.txt", "", "is empty"),
    ("a.csv", "\n\n", "a.csv: is empty"),
    ("a.csv", "text,text\na,b\n", "has the columns text, text"),
    ("a.csv", "text,n\n,1\n,2\n", "none of 2 records.*2 empty.*line 2"),
    ("a.json", '{"a": 1, "b": [1]}\n', "has the columns a, b|another form"),
    ("a.json", '{"text": 1}', "neither a text"),
])
def test_what_cannot_be_read_is_refused_with_the_cure(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message) as e: read(tmp_path / name, text)
    assert "\n" not in str(e.value)


def test_a_quote_that_is_not_closed_costs_its_own_line(tmp_path):
    found = read(tmp_path / "a.csv", 'text,n\n"CCO,1\nCCN,2\n"a ""b""\nc",3\nx"y,4\n"CC"C,5\n')
    assert texts(found) == ["CCN", 'a "b"\nc', 'x"y'] and found.left_out == {"quote not closed": 2}
    assert found.examples == {"quote not closed": (2, '"CCO,1')} and [r.number for r in found] == [3, 4, 6]
    many = read(tmp_path / "b.csv", "text,n\n" + '"x,1\n' * 5000 + "y,2\n")
    assert many.left_out == {"quote not closed": 5000} and texts(many) == ["y"]


# objects of Python

@pytest.mark.slow
def test_frames_data_sets_and_mappings_give_a_column(tmp_path):
    rows = dict(text=["ACGT", "ACG", "AC"], label=[0, 1, 2])
    sources = [rows, [dict(zip(rows, row)) for row in zip(*rows.values())]]
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(rows)
    sources += [pandas.DataFrame(rows), data, data.to_iterable_dataset(), data.data.table]
    for source in sources:
        found = read_records(source)
        assert texts(found) == rows["text"] == texts(read_records(source, "text")), source
        assert found.values("label") == ["0", "1", "2"]
        with pytest.raises(ValueError, match="column='smiles'.*text, label"): read_records(source, "smiles")
    splits = datasets.DatasetDict(train=data)
    with pytest.raises(ValueError, match="has the splits train; give one"): read_records(splits)
    missing = pandas.DataFrame(dict(text=["a", None, float("nan")]))
    assert read_records(missing).rows[0].text == "a" and texts(read_records(missing["text"])) == ["a"]
    assert read_records(pandas.DataFrame(dict(n=[1, 2], s=["a", "b"])), "s").kept == 0  # not read yet


def test_texts_tokens_and_tensors():
    assert texts(read_records(["ab", "", "c "])) == ["ab", "c"]
    assert texts(read_records([["a", "b"], ("c",)])) == [["a", "b"], ["c"]]
    ids = torch.tensor([[1, 2], [3, 4]])
    assert texts(read_records(ids)) == texts(read_records(list(ids))) == texts(read_records(ids.numpy())) == [
        ["1", "2"], ["3", "4"]]
    assert texts(read_records(s for s in "ab")) == ["a", "b"]


@pytest.mark.parametrize("source, message", [
    (7, "not a source"), (b"abc", "not a source"), (dict(text="ACG"), "lists of one length"), ({}, "lists of one l"),
    (torch.tensor([1, 2]), "two dimensions"), (torch.rand(2, 2), "neither a text"), ([1.5], "neither a text"),
    ([dict(text="a", n=1), "b"], "is not an object"), ([b"a"], "neither a text"), ([["a", None]], "neither a text"),
    ([True], "neither a text"), ([], "is empty"),
])
def test_other_objects_are_refused(source, message):
    with pytest.raises(ValueError, match=message): list(read_records(source).rows)


def test_of_a_large_folder_some_names_are_compared(tmp_path, monkeypatch):
    for i in range(9): (tmp_path / f"table_{i}.csv").write_text("text\n")
    monkeypatch.setattr(readers, "BESIDE", 4)
    assert len(readers.names_beside(tmp_path / "tabel.csv")) == 4
    assert readers.names_beside(tmp_path / "nowhere" / "tabel.csv") == []


def test_every_row_of_a_table_has_a_cell_per_column(tmp_path):
    (tmp_path / "a.csv").write_text("text,n\none,1\ntwo\nthree,3,\n")
    assert [record.cells for record in read_records(tmp_path / "a.csv")] == [("one", "1"), ("two", ""), ("three", "3")]


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"): read_records("none.txt")
    with pytest.raises(ValueError, match="is a folder"): read_records(tmp_path)
    with pytest.raises(ValueError, match="format='word'"): read_records([], format="word")
    (tmp_path / "a.csv").write_text("text,n\na,1\n")
    assert texts(read_records(tmp_path / "a.csv", format="lines")) == ["text,n", "a,1"]
    (tmp_path / "table.csv").write_text("text,n\na,1\n")
    with pytest.raises(FileNotFoundError, match="table.cvs: no such file .did you mean 'table.csv'"):
        read_records(tmp_path / "table.cvs")


@pytest.mark.skipif(not CASES.is_dir(), reason="needs the cases of users")
@pytest.mark.parametrize("name, format, kept", [
    ("protein_header.fas", "fasta", 10), ("soft_masked.fasta", "fasta", 4), ("to_json_lines.json", "json lines", 6),
    ("table.tab", "table", 5), ("rna_dot_bracket.txt", "lines", 20), ("pandas_index.csv", "table", 3),
    ("excel_semicolon_comma.csv", "table", 5), ("excel_trailing_column.csv", "table", 3),
    ("relations.csv", "table", 19), ("tokenizer_texts.txt", "lines", 20),
])
def test_cases_of_users(name, format, kept):
    found = read_records(CASES / name)
    assert (found.format, len(found.rows), found.left_out) == (format, kept, {})


@pytest.mark.parametrize("value, text", [
    (2.5, "2.5"), (3.0, "3"), (-4.0, "-4"), (1e15, "1000000000000000.0"), (7, "7"), (None, ""), (float("nan"), ""),
    ("3.0", "3.0"), (["a", 1], '["a", 1]'), ({"é": None}, '{"é": null}'),
])
def test_values_as_text(value, text): assert text_of(value) == text


def test_objects_within_objects_are_columns_down_to_the_fifth(tmp_path):
    deep = {"a": {"b": {"c": {"d": {"e": "x"}}}}, "g": 2}
    (tmp_path / "a.json").write_text(json.dumps([deep]))
    assert [r.text for r in read_records(tmp_path / "a.json", column="a.b.c.d.e")] == ["x"]
    (tmp_path / "b.json").write_text(json.dumps([{"z": deep}]))
    with pytest.raises(ValueError, match=r"z\.a\.b\.c\.d, z\.g"): list(read_records(tmp_path / "b.json", column="x"))
