"Edits of files: every row of the input is in the output, under its own line, and what is finished is kept."
import json

import pytest

from loflexmdm.cli.edit import read_inputs

LINES = ["a b", "c\x0cd", "e\u2028f", "", "g"]


@pytest.mark.parametrize("ending, shown", [("txt", LINES), ("smi", ["a", "c", "e", "", "g"])])
def test_only_newlines_end_a_line(tmp_path, ending, shown):
    (tmp_path / f"a.{ending}").write_text("\n".join(LINES) + "\n", newline="")
    assert read_inputs(tmp_path / f"a.{ending}") == list(enumerate(shown, 1))


def test_blank_rows_of_a_table_are_rows(tmp_path):
    (tmp_path / "a.csv").write_text('text,n\n()\n\n"(\n)",2\n,3\n()()\n\n')
    assert read_inputs(tmp_path / "a.csv") == [(2, "()"), (3, ""), (4, "(\n)"), (6, ""), (7, "()()"), (8, "")]


def test_a_row_that_would_be_cut_off_is_refused_by_line(tmp_path):
    (tmp_path / "a.csv").write_text("n,text\n1,one\n2,two, three\n")
    with pytest.raises(ValueError, match=r"a\.csv, line 3: 3 cells, the header has 2"): read_inputs(tmp_path / "a.csv")
    (tmp_path / "a.tsv").write_text("n\ttext\n1\tone\t\n2\ttwo\tthree\n")
    with pytest.raises(ValueError, match=r"a\.tsv, line 3: 3 cells, the header has 2"): read_inputs(tmp_path / "a.tsv")


def test_a_column_must_be_there_once(tmp_path):
    (tmp_path / "a.csv").write_text("text,text\na,b\n")
    with pytest.raises(ValueError, match="2 columns of that name"): read_inputs(tmp_path / "a.csv", "text")
    (tmp_path / "b.jsonl").write_text(json.dumps(dict(text="a", n=1)) + "\n")
    with pytest.raises(ValueError, match="--column m: .*text, n"): read_inputs(tmp_path / "b.jsonl", "m")
