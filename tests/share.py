"""Several processes that train a small model in float64, forked from this one; each is what torchrun would start.

`python share.py N DIR JSON` starts N; torchrun may start it as well: `torchrun ... share.py 0 DIR JSON`."""
import faulthandler
import json
import os
import socket
import sys
import traceback
from pathlib import Path

import torch
from safetensors.torch import load_file

from loflexmdm.methods.base import method_class
from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.support.random_numbers import current_launch
from loflexmdm.support.stop_signals import Interrupted
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.distributed import process_group, processes_of
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

FILES = "model.safetensors", "ema.safetensors", "optimizer.safetensors"  # of a checkpoint
LONGEST = 240  # seconds that a process may take
LETTERS = Vocabulary("abc")
WORDS = [prefix_example(p, w, LETTERS) for p in ("", "a") for w in ("a", "abc", "cab", "bb", "cabbac", "ca", "bac")]


def trainer(directory: str, method: str = "loflexmdm", options: dict | None = None, **settings) -> Trainer:
    "A trainer of a tiny model; several processes share it under torchrun."
    own = dict(size="nano", max_length=10) | ({"order_size": "nano"} if method == "loflexmdm" else {})
    cls = method_class(method)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(LETTERS, cls.Config(**own | (options or {}))).double()
    in_double = lambda part, args: (args[0].double(),)  # clock readings are float32
    if getattr(model, "time", None): model.time.register_forward_pre_hook(in_double)
    usual = dict(steps=20, batch_size=8, lr=3e-3, warmup=2, log_every=5, valid_every=10, valid_size=4, save_every=5,
                 keep=9)
    config, processes = TrainConfig(**usual | settings), processes_of(current_launch())
    return Trainer(model, WORDS, config, directory, WORDS[:4], progress=False, processes=processes)


def train(directory: str, work: str):
    "Train as `work` says; `until` stops after that many steps, as a signal would."
    torch.Tensor.float = torch.Tensor.double  # heads compute in float32 whatever the weights are
    asked = json.loads(work)
    resume, until = asked.pop("resume", False), asked.pop("until", None)
    with process_group(current_launch(), torch.device("cpu")):
        t = trainer(directory, **asked)
        if until: t.processes.stop_signal = lambda caught: 15 if t.step == until else 0
        t.fit(resume=resume)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(n: int, work, *args) -> list[int]:
    "Fork n processes that call `work(*args)`, with torchrun's variables; returns their ids."
    port, ids = free_port(), []
    for rank in range(n):
        if child := os.fork():
            ids.append(child)
            continue
        os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port))
        code = 1
        faulthandler.dump_traceback_later(LONGEST, exit=True)  # a process that hangs says where
        try: code = work(*args) or 0
        except Interrupted: code = 0
        except ValueError as e: code = print(e, file=sys.stderr) or 2
        except BaseException: traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return ids


def wait(ids: list[int]) -> list[int]:
    "The exit codes of the processes."
    return [os.waitstatus_to_exitcode(os.waitpid(i, 0)[1]) for i in ids]


def together(n: int, work, *args):
    "Call `work(*args)` in n processes; AssertionError unless all end well."
    assert (codes := wait(start(n, work, *args))) == [0] * n, codes


def difference(a: Path, b: Path) -> float:
    """The largest difference between weights, averages and moments of two runs' newest checkpoints; nan if one of them
    is. AssertionError unless they are of one step and hold tensors of the same names and shapes."""
    one, other = checkpoints(a)[-1], checkpoints(b)[-1]
    assert one.name == other.name
    worst = torch.zeros(1)
    for u, v in ((load_file(one / name), load_file(other / name)) for name in FILES):
        assert {k: t.shape for k, t in u.items()} == {k: t.shape for k, t in v.items()}
        worst = torch.cat([worst, *((u[k] - v[k]).abs().flatten() for k in u)]).max()[None]
    return float(worst)


if __name__ == "__main__":
    n, *rest = sys.argv[1:]
    together(int(n), train, *rest) if n != "0" else train(*rest)
