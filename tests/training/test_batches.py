"The order of the data, loader processes and how a script ends."
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from small_runs import CPU, Words, trainer
from torch.utils.data import Subset

from loflexmdm.process.states import Pair, Vocabulary, prefix_example
from loflexmdm.process.streams import UNLIMITED, Stream
from loflexmdm.support.stop_signals import STOP_SIGNALS, stop_signals
from loflexmdm.tasks.base import Examples
from loflexmdm.training.batches import BatchIndices, batches, by_length, columns, epoch_indices, exit_flag
from loflexmdm.training.batches import ignore_interrupts, is_grouped
from loflexmdm.training.optimisers import TrainConfig


@pytest.mark.parametrize("n", [7, UNLIMITED])
def test_indices_from_any_start_are_a_tail(n):
    import itertools
    first = list(itertools.islice(epoch_indices(n, 0, seed=3), 30))
    for start in (1, 7, 13): assert list(itertools.islice(epoch_indices(n, start, seed=3), 30 - start)) == first[start:]
    if n == 7: assert all(sorted(first[i:i + 7]) == list(range(7)) for i in (0, 7, 14)) and first[:7] != first[7:14]
    numbers = list(BatchIndices(n, 4, 0, 7, 3))
    assert numbers[3:] == list(BatchIndices(n, 4, 3, 7, 3)) and sum(numbers, []) == first[:28]


@pytest.mark.parametrize("n, size", [(7, 4), (60, 3), (400, 2), (UNLIMITED, 4)])
def test_batches_of_similar_length_from_any_start_are_a_tail(n, size):
    "And every row comes once in a pass, in as many batches."
    order = lambda start: list(BatchIndices(n, size, start, 230, 3, lambda row: row * 7 % 31))
    whole = order(0)
    assert len(whole) == 230 and {len(rows) for rows in whole} == {size}
    for start in (1, 49, 50, 51, 133): assert order(start) == whole[start:]
    rows, pool = sum(whole, []), BatchIndices(n, size, 0, 1, 3, len).pool
    if n == UNLIMITED: assert sorted(rows[:200]) == list(range(200))
    elif n % (pool * size) == 0: assert all(sorted(rows[k:k + n]) == list(range(n)) for k in range(0, len(rows) - n, n))
    if pool > 1: assert whole != list(BatchIndices(n, size, 0, 230, 3))


def test_a_batch_keeps_the_order_of_its_rows_and_a_pool_shuffles_its_batches():
    lengths = random.Random(0).choices(range(5), k=200)
    found = by_length(range(200), lengths, 4, 0)
    assert all(rows == sorted(rows) for rows in found) and sorted(sum(found, [])) == list(range(200))
    widths = [max(lengths[row] for row in rows) for rows in found]
    assert widths != sorted(widths)
    assert sum(widths) * 4 <= sum(lengths) + 4 * 3  # three rows at each border of five lengths


def letters_of_lengths(**options) -> Stream:
    make = lambda row, k: prefix_example((), "a" * row, Vocabulary("a"))
    return Stream(lambda k: [1 + i * 37 % 23 for i in range(97)], make, window=50, **options)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data", [letters_of_lengths(), [prefix_example((), "a" * (1 + i % 13), Vocabulary("a"))
                                                         for i in range(700)]], ids=["stream", "rows"])
def test_similar_lengths_are_the_same_resumed_and_in_every_process(data, workers):
    config = TrainConfig(steps=60, batch_size=4, workers=workers)
    tokens = lambda start, **share: [b.tokens.tolist() for b in batches(data, config, start, CPU, **share)]
    whole = tokens(0)
    assert is_grouped(data, config) and len(whole) == 60 and tokens(53) == whole[53:] and tokens(7) == whole[7:]
    shares = [tokens(40, rank=rank, world=2) for rank in (0, 1)]
    for batch, *parts in zip(whole[40:], *shares, strict=True):
        assert [row[:sum(t > 0 for t in row)] for part in parts for row in part] == [
            row[:sum(t > 0 for t in row)] for rank in (0, 1) for row in batch[rank::2]]
    real = lambda batch: sum(t > 0 for row in batch for t in row) / sum(map(len, batch))
    padded = [b.valid.float().mean().item() for b in batches(
        data, TrainConfig(steps=60, batch_size=4, group_by_length=False), 0, CPU)]
    assert sum(map(real, whole)) / 60 > 0.95 > 0.8 > sum(padded) / 60


