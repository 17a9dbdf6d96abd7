"Several processes train the model that one trains, share it out, outlive none of each other, and sample the same rows."
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import killed_processes
import small_runs
import share
import torch
import torch.distributed as dist
from share import WORDS, difference, start, together, train, trainer, wait
from torch.distributed import HashStore

from loflexmdm.cli import commands, main
from loflexmdm.methods.base import method_class
from loflexmdm.support.random_numbers import Launch, ShardGenerator, current_launch, quota, uniforms
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training import distributed
from loflexmdm.training.distributed import check_shares, process_group
from loflexmdm.training.log import JsonLines
from loflexmdm.training.optimisers import TrainConfig

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def run(directory: Path, processes: int = 1, **work): together(processes, train, str(directory), json.dumps(work))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    "A run of 20 steps by one process."
    run(directory := tmp_path_factory.mktemp("whole") / "run")
    return directory


@pytest.mark.slow
def test_two_processes_begin_what_four_finish(whole, tmp_path):
    run(tmp_path / "run", 2, until=7)
    assert checkpoints(tmp_path / "run")[-1].name == "step_000007"
    run(tmp_path / "run", 4, resume=True)
    assert difference(whole, tmp_path / "run") < 1e-10
    rows = [[r for r in JsonLines(d / "metrics.jsonl").rows() if "loss" in r] for d in (whole, tmp_path / "run")]
    for one, other in zip(*rows, strict=True):
        for key in ("loss", "bound_tight", "b_min", "b_max", "grad_norm", "real_columns"):
            assert one[key] == pytest.approx(other[key], rel=1e-5)  # six digits are written


@pytest.mark.parametrize("work", [
    dict(options=dict(order="fixed", states=1)),
    dict(options=dict(plain=0.25, readings="event"), accumulate=2),
    dict(method="ordered-insertion", options=dict(order="learned", order_size="nano")),
    dict(method="ordered-masks", options=dict(order="learned", order_size="nano")),
    dict(method="ordered-insertion", options=dict(order="mixture", order_size="nano", components="uniform,backward",
                                                  trial=1)),
    *(dict(method=method) for method in ("flexmdm", "mdm", "genmd4", "papl", "ar")),
], ids=["fixed order", "micro-batches", "ordered insertion", "ordered masks", "mixture", "flexmdm", "mdm",
        "genmd4", "papl", "ar"])
@pytest.mark.slow
def test_two_processes_have_the_weights_of_one(work, tmp_path):
    work = work | dict(steps=4, save_every=4)
    run(tmp_path / "one", 1, **work)
    run(tmp_path / "two", 2, **work)
    assert difference(tmp_path / "one", tmp_path / "two") < 1e-10

    # the norms are those of the whole gradient, not of a process's rows
    rows = [JsonLines(tmp_path / name / "metrics.jsonl").rows() for name in ("one", "two")]
    [one], [two] = ([row for row in own if "loss" in row] for own in rows)
    norms = [key for key in one if key.endswith("grad_norm")]
    assert norms and all(one[key] == pytest.approx(two[key], rel=1e-5) for key in norms)


@pytest.mark.slow
def test_a_killed_process_leaves_no_other_waiting(whole, tmp_path):
    for victim in (0, 1):
        ids, before = start(2, train, str(tmp_path), json.dumps(dict(resume=True, save_every=2))), checkpoints(tmp_path)
        while checkpoints(tmp_path) == before: time.sleep(0.05)
        killed_processes.kill_one(ids, victim, 0)
    run(tmp_path, resume=True)
    assert difference(whole, tmp_path) < 1e-10


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    seen = killed_processes.campaign(tmp_path, 3, random.Random(0))
    assert seen["kills"] == 3 and seen["complete_runs"] >= 1 and seen["difference"] == 0


@pytest.mark.slow
def test_what_the_first_process_refuses_ends_all(whole, tmp_path):
    began = time.monotonic()
    assert wait(start(2, train, str(whole), "{}")) == [2, 2] and time.monotonic() - began < 60


