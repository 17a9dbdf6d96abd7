"Formulas and boundaries where a small change of the code would go unnoticed."
import itertools
import json
import math
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.saved import save_method
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.support.atomic_files import read_digests
from loflexmdm.tasks.base import Examples
from loflexmdm.training import checkpoints as checkpointing, compiling, distributed, loggers, trainer as training
from loflexmdm.training.batches import batches, epoch_indices
from loflexmdm.training.checkpoints import _check_state, _wrong_moment, checkpoints, take_weights, tidy
from loflexmdm.training.compiling import compiler
from loflexmdm.training.log import Pace, plot_metrics
from loflexmdm.training.optimisers import GroupedMuon, TrainConfig, adamw_kernels, learning_rate, orthogonalise
from loflexmdm.training.trainer import Trainer


VOCABULARY = Vocabulary("abc")
pytestmark = pytest.mark.usefixtures("pico")


def model():
    torch.manual_seed(0)
    return LoFlexMDM(VOCABULARY, LoFlexMDMConfig(size="pico", order_size="pico", max_length=8))


class Bar:
    "A progress bar that keeps what it is told."
    def __init__(self): self.shown, self.updates = {}, 0
    def set_postfix(self, values): self.shown = dict(values)
    def update(self): self.updates += 1


def trainer(directory, **options):
    "A small run on six sequences."
    texts = ("b", "bc", "cab", "", "cc", "abc")
    words = Examples(len(texts), lambda i: prefix_example("a", texts[i], VOCABULARY))
    settings = dict(steps=4, batch_size=2, warmup=1, log_every=1, save_every=2)
    return Trainer(model(), words, TrainConfig(**settings | options), directory, progress=False)


@pytest.mark.parametrize("begin", [0.0, 1e6])
def test_seconds_are_those_since_the_start_whatever_the_clock_says(tmp_path, begin):
    run = trainer(tmp_path)
    ticks = itertools.count()
    run.clock = lambda: begin + next(ticks)
    run.fit()
    assert 0 < run.seconds <= next(ticks)
    again = trainer(tmp_path, steps=4)
    again.load(again.checkpoints[-1])
    assert again.seconds == run.seconds


def test_lines_are_said_only_to_who_watches(tmp_path, capsys):
    run = trainer(tmp_path)
    run.say("not this")
    run.progress = True
    run.say("but this")
    told = capsys.readouterr()
    assert "but this" in told.out + told.err and "not this" not in told.out + told.err


def test_what_is_left_is_what_has_not_been_trained(tmp_path, monkeypatch):
    run, said = trainer(tmp_path, steps=10), []
    run.say, run.compiler.on, run.step = said.append, False, 4
    run.pace.step(2.0, 5)
    run.look_ahead()
    assert len(said) == 1 and "6 steps" in said[0] and "(2 s each)" in said[0]
    run.step = 10
    run.look_ahead()
    assert len(said) == 1  # nothing is left, nothing is said


def test_the_bar_shows_pace_and_padding(tmp_path):
    run, bar = trainer(tmp_path), Bar()
    run.step = 1
    run.pace.step(2.0, 50)
    run.after_step(dict(loss=torch.tensor(1.0), bound_tight=torch.tensor(2.5), real_columns=torch.tensor(0.25)), bar)
    assert bar.shown == {"bound": "2.5", "tokens/s": "25", "real": "25%"} and bar.updates == 1


def test_pace_is_tokens_over_seconds_since_the_last_question():
    pace = Pace()
    for seconds, tokens in ((1.0, 10), (3.0, 10)): pace.step(seconds, tokens)
    assert pace.tokens_per_second() == 5 and math.isnan(pace.tokens_per_second()) and pace.step_seconds == 2


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    trainer(tmp_path, steps=4, save_every=1, keep=2).fit()
    assert [c.name for c in checkpoints(tmp_path)] == ["step_000003", "step_000004"]


