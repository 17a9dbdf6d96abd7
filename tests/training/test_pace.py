"What a run says of time, when it compiles, and how its optimisers compute."
import sys
from itertools import count

import pytest
import torch
from kill import stop_after

import loflexmdm.training.trainer as training
from loflexmdm.cli.commands import parse
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.networks.transformer import SIZES, Block, Size, rotary
from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.support import progress
from loflexmdm.support.progress import LogLines, in_words, is_watched, progress_bar
from loflexmdm.training.batches import passes
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.compiling import compiler, worth_compiling
from loflexmdm.training.log import Pace
from loflexmdm.training.optimisers import Float32Muon, TrainConfig, adamw_kernels, fast_bfloat16
from loflexmdm.training.optimisers import optimisers
from loflexmdm.training.recipes import limited_steps, recipe_from
from loflexmdm.training.trainer import Trainer

CPU, VOCABULARY = torch.device("cpu"), Vocabulary("abc")
WORDS = [prefix_example("a", ["abc"[(i + j) % 3] for j in range(i % 3)], VOCABULARY) for i in range(6)]


def trainer(directory, pico, progress=False, order="fixed", **options):
    "A trainer of the smallest model; `pico` is the fixture that makes its size."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order=order, size="pico", order_size="pico", max_length=8))
    values = dict(steps=14, batch_size=6, warmup=2, log_every=7, save_every=4, keep=9)
    return Trainer(method, WORDS, TrainConfig(**values | options), directory, progress=progress)


def said(t, seconds=0.0):
    "The lines that a trainer says from now on; by its clock, whatever is timed takes `seconds`."
    lines, ticks = [], count()
    t.say, t.clock = lines.append, lambda: seconds * next(ticks)
    return lines


def weights(t): return [p.detach().clone() for p in t.method.parameters()]


# ---- whether to compile

@pytest.mark.parametrize("seconds, steps, pays", [(1.0, 1199, False), (1.0, 1201, True), (0.1, 5000, False)])
def test_compiling_must_save_twice_what_it_costs(monkeypatch, seconds, steps, pays):
    "0.2 of 1,200 seconds are 240, twice 120."
    monkeypatch.setattr(training, "compiler", lambda device: "g++")
    decided, why = worth_compiling(seconds, steps, CPU)
    assert decided == pays and ("saves about" in why) == pays and (pays or "it pays from 20 min on" in why)


def test_without_a_compiler_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler-anywhere")
    assert compiler(CPU) is None
    assert worth_compiling(1.0, 10**6, CPU) == (False, "no compiler for cpu was found")
    monkeypatch.setenv("CXX", sys.executable)
    assert compiler(CPU) == sys.executable and compiler(torch.device("meta")) is None


def test_a_short_run_does_not_compile_and_says_why(tmp_path, pico):
    t = trainer(tmp_path, pico)
    lines = said(t, 1.0)
    t.compile_networks = lambda: pytest.fail("compiled")
    t.fit()
    assert t.compiled is False and lines == [
        "14 steps of 6 sequences: 14 passes over 6 sequences",
        "about 4 s for the 4 steps that are left (1 s each)",
        "compile: no, 4 s of training are left; it pays from 20 min on",
    ]


def test_a_failed_compilation_gives_one_line_and_the_weights_of_a_run_without(tmp_path, pico, monkeypatch):
    monkeypatch.setattr(training, "compiler", lambda device: "g++")
    plain, t = trainer(tmp_path / "plain", pico, compile=False), trainer(tmp_path / "auto", pico)
    plain.fit()
    lines = said(t, 1000.0)
    def broken(): raise RuntimeError("no linker\nand much more")
    t.try_networks = broken
    t.fit()
    assert lines[2].startswith("compile: yes, saves about 13 min of 67 min")
    assert lines[3:] == ["compile: failed (RuntimeError: no linker); training goes on without"]
    assert t.compiled is False and all(p._compiled_call_impl is None for p in t.method.backbone.blocks)
    assert all(map(torch.equal, weights(t), weights(plain)))


