"When a run compiles, and what happens where that fails."
import copy
import os
import random
import signal
import sys
import time
from itertools import count, repeat

import pytest
import torch
from kill import stop_after
from small_runs import CPU, said, short_trainer, trainer, weights

from loflexmdm.cli.commands import parse
from loflexmdm.methods.base import backbones
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.networks.transformer import Block, Size, rotary
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.support.stop_signals import Interrupted
from loflexmdm.training import compiling
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.compiling import compiler, regions, compiling_pays
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import recipe_from


@pytest.mark.parametrize("device, able, precision, found", [
    ("cuda", True, "auto", True), ("cuda", False, "auto", False), ("cuda", True, "float32", False),
    ("cpu", True, "auto", False), ("cpu", True, "bfloat16", True),
])
def test_bfloat16_where_a_gpu_has_it(monkeypatch, device, able, precision, found):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: able)
    assert compiling.in_bfloat16(TrainConfig(precision=precision), torch.device(device)) == found


def test_products_in_tf32_on_a_gpu_alone(tmp_path, monkeypatch):
    "A run takes them for its device, and leaves the setting as it was, however it ends."
    seen = []
    t = trainer(tmp_path)
    t.run = lambda caught: seen.append(torch.get_float32_matmul_precision())
    t.fit()
    with pytest.raises(KeyError), compiling.fast_products(torch.device("cuda")):
        seen.append(torch.get_float32_matmul_precision())
        raise KeyError
    assert seen == ["highest", "high"] and torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("seconds, steps, pays", [(1.0, 1199, False), (1.0, 1201, True), (0.1, 5000, False)])
def test_compiling_must_save_twice_what_it_costs(monkeypatch, seconds, steps, pays):
    "0.2 of 1,200 seconds are 240, twice 120."
    monkeypatch.setattr(compiling, "compiler", lambda device: "g++")
    decided, why = compiling_pays(seconds, steps, CPU)
    assert decided == pays and ("saves about" in why) == pays and (pays or "it pays from 20 min on" in why)


def test_without_a_compiler_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler-anywhere")
    assert compiler(CPU) is None
    assert compiling_pays(1.0, 10**6, CPU) == (False, "no compiler for cpu was found")
    monkeypatch.setenv("CXX", sys.executable)
    assert compiler(CPU) == sys.executable and compiler(torch.device("meta")) is None


def test_a_short_run_does_not_compile_and_says_why(tmp_path, pico):
    t = short_trainer(tmp_path, pico)
    lines = said(t, 1.0)
    t.compiler.compile = lambda: pytest.fail("compiled")
    t.fit()
    assert t.compiler.on is False and lines == [
        "14 steps of 6 sequences: 14 passes over 6 sequences",
        "about 4 s for the 4 steps that are left (1 s each)",
        "compile: no, 4 s of training are left; it pays from 20 min on",
    ]


@pytest.mark.slow
def test_a_failed_compilation_gives_one_line_and_the_weights_of_a_run_without(tmp_path, pico, monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda device: "g++")
    plain, t = short_trainer(tmp_path / "plain", pico, compile=False), short_trainer(tmp_path / "auto", pico)
    plain.fit()
    lines = said(t, 1000.0)
    def broken(): raise RuntimeError("no linker\nand much more")
    t.compiler.try_networks = broken
    t.fit()
    assert lines[2].startswith("compile: yes, saves about 13 min of 67 min")
    assert lines[3:] == ["compile: failed (RuntimeError: no linker); training goes on without"]
    assert t.compiler.on is False and all(p._compiled_call_impl is None for p in t.method.backbone.blocks)
    assert all(map(torch.equal, weights(t), weights(plain)))


@pytest.mark.slow
def test_a_cut_off_file_of_the_cache_is_named_and_the_weights_are_those_of_a_run_without(tmp_path, pico, monkeypatch):
    "The compiler's own error says only that it failed; the library that cannot be loaded is its cause."
    def cut_off(*args, **options): raise ImportError("cache/ab.main.so: file too short")
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", cut_off)
    plain, t = (short_trainer(tmp_path / str(on), pico, compile=on) for on in (False, True))
    plain.fit()
    lines = said(t)
    t.fit()
    named = "compile: failed (ImportError: cache/ab.main.so: file too short); training goes on without"
    assert [line for line in lines if line.startswith("compile")] == [named]
    assert all(map(torch.equal, weights(t), weights(plain)))