def of_several(monkeypatch, rank=0, world="2", local="0"):
    for name, value in dict(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=local).items(): monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("line, said", [
    ("evaluate star-tiny", "evaluate: runs in one process; start it without torchrun, "),
    ("train star-tiny --out x --batch-size 15", "batch_size=15: must be a multiple of the number of processes, 2"),
    ("train brackets-repair --out x", "method=editflow: its loss needs the whole batch, so it trains on one process"),
])
def test_one_line_from_the_first_process(line, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    of_several(monkeypatch)
    assert main(line.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"loflexmdm: {said}")
    assert not (tmp_path / "x").exists()


class Agent(HashStore):
    "What torchrun's agent keeps for its processes, in this one; what they wait for does not come any more."
    def wait(self, keys, timeout):
        if not self.check(keys): raise RuntimeError


def test_one_process_of_a_machine_speaks_for_all(monkeypatch, capsys):
    monkeypatch.setattr(commands, "shared_store", lambda agent=Agent(): agent)
    for rank, said in ((1, "loflexmdm, process 1: sample: unknown argument --x\n"), (0, ""), (2, "")):
        of_several(monkeypatch, rank, "3", rank)
        commands.print_error(ValueError("sample: unknown argument --x"))
        assert capsys.readouterr().err == said


def test_processes_without_torchrun_speak_each(monkeypatch, capsys):
    for rank, which in ((0, ""), (1, ", process 1")):
        of_several(monkeypatch, rank, local=rank)
        assert main(["sample", "--nosuch"]) == 2
        assert capsys.readouterr().err.startswith(f"loflexmdm{which}: ")


ODD = """
import os, sys
odd = sys.argv[2:] if os.environ["LOCAL_RANK"] == sys.argv[1] else []
from loflexmdm.cli import main
line = "train brackets --size nano --order-size nano --steps 2 --batch-size 2 --quiet --compile false --out run"
sys.exit(main([*line.split(), *odd]))
"""


@pytest.mark.parametrize("rank, odd, said", [
    ("1", "--nosuch 3", r"loflexmdm, process 1: unknown argument --nosuch.*"),
    ("0", "--nosuch 3", "loflexmdm: unknown argument --nosuch.*"),
    ("1", "--lr 0.1", r"loflexmdm: the 2 processes were started differently: train.lr \(.*"),
])
@pytest.mark.slow
def test_torchrun_shows_one_line_whichever_process_was_started_otherwise(rank, odd, said, tmp_path):
    (tmp_path / "odd.py").write_text(ODD)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "odd.py", rank]
    done = subprocess.run([*command, *odd.split()], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode
    [line] = [line for line in done.stderr.splitlines() if line.startswith("loflexmdm")]
    assert re.fullmatch(said, line)


def test_a_port_in_use_is_one_line(tmp_path, capfd):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert wait(start(1, alone_of_two, port)) == [2]
    assert capfd.readouterr().err.count("\n") == 1


def alone_of_two(port: str):
    os.environ |= dict(WORLD_SIZE="2", MASTER_PORT=port)
    train(".", "{}")


def test_launched_by_whom(monkeypatch):
    assert current_launch() == Launch(0, 1, 0)
    of_several(monkeypatch, 3, "4", "1")
    assert current_launch() == Launch(3, 4, 1) and not current_launch().is_main
    of_several(monkeypatch, 4, "4")
    with pytest.raises(ValueError, match="RANK=4, WORLD_SIZE=4"): current_launch()


@pytest.mark.slow
def test_draws_are_shares_of_the_whole_batch():
    whole = uniforms((12, 3), torch.Generator().manual_seed(0))
    for world in (2, 3, 4):
        for rank in range(world):
            own = uniforms((12 // world, 3), ShardGenerator("cpu", rank, world).manual_seed(0))
            torch.testing.assert_close(own, whole[rank::world], rtol=0, atol=0)
    with pytest.raises(ValueError, match="plain=0.1: 3 of 30 rows"):
        quota(0.1, 15, ShardGenerator("cpu", 0, 2), "plain")


def test_a_method_says_whether_it_may_be_shared():
    with pytest.raises(ValueError, match="editflow"): check_shares(method_class("editflow"), TrainConfig(), 2)
    for name in ("loflexmdm", "flexmdm", "mdm", "papl", "genmd4", "ar"):
        check_shares(method_class(name), TrainConfig(), 2)


@pytest.mark.slow
def test_a_frozen_head_is_not_trained(tmp_path):
    model = trainer(str(tmp_path)).method
    assert not any(p.requires_grad for p in model.order.unmask.parameters())
    assert all(p.requires_grad for p in model.order.insert.parameters())


# ---- processes that were started differently

OTHERS = dict(
    lr=(dict(lr=1e-3), r"train\.lr \(0\.003 in process 0, 0\.001 in process 1\)"),
    steps=(dict(steps=5), r"train\.steps \(4 in process 0, 5 in process 1\)"),
    often=(dict(save_every=3), r"train\.save_every \(5 in process 0, 3 in process 1\)"),
    size=(dict(options=dict(size="micro")), r"model\.size \('nano' in process 0, 'micro' in process 1\)"),
    method=(dict(method="mdm"), r"model\.method \('loflexmdm' in process 0, 'mdm' in process 1\)"),
    shorter=(dict(words=slice(9)), r"data\.train\.rows \(14 in process 0, 9 in process 1\)"),
    data=(dict(words=slice(None, None, -1)), r"data\.train\.examples \('[^']+' in process 0, '[^']+' in process 1\)"),
)


def train_differently(directory: str, other: str):
    "Train, in the second process with other settings or data."
    own = json.loads(other) if os.environ["RANK"] == "1" else {}
    if cut := own.pop("words", None): share.WORDS = WORDS[slice(*cut)]
    train(directory, json.dumps(dict(steps=4) | own))


@pytest.mark.slow
@pytest.mark.parametrize("what", OTHERS)
def test_processes_that_were_started_differently_say_how(what, tmp_path, capfd):
    other, said = OTHERS[what]
    if "words" in other: other = dict(words=[other["words"].start, other["words"].stop, other["words"].step])
    began = time.monotonic()
    assert wait(start(2, train_differently, str(tmp_path / "run"), json.dumps(other))) == [2, 2]
    written = capfd.readouterr().err  # by both, perhaps at the same time
    assert len(re.findall(f"were started differently: .*?{said}", written)) == 2
    assert time.monotonic() - began < 60 and not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.slow
def test_processes_may_load_with_workers_of_their_own(tmp_path):
    assert wait(start(2, train_differently, str(tmp_path / "run"), json.dumps(dict(workers=1)))) == [0, 0]


def test_processes_part_when_they_are_done(monkeypatch):
    "One of two, whose meeting is with itself."
    alone = lambda *_: dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr("loflexmdm.training.distributed._meet", alone)
    for _ in range(2):
        with process_group(Launch(0, 2, 0), torch.device("cpu")): assert dist.is_initialized()
        assert not dist.is_initialized()


@pytest.mark.parametrize("error, lost", [
    (dist.DistBackendError("unhandled"), True), (RuntimeError("[gloo] Connection closed by peer"), True),
    (RuntimeError("shapes do not match"), False), (ValueError("socket"), False),
])
def test_which_errors_report_a_lost_process(error, lost): assert distributed._is_broken(error) is lost


def test_a_parameter_that_the_loss_does_not_reach_is_noticed(tmp_path):
    reaches_all = partial(distributed.SeveralProcesses._reaches_all, None)
    one = small_runs.trainer(tmp_path)
    assert reaches_all(one) and all(p.grad is None for p in one.method.parameters())
    one.method.idle = torch.nn.Parameter(torch.zeros(1))
    assert not reaches_all(one)
