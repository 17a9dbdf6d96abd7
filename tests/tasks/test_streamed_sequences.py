"""People's own sequences, trained on as their file is read: which rows, how many, in what memory, and what ends a run.

`python tests/tasks/test_streamed_sequences.py DIR 20000 2000000` prints the most memory that passes over such files
take."""
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch
from share import start, trainer as shared_trainer, wait
from resuming import WORDS, check_resumed, trainer

from loflexmdm.cli import main
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.samplers import Samples
from loflexmdm.support.random_numbers import current_launch
from loflexmdm.tasks import sequences
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask, split_of
from loflexmdm.training import batches as training_batches
from loflexmdm.training.batches import batches
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.distributed import process_group
from loflexmdm.training.log import JsonLines
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import recipe_from
from loflexmdm.training.trainer import Trainer

FILES = ("words.txt", "words.csv", "words.jsonl", "words.fasta")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))
    sequences._read.cache_clear()


def write(path: Path, rows=WORDS) -> Path:
    "A file of rows, in the format of its name."
    line = {".csv": lambda w: f"1,{w}\n", ".jsonl": lambda w: json.dumps(dict(s=w)) + "\n",
            ".fasta": lambda w: f">\n{w}\n"}.get(path.suffix, lambda w: f"{w}\n")
    path.write_text("n,s\n" * (path.suffix == ".csv") + "".join(map(line, rows)))
    return path


def streamed(path: Path, **options) -> SequencesTask:
    column = "s" if path.suffix in (".csv", ".jsonl") else ""
    return SequencesTask(SequencesConfig(file=str(path), column=column, unit="characters", stream=True, **options))


def texts(task, examples) -> list[str]: return ["".join(task.vocabulary.decode(e.tokens[1:])) for e in examples]


# which rows

@pytest.mark.parametrize("name, workers", [(name, 0) for name in FILES] + [("words.txt", 2)])
def test_an_epoch_has_the_rows_of_the_training_split(tmp_path, name, workers):
    task, memory = streamed(write(tmp_path / name), limit=300), SequencesTask(SequencesConfig(unit="characters"), WORDS)
    train = Counter(map("".join, memory.splits["train"]))
    rows = texts(task, islice(task.dataset().examples(3, workers=workers), 2 * train.total()))
    assert Counter(rows[:train.total()]) == Counter(rows[train.total():]) == train
    assert rows[:train.total()] != rows[train.total():] and len(train) > 400
    for split in ("valid", "test"):
        assert set(task.splits[split]) == {s for s in map(tuple, WORDS[:300]) if split_of(s, 0.1, 0.1) == split}


def test_what_is_not_trained_on_is_counted_by_reason(tmp_path):
    rows = [*WORDS, "", "", "abz", "zz", "abcdefghab"]
    task = streamed(write(tmp_path / "words.jsonl", rows), limit=len(WORDS))
    with open(tmp_path / "words.jsonl", "a") as f: f.write('{"t": "ab"}\n')
    memory = SequencesTask(SequencesConfig(unit="characters"), WORDS)
    stream, n = task.dataset(), len(memory.splits["train"])
    list(islice(stream.examples(window=1), n))
    before = stream.left_out.total()
    list(islice(stream.examples(window=1), n + 1))
    by_hand = {"empty": 2, "token outside the vocabulary": 2, "longer than max_length": 1, "without the column": 1}
    held = len(WORDS) - n
    late = stream.left_out["held out"] - held  # at the beginning of the second pass
    assert {k: v for k, v in stream.left_out.items() if k != "held out"} == by_hand and 0 <= late < 20
    assert before <= stream.left_out.total() == held + late + 6
    assert f"left out of the stream: {held + late + 6} rows (2 empty, " in stream.account()


def test_two_processes_share_the_rows_of_every_batch(tmp_path):
    data, c = streamed(write(tmp_path / "words.txt")).dataset(), TrainConfig(steps=12, batch_size=64)
    whole, *halves = (batches(data, c, 0, torch.device("cpu"), *own) for own in ((0, 1), (0, 2), (1, 2)))
    for parts in zip(whole, *halves, strict=True):
        rows, first, second = ([t[v].tolist() for t, v in zip(p.tokens, p.valid, strict=True)] for p in parts)
        assert rows[0::2] == first and rows[1::2] == second and len(rows) == 64


