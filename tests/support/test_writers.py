"Files of texts and rows by hand: what each format holds, changes or refuses."
import warnings
from collections import Counter

import pytest

from loflexmdm.support.table_writers import TABLE_WRITERS, apply_rules, columns_of, csv_text, flat_cells, output_ending
from loflexmdm.support.table_writers import LINE_ENDS, UNWRITABLE, _arrow_column
from loflexmdm.support.writers import formulas, write_texts


@pytest.mark.parametrize("name, texts, written", [
    ("a.txt", ["x y", "", "-z"], "x y\n\n-z\n"), ("a.csv", ["x,y", 'a"b'], 'text\n"x,y"\n"a""b"\n'),
    ("a.JSONL", ["é\n!"], '{"text": "é\\n!"}\n'), ("a.fasta", ["WG", "R"], ">sample_1\nWG\n>sample_2\nR\n"),
])
def test_texts_in_every_format(tmp_path, name, texts, written):
    assert write_texts(tmp_path / name, texts).read_text(encoding="utf-8") == written


LINE = "text 1 has a line break or NUL, which .txt"
SPACE = "text 1 has white space or NUL, is empty or begins with >, which .fa"


@pytest.mark.parametrize("name, text, why", [
    ("a.txt", "x\ny", LINE), ("a.txt", "x\r", LINE), ("a.txt", "\0", LINE), ("a.fasta", "x y", SPACE),
    ("a.fasta", "", SPACE), ("a.faa", ">x", SPACE), ("a.fasta", "x\0", SPACE),
    ("a.csv", "", "text 1 is empty, which .csv"), ("a.jsonl", "", "text 1 is empty, which .jsonl"),
    ("a.pdf", "x", "must end in one of .txt, .fasta"), ("a", "x", "must end in one of .txt, .fasta"),
])
def test_texts_that_a_format_does_not_hold(tmp_path, name, text, why):
    with pytest.raises(ValueError, match=why): write_texts(tmp_path / name, ["fine", text])
    assert not list(tmp_path.iterdir())


def test_lines_that_look_like_another_format_are_said(tmp_path):
    with pytest.warns(UserWarning, match="look like fasta"): write_texts(tmp_path / "a.txt", [">a", "WG", ">b", "R"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_texts(tmp_path / "b.txt", ["one", "two"])
        write_texts(tmp_path / "b.fasta", ["WG", "R"])


def test_texts_that_a_spreadsheet_computes():
    assert formulas(["=A1", "+x", "-1.5", "-x", "@a", "a=b", 3, "", "+1e5", None]) == 4


ROWS = [{"a": 1, "b": [1, "x"]}, {"c": {"k": "é"}, "a": None}]


def test_cells_of_rows():
    assert columns_of(ROWS) == ["a", "b", "c"]
    assert flat_cells(ROWS[0], ["a", "b", "c"]) == [1, "1 x", ""]
    assert flat_cells(ROWS[1], ["c", "a"]) == ['{"k": "é"}', ""]
    assert TABLE_WRITERS[".csv"](ROWS).decode() == 'a,b,c\n1,1 x,\n,,"{""k"": ""é""}"\n'
    assert TABLE_WRITERS[".tsv"](ROWS[:1]).decode() == "a\tb\n1\t1 x\n"
    assert TABLE_WRITERS[".jsonl"](ROWS[1:]).decode() == '{"c": {"k": "é"}, "a": null}\n'


def test_changes_are_counted_and_said():
    changes = Counter()
    cells = apply_rules(["a\r\nb\r", 3, "c\0", "d"], (LINE_ENDS, UNWRITABLE), changes)
    assert cells == ["a\nb\n", 3, "c", "d"] and list(changes.values()) == [1, 1]
    with pytest.warns(UserWarning, match=r"table: spaces around names.* \(1 texts\), line ends.*\(2 texts\); .jsonl"):
        assert csv_text(["a "], [{"a ": "x\r"}, {"a ": "y\r\n"}]) == 'a\n"x\n"\n"y\n"\n'
    with pytest.warns(UserWarning, match=".jsonl: characters that no text file holds"):
        TABLE_WRITERS[".jsonl"]([{"a": "\ud800"}])


def test_columns_of_parquet_have_one_type():
    pytest.importorskip("pyarrow")
    assert _arrow_column([1, "", None, 2]).to_pylist() == [1, None, None, 2]
    assert _arrow_column(["a", "", None]).to_pylist() == ["a", "", None]
    assert _arrow_column(["", None]).to_pylist() == ["", None]
    assert _arrow_column([1, "a", None]).to_pylist() == ["1", "a", None]
    assert _arrow_column([2**70, 1]).to_pylist() == [str(2**70), "1"]
    assert _arrow_column([[1], "a"]).to_pylist() == ["1", "a"]


def test_workbooks_keep_texts_and_large_numbers():
    openpyxl, io = pytest.importorskip("openpyxl"), pytest.importorskip("io")
    read = lambda rows: list(openpyxl.load_workbook(io.BytesIO(TABLE_WRITERS[".xlsx"](rows))).active.values)
    assert read([{"a": "=1+1", "b": 2**53, "c": True}, {"a": 1.5, "b": 2**53 + 1, "c": -2**53 - 1}]) == [
        ("a", "b", "c"), ("=1+1", 2**53, True), (1.5, str(2**53 + 1), str(-2**53 - 1))]
    with pytest.warns(UserWarning, match=r"end after 32,767 characters \(1 texts\)"):
        assert len(read([{"a": "x" * 32_768}, {"a": "x" * 32_767}])[1][0]) == 32_767
    with pytest.warns(UserWarning, match="XML"): assert read([{"a": "x\x01y"}])[1] == ("xy",)
    assert len(read([{"a": "x"}, {"a": ""}, {"a": "y"}])) == 4


@pytest.mark.parametrize("name, ending", [
    ("a.SDF.gz", ".sdf.gz"), ("b.csv", ".csv"), ("c", ""), ("a.b.smi", ".smi"), ("x.gz", ".gz"), ("a.b.c.gz", ".c.gz"),
])
def test_endings(name, ending): assert output_ending(f"some.folder/{name}") == ending
