"The loop: exact resumption, failures that save first, files that are whole."
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import Dataset, Subset
from kill import stop_after

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.saved import load_model
from loflexmdm.process.matching import LossTerms
from loflexmdm.process.states import CLEAN, MASKED, Vocabulary, collate, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.support import atomic_files as files
from loflexmdm.support.random_numbers import generator_for
from loflexmdm.support.stop_signals import STOP_SIGNALS
from loflexmdm.training.batches import BatchIndices, epoch_indices, flag_of_leaving
from loflexmdm.training.batches import ignore_interrupts
from loflexmdm.training.checkpoints import checkpoints, run_lock
from loflexmdm.training.log import JsonLines, shown
from loflexmdm.training.optimisers import FREE_KEYS, TrainConfig, learning_rate
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary("abc")
WEIGHTS = ["config.json", "ema.safetensors", "model.safetensors", "optimizer.safetensors", "state.json"]


class Words(Dataset):
    "Word i: a prompt letter and 0 to 4 letters more."
    def __len__(self): return UNLIMITED
    def __getitem__(self, i): return prefix_example("a", ["abc"[(i * i + j) % 3] for j in range(i % 5)], VOCABULARY)


def model(seed=0, vocabulary=VOCABULARY, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LoFlexMDM(vocabulary, LoFlexMDMConfig(size="nano", order_size="nano", max_length=8, **options))


def config(**options):
    return TrainConfig(
        **dict(steps=8, batch_size=4, warmup=2, log_every=2, valid_every=3, valid_size=4, valid_samples=2, save_every=3)
        | options
    )


def trainer(directory, data=None, method=None, **options):
    words = Words() if data is None else data
    return Trainer(method or model(), words, config(**options), directory, valid=Words(), progress=False)


def same(a, b):
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


CASES = dict(
    plain={}, accumulate=dict(accumulate=3), workers=dict(workers=2),
    no_average=dict(ema=0.0), epochs=dict(data=Subset(Words(), range(10))),
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("died_at", [2, 4])  # before the first checkpoint, and after it
def test_resume_is_bitwise(tmp_path, case, died_at):
    whole = trainer(tmp_path / "whole", **CASES[case])
    average = whole.fit()
    stop_after(trainer(tmp_path / "cut", **CASES[case]), died_at)
    # a checkpoint decides everything
    resumed = trainer(tmp_path / "cut", method=model(seed=5) if died_at == 4 else None, **CASES[case])
    assert same(resumed.fit(resume=True), average) and same(resumed.method, whole.method)
    timed = ("seconds", "tokens_per_second")
    rows = [[{k: v for k, v in r.items() if k not in timed} for r in t.log.rows()] for t in (whole, resumed)]
    assert rows[0] == rows[1]
    assert same(load_model(tmp_path / "whole/best"), load_model(tmp_path / "cut/best"))


@pytest.mark.parametrize("options", [{}, dict(ema=0.0, accumulate=2)])
@pytest.mark.parametrize("order", ["learned", "fixed"])
def test_weight_files_have_the_same_names(tmp_path, options, order):
    trainer(tmp_path, method=model(order=order), **options | dict(steps=2)).fit()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000002"]
    assert sorted(p.name for p in checkpoints(tmp_path)[0].iterdir()) == WEIGHTS


def test_without_averaging_the_average_is_the_model(tmp_path):
    t = trainer(tmp_path, ema=0.0, steps=3)
    assert same(t.fit(), t.method)


def test_one_step_does_what_it_says(tmp_path):
    """Weights after one step against AdamW applied by hand to the gradient of the same loss, clipped apart
    for generator and order model."""
    t, other = (
        trainer(tmp_path, steps=1, warmup=0, final_lr_frac=1.0, weight_decay=0.0, clip=0.1, order_lr_scale=0.5),
        model(),
    )
    t.fit()
    other.train().loss(collate([Words()[i] for i in range(4)]), generator_for(0, "train", 0)).loss.backward()
    ordering = {id(p) for p in other.order_parameters}
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in other.parameters()]
    norms = {
        part: torch.stack(
            [g.norm() for p, g in zip(other.parameters(), gradients, strict=True) if (id(p) in ordering) == part]
        ).norm()
        for part in (False, True)
    }
    assert norms[False] > 0.1  # the clipping is not idle
    for p, q, g in zip(t.method.parameters(), other.parameters(), gradients, strict=True):
        part = id(q) in ordering
        g = g * min(1.0, 0.1 / (norms[part] + 1e-6))
        torch.testing.assert_close(p, q - 1e-3 * (0.5 if part else 1.0) * g / (g.abs() + 1e-8), rtol=1e-4, atol=1e-7)


class Masked(LoFlexMDM):
    "A loss without chance: every free token masked, the clock at 1."
    name, Config = "masked-for-tests", LoFlexMDMConfig

    def loss(self, batch, generator=None):
        b_in, b_um = self.schedule(batch)
        state = torch.where(batch.free, MASKED, CLEAN)
        return LossTerms(self.match(batch, state, torch.ones(len(state)), b_in, b_um).loss.mean(), {})


def test_micro_batches_are_one_batch(tmp_path):
    "Gradient norms and weights of 4 batches of 2 a step and of 1 batch of 8."
    def fit(name, size, k):
        t = trainer(
            tmp_path / name,
            method=Masked(VOCABULARY, LoFlexMDMConfig(size="nano", order_size="nano", max_length=8)),
            batch_size=size,
            accumulate=k,
            steps=3,
            log_every=1,
            clip=1e6,
        )
        t.method.load_state_dict(start)
        t.fit()
        return t
    start = model().state_dict()
    one, four = fit("one", 8, 1), fit("four", 2, 4)
    assert [r["grad_norm"] for r in one.log.rows() if "loss" in r] == pytest.approx(
        [r["grad_norm"] for r in four.log.rows() if "loss" in r], rel=1e-3
    )
    torch.testing.assert_close(one.method.token.out.bias, four.method.token.out.bias, rtol=1e-3, atol=1e-6)


def test_the_order_model_rests_until_it_starts(tmp_path):
    t, before = trainer(tmp_path, steps=3, order_start=2, weight_decay=0.0), model()
    seen, move = [], t.optimizer_step
    ordering, start = list(t.method.order_parameters), list(before.order_parameters)
    def moving():
        move()
        seen.append(all(torch.equal(p, q) for p, q in zip(ordering, start, strict=True)))
    t.optimizer_step = moving
    t.fit()
    assert seen == [True, True, False]


def test_every_forward_has_its_own_random_numbers(tmp_path):
    def seeds(name, **options):
        t, seen = trainer(tmp_path / name, steps=4, accumulate=2, **options), []
        loss = t.method.loss
        t.method.loss = lambda batch, generator: (seen.append(generator.initial_seed()), loss(batch, generator))[1]
        t.fit()
        return seen
    first, again, other = seeds("a"), seeds("b"), seeds("c", seed=1)
    assert len(set(first)) == 8 and first == again and not set(first) & set(other)


def test_learning_rate():
    c = config(steps=100, warmup=10, lr=2.0, final_lr_frac=0.1)
    assert learning_rate(c, 0) == 0.2 and learning_rate(c, 9) == 2.0 and learning_rate(c, 10) == 2.0
    assert learning_rate(c, 55) == pytest.approx(1.1) and learning_rate(c, 100) == pytest.approx(0.2)


@pytest.mark.parametrize("n", [7, UNLIMITED])
def test_indices_from_any_start_are_a_tail(n):
    import itertools
    first = list(itertools.islice(epoch_indices(n, 0, seed=3), 30))
    for start in (1, 7, 13): assert list(itertools.islice(epoch_indices(n, start, seed=3), 30 - start)) == first[start:]
    if n == 7: assert all(sorted(first[i:i + 7]) == list(range(7)) for i in (0, 7, 14)) and first[:7] != first[7:14]
    batches = list(BatchIndices(n, 4, 0, 7, 3))
    assert batches[3:] == list(BatchIndices(n, 4, 3, 7, 3)) and sum(batches, []) == first[:28]


class Poisoned(LoFlexMDM):
    "Its loss is not a number from a given call on."
    name, Config, calls, poison = "poisoned-for-tests", LoFlexMDMConfig, 0, 3

    def loss(self, batch, generator=None):
        out = super().loss(batch, generator)
        self.calls += 1
        bad = torch.nan if self.calls > self.poison else 1.0
        return out._replace(loss=out.loss * bad, metrics=out.metrics | dict(gap=out.metrics["gap"] * bad))


def test_not_finite_stops_saves_and_says_where(tmp_path):
    t = trainer(tmp_path, method=Poisoned(VOCABULARY, LoFlexMDMConfig(size="nano", order_size="nano", max_length=8)))
    with pytest.raises(FloatingPointError, match="step 4: not finite: gap, gradient of .*step_000003"): t.fit()
    assert t.log.rows()[-1]["not_finite"][0] == "gap" and t.log.rows()[-1]["gap"] is None
    assert all(p.isfinite().all() for p in load_model(checkpoints(tmp_path)[-1]).parameters())


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    trainer(tmp_path, save_every=1, keep=3).fit()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000006", "step_000007", "step_000008"]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step_000006", "step_000007", "step_000008"]


