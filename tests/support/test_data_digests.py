"How the data of a run is said to differ from what it was."
import hashlib
import os
import random

import pytest
import torch

from loflexmdm.support import data_digests
from loflexmdm.support.data_digests import SourceFiles, data_changes

ROWS = dict(rows=12, digest="a", examples="b")


@pytest.mark.parametrize("then, now, said", [
    (dict(train=ROWS), dict(train=ROWS), []),
    (dict(train=ROWS, valid=ROWS), dict(train=ROWS), []), (dict(train=ROWS), dict(train=ROWS, valid=ROWS), []),
    (dict(train=ROWS), dict(train=ROWS | dict(rows=2**40)), ["train split: 12 rows then, without end now"]),
    (dict(valid=ROWS), dict(valid=ROWS | dict(digest="c")),
     ["valid split: 12 rows then and now, but different ones or in another order"]),
    (dict(valid=ROWS | dict(digest=None)), dict(valid=ROWS | dict(examples="c")),
     ["valid split: 12 rows then and now, but different ones or in another order"]),
    (dict(train=ROWS | dict(digest=None, examples=None)), dict(train=ROWS), []),
    (dict(source=ROWS | dict(rows=3)), dict(source=ROWS | dict(name="my.txt")), ["my.txt: 3 rows then, 12 rows now"]),
    (dict(settings=dict(b=1, a=2, old=0)), dict(settings=dict(b=2, a=1, new=0)),
     ["task.a: 2 then, 1 now", "task.b: 1 then, 2 now"]),
])
def test_what_differs_is_said_in_words(then, now, said): assert data_changes(then, now) == said


def test_a_file_that_was_touched_is_read_once_more_and_one_that_changed_is_refused(tmp_path, monkeypatch):
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    for path in paths: path.write_text("one\n")
    files, read = SourceFiles(*paths), []
    digest = data_digests.file_digest
    monkeypatch.setattr(data_digests, "file_digest", lambda path: (read.append(path), digest(path))[1])
    files.check()
    os.utime(paths[1], (1, 1))
    for _ in range(3): files.check()
    assert read == [paths[1]]
    for text in ("two\n", None):
        if text: paths[0].write_text(text)
        else: paths[0].unlink()
        with pytest.raises(ValueError, match="a.txt: changed while being trained on"): files.check()


class Rows(list):
    "Data whose examples are numbers, with what identifies them."
    identity, source = dict(digest="d"), dict(name="my.txt", rows=3)


def test_which_examples_are_probed():
    assert data_digests.probes(0) == [] and data_digests.probes(5) == [0, 1, 2, 3, 4]
    found = data_digests.probes(10_000)
    assert found[:128] == list(range(128)) and found[-1] == 9999 and len(found) == 128 + 126
    assert found[-2] - found[-3] in (78, 79) and data_digests.probes(2**30)[-1] == 2**20 - 1


def test_digests_tell_examples_and_their_order_apart():
    digest = data_digests.examples_digest
    assert digest([1, 2]) == digest([1, 2]) != digest([2, 1]) and digest([torch.tensor([1])]) == digest([[1]])
    assert digest([object()]) is None and len(digest([])) == 64

    class Random(list):
        def __getitem__(self, i): return torch.rand(()).item(), random.random()
    states = torch.get_rng_state(), random.getstate()
    assert digest(Random([0])) is None
    assert torch.get_rng_state().equal(states[0]) and random.getstate() == states[1]

    class Endless(list):
        probed = 2
    assert digest(Endless([1, 2, 3])) == digest([1, 2])
    assert data_digests.row_digest(["a", "b"]) != data_digests.row_digest(["ab"])
    assert data_digests.rows_digest([b"1", b"2"]) == hashlib.sha256(b"12").hexdigest()


def test_digests_of_a_run():
    rows = Rows([1, 2, 3])
    part = dict(rows=3, examples=data_digests.examples_digest([1, 2, 3]), digest="d")
    assert data_digests.fingerprint(rows) == part and data_digests.fingerprint([1]) == dict(
        rows=1, examples=data_digests.examples_digest([1]))
    assert data_digests.data_digests(rows) == dict(train=part, source=rows.source)
    whole = data_digests.data_digests([1], [2, 3], dict(a=1))
    assert [*whole] == ["train", "valid", "settings"] and whole["valid"]["rows"] == 2 and whole["settings"] == dict(a=1)


def test_changed_data_is_refused_or_told():
    then, now = dict(train=ROWS), dict(train=ROWS | dict(rows=13))
    assert data_digests.check_data(then, then, "run") == []
    assert data_digests.check_data(then, now, "run", allowed=True) == ["train split: 12 rows then, 13 rows now"]
    with pytest.raises(ValueError, match="run: the data has changed.*12 rows then, 13 rows now.*--changed-data"):
        data_digests.check_data(then, now, "run")
    for wrong in (3, dict(train=3), dict(train=dict(rows="12")), dict(train=dict(rows=True))):
        with pytest.raises(ValueError, match="run: damaged"): data_digests.check_data(wrong, now, "run", allowed=True)
    assert data_digests.check_data(dict(settings=dict(a=1)), now, "run") == []
