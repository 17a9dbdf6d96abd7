"Edits of files: every row of the input is in the output, under its own line, and what is finished is kept."
import csv
import json
import os
import signal

import pytest

from loflexmdm.cli.commands import run_line
from loflexmdm.cli.edit import attempt
from loflexmdm.methods import sampling
from loflexmdm.models.saved import save_method
from loflexmdm.tasks.inputs import TaskInputs
from loflexmdm.training.recipes import recipe_from

LINES = ["a b", "c\x0cd", "e\u2028f", "", "g"]


def texts_of(path, column=""): return [(row.number, row.text) for row in TaskInputs().sequences(path, column).rows]


def test_only_newlines_end_a_line(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n", newline="")
    assert texts_of(tmp_path / "a.txt") == list(enumerate(LINES, 1))


def test_blank_rows_of_a_table_are_rows(tmp_path):
    (tmp_path / "a.csv").write_text('text,n\n()\n\n"(\n)",2\n,3\n()()\n\n')
    assert texts_of(tmp_path / "a.csv") == [(2, "()"), (3, ""), (4, "(\n)"), (6, ""), (7, "()()"), (8, "")]


@pytest.mark.parametrize("name, text", [
    ("a.csv", "n,text\n1,one\n2,two, three\n"), ("a.tsv", "n\ttext\n1\tone\t\n2\ttwo\tthree\n"),
])
def test_a_row_that_would_be_cut_off_has_a_reason(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    first, second = TaskInputs().sequences(tmp_path / name).rows
    assert first == (2, "one", "", {}, "") and second.number == 3 and second.reason == "more cells than the header"
    assert attempt(None, second, 1, None, 9).reason == "skipped: more cells than the header"


def test_a_column_must_be_there_once(tmp_path):
    (tmp_path / "a.csv").write_text("text,text\na,b\n")
    with pytest.raises(ValueError, match="2 columns of that name"): texts_of(tmp_path / "a.csv", "text")
    (tmp_path / "b.jsonl").write_text(json.dumps(dict(text="a", n=1)) + "\n")
    with pytest.raises(ValueError, match="column='m': .*text, n"): texts_of(tmp_path / "b.jsonl", "m")


# ---- interrupted

LINE = "loflexmdm edit model --input in.txt -n 2 --sampler tau --steps 2 --batch-size 3 --out out.csv"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "An untrained model of repairs, five strings of which one cannot be read, and all edits of them."
    folder = tmp_path_factory.mktemp("edits")
    task = dict(kind="repair", settings="kinds = 2, max_pairs = 3", errors=2)
    model = recipe_from(dict(task=task, model=dict(method="editflow", coupling="pairs", size="nano"))).build()[1]
    save_method(model.eval(), folder / "model")
    (folder / "in.txt").write_text("([)\n()\n(a)\n[]()\n(((\n")
    code, _, said = run_line(LINE.replace("out.csv", "whole.csv"), folder)
    assert code == 0, said
    return folder


def interrupted(place, monkeypatch, batches: int, line: str = LINE):
    "The command, which is sent SIGINT when it begins its batch number `batches`, counted from 0."
    begun, simulated = [], sampling.simulate
    def counted(*args, **options):
        begun.append(1)
        if len(begun) > batches: os.kill(os.getpid(), signal.SIGINT)
        return simulated(*args, **options)
    with monkeypatch.context() as m:
        m.setattr(sampling, "simulate", counted)
        return run_line(line, place)


def left_in(place): return {p.name for p in place.iterdir() if p.name.startswith((".", "out"))}


@pytest.mark.parametrize("batches", [1, 2])
def test_edits_are_kept_as_they_come_and_the_same_command_goes_on(place, monkeypatch, batches):
    code, _, said = interrupted(place, monkeypatch, batches)
    assert code == 130 and f"{3 * batches} of 8 sequences are kept in out.csv.partial.jsonl" in said
    kept = (place / "out.csv.partial.jsonl").read_text().splitlines()
    assert [json.loads(k)["line"] for k in kept] == [1, 1, 2, 2, 4, 4][:3 * batches]
    begun = []
    with monkeypatch.context() as m:
        simulated = sampling.simulate
        m.setattr(sampling, "simulate", lambda *a, **o: begun.append(1) or simulated(*a, **o))
        code, _, said = run_line(LINE, place)
    assert code == 0 and len(begun) == 3 - batches and "10 rows" not in said and "9 rows: out.csv" in said
    assert (place / "out.csv").read_bytes() == (place / "whole.csv").read_bytes()
    assert left_in(place) == {"out.csv", "out.csv.run.json"}
    for name in left_in(place): (place / name).unlink()


def test_every_row_is_accounted_for_once(place):
    rows = list(csv.DictReader((place / "whole.csv").open()))
    assert [r["line"] for r in rows] == ["1", "1", "2", "2", "3", "4", "4", "5", "5"]
    assert [r["line"] for r in rows if r["state"].startswith("skipped")] == ["3"]


def test_kept_edits_are_of_one_command(place, monkeypatch):
    assert interrupted(place, monkeypatch, 1)[0] == 130
    code, _, said = run_line(LINE + " --seed 1", place)
    assert code == 2 and "another seed" in said
    (place / "in.txt").write_text("([)\n()\n(a)\n[]()\n(()\n")
    code, _, said = run_line(LINE, place)
    assert code == 2 and "another prompts" in said
    (place / "in.txt").write_text("([)\n()\n(a)\n[]()\n(((\n")
    (place / "out.csv.partial.jsonl").write_text((place / "out.csv.partial.jsonl").read_text().replace(")", "("))
    code, _, said = run_line(LINE, place)
    assert code == 2 and "damaged or changed" in said
    for name in left_in(place): (place / name).unlink()


def test_nothing_is_left_when_the_first_batch_was_not_finished(place, monkeypatch):
    code, _, said = interrupted(place, monkeypatch, 0)
    assert code == 130 and "nothing is kept" in said and not left_in(place)
