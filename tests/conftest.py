import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def untouched_globals():
    "No test may leave another default dtype, thread count or global random state behind."
    before = torch.get_default_dtype(), torch.get_num_threads(), torch.get_rng_state()
    yield
    dtype, threads, rng = before
    assert torch.get_default_dtype() == dtype and torch.get_num_threads() == threads
    torch.set_rng_state(rng)