def test_the_settings_of_a_file_that_is_not_streamed(tmp_path):
    file = str(write(tmp_path / "words.txt"))
    few = SequencesTask(SequencesConfig(file=file, unit="characters", limit=90))
    given = SequencesTask(SequencesConfig(limit=9), ["a b"] * 20)
    assert sum(few.sizes().values()) == 90 and sum(given.sizes().values()) == 9
    with pytest.raises(ValueError, match="stream=True: is for a file"):
        SequencesTask(SequencesConfig(stream=True), WORDS)
    with pytest.raises(ValueError, match="^steps: must be given, since the training data is a stream"):
        recipe_from(dict(task=dict(kind="text", file=file, unit="characters", stream=True)))


def test_new_is_judged_by_the_whole_file(tmp_path):
    task = streamed(write(tmp_path / "words.txt"), limit=300)
    later = sorted({tuple(w) for w in WORDS[300:]} - {tuple(w) for w in WORDS[:300]})
    known, held = ([w for w in later if (split_of(w, 0.1, 0.1) == "train") == train] for train in (True, False))
    made = lambda rows: Samples([task.vocabulary.encode(r) for r in rows], [[True]] * len(rows))
    assert task.score("test", made(known[:20]))["new"] == 0 and task.score("test", made(held[:9]))["new"] == 1
    assert task.sizes()["train"] == UNLIMITED and "train without end" in task.summary()


# runs

@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_is_resumed_in_the_middle_of_an_epoch(tmp_path, pico, workers):
    file = write(tmp_path / "words.txt")
    build = lambda directory, **options: trainer(streamed(file).dataset(), directory, 10, batch_size=80, **options)
    check_resumed(build, tmp_path, workers)
    whole, parts = ([r for r in JsonLines(tmp_path / name / "metrics.jsonl").rows() if "loss" in r]
                    for name in ("whole", "parts"))
    assert [r["left_out"] for r in whole] == [r["left_out"] for r in parts] and whole[-1]["left_out"] > 80


