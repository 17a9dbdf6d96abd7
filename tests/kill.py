"""Kill a process at its k-th file operation, as a power cut or kill -9 may.

An operation is whatever changes a directory: opening for writing, writing (nothing yet, then half of it), flushing,
renaming, exchanging, making, removing, changing rights. Python's audit events tell of most of them."""
import builtins
import contextlib
import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from loflexmdm.support import atomic_files as files

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.link", "os.symlink")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killer:
    "Counts the operations below `root` in this process and kills it at number `at` (never, if 0)."
    def __init__(self, root: Path, at: int): self.root, self.at, self.seen = str(root), at, 0

    def operation(self):
        self.seen += 1
        if self.seen == self.at: os.kill(os.getpid(), signal.SIGKILL)

    def below(self, path) -> bool:
        return isinstance(path, (str, bytes, os.PathLike)) and self.root in os.path.abspath(os.fsdecode(path))

    def audit(self, event: str, args: tuple):
        if event == "open": changing = bool(args[2] & WRITING)
        else: changing = event in CHANGES
        # a name without its directory belongs to a descriptor, as shutil.rmtree has them
        if changing and (self.below(args[0]) or event != "open" and not os.path.isabs(args[0])): self.operation()

    def before(self, f: Callable) -> Callable:
        def call(*args, **options):
            self.operation()
            return f(*args, **options)
        return call

    def open(self, opened: Callable) -> Callable:
        def call(file, mode="r", *args, **options):
            f = opened(file, mode, *args, **options)
            return Torn(f, self) if set(mode) & set("wax+") and (type(file) is int or self.below(file)) else f
        return call

    def install(self):
        "Watch this process from here on; there is no way back."
        import sys
        sys.addaudithook(self.audit)
        os.fsync = self.before(os.fsync)
        files._exchange = self.before(files._exchange)
        builtins.open = io.open = self.open(open)


class Torn:
    "A file whose writes may be cut: nothing of them on the disk, or half."
    def __init__(self, file, killer: Killer): self.file, self.killer = file, killer
    def __getattr__(self, name): return getattr(self.file, name)
    def __enter__(self): return self
    def __exit__(self, *error): self.file.close()
    def write(self, data):
        self.killer.operation()
        half = len(data) // 2
        self.file.write(data[:half])
        if self.killer.seen + 1 == self.killer.at: self.file.flush()
        self.killer.operation()
        return half + self.file.write(data[half:])


def killed_at(at: int, root: Path, run: Callable[[], object]) -> dict:
    """`run()` in a child process that dies at operation number `at` below `root`: its exit `code`, that of `run` or
    minus the signal, the `operations` that it made, unless killed, and what it `said` on stderr."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        with open(read) as f: text = f.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return dict(code=code, operations=None, said="") | (json.loads(text) if text else {})
    killer = Killer(root, at)
    try:
        with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
            killer.install()
            code = run()
        os.write(write, json.dumps(dict(code=code or 0, operations=killer.seen, said=err.getvalue()[-1000:])).encode())
    finally: os._exit(99)


class Killed(Exception):
    "What `stop_after` raises: no code expects it."


def stop_after(trainer, step: int, error: type[BaseException] = Killed):
    "Train and die of `error`, without a farewell, after `step` steps."
    after = trainer.after_step
    def dying(row, bar):
        after(row, bar)
        if trainer.step == step: raise error
    trainer.after_step = dying
    with pytest.raises(error): trainer.fit()
