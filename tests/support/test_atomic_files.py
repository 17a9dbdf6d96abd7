"Files and directories that are whole or absent."
import errno
import hashlib
import os
import signal
import subprocess
import sys

import pytest

from loflexmdm.support import atomic_files as files
from loflexmdm.support.atomic_files import atomic_directory, intact, lock_file, scratch_file
from loflexmdm.support.atomic_files import replace_files, write_file
from loflexmdm.training.log import JsonLines


@pytest.mark.parametrize("exchange", [True, False])
def test_replacing_with_and_without_an_exchange_of_names(tmp_path, monkeypatch, exchange):
    if not exchange: monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    for text in ("one", "two"):
        with atomic_directory(tmp_path / "d") as d: (d / text).write_text(text)
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["two"] and len(list(tmp_path.iterdir())) == 1


def test_a_directory_does_not_replace_a_file(tmp_path):
    (tmp_path / "d").write_text("text")
    with pytest.raises(ValueError, match="d: a file has this name"):
        with atomic_directory(tmp_path / "d"): pass
    assert (tmp_path / "d").read_text() == "text"


def test_a_new_directory_does_not_replace_one_that_appeared_meanwhile(tmp_path):
    with pytest.raises(ValueError, match="d: holds other files"):
        with atomic_directory(tmp_path / "d", replace=False) as d:
            (d / "new").write_text("new")
            (tmp_path / "d").mkdir()
            (tmp_path / "d" / "theirs").write_text("theirs")
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["d", "d/theirs"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_file(tmp_path / "note", "old")
    def full(handle): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*note'"): write_file(path, b"new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["note"]


def test_a_scratch_file_leaves_nothing(tmp_path):
    with scratch_file(tmp_path / "x") as (f, name): f.write(b"probe")
    assert not list(tmp_path.iterdir())


def test_a_lock_is_refused_or_waited_for_and_goes_with_its_process(tmp_path):
    script = (
        "import time; from loflexmdm.support.atomic_files import lock_file\n"
        f"with lock_file({str(tmp_path / 'lock')!r}): print(flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    child.stdout.readline()
    with pytest.raises(ValueError, match=rf"^in use \(process {child.pid} on .+\)$"):
        with lock_file(tmp_path / "lock", "in use"): pass
    child.kill()
    child.wait()
    child.stdout.close()
    with lock_file(tmp_path / "lock"): pass


def test_a_lock_does_not_live_on_in_a_child_process(tmp_path):
    "As loader processes outlive a killed training run for some seconds."
    begun, begin = os.pipe()
    if (holder := os.fork()) == 0:
        with lock_file(tmp_path / "lock"):
            if os.fork() == 0: os.write(begin, b"1"), signal.alarm(10), signal.pause()
            os.read(begun, 1)  # the child runs, and has closed the lock's file
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(holder, 0)[1]) == signal.SIGKILL
    with lock_file(tmp_path / "lock", "held by a child"): pass


def test_a_lock_may_remove_its_file(tmp_path):
    with lock_file(tmp_path / "lock", remove=True): assert (tmp_path / "lock").exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("present", [True, False])
def test_a_file_replaced_while_a_library_opens_it_anew_is_told_as_such(tmp_path, present):
    path, meanwhile = tmp_path / "weights", tmp_path / "other"
    path.write_bytes(b"first"), meanwhile.write_bytes(b"second")
    digest = hashlib.sha256(b"first").hexdigest()
    with pytest.raises(ValueError if present else FileNotFoundError), intact(path, digest):
        meanwhile.rename(path) if present else path.unlink()
        raise RuntimeError("unable to open file")


def test_an_error_of_a_library_on_an_intact_file_is_its_own(tmp_path):
    (path := tmp_path / "weights").write_bytes(b"first")
    with pytest.raises(RuntimeError, match="memory"), intact(path, hashlib.sha256(b"first").hexdigest()):
        raise RuntimeError("out of memory")


def appended(path): JsonLines(path).write(dict(loss="x" * 200))
def staged_beside(path): replace_files(path.parent, "about.json", {}, {path.name: lambda p: p.write_bytes(bytes(200))})


def in_a_directory(path):
    with atomic_directory(path) as new: (new / "part").write_bytes(bytes(200))


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource")
@pytest.mark.parametrize("write", [appended, staged_beside, in_a_directory])
def test_a_file_that_cannot_grow_is_named(tmp_path, write):
    "A limit on the size of files, in place of a full disk: the system's error names no file."
    import resource
    then = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, then[1]))
    try:
        with pytest.raises(OSError) as told: write(tmp_path / "name")
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, then)
    assert told.value.filename == str(tmp_path / "name")


def test_files_that_are_not_described_any_more_go_unless_they_were_changed(tmp_path):
    write = lambda text: lambda path: path.write_text(text)
    replace_files(tmp_path, "about.json", dict(n=1), {name: write(name) for name in ("kept", "gone", "changed")})
    (tmp_path / "changed").write_text("by somebody")
    (tmp_path / "other").write_text("of somebody")
    replace_files(tmp_path, "about.json", dict(n=2), dict(kept=write("anew")))
    found = {p.name: p.read_text() for p in tmp_path.iterdir() if p.name != "about.json"}
    assert found == dict(kept="anew", changed="by somebody", other="of somebody")


def test_the_holder_of_a_lock_is_named_unless_the_lock_writes_notes_of_its_own(tmp_path, monkeypatch):
    with lock_file(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    monkeypatch.setattr(files, "FileLock", files.SoftFileLock)
    with lock_file(tmp_path / "soft"):
        assert "process" not in (tmp_path / "soft").read_text()
