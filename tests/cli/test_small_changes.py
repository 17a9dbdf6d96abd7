"Formulas and boundaries where a small change of the code would go unnoticed."

import pytest

from loflexmdm.cli.resumable_rows import SavedRows
from loflexmdm.samplers import Samples

pytestmark = pytest.mark.usefixtures("pico")


def saved_rows(directory):
    "Rows of one command, begun or continued."
    rows = SavedRows(directory / "s.jsonl", dict(command="sample"), dict(seed=0), None, 3)
    rows.start()
    return rows


def add_row(rows, text): rows.add(Samples([[3]], [[True]], network_calls=1), [dict(text=text, tokens=[3])])


@pytest.mark.parametrize("left", [b"", b'{"text": "b", "tok', b'{"text": "b", "tokens": [3]}\n',
                                  b'{"text": "b", "tokens": [3]}\n{"text": "c'],
                         ids=["nothing", "part of a row", "a row", "a row and part of another"])
def test_rows_that_a_kill_left_behind_are_cut_off_and_drawn_again(tmp_path, left):
    "A batch counts once its state is written: what follows it in the file is half a batch."
    rows = saved_rows(tmp_path)
    add_row(rows, "ä")
    whole = rows.path.read_bytes()
    with rows.path.open("ab") as f: f.write(left)
    saved_rows(tmp_path)  # stopped before its first batch
    again = saved_rows(tmp_path)
    assert again.path.read_bytes() == whole and again.rows == rows.rows and again.batches == 1
    for text in "bc": add_row(again, text)
    last = saved_rows(tmp_path)
    assert [row["text"] for row in last.rows] == ["ä", "b", "c"] and last.complete
    assert last.counters["network_calls"] == 3