def test_a_failure_later_on_takes_the_step_again_without(tmp_path, pico):
    plain, t = (short_trainer(tmp_path / name, pico, compile=False, accumulate=2) for name in ("plain", "late"))
    plain.fit()
    lines, loss, calls, after = said(t), t.method.loss, count(1), t.after_step
    def failing(batch, generator):
        if next(calls) == 6: raise RuntimeError("a kernel for another width")
        return loss(batch, generator)
    def pretend(row, bar):
        after(row, bar)
        t.compiler.on = t.step == 2
    t.method.loss, t.after_step = failing, pretend
    t.fit()
    assert t.step == 14 and sum("a kernel for another width" in line for line in lines) == 1
    assert all(map(torch.equal, weights(t), weights(plain)))
    t.compiler.on, t.method.loss = False, lambda batch, generator: 1 / 0
    with pytest.raises(ZeroDivisionError): t.train_step(repeat(None))


def test_the_decision_is_kept_by_resuming(tmp_path, pico, monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda device: "g++")
    t, made = short_trainer(tmp_path, pico), []
    said(t, 1000.0)
    t.compiler.compile = lambda: made.append(t.step)
    stop_after(t, 13)
    again = short_trainer(tmp_path, pico)
    again.compiler.compile = lambda: made.append(again.step)
    again.fit(resume=True)
    # decided after ten steps; resumed from the checkpoint of step 12
    assert made == [10, 12] and again.compiler.on is True
    plain = short_trainer(tmp_path, pico, compile=False)
    plain.load(checkpoints(tmp_path)[-1])
    assert plain.compiler.on is False


def test_one_graph_for_all_blocks_and_widths():
    "Dynamic shapes: without a graph break, the blocks of a network are traced once or twice for six shapes of batch."
    from torch._dynamo.testing import CompileCounter
    torch._dynamo.reset()
    counter = CompileCounter()
    blocks = [Block(Size(16, 1, 2, 8)) for _ in range(3)]
    for b in blocks: b.compile(dynamic=True, backend=counter, fullgraph=True)
    for rows, width in ((4, 9), (8, 9), (4, 7), (8, 12), (3, 5), (8, 30)):
        h, mask = torch.randn(rows, width, 16, requires_grad=True), torch.ones(rows, 1, 1, width, dtype=torch.bool)
        for b in blocks: h = b(h, torch.randn(rows, 8), rotary(width, 8), mask)
    assert 1 <= counter.frame_count <= 2
    torch._dynamo.reset()


@pytest.mark.slow
def test_three_graphs_for_whole_trajectories():
    "Prompts, events and the order model: a graph of each without a break, for six shapes of batch; the loss is equal."
    from torch._dynamo.testing import CompileCounter
    torch._dynamo.reset()
    counter, letters, draw = CompileCounter(), Vocabulary("abcdef"), random.Random(0)
    config = OrderedInsertionConfig(order="learned", size="nano", order_size="nano", max_length=32)
    method = OrderedInsertion(letters, config)
    plain = copy.deepcopy(method)
    for part in regions(method): part.compile(dynamic=True, backend=counter, fullgraph=True)
    for rows, length in ((4, 9), (8, 9), (4, 7), (8, 12), (3, 5), (8, 20)):
        words = ["".join(draw.choices("abcdef", k=length)) for _ in range(rows)]
        batch = collate([prefix_example("ab", word, letters) for word in words])
        compiled, other = (m.loss(batch, torch.Generator().manual_seed(0)).loss for m in (method, plain))
        compiled.backward()
        torch.testing.assert_close(compiled, other)
    assert counter.frame_count == 3
    torch._dynamo.reset()


def test_trying_the_networks_changes_nothing(tmp_path, pico):
    t, other = (short_trainer(tmp_path / name, pico, order="learned") for name in "ab")
    calls = []
    for net in backbones(t.method): net.register_forward_pre_hook(lambda m, args: calls.append(len(args[0].tokens)))
    before, rng = t.method.state_dict(), torch.get_rng_state()
    t.compiler.try_networks()
    assert calls == [6, 12] and torch.equal(rng, torch.get_rng_state())  # rows of the order model, two states of each
    assert all(torch.equal(v, other.method.state_dict()[k]) for k, v in before.items())
    assert all(p.grad is None for p in t.method.parameters())


