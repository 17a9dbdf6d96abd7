"Files as users have them: what is read is what they say, and what is not read is counted or refused by line."
import gzip
import json

import pytest

from loflexmdm.cli.prompt_files import read_prompts
from loflexmdm.molecules.data.records import read_smiles
from loflexmdm.process.states import Vocabulary
from loflexmdm.support import readers
from loflexmdm.support.readers import checked_lines, read_jsonl, read_lines
from loflexmdm.support.records import read_records
from loflexmdm.tasks.base import task_from
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask, read_sequences
from loflexmdm.tasks.star_graphs import StarConfig, StarGraphs, read_graphs, write_graphs

NOT_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # at which str.splitlines cuts all the same
SENTENCES = [f"row {i} of many" for i in range(506)]


def table(path, rows, header="n,text"):
    path.write_text(header + "\n" + "\n".join(rows) + "\n")
    return path


def test_an_open_quote_costs_its_own_row(tmp_path):
    rows = [f"{i},{s}" for i, s in enumerate(SENTENCES)]
    rows[5] = f'5,"{SENTENCES[5]}'
    for other in (rows[40], f'40,"{SENTENCES[40]}"'):
        rows[40] = other
        found = read_records(table(tmp_path / "a.csv", rows), "text")
        assert list(found.texts()) == SENTENCES[:5] + SENTENCES[6:] and found.left_out == {"quote not closed": 1}
        assert found.examples["quote not closed"][0] == 7
    rows[5] = f'5,x" {SENTENCES[5]}'
    assert len(read_sequences(table(tmp_path / "a.csv", rows), "text")) == 506


def test_what_a_table_lacks_is_counted_and_said(tmp_path):
    rows = ["1,a b", "2", "3,c, d", "", "4,", '5,"e f\ng"', "6,h i,"]
    task = task_from(dict(kind="text", file=str(table(tmp_path / "a.csv", rows)), column="text"))
    assert sum(task.sizes().values()) == 3
    assert task.rejections() == {"without the column": 1, "more cells than the header": 1, "empty": 2}
    told, _, left_out = task.summary().splitlines()
    assert left_out.startswith("left out: 4 of the source") and "2 empty" in left_out
    assert told == (
        f"read: {tmp_path / 'a.csv'}: table (','), column text: 7 records, 3 kept; left out: 2 empty, "
        "1 without the column, 1 more cells than the header; 1 records have an extra empty cell, the first is line 9: "
        "are their cells shifted, by a decimal comma perhaps?; "
        "1 rows take several lines; the longest begins on line 7 and "
        "takes 2; 7 different tokens 'abefghi'; length: median 2, longest 3"
    )


