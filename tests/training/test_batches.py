"The order of the data, loader processes and how a script ends."
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from small_runs import CPU, Words, trainer
from torch.utils.data import Subset

from loflexmdm.process.streams import UNLIMITED
from loflexmdm.support.stop_signals import STOP_SIGNALS, stop_signals
from loflexmdm.training.batches import BatchIndices, batches, epoch_indices, exit_flag, ignore_interrupts
from loflexmdm.training.optimisers import TrainConfig


@pytest.mark.parametrize("n", [7, UNLIMITED])
def test_indices_from_any_start_are_a_tail(n):
    import itertools
    first = list(itertools.islice(epoch_indices(n, 0, seed=3), 30))
    for start in (1, 7, 13): assert list(itertools.islice(epoch_indices(n, start, seed=3), 30 - start)) == first[start:]
    if n == 7: assert all(sorted(first[i:i + 7]) == list(range(7)) for i in (0, 7, 14)) and first[:7] != first[7:14]
    numbers = list(BatchIndices(n, 4, 0, 7, 3))
    assert numbers[3:] == list(BatchIndices(n, 4, 3, 7, 3)) and sum(numbers, []) == first[:28]


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
