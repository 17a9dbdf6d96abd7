"The loop: exact resumption, a step by hand, failures that save first."
import pytest
import torch
from kill import stop_after
from small_runs import VOCABULARY, Words, model, same, trainer
from torch.utils.data import Subset

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.saved import load_method
from loflexmdm.process.matching import LossTerms
from loflexmdm.process.states import CLEAN, MASKED, collate
from loflexmdm.support.random_numbers import generator_for
from loflexmdm.training.checkpoints import checkpoints

CASES = dict(
    plain={}, accumulate=dict(accumulate=3), workers=dict(workers=2),
    no_average=dict(ema=0.0), epochs=dict(data=Subset(Words(), range(10))),
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("died_at", [2, 4])  # before the first checkpoint, and after it
@pytest.mark.slow
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
    assert same(load_method(tmp_path / "whole/best"), load_method(tmp_path / "cut/best"))


def test_without_averaging_the_average_is_the_model(tmp_path):
    t = trainer(tmp_path, ema=0.0, steps=3)
    assert same(t.fit(), t.method)


def test_one_step_does_what_it_says(tmp_path):
    """Weights after one step against AdamW applied by hand to the gradient of the same loss, clipped apart
    for generator and order model."""
    t, other = (
        trainer(tmp_path, steps=1, warmup=0, final_lr_frac=1.0, weight_decay=0.0, clip=0.1, order_lr_scale=0.5,
                group_by_length=False),
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
            group_by_length=False,
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


def test_a_step_on_no_rows_is_refused_and_changes_nothing(tmp_path):
    t, before = trainer(tmp_path), model()
    nothing = collate([Words()[0]]).rows(slice(0, 0))
    with pytest.raises(ValueError, match="batch: no rows"): t.train_step(iter([nothing]))
    assert t.step == 0 and same(t.method, before)


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


@pytest.mark.slow
def test_every_forward_has_its_own_random_numbers(tmp_path):
    def seeds(name, **options):
        t, seen = trainer(tmp_path / name, steps=4, accumulate=2, **options), []
        loss = t.method.loss
        t.method.loss = lambda batch, generator: (seen.append(generator.initial_seed()), loss(batch, generator))[1]
        t.fit()
        return seen
    first, again, other = seeds("a"), seeds("b"), seeds("c", seed=1)
    assert len(set(first)) == 8 and first == again and not set(first) & set(other)


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
    assert all(p.isfinite().all() for p in load_method(checkpoints(tmp_path)[-1]).parameters())


def test_the_global_random_state_is_left_alone(tmp_path):
    before = torch.get_rng_state()
    trainer(tmp_path, workers=2, steps=2).fit()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("options", [{}, dict(precision="bfloat16", workers=2), dict(compile=True)])
def test_cuda(tmp_path, options):
    t = trainer(tmp_path, method=model().to("cuda"), steps=4, **options)
    assert t.fit().device.type == "cuda" and all(p.isfinite().all() for p in t.method.parameters())
    assert trainer(tmp_path, method=model().to("cuda"), steps=4, **options).fit(resume=True).device.type == "cuda"