def test_a_failure_later_on_takes_the_step_again_without(tmp_path, pico):
    plain, t = (trainer(tmp_path / name, pico, compile=False, accumulate=2) for name in ("plain", "late"))
    plain.fit()
    lines, loss, calls, after = said(t), t.method.loss, count(1), t.after_step
    def failing(batch, generator):
        if next(calls) == 6: raise RuntimeError("a kernel for another width")
        return loss(batch, generator)
    def pretend(row, bar):
        after(row, bar)
        t.compiled = t.step == 2
    t.method.loss, t.after_step = failing, pretend
    t.fit()
    assert t.step == 14 and sum("a kernel for another width" in line for line in lines) == 1
    assert all(map(torch.equal, weights(t), weights(plain)))
    t.compiled, t.method.loss = False, lambda batch, generator: 1 / 0
    with pytest.raises(ZeroDivisionError): t.gradients([None])


def test_the_decision_is_kept_by_resuming(tmp_path, pico, monkeypatch):
    monkeypatch.setattr(training, "compiler", lambda device: "g++")
    t, made = trainer(tmp_path, pico), []
    said(t, 1000.0)
    t.compile_networks = lambda: made.append(t.step)
    stop_after(t, 13)
    again = trainer(tmp_path, pico)
    again.compile_networks = lambda: made.append(again.step)
    again.fit(resume=True)
    # decided after ten steps; resumed from the checkpoint of step 12
    assert made == [10, 12] and again.compiled is True
    plain = trainer(tmp_path, pico, compile=False)
    plain.load(checkpoints(tmp_path)[-1])
    assert plain.compiled is False


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


def test_trying_the_networks_changes_nothing(tmp_path, pico):
    t, other = trainer(tmp_path / "a", pico, order="learned"), trainer(tmp_path / "b", pico, order="learned")
    calls = []
    for net in t.method.networks: net.register_forward_pre_hook(lambda m, args: calls.append(len(args[0].tokens)))
    before, rng = t.method.state_dict(), torch.get_rng_state()
    t.try_networks()
    assert calls == [6, 12, 6, 12] and torch.equal(rng, torch.get_rng_state())  # the batch, and two states of each
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
    args = parse(["train", *words.split(), "--out", "x"])
    assert args.compile == value and args.recipe == "star-tiny"


def test_a_wrong_word_for_compile_is_refused():
    with pytest.raises(ValueError, match="--compile=maybe: must be true, false or auto"):
        parse(["train", "star-tiny", "--compile=maybe", "--out", "x"])


# ---- what is said of time

def test_passes_and_pace():
    c = TrainConfig(steps=500, batch_size=32, accumulate=2)
    assert passes(c, 320) == "500 steps of 64 sequences: 100 passes over 320 sequences"
    assert passes(c, training.UNLIMITED, 20).endswith("no sequence comes twice; 480 steps are left")
    pace = Pace()
    for seconds in [9.0, *[2.0] * 12, 50.0]: pace.step(seconds, 100)
    assert pace.step_seconds == 2.0 and pace.steps == 14  # the median of the first ten
    assert pace.tokens_per_second() == pytest.approx(1400 / 83) and pace.tokens_per_second() != pace.tokens_per_second()


def test_tokens_per_second_and_real_columns_by_hand(tmp_path, pico):
    """Six words of 2, 3, 4, 2, 3, 4 tokens (start token and prompt included): 18 real columns of 24 in every batch,
    and a step that takes half a second."""
    t = trainer(tmp_path, pico)
    said(t, 0.5)
    t.fit()
    rows = [r for r in t.log.rows() if "loss" in r]
    assert [r["tokens_per_second"] for r in rows] == [36.0, 36.0] and [r["real_columns"] for r in rows] == [0.75, 0.75]


def test_a_log_file_gets_lines_that_become_rare(monkeypatch):
    monkeypatch.setattr(progress.time, "strftime", lambda form: "08:00:00")
    now, lines = 0.0, []
    log = LogLines(1000, "training", " steps", initial=100, clock=lambda: now, write=lines.append)
    for _ in range(200):
        now += 1.0
        log.set_postfix(dict(bound="7.5"))
        log.update()
    assert lines[0] == "08:00:00 training: 130 of 1,000 steps, bound 7.5, 14 min left"  # 870 steps of a second
    assert [int(line.split()[2]) - 100 for line in lines] == [30, 75, 143]