@pytest.mark.parametrize("unit, empty", [("words", 3), ("characters", 3)])  # a line of spaces is empty
def test_empty_lines_are_counted(tmp_path, unit, empty):
    (tmp_path / "a.txt").write_text("a b\n\n  \nc d e f\n\n")
    task = SequencesTask(SequencesConfig(file=str(tmp_path / "a.txt"), unit=unit, max_length=4))
    assert task.rejections() == {"empty": empty, "longer than max_length": {"words": 1, "characters": 1}[unit]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_reader_reads_text_in_the_encoding_that_it_says(tmp_path, encoding, newline):
    def write(name, *lines):
        (tmp_path / name).write_bytes(newline.join([*lines, ""]).encode(encoding))
        return tmp_path / name
    assert read_sequences(write("a.txt", "one two", "drei é")) == [("one", "two"), ("drei", "é")]
    assert read_sequences(write("a.csv", "text,n", "one two,1"), "text") == [("one", "two")]
    assert list(read_smiles(write("a.smi", "CCO", "CCN name"))) == ["CCO", "CCN"]
    assert list(read_smiles(write("b.csv", "smiles,n", "CCO,1"))) == ["CCO"]
    assert read_jsonl(write("a.jsonl", "[1]", "[2]")) == [(1, [1]), (2, [2])]
    assert read_prompts(write("p.txt", "a ..."), Vocabulary("ab")) == [["a", ...]]
    graph = StarGraphs(StarConfig()).graph(0)
    write_graphs([graph], tmp_path / "g.jsonl")
    assert read_graphs(write("h.jsonl", (tmp_path / "g.jsonl").read_text().strip())) == [graph]


@pytest.mark.parametrize("character", NOT_ENDS)
def test_lines_end_at_newlines_only(tmp_path, character):
    (tmp_path / "a.txt").write_text(f"a{character}b\nc d\n", newline="")
    assert list(read_lines(tmp_path / "a.txt")) == [f"a{character}b", "c d"]
    assert read_sequences(tmp_path / "a.txt", unit="characters")[0] == ("a", character, "b")
    (tmp_path / "a.jsonl").write_text(json.dumps([f"a{character}"], ensure_ascii=False) + "\n", newline="")
    assert read_jsonl(tmp_path / "a.jsonl") == [(1, [f"a{character}"])]


@pytest.mark.parametrize("data, message", [
    (b"one two\r\nthree \xe9\n", r"a\.txt, line 2: not a text file in UTF-8 \(.*byte 16 of the file\)"),
    ("one two\nthree\n".encode("utf-16-le"), r"a\.txt, line 1: holds a NUL"),
    (b"one two\nthree\0four\n", r"a\.txt, line 2: holds a NUL"),
    (b"\xff\xfe\x00", "not a text file in UTF-16"),
])
def test_what_is_no_text_is_refused_by_line(tmp_path, data, message):
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    for name in ("a.txt", "a.txt.gz"):
        with pytest.raises(ValueError, match=message.replace("a\\.txt", name.replace(".", "\\."))):
            read_sequences(tmp_path / name)


def test_bytes_that_are_no_text_in_a_file_that_was_cut_off(tmp_path):
    "The bytes are met first; the file's end is missing where they are looked for once more."
    packed = gzip.compress(b"one two\nthree \xe9\n" + bytes(range(32, 127)) * 2000, compresslevel=0)
    (tmp_path / "a.txt.gz").write_bytes(packed[:-2000])
    with pytest.raises(ValueError, match=r"a\.txt\.gz: cannot be unpacked, it is damaged or cut off"):
        read_sequences(tmp_path / "a.txt.gz")


def test_a_column_must_be_there_once(tmp_path):
    path = table(tmp_path / "a.csv", ["CC,CCO,1"], "smiles,smiles,n")
    for read in (read_sequences, lambda p, c: list(read_smiles(p, c))):
        with pytest.raises(ValueError, match="column='smiles'.* 2 columns of that name"): read(path, "smiles")
        with pytest.raises(ValueError, match="column='name'.*smiles, smiles, n"): read(path, "name")
    assert list(read_smiles(path, "n")) == ["1"]


def test_compressed_text(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"n,text\n1,one two\n"))
    assert read_sequences(tmp_path / "a.csv.gz", "text") == [("one", "two")]


@pytest.mark.parametrize("lines, looks", [
    ([10] * 3000, 3), ([2**16 + 1] * 2, 2), ([2**16] * 2, 0), ([10] * 999 + [2**17], 1),
])
def test_how_often_a_packed_file_is_compared_with_what_it_unpacks_to(tmp_path, monkeypatch, lines, looks):
    "After a thousand lines, and after each that is longer than 2^16 characters, with its newline."
    seen = []
    monkeypatch.setattr(readers, "_check_expansion", lambda unpacked, path: seen.append(path))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"".join(b"x" * (n - 1) + b"\n" for n in lines)))
    assert len(list(checked_lines(tmp_path / "a.txt.gz"))) == len(lines)
    assert seen == [tmp_path / "a.txt.gz"] * looks


def test_few_long_lines_that_unpack_to_far_more_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "ALWAYS", 10**6)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress((b"x" * 10**5 + b"\n") * 30))
    with pytest.raises(ValueError, match="times its size when unpacked"): list(checked_lines(tmp_path / "a.txt.gz"))


def test_a_compressed_file_that_is_cut_off_after_many_lines_is_named(tmp_path):
    path, lines = tmp_path / "a.txt.gz", [f"{i * i * 7919 % 100_003}" for i in range(50_000)]
    path.write_bytes(gzip.compress("\n".join(lines).encode())[:-5000])
    found = []
    with pytest.raises(ValueError, match=r"a\.txt\.gz: cannot be unpacked, it is damaged or cut off"):
        for line in read_lines(path): found.append(line)
    assert len(found) > 10_000 and found == lines[:len(found)]