def train(tmp_path, *options) -> int:
    return main(["train", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run"), "--device", "cpu", *options])


def recipe_file(tmp_path):
    write(tmp_path / "words.txt")
    (tmp_path / "r.toml").write_text('[task]\nkind = "text"\nfile = "words.txt"\nunit = "characters"\nlimit = 300\n'
                                     "stream = true\n[model]\nmethod = 'ar'\n"
                                     "[train]\nsteps = 30\nbatch_size = 64\nvalid_every = 30\n")


@pytest.mark.slow
@pytest.mark.parametrize("damage, said", [
    (lambda path: path.write_text("ab\n"), "words.txt: changed while being trained on; put it back"),
    (lambda path: path.write_bytes(b"ab\n\xff\xfe\n"), "words.txt, line 2: not a text file in UTF-8"),
    (os.unlink, "words.txt"),
])
def test_a_file_that_is_damaged_ends_a_run_that_goes_on_later(tmp_path, monkeypatch, capsys, damage, said):
    monkeypatch.setattr(training_batches, "POOL", 5)  # the next pool is read, and the damage seen, at step 5
    recipe_file(tmp_path)
    step = Trainer.train_step

    def train_step(self, stream):
        if self.step == 3: damage(tmp_path / "words.txt")
        return step(self, stream)
    monkeypatch.setattr(Trainer, "train_step", train_step)
    assert train(tmp_path) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(f"loflexmdm: {tmp_path}/") and said in lines[-1]
    [saved] = checkpoints(tmp_path / "run")
    assert int(saved.name[5:]) > 3 and any(str(saved) in line for line in lines)
    monkeypatch.setattr(Trainer, "train_step", step)
    assert main(["resume", str(tmp_path / "run"), "--device", "cpu"]) == 2
    write(tmp_path / "words.txt")
    assert main(["resume", str(tmp_path / "run"), "--device", "cpu"]) == 0
    assert "held out" in capsys.readouterr().err.split("left out of the stream: ")[-1]
    assert main(["evaluate", str(tmp_path / "run"), "-n", "8", "--nll", "2", "--task-data", "--device", "cpu"]) == 0
    assert "new " in capsys.readouterr().out


class Words(list):
    "Words that one of two processes cannot read any more."
    read = True
    def __getitem__(self, i):
        if not self.read: raise OSError("words.txt: cannot be read")
        return super().__getitem__(i)


def fail_in_one(directory: str):
    "Train; the second process cannot read the data after the third step."
    torch.Tensor.float = torch.Tensor.double  # as in share.train
    with process_group(current_launch(), torch.device("cpu")):
        t = shared_trainer(directory)
        t.data, after = Words(t.data), t.after_step

        def after_step(row, bar):
            after(row, bar)
            t.data.read = t.step < 3 or current_launch().is_main
        t.after_step = after_step
        try: t.fit()
        except OSError: return 3
        except ValueError as e: return 4 if str(e) == "words.txt: cannot be read" else 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
def test_what_one_process_cannot_read_ends_all_and_is_saved(tmp_path):
    assert wait(start(2, fail_in_one, str(tmp_path))) == [4, 3]
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000003"]


# changed within a pass that never ends

def rotated(path: Path):
    "Rewrite a file in place, in the same size and with the same time: what is behind its beginning is other rows."
    found, rows = path.stat(), path.read_text()
    half = len(rows) // 2
    with open(path, "r+") as f: f.write(rows[:half] + rows[half:].translate(str.maketrans("abcd", "dcba")))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def run_with_change(tmp_path, monkeypatch, change, at: int, *options) -> int:
    "Train on a file of which a pass takes more steps than the run has, and change it at a step."
    recipe_file(tmp_path)
    write(tmp_path / "words.txt", WORDS * 20)
    step = Trainer.train_step

    def train_step(self, stream):
        if self.step == at: change(tmp_path / "words.txt")
        return step(self, stream)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", train_step)
        return train(tmp_path, *options)


@pytest.mark.parametrize("change", [
    rotated, lambda path: path.write_text("ab\n"), os.unlink, lambda path: write(path, WORDS * 21),
], ids=["rotated", "cut off", "removed", "longer"])
def test_a_file_changed_within_a_pass_ends_the_run_at_the_next_save(tmp_path, monkeypatch, capsys, change):
    assert run_with_change(tmp_path, monkeypatch, change, 7, "--save-every", "5") == 2
    told = capsys.readouterr().err
    assert "words.txt: changed while being trained on; put it back" in told.splitlines()[-1]
    assert "steps after 5 may have used other rows" in told
    # the newest checkpoint is of the rows as they were
    assert [p.name for p in checkpoints(tmp_path / "run")] == ["step_000005"]


def test_a_file_changed_after_the_last_save_is_noticed_at_the_end(tmp_path, monkeypatch, capsys):
    assert run_with_change(tmp_path, monkeypatch, rotated, 29) == 2
    assert "changed while being trained on" in capsys.readouterr().err
    assert not checkpoints(tmp_path / "run") and not (tmp_path / "run/best").exists()


@pytest.mark.slow
def test_a_file_that_was_only_touched_goes_on(tmp_path, monkeypatch):
    assert run_with_change(tmp_path, monkeypatch, os.utime, 7, "--save-every", "5") == 0


# memory

PEAK = """
import random, resource, sys
from itertools import islice
from pathlib import Path
import torch
from loflexmdm.samplers import Samples
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask
from loflexmdm.training import batches as training_batches
from loflexmdm.training.batches import batches
from loflexmdm.training.optimisers import TrainConfig

def peak(n):
    "Bytes at most so far, after a pass over a file of n lines and the scores of four samples."
    path, draw = Path(sys.argv[1], f"{n}.txt"), random.Random(n)
    words = [letter * 200 for letter in "abcdefgh"]
    with open(path, "w") as f: f.writelines(" ".join(draw.choices(words, k=3)) + "\\n" for _ in range(n))
    task = SequencesTask(SequencesConfig(file=str(path), stream=True))
    for _ in batches(task.dataset(), TrainConfig(steps=n // 128, batch_size=100), 0, torch.device("cpu")): pass
    task.score("test", Samples([[4, 5], [4], [5], [6]], [[True]] * 4))
    unit = 1 if sys.platform == "darwin" else 1024
    return path.stat().st_size, unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

sizes, peaks = zip(*[peak(int(n)) for n in sys.argv[2:]])
print(*sizes, *peaks)
"""


def peaks(directory: Path, *lines: int) -> tuple[list[int], list[int]]:
    "Sizes of files of these numbers of lines, and the most memory after each pass, in bytes, in a process of its own."
    ran = [sys.executable, "-c", PEAK, str(directory), *map(str, lines)]
    found = [int(v) for v in subprocess.run(ran, stdout=subprocess.PIPE, text=True, check=True).stdout.split()]
    return found[:len(lines)], found[len(lines):]


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource")
@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    (few, many), (before, after) = peaks(tmp_path, 20_000, 100_000)
    assert many > 4 * few and after - before < (many - few) / 2  # in memory it would be all of it


if __name__ == "__main__":
    for size, most in zip(*peaks(Path(sys.argv[1]), *map(int, sys.argv[2:])), strict=True):
        print(f"a file of {size / 1e6:.0f} MB: {most / 1e6:.0f} MB")