@pytest.mark.parametrize("value", [True, False, "auto"])
def test_values_of_compile(value):
    tables = dict(task=dict(kind="star"), train=dict(compile=value))
    assert recipe_from(recipe_from(tables).as_dict()).train.compile == value


def test_other_values_of_compile_are_refused():
    for value in ("yes", 1, None):
        with pytest.raises(ValueError, match="compile=.*choose one of true, false, auto"): TrainConfig(compile=value)


@pytest.mark.parametrize("words, value", [
    ("--compile star-tiny", True), ("star-tiny --compile", True), ("--no-compile star-tiny", False),
    ("star-tiny --compile auto", "auto"), ("--compile=false star-tiny", False), ("star-tiny", None),
])
def test_compile_on_the_command_line(words, value):
    options = parse(["train", *words.split(), "--out", "x"])
    assert options.settings.get("compile") == value and options.recipe == "star-tiny"


def test_a_wrong_word_for_compile_is_refused():
    with pytest.raises(ValueError, match="--compile=maybe: must be true, false or auto"):
        parse(["train", "star-tiny", "--compile=maybe", "--out", "x"])


def test_a_step_that_waits_for_others_is_no_reason_to_compile(tmp_path, pico, monkeypatch):
    "Steps of 1,000 s by the clock, of which the processor works 1 s."
    monkeypatch.setattr(compiling, "compiler", lambda device: "g++")
    t = short_trainer(tmp_path, pico)
    lines, worked = said(t, 1000.0), count(0, 10)
    t.compiler.worked = lambda: next(worked)
    t.compiler.compile = lambda: pytest.fail("compiled")
    t.fit()
    assert "compile: no, 4 s of training are left; it pays from 20 min on" in lines


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_does_not_wait_for_the_compiler(tmp_path, pico, monkeypatch, number):
    monkeypatch.setattr(compiling, "compiler", lambda device: "g++")
    t, began = short_trainer(tmp_path, pico), time.monotonic()
    lines = said(t, 1000.0)

    def slow():
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), number))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        time.sleep(20)
    t.compiler.try_networks = slow
    with pytest.raises(Interrupted, match=f"{number.name} at step 10: saved"): t.fit()
    assert time.monotonic() - began < 15
    assert all(p._compiled_call_impl is None for p in t.method.backbone.blocks)
    assert lines[3:] == [f"compile: not finished, {number.name}"]

    # whether to compile is decided anew, after ten steps of the next session: there are four
    again = short_trainer(tmp_path, pico)
    again.compiler.compile = lambda: pytest.fail("compiled")
    again.fit(resume=True)
    assert again.step == 14 and again.compiler.on is None
    plain = short_trainer(tmp_path / "plain", pico, compile=False)
    plain.fit()
    assert all(map(torch.equal, weights(again), weights(plain)))


@pytest.mark.parametrize("method, options", [
    ("loflexmdm", dict(order_size="nano")), ("ordered-insertion", dict(order_size="nano")), ("ar", {}),
    ("ordered-edits", dict(order_size="nano", coupling="corrupted")),
])
@pytest.mark.slow
def test_recomputed_activations_leave_the_weights_alone(method, options, tmp_path):
    "A run with and one without have the same weights, and the one that recomputes may be resumed without."
    def run(name, resume=False, **more):
        train = dict(steps=4, batch_size=8, warmup=1, order_start=1, valid_size=8, save_every=2, compile=False) | more
        tables = dict(task=dict(kind="brackets"), model=dict(method=method, size="nano", **options), train=train)
        return recipe_from(tables).trainer(tmp_path / name, progress=False).fit(resume=resume).method.state_dict()
    plain, again = run("plain"), run("again", recompute=True)
    assert all(torch.equal(again[key], value) for key, value in plain.items())
    run("half", steps=4, recompute=True)
    assert run("half", resume=True).keys() == plain.keys()


def test_other_networks_cannot_recompute(tmp_path):
    made = trainer(tmp_path)
    made.method.backbone = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="recompute=True: needs a network with alike"):
        compiling.recompute_blocks(made.method, True)