def test_sequences_of_one_length_come_in_the_order_of_positions():
    data = [prefix_example((), "ab", Vocabulary("ab")) for _ in range(300)]
    assert not is_grouped(data, TrainConfig(batch_size=2)) and not is_grouped(data[:1], TrainConfig(batch_size=2))
    assert is_grouped(data, TrainConfig(batch_size=2, group_by_length=True))
    pair = Pair(data[0], data[1])
    assert columns(pair) == 6 and columns(data[0]) == 3


def test_data_that_know_lengths_are_not_made_for_them():
    made = []
    data = Examples(400, lambda i: made.append(i) or prefix_example((), "a" * (1 + i % 9), Vocabulary("a")),
                    length=lambda i: 2 + i % 9)
    next(batches(data, TrainConfig(steps=5, batch_size=4), 0, CPU))
    assert len(made) <= 2 * 4


def test_empty_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match="data is empty"): trainer(tmp_path, data=Subset(Words(), [])).fit()


LEAVING = """
import sys, torch
from torch.utils.data import Dataset
from loflexmdm.process.streams import Stream
from loflexmdm.training.batches import batches
from loflexmdm.training.optimisers import TrainConfig

class Rows(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): raise ValueError("row 3 is broken")

def broken(row, number): raise ValueError("row 3 is broken")

if __name__ == "__main__":
    if sys.argv[2] != "default": torch.multiprocessing.set_start_method(sys.argv[2])
    data = dict(rows=Rows(), stream=Stream(lambda k: range(8), broken))[sys.argv[1]]
    next(batches(data, TrainConfig(steps=4, batch_size=2, workers=2), 0, torch.device("cpu")))
"""


@pytest.mark.parametrize("data, start", [("rows", "default"), ("stream", "default"), ("rows", "spawn")])
@pytest.mark.slow
def test_a_script_ends_at_an_error_of_a_loader_process(tmp_path, data, start):
    (tmp_path / "script.py").write_text(LEAVING)
    ended = subprocess.run([sys.executable, tmp_path / "script.py", data, start], timeout=60, text=True,
                           capture_output=True)
    assert ended.returncode == 1 and "row 3 is broken" in ended.stderr


def test_a_loader_that_is_kept_outside_of_training_ends_at_sigterm():
    "As when a notebook's kernel is shut down, which waits for its children."
    kept = batches([Words()[i] for i in range(8)], TrainConfig(steps=4, batch_size=2, workers=1), 0, CPU)
    before = set(multiprocessing.active_children())
    next(kept)
    [loader] = set(multiprocessing.active_children()) - before
    os.kill(loader.pid, signal.SIGTERM)
    loader.join(5)
    assert loader.exitcode == 0


def test_loader_processes_ignore_signals_until_the_training_process_leaves():
    with stop_signals(): leaving = exit_flag()
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    process = context.Process(target=lambda: (ignore_interrupts(0, leaving), begun.set(), time.sleep(60)), daemon=True)
    process.start()
    assert begun.wait(30)
    for number in STOP_SIGNALS: os.kill(process.pid, number)
    process.join(0.3)
    assert process.is_alive()
    leaving.value = True
    process.terminate()
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.parametrize("grouped", [False, True])
def test_batches_of_a_stream_from_any_start_are_a_tail(grouped):
    "And each process gets its share of their rows; those of similar length are made a pool at a time."
    data, config = letters_of_lengths(), TrainConfig(steps=52, batch_size=2, group_by_length=grouped)
    lengths = lambda start, **share: [b.lengths.tolist() for b in batches(data, config, start, CPU, **share)]
    whole = lengths(0)
    assert len(whole) == 52 and lengths(3) == whole[3:] and lengths(51) == whole[51:]
    assert lengths(49, rank=1, world=2) == [rows[1:] for rows in whole[49:]]
    apart = [abs(a - b) for a, b in whole[:50]]
    assert sum(apart) / 50 < 1 if grouped else sum(apart) / 50 > 3
    plain = letters_of_lengths().examples(config.seed)
    rows = [len(next(plain).tokens) for _ in range(100)]
    assert (sorted(sum(whole[:50], [])) == sorted(rows)) if grouped else (sum(whole[:50], []) == rows)


def test_accumulated_batches_and_empty_data():
    data, config = [prefix_example((), "a" * (1 + k), Vocabulary("a")) for k in range(6)], TrainConfig(
        steps=3, batch_size=2, accumulate=2, group_by_length=False)
    whole = [b.tokens.tolist() for b in batches(data, config, 0, CPU)]
    assert len(whole) == 6 and [b.tokens.tolist() for b in batches(data, config, 2, CPU)] == whole[4:]
    with pytest.raises(ValueError, match="data is empty"): next(batches([], config, 0, CPU))