STATE = dict(
    format=1, config={}, step=3, evaluations=6, averaged=3, seconds=1.5, best=None, stepped=None, data={}, files={}
)


@pytest.mark.parametrize("key, value", [
    ("step", 3.0), ("step", True), ("step", -1), ("evaluations", 6.0), ("evaluations", None), ("format", 0),
    ("averaged", 2), ("averaged", 3.0),
    ("compiled", 3), ("compiled", "yes"), ("stepped", ["a", 1]), ("seconds", -1.0),
    ("seconds", math.nan), ("best", math.inf), ("best", "low"),
])
def test_a_state_with_a_wrong_value_is_damaged(tmp_path, key, value):
    meta = STATE | {key: value}
    with pytest.raises(ValueError, match=f"damaged .{key}="): _check_state(meta, tmp_path / "state.json")


def test_moments_have_the_parameters_type_and_counts_are_numbers():
    p = torch.nn.Parameter(torch.zeros(2))
    assert _wrong_moment(torch.zeros(2), p, "exp_avg", 5) is None
    assert _wrong_moment(torch.tensor(3.0, dtype=torch.float64), p, "step", 5) is None
    assert _wrong_moment(torch.tensor(3), p, "step", 5) == "is torch.int64"
    assert _wrong_moment(torch.tensor(3.0).half(), p, "step", 5) == "is torch.float16"  # torch would refuse it
    assert _wrong_moment(torch.zeros(2, dtype=torch.float64), p, "exp_avg", 5) == "is torch.float64"
    assert _wrong_moment(torch.tensor([1.0, -1.0]), p, "exp_avg_sq", 5) == "is negative"
    assert _wrong_moment(torch.tensor([0.0, -1e-30]), p, "exp_avg_sq", 5) == "is negative"
    assert _wrong_moment(torch.zeros(2), p, "exp_avg_sq", 5) is None  # no gradient so far
    assert _wrong_moment(torch.tensor([1.0, -1.0]), p, "exp_avg", 5) is None


@pytest.mark.parametrize("device, fused", [("cpu", True), ("cuda", True), ("mps", False)])
def test_one_fused_kernel_where_there_is_one(device, fused):
    assert adamw_kernels(torch.device(device)) == (dict(fused=True) if fused else dict(foreach=True))


def test_a_seal_that_does_not_fit_is_noticed(tmp_path):
    trainer(tmp_path, steps=2).fit()
    state = checkpoints(tmp_path)[-1] / "state.json"
    meta = json.loads(state.read_text())
    state.write_text(json.dumps(meta | dict(seconds=meta["seconds"] + 1)))
    with pytest.raises(ValueError, match="state.json"): trainer(tmp_path, steps=2).fit(resume=True)


def gradients(directory, **options):
    "Gradients of one micro-batch at the first step."
    run = trainer(directory, **options)
    run.gradients([collate([run.data[i] for i in range(3)])])
    return {name: p.grad for name, p in run.method.named_parameters() if p.grad is not None}


def test_a_step_has_the_mean_gradient_of_its_micro_batches(tmp_path):
    whole, third = gradients(tmp_path / "a"), gradients(tmp_path / "b", accumulate=3)
    assert whole.keys() == third.keys() and len(whole) > 10
    for name in whole: torch.testing.assert_close(3 * third[name], whole[name])


def test_every_micro_batch_has_a_number_of_its_own(tmp_path):
    "Noise and dropped conditions differ between the parts of one step, and between steps."
    run, numbers = trainer(tmp_path, steps=3, accumulate=2), []
    run.drop_conditions = lambda batch, number: numbers.append(number) or batch
    run.fit()
    assert numbers == list(range(6))


def test_a_bound_in_uneven_parts_is_the_mean_over_sequences(tmp_path):
    "Five sequences in parts of four and one: each counts once, in the mean and in its error."
    valid = collate([prefix_example("", text, VOCABULARY) for text in ("a", "a", "ab", "ab", "abcabc")])
    judge = SimpleNamespace(device=valid.tokens.device, nll_bound=lambda x, *_: (x.lengths.double() - 1, None))
    found = training._mean_bound(judge, valid, TrainConfig(batch_size=1))
    assert found == pytest.approx((12 / 5, (17.2 / 4 / 5) ** 0.5))