def test_steps_sort_as_numbers(tmp_path):
    for name in ("step_1000000", "step_999999"): (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert checkpoints(tmp_path)[-1].name == "step_1000000"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    trainer(path, steps=4).fit()
    return path


def test_a_directory_with_a_run_is_refused(finished):
    with pytest.raises(ValueError, match="already holds a run"): trainer(finished).fit()


def test_two_runs_in_one_directory_are_refused(tmp_path):
    t, seen = trainer(tmp_path), []
    after = t.after_step
    def meanwhile(row, bar):
        with pytest.raises(ValueError, match="another run is writing here"): trainer(tmp_path).fit(resume=True)
        seen.append(t.step)
        after(row, bar)
    t.after_step = meanwhile
    t.fit()
    assert len(seen) == 8


@pytest.mark.parametrize("name", ["model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named(finished, tmp_path, name):
    shutil.copytree(finished, tmp_path / "run")
    path = checkpoints(tmp_path / "run")[-1] / name
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=f"{name}: damaged"): trainer(tmp_path / "run", steps=4).fit(resume=True)


def test_a_checkpoint_of_another_run_is_refused(finished):
    with pytest.raises(ValueError, match="lr=0.5: the run in"): trainer(finished, steps=4, lr=0.5).fit(resume=True)
    with pytest.raises(ValueError, match="weights of another model"):
        trainer(finished, steps=4, method=model(vocabulary=Vocabulary("abcd"))).fit(resume=True)
    with pytest.raises(ValueError, match="vocabulary"):
        trainer(finished, steps=4, method=model(vocabulary=Vocabulary("abd"))).fit(resume=True)


def test_what_may_change_on_resuming(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    numbers = {key: getattr(config(), key) + 1 for key in FREE_KEYS if key != "compile"}
    trainer(tmp_path / "run", steps=4, **numbers, compile=False).fit(resume=True)


def test_leftovers_of_a_kill_are_swept(tmp_path):
    stop_after(trainer(tmp_path), 4)
    (tmp_path / "checkpoints/.step_000006.abc").mkdir()
    (tmp_path / "best/.partial").write_text("half")
    with open(tmp_path / "metrics.jsonl", "a") as f: f.write('{"step": 4, "lo')
    trainer(tmp_path).fit(resume=True)
    assert not (tmp_path / "checkpoints/.step_000006.abc").exists() and not (tmp_path / "best/.partial").exists()
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_log_rows(finished):
    rows = JsonLines(finished / "metrics.jsonl").rows()
    steps = [r for r in rows if "loss" in r]
    assert [r["step"] for r in steps] == [2, 4] and [r["step"] for r in rows if "valid_nll" in r] == [3, 4]
    assert {
        "token", "gap", "bound", "bound_tight", "regulariser", "advantage",
        "log_b_in", "log_b_in_std", "grad_norm", "lr", "evaluations",
    } <= steps[0].keys()
    assert steps[1]["evaluations"] == 8  # two a step


def test_the_best_validation_is_remembered(finished):
    t = trainer(finished, steps=4)
    t.fit(resume=True)
    assert t.best == pytest.approx(min(r["valid_nll"] for r in t.log.rows() if "valid_nll" in r), rel=1e-5)


def test_the_global_random_state_is_left_alone(tmp_path):
    before = torch.get_rng_state()
    trainer(tmp_path, workers=2, steps=2).fit()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "key, value",
    [
        ("steps", 0), ("steps", -3), ("lr", 0.0), ("lr", float("nan")), ("ema", 1.0),
        ("precision", "half"), ("valid_samples", 1), ("accumulate", 0),
    ],
)
def test_config_refuses(key, value):
    with pytest.raises(ValueError, match=f"{key}="): TrainConfig(**{key: value})


def test_empty_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match="data is empty"): trainer(tmp_path, data=Subset(Words(), [])).fit()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("options", [{}, dict(precision="bfloat16", workers=2), dict(compile=True)])
def test_cuda(tmp_path, options):
    t = trainer(tmp_path, method=model().to("cuda"), steps=4, **options)
    assert t.fit().device.type == "cuda" and all(p.isfinite().all() for p in t.method.parameters())
    assert trainer(tmp_path, method=model().to("cuda"), steps=4, **options).fit(resume=True).device.type == "cuda"


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_only_what_needs_a_gradient_is_trained(tmp_path, optimiser):
    method = model(order="fixed")
    for name, p in method.backbone.named_parameters():
        p.requires_grad_("adapt" in name or name == "blocks.0.qkv.weight")
    before, needed = (
        {k: v.detach().clone() for k, v in method.named_parameters()},
        {k for k, v in method.named_parameters() if v.requires_grad},
    )
    t = trainer(tmp_path, method=method, optimiser=optimiser, ema=0.5, weight_decay=0.0)
    assert sum(len(g["params"]) for g in t.groups) == len(needed)
    average = t.fit()
    for m in (method, average): assert {k for k, v in m.named_parameters() if not torch.equal(v, before[k])} == needed


def test_muon_moves_the_matrices_of_the_blocks_and_adamw_the_rest(tmp_path):
    """Which parameters each optimiser has, and a step of Muon: a matrix moves by at most about lr 0.2
    sqrt(longer side) in any direction."""
    t = trainer(tmp_path, steps=4, warmup=0, final_lr_frac=1.0, weight_decay=0.0, optimiser="muon")
    muon, adam = t.optimisers
    assert isinstance(muon, torch.optim.Muon) and isinstance(adam, torch.optim.AdamW)
    named = {p: name for name, p in t.method.named_parameters()}
    hidden = {named[p] for g in muon.param_groups for p in g["params"]}
    # not the order model's
    assert hidden == {n for n, p in t.method.named_parameters() if n.startswith("backbone.blocks.") and p.ndim == 2}
    trained = {n for p, n in named.items() if p.requires_grad}  # all but the head of unmasking rates, which are frozen
    assert hidden | {named[p] for g in adam.param_groups for p in g["params"]} == trained
    weight, before, move = dict(t.method.named_parameters())["backbone.blocks.0.out.weight"], [], t.optimizer_step
    t.optimizer_step = lambda: (before.append(weight.detach().clone()), move())
    t.fit()
    turned = torch.linalg.svdvals((weight.detach() - before[-1]).double()) / (
        t.config.lr * 0.2 * max(weight.shape) ** 0.5
    )
    # Newton-Schulz brings large singular values near 1; AdamW's sign-like step would give about 5 times that or more
    assert 0.7 < turned.max() < 1.3


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(ValueError, match="optimiser='sgd': choose one of adamw, muon"): TrainConfig(optimiser="sgd")


def test_weights_to_start_from(tmp_path):
    """Those whose names and shapes agree are taken, average included;
    a resumed run keeps its own; another vocabulary, or no common weight, is refused."""
    first = trainer(tmp_path / "fixed", method=model(order="fixed", states=1), steps=2)
    first.fit()
    second = trainer(
        tmp_path / "learned", method=model(), steps=1, lr=1e-60,
        weight_decay=0.0, start_from=str(tmp_path / "fixed" / "best"),
    )
    second.fit()
    taken, own = load_model(tmp_path / "fixed" / "best").state_dict(), second.method.state_dict()
    assert taken.keys() < own.keys() and all(torch.equal(taken[k], own[k]) for k in taken)
    assert same(second.ema.module, second.method)
    shutil.rmtree(tmp_path / "fixed")
    trainer(
        tmp_path / "learned", method=model(), steps=1, lr=1e-60,
        weight_decay=0.0, start_from=str(tmp_path / "fixed" / "best"),
    ).fit(resume=True)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        trainer(tmp_path / "a", steps=1, start_from=str(tmp_path / "nowhere")).fit()
    other = LoFlexMDM(Vocabulary("xyz"), LoFlexMDMConfig(size="nano", order_size="nano", max_length=8)).save_pretrained(
        tmp_path / "other"
    )
    with pytest.raises(ValueError, match="vocabulary"): trainer(tmp_path / "b", steps=1, start_from=str(other)).fit()


def test_the_best_model_may_be_read_by_those_who_may_read_its_config(tmp_path):
    t = trainer(tmp_path, steps=9)
    t.fit()
    assert sum("valid_nll" in r for r in t.log.rows()) > 1
    assert (tmp_path / "best" / "model.safetensors").stat().st_mode == (
        tmp_path / "best" / "config.json"
    ).stat().st_mode


def test_the_bar_shows_the_bound_not_the_surrogate():
    assert shown(dict(loss=torch.tensor(18142.0), bound_tight=torch.tensor(12.25))) == dict(bound="12.25")
    assert shown(dict(loss=torch.tensor(1.5))) == dict(loss="1.500")


def test_an_interrupt_while_the_lock_is_given_back_does_not_keep_it(tmp_path, monkeypatch):
    "In a notebook the process lives on, and with it a lock that was not given back."
    class Interrupted(files.FileLock):
        def release(self, *args, **options):
            os.kill(os.getpid(), signal.SIGINT)
            super().release(*args, **options)
    try:
        with monkeypatch.context() as m:
            m.setattr(files, "FileLock", Interrupted)
            trainer(tmp_path, steps=2).fit()
    except KeyboardInterrupt as e: kept = e  # with the frames that hold the lock, as a notebook keeps them
    else: kept = None
    with run_lock(tmp_path): assert kept is None


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


def test_loader_processes_ignore_signals_until_the_training_process_leaves():
    leaving, context = flag_of_leaving(), multiprocessing.get_context("fork")
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
