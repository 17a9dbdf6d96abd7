"What a GPU computes, beside the CPU. Nothing here runs without one."
import math
import os
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from kill import stop_after
from share import free_port
from small_runs import star_recipe
from torch.nn.attention import SDPBackend, sdpa_kernel

from loflexmdm.cli import main
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.samplers import EventDriven, TauLeaping
from loflexmdm.support.random_numbers import Launch
from loflexmdm.training import distributed
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.compiling import autocast
from loflexmdm.training.log import JsonLines
from loflexmdm.training.optimisers import TrainConfig

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"), pytest.mark.usefixtures("pico"),
]
GPU = torch.device("cuda", 0)
NAMES = "ar", "mdm", "genmd4", "papl", "flexmdm", "loflexmdm", "loinsert", "lounmask", "did", "ilm", "ip"
ORDERED = "ordered-insertion", "ordered-masks"
every_method = pytest.mark.parametrize("name", NAMES + ORDERED + ("editflow",))


def recipe_of(name: str, **train): return star_recipe(name, **dict(precision="float32") | train)


def shaken(name: str):
    "Task and model of a method, in float64, with weights that are not those of a new one."
    task, model = recipe_of(name).build()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters(): p += 0.1 * torch.randn(p.shape, generator=generator)
    return task, model.double().eval()


@every_method
def test_samples_are_those_of_the_cpu(name):
    "The random numbers of a row are drawn by the processor; in float64 the rates are the same up to rounding."
    task, model = shaken(name)
    prompts = task.prompts("test", 12)
    own = generate(model, prompts, seed=0)
    other = generate(model.to(GPU), prompts, seed=0)
    assert own.sequences == other.sequences and own.network_calls == other.network_calls


@pytest.mark.parametrize("sampler", [
    EventDriven(exact=True), EventDriven(exact=False, confidence="top_prob", top_p=0.9), TauLeaping(steps=12),
    TauLeaping(steps=12, confidence="entropy"),
], ids=["thinning", "held", "leaps", "confident leaps"])
def test_each_sampler_gives_what_it_gives_on_the_cpu(sampler):
    task, model = shaken("loflexmdm")
    prompts = task.prompts("test", 12)
    own = generate(model, prompts, seed=0, sampler=sampler)
    assert own.sequences == generate(model.to(GPU), prompts, seed=0, sampler=sampler).sequences


@every_method
def test_the_mean_loss_is_that_of_the_cpu(name):
    "Another generator draws the states, so means of many draws are compared, in standard errors."
    task, model = shaken(name)
    data = task.dataset("train")
    batch = collate([data[i] for i in range(64)])
    found = []
    for device in (torch.device("cpu"), GPU):
        model.to(device)
        generator = torch.Generator(device).manual_seed(0)
        draws = [model.loss(batch.to(device), generator).loss.item() for _ in range(40)]
        values = torch.tensor(draws, dtype=torch.float64)
        found.append((values.mean(), values.var() / len(values)))
    (one, spread), (other, more) = found
    assert abs(one - other) < 4.5 * math.sqrt(spread + more) + 1e-9


@every_method
def test_bounds_are_those_of_the_cpu(name):
    task, model = shaken(name)
    data = task.dataset("test")
    batch = collate([data[i] for i in range(16)])
    cpu, its_error = model.nll_bound(batch, 64, torch.Generator().manual_seed(0))
    gpu, error = model.to(GPU).nll_bound(batch.to(GPU), 64, torch.Generator(GPU).manual_seed(0))
    scale = (its_error.square().sum() + error.cpu().square().sum()).sqrt() + 1e-9
    assert abs(cpu.sum() - gpu.cpu().sum()) < 4.5 * scale


@every_method
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_ends_and_its_bound_falls(name, precision, tmp_path):
    options = dict(steps=60, precision=precision, lr=3e-3, warmup=5, valid_every=30, save_every=30, valid_samples=4)
    trainer = recipe_of(name, **options).trainer(tmp_path, device=GPU, progress=False)
    trainer.fit()
    bounds = [row["valid_nll"] for row in JsonLines(tmp_path / "metrics.jsonl").rows() if "valid_nll" in row]
    assert all(map(math.isfinite, bounds)) and bounds[-1] < bounds[0]


