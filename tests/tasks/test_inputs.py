"Files of a user's prompts: tokens or texts, their names, and rows that have none."
import pytest

from loflexmdm.process.states import Vocabulary
from loflexmdm.support.records import LeftOut, read_records
from loflexmdm.tasks.brackets import BracketsTask
from loflexmdm.tasks.inputs import InputRow, holds_tokens

VOCABULARY = Vocabulary(["a", "b"])


@pytest.mark.parametrize("name, text, tokens", [
    ("a.txt", "a b\na\n", True), ("a.txt", "a\nb\n", False), ("a.txt", "a c\n", False), ("a.txt", "a ... b\n", True),
    ("a.csv", "a b\n", False), ("a.jsonl", '["a"]\n', True), ("a.jsonl", '{"prompt": ["a"]}\n"a"\n', True),
    ("a.jsonl", '{"prompt": "a"}\n', False), ("a.jsonl", "{", False), ("a.txt", "", False),
])
def test_files_of_tokens(tmp_path, name, text, tokens):
    (tmp_path / name).write_text(text)
    assert holds_tokens(tmp_path / name, VOCABULARY) is tokens
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xff a b")
    assert not holds_tokens(tmp_path / "b.txt", VOCABULARY)


def test_files_of_prompts(tmp_path):
    task = BracketsTask()
    (tmp_path / "a.txt").write_text("()\n"), (tmp_path / "a.csv").write_text("Title,prompt\none,()\n,[\nthree,\n")
    assert task.inputs.prompts(tmp_path / "a.txt") is None
    with pytest.raises(ValueError, match="column='x'.*not a table of prompts"): task.inputs.prompts(tmp_path / "a.txt",
        "x")
    rows = list(task.inputs.name_rows(task.inputs.prompts(tmp_path / "a.csv")))
    assert rows[:2] == [InputRow(2, "()", cells=dict(name="one")), InputRow(3, "[", cells=dict(name=""))]
    assert isinstance(rows[2], LeftOut) and len(rows) == 3
    (tmp_path / "b.csv").write_text("prompt,note\n(),x\n")
    assert list(task.inputs.name_rows(task.inputs.prompts(tmp_path / "b.csv"))) == [InputRow(2, "()")]
    (tmp_path / "c.csv").write_text("prompt,id,name\n(),7,x\n")
    assert next(task.inputs.name_rows(task.inputs.prompts(tmp_path / "c.csv"))).cells == dict(name="x")
    lists = read_records([["a", "b"], ["b"]])
    assert [row.text for row in task.inputs.name_rows(lists)] == ["a b", "b"]