def test_a_moment_that_is_not_finite_is_not_saved(tmp_path):
    run = trainer(tmp_path, steps=2, save_every=100)
    run.train_step(batches(run.data, run.config, 0, run.device))
    assert run.checkpoints.non_finite(1) == ""
    moments = next(state for o in run.optimisers for state in o.state.values())
    moments["exp_avg"].view(-1)[0] = math.nan
    assert "not finite: moment " in run.checkpoints.non_finite(1)
    with pytest.raises(FloatingPointError, match="moment"): run.save()
    assert not checkpoints(tmp_path)


def test_a_damaged_moment_is_told_by_its_file(tmp_path):
    trainer(tmp_path, steps=2).fit()
    checkpoint = checkpoints(tmp_path)[-1]
    moments = load_file(checkpoint / "optimizer.safetensors")
    key = next(k for k in moments if k.endswith("exp_avg_sq"))
    save_file(moments | {key: moments[key] - 1}, checkpoint / "optimizer.safetensors")
    meta = json.loads((checkpoint / "state.json").read_text())
    for name in ("digest", "files"): meta.pop(name, None)
    (checkpoint / "state.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="optimizer.safetensors: damaged .*is negative"):
        trainer(tmp_path, steps=2).fit(resume=True)


def test_tidying_keeps_the_newest_checkpoints(tmp_path):
    trainer(tmp_path, steps=4, save_every=1, keep=4).fit()
    assert len(checkpoints(tmp_path)) == 4
    tidy(tmp_path, 3)
    assert [c.name for c in checkpoints(tmp_path)] == ["step_000002", "step_000003", "step_000004"]


@pytest.mark.parametrize("platform, name", [("linux", "g++"), ("darwin", "clang++"), ("win32", "cl")])
def test_compilers_by_platform(monkeypatch, platform, name):
    monkeypatch.setattr(compiling.sys, "platform", platform)
    monkeypatch.setattr(compiling.shutil, "which", lambda command: f"/bin/{command}")
    monkeypatch.delenv("CXX", raising=False)
    assert compiler(torch.device("cpu")) == f"/bin/{name}"
    monkeypatch.setenv("CXX", "own")
    assert compiler(torch.device("cpu")) == "/bin/own"


QUINTIC = (3.4445, -4.7750, 2.0315)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 7, 3), (1, 4, 4)])
def test_orthogonalised_acts_on_singular_values_alone(shape):
    "x = U S V' gives U p(p(...p(S))) V', with the odd polynomial p of Muon."
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    s = s / s.norm(dim=-1, keepdim=True)
    for _ in range(5): s = QUINTIC[0] * s + QUINTIC[1] * s**3 + QUINTIC[2] * s**5
    torch.testing.assert_close(orthogonalise(x, QUINTIC, 5, 1e-7), u @ torch.diag_embed(s) @ v)


def test_a_step_of_muon_in_closed_form():
    "Decay, momentum with Nesterov's look ahead, and 0.2 sqrt(longer side) times the orthogonalised matrix."
    g = torch.Generator().manual_seed(1)
    p = torch.nn.Parameter(torch.randn(3, 5, generator=g, dtype=torch.float64))
    before, momentum = p.detach().clone(), torch.zeros(3, 5, dtype=torch.float64)
    settings = dict(lr=0.1, momentum=0.9, weight_decay=0.3, ns_coefficients=QUINTIC, ns_steps=5, eps=1e-7)
    muon = GroupedMuon([p], nesterov=True, **settings)
    for _ in range(3):
        grad = torch.randn(3, 5, generator=g, dtype=torch.float64)
        def closure(grad=grad):
            p.grad = grad.clone()
            return 7.0
        assert muon.step(closure) == 7.0
        momentum = 0.9 * momentum + 0.1 * grad
        move = orthogonalise((0.9 * momentum + 0.1 * grad)[None], QUINTIC, 5, 1e-7)[0]
        before = before * (1 - 0.1 * 0.3) - 0.1 * 0.2 * 5**0.5 * move
        torch.testing.assert_close(p.detach(), before)
    assert muon.step() is None