def test_lines_where_nobody_watches_and_a_bar_on_a_terminal(monkeypatch):
    assert isinstance(progress_bar(3, "work"), LogLines) and progress_bar(3, "work", disable=True).disable
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    assert is_watched()
    assert [in_words(s) for s in (3, 99, 600, 7200)] == ["3 s", "99 s", "10 min", "2.0 h"]


def test_training_writes_to_a_log_file(tmp_path, pico, capsys):
    trainer(tmp_path, pico, progress=True).fit()
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 3 and err[0].startswith("14 steps")
    assert "steps that are left" in err[1] and "compile: no" in err[2]


def test_a_small_file_is_not_passed_over_without_end(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(f"a b c{i}" for i in range(2000)))
    tables = dict(task=dict(kind="text", file=str(file)), train=dict(batch_size=32))
    made = recipe_from(tables)
    n = 1000 < made.train.steps < 10_000 and made.train.steps * 32 / 100
    assert n == pytest.approx(1600, abs=60)  # the training split, four fifths
    assert recipe_from(made.as_dict()) == made
    assert recipe_from(tables | dict(train=dict(steps=9000))).train.steps == 9000
    assert recipe_from(dict(task=dict(kind="star"))).train.steps == 10_000
    assert [limited_steps(TrainConfig(), n) for n in (1, 320, 640, 10**6)] == [500, 500, 1000, 10_000]


# ---- optimisers

def test_fused_adamw_takes_the_steps_of_the_loop(tmp_path, pico):
    t, other = trainer(tmp_path / "a", pico), trainer(tmp_path / "b", pico)
    assert t.optimisers[0].defaults["fused"] and adamw_kernels(CPU, True) == dict(foreach=True)
    assert adamw_kernels(torch.device("cuda"), True) == adamw_kernels(CPU, False) == dict(fused=True)
    assert adamw_kernels(torch.device("mps"), False) == dict(foreach=True)
    other.optimisers = [torch.optim.AdamW(other.groups, betas=(0.9, 0.99))]
    t.fit(), other.fit()
    for p, q in zip(weights(t), weights(other), strict=True): torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_checkpoints_of_other_kernels_are_resumed(tmp_path, pico):
    "A checkpoint that unfused AdamW wrote, continued by the fused one, ends where the fused one ends alone."
    whole, first = trainer(tmp_path / "whole", pico), trainer(tmp_path / "cut", pico)
    whole.fit()
    first.optimisers = [torch.optim.AdamW(first.groups, betas=(0.9, 0.99))]
    stop_after(first, 8)
    second = trainer(tmp_path / "cut", pico)
    second.fit(resume=True)
    assert {int(s["step"]) for s in second.optimisers[0].state.values()} == {14}
    for p, q in zip(weights(whole), weights(second), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_muon_in_float32_is_muon(pico):
    "Against torch's, whose bfloat16 has three digits: the same step, decay included, within 2 % of its length."
    shapes, g = [(6, 4), (4, 9), (6, 4)], torch.Generator().manual_seed(0)
    start, steps = [torch.randn(s, generator=g) for s in shapes], [[torch.randn(s, generator=g) for s in shapes] * 2]
    found = []
    for muon in (torch.optim.Muon, Float32Muon):
        params = [torch.nn.Parameter(s.clone()) for s in start]
        optimiser = muon(params, lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw")
        for grads in steps * 3:
            for p, grad in zip(params, grads, strict=False): p.grad = grad.clone()
            optimiser.step()
        found.append(params)
    for p, q, s in zip(*found, start, strict=True): assert (p - q).norm() < 0.02 * (p - s).norm()


@pytest.mark.parametrize("capability, kind", [("AVX512", torch.optim.Muon), ("AVX2", Float32Muon)])
def test_muon_is_in_float32_where_bfloat16_is_slow(monkeypatch, pico, tmp_path, capability, kind):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    t = trainer(tmp_path, pico, optimiser="muon")
    assert type(optimisers(t.method, t.config)[0]) is kind and fast_bfloat16(torch.device("cuda"))
    assert SIZES["pico"].width == 16
