"How the data of a run is said to differ from what it was."
import os

import pytest

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