def test_a_compiler_that_fails_leaves_no_trace(tmp_path):
    "No gradients either: what has none is not stepped."
    run, said = trainer(tmp_path), []
    run.compiler.say = said.append
    for p in run.method.parameters(): p.grad = torch.ones_like(p)
    run.compiler.give_up(RuntimeError("first line\nsecond"))
    assert run.compiler.on is False and all(p.grad is None for p in run.method.parameters())
    assert said == ["compile: failed (RuntimeError: first line); training goes on without"]


def test_compiling_says_how_long_it_took(tmp_path, monkeypatch):
    run, said, ticks = trainer(tmp_path).compiler, [], iter([100.0, 103.0])
    monkeypatch.setattr(compiling, "regions", lambda method: [])
    run.say, run.clock, run.try_networks = said.append, lambda: next(ticks), lambda: None
    run.compile()
    assert run.on is True and len(said) == 1 and "3 s" in said[0]


def test_every_part_is_compiled_for_any_length(tmp_path, monkeypatch):
    run, found = trainer(tmp_path).compiler, []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: found.append((self, options)))
    run.say, run.try_networks = print, lambda: None
    run.compile()
    assert [part for part, _ in found] == compiling.regions(run.method) and found
    assert all(options == dict(dynamic=True) for _, options in found)


def test_data_without_end_are_read_in_order():
    assert list(itertools.islice(epoch_indices(UNLIMITED, 5, 0), 3)) == [5, 6, 7]


def test_a_failure_says_where_good_weights_are(tmp_path):
    run = trainer(tmp_path)
    run.train_step(batches(run.data, run.config, 0, run.device))
    with pytest.raises(FloatingPointError, match="step 2: not finite: kl; the weights before it are in .*step_000001"):
        run.fail(dict(kl=math.nan))
    next(run.method.parameters()).data.view(-1)[0] = math.nan
    with pytest.raises(FloatingPointError, match="after step 1 not finite.*the newest good checkpoint is"):
        run.fail(dict(kl=math.nan))


def test_a_checkpoint_has_digests_of_its_tensors(tmp_path):
    trainer(tmp_path, steps=1).fit()
    (path,) = checkpoints(tmp_path)
    assert read_digests(path / "state.json").keys() == {p.name for p in path.glob("*.safetensors")}
    assert len(read_digests(path / "state.json")) == 3


def test_the_log_has_hundredths_of_a_second(tmp_path):
    run = trainer(tmp_path)
    run.step, run.seconds = 1, 1.23456
    run.after_step(dict(loss=torch.tensor(1.0), real_columns=torch.tensor(1.0)), Bar())
    assert run.log.rows()[-1]["seconds"] == 1.23


def test_loss_curves_have_a_point_for_each_row(tmp_path):
    rows = [dict(step=1, bound_tight=3.0), dict(step=2, bound_tight=2.0, valid_nll=2.5), dict(step=3, bound_tight=1.0)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for given in (rows, tmp_path, tmp_path / "metrics.jsonl"):
        training_curve, validation = plot_metrics(given).lines
        assert training_curve.get_xydata().tolist() == [[1, 3], [2, 2], [3, 1]]
        assert validation.get_xydata().tolist() == [[2, 2.5]]
        assert {line.get_linewidth() for line in (training_curve, validation)} == {1.0}
        assert training_curve.axes.get_yscale() == "log" and training_curve.axes.get_xlabel() == "step"
    with pytest.raises(ValueError, match="no rows to draw"): plot_metrics([])


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path):
    for name in "step_999999", "step_1000000", "step_000005", "step_x00001":
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "state.json").write_text("{}")
    assert [c.name for c in checkpoints(tmp_path)] == ["step_000005", "step_999999", "step_1000000"]