@pytest.mark.parametrize("name", ["loflexmdm", "ordered-insertion", "ar"])
def test_a_run_that_was_stopped_goes_on_as_it_would_have(name, tmp_path):
    "Bit for bit where the device's sums are in one order; here, as near as its rounding."
    options = dict(steps=12, save_every=6, valid_every=12, valid_samples=2)
    whole = recipe_of(name, **options).trainer(tmp_path / "whole", device=GPU, progress=False)
    whole.fit()
    part = recipe_of(name, **options).trainer(tmp_path / "part", device=GPU, progress=False)
    stop_after(part, 6)
    again = recipe_of(name, **options).trainer(tmp_path / "part", device=GPU, progress=False)
    again.fit(resume=True)
    for a, b in zip(whole.method.parameters(), again.method.parameters()): torch.testing.assert_close(a, b)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_compiled_network_computes_the_same(precision, tmp_path):
    task, plain = recipe_of("loflexmdm").build()
    data = task.dataset("train")
    batch = collate([data[i] for i in range(16)]).to(GPU)
    plain.to(GPU).train()
    losses = []
    for compiled in (False, True):
        if compiled:
            for block in plain.backbone.blocks: block.compile(dynamic=True)
        with autocast(TrainConfig(precision=precision), GPU):
            losses.append(plain.loss(batch, torch.Generator(GPU).manual_seed(0)).loss)
    torch.testing.assert_close(*losses, rtol=1e-5 if precision == "float32" else 2e-2, atol=1e-5)


def test_attention_without_a_mask_takes_the_flash_kernel():
    "From left to right, in bfloat16: with every other kernel forbidden."
    model = Autoregressive(Vocabulary("abc"), AutoregressiveConfig(size="tiny", max_length=16)).to(GPU)
    x = collate([prefix_example("a", "bcab", model.vocabulary), prefix_example("b", "ca", model.vocabulary)]).to(GPU)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.autocast("cuda", torch.bfloat16):
        loss = model.loss(x).loss
    loss.backward()
    assert loss.isfinite()


# how often a training step waits for the GPU, and a sampler's call; test_host_reads.py counts without one
STEPS = {"ar": 5, "mdm": 7, "flexmdm": 8, "loflexmdm": 7, "ordered-insertion": 10}
CALLS = {"ar": 18, "mdm": 10, "flexmdm": 10, "loflexmdm": 10, "ordered-insertion": 10}


@pytest.mark.parametrize("name", STEPS)
def test_waits_of_a_training_step(name, tmp_path):
    trainer = recipe_of(name).trainer(tmp_path, device=GPU, progress=False)
    stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
    for _ in range(3): trainer.train_step(stream)
    found = waits(lambda: trainer.train_step(stream))
    stream.close()
    print(f"{name}: a training step waits {found} times")
    assert found <= STEPS[name]


def waits(call) -> int:
    "How often a call waits for the GPU; where, is printed."
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally: torch.cuda.set_sync_debug_mode("default")
    found = [w for w in caught if "synchronizing" in str(w.message)]
    print(Counter(f"{Path(w.filename).name}:{w.lineno}" for w in found))
    return len(found)


@pytest.mark.parametrize("name", CALLS)
def test_waits_of_a_sampling_call(name):
    task, model = recipe_of(name).build()
    prompts = task.prompts("test", 16)
    model.to(GPU).eval()
    generate(model, prompts, seed=0)
    out = []
    found = waits(lambda: out.append(generate(model, prompts, seed=0)))
    each = found / out[0].network_calls
    print(f"{name}: {each:.1f} waits a call of the network")
    assert each <= CALLS[name]


@pytest.fixture
def nccl(monkeypatch):
    "A group of one process, on NCCL."
    places = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    for key, value in places.items(): monkeypatch.setenv(key, value)
    distributed._meet(Launch(0, 1, 0), GPU)
    yield Launch(0, 1, 0)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["loflexmdm", "ordered-insertion"])
def test_a_process_of_nccl_trains_what_one_alone_does(name, nccl, tmp_path):
    options = dict(steps=6, save_every=3, valid_every=6, valid_samples=2)
    alone = recipe_of(name, **options).trainer(tmp_path / "alone", device=GPU, progress=False)
    alone.fit()
    shared = recipe_of(name, **options).trainer(
        tmp_path / "shared", device=GPU, progress=False, processes=distributed.SeveralProcesses(nccl))
    shared.fit()
    a, b = (JsonLines(tmp_path / run / "metrics.jsonl").rows()[-1] for run in ("alone", "shared"))
    assert a["valid_nll"] == pytest.approx(b["valid_nll"], rel=1e-4)
    assert len(checkpoints(tmp_path / "shared")) and os.path.exists(tmp_path / "shared" / "best")


def test_commands_take_the_gpu(tmp_path, capsys):
    pytest.importorskip("rdkit")  # which the command's own list of tasks imports
    out = str(tmp_path / "run")
    train = ["train", "star-tiny", "--size", "nano", "--order-size", "nano", "--steps", "20", "--batch-size", "16"]
    assert main([*train, "--valid-size", "8", "--device", "cuda", "--out", out]) == 0
    assert main(["sample", out, "-n", "8", "--device", "cuda", "--out", str(tmp_path / "s.jsonl")]) == 0