def test_nothing_is_left_of_a_removed_checkpoint(tmp_path):
    trainer(tmp_path, steps=4, save_every=1, keep=1).fit()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_000004"]


def test_every_micro_batch_has_noise_of_its_own(tmp_path, monkeypatch):
    run, numbers = trainer(tmp_path, steps=3, accumulate=2), []
    plain = distributed.generator_for
    def noted(seed, purpose, *key, **options):
        if purpose == "train": numbers.append(*key)
        return plain(seed, purpose, *key, **options)
    monkeypatch.setattr(distributed, "generator_for", noted)
    run.fit()
    assert numbers == list(range(6))


def test_a_bound_that_is_the_same_is_not_a_better_one(tmp_path, monkeypatch):
    run, kept = trainer(tmp_path), []
    run.valid = collate([prefix_example("a", "b", VOCABULARY)] * 2)
    monkeypatch.setattr(training, "keep_best", lambda model, directory: kept.append(directory))
    monkeypatch.setattr(type(run.ema.module), "nll_bound", lambda self, x1, *rest: (torch.ones(len(x1.tokens)), None))
    assert run.validate() == run.validate() == 1.0 and kept == [tmp_path / "best"]


def test_what_cannot_be_swept_stays(tmp_path, monkeypatch):
    (tmp_path / "checkpoints/.step_000001").mkdir(parents=True)
    def refuse(*args, **options): raise PermissionError("not mine")
    for name in ("rmdir", "unlink", "scandir"): monkeypatch.setattr(checkpointing.os, name, refuse)
    checkpointing.sweep(tmp_path)
    assert (tmp_path / "checkpoints/.step_000001").is_dir()


def test_the_log_has_the_rate_of_the_step_that_was_made(tmp_path):
    run = trainer(tmp_path, steps=4, warmup=2)
    run.fit()
    assert [row["lr"] for row in run.log.rows()] == [learning_rate(run.config, k) for k in range(4)]
    assert learning_rate(TrainConfig(steps=3, warmup=2), 2) == pytest.approx(run.config.lr)


def test_metrics_are_means_over_micro_batches(tmp_path):
    run = trainer(tmp_path, accumulate=2)
    run.gradients = lambda given: [dict(loss=torch.tensor(v)) for v in (1.0, 4.0)]
    for p in run.method.parameters(): p.grad = torch.zeros_like(p)
    assert run.train_step(iter([SimpleNamespace(valid=torch.ones(1))] * 2))["loss"] == 2.5


def test_weights_of_another_shape_keep_their_own(tmp_path):
    save_method(model(), tmp_path / "m")
    larger = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(size="nano", order_size="pico", max_length=8))
    own = take_weights(larger, tmp_path / "m")
    assert own and set(own) < set(larger.state_dict())


def test_gradients_are_averaged_with_the_last_micro_batch_of_a_step(tmp_path):
    t, seen = trainer(tmp_path, steps=2, accumulate=3), []
    t.processes.average_gradients = lambda last: (seen.append(last), nullcontext())[1]
    t.fit()
    assert seen == [False, False, True] * 2


class Scalars:
    "A writer of TensorBoard that keeps what it gets."
    def __init__(self, directory, purge_step=None): self.kept = []
    def add_scalar(self, key, value, step): self.kept.append((key, value, step))
    def add_text(self, key, text, step): self.kept.append((key, text, step))
    def flush(self): pass


def test_every_number_is_written_as_a_scalar(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Scalars))
    board = loggers.TensorBoard(tmp_path, {}, 0)
    board.log(dict(loss=1.5, bound=2.5, sample="ab"), 7)
    assert board.writer.kept[1:] == [("loss", 1.5, 7), ("bound", 2.5, 7), ("sample", "    ab", 7)]
