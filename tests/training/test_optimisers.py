"Settings, learning rates, and which optimiser steps what, and how."
from functools import partial

import pytest
import torch
from kill import stop_after
from small_runs import config, model, short_trainer, trainer, weights

from loflexmdm.networks.transformer import SIZES
from loflexmdm.training.optimisers import (
    Average,
    GroupedMuon,
    TrainConfig,
    adamw_kernels,
    fast_bfloat16,
    learning_rate,
    optimisers,
)


def test_learning_rate():
    c = config(steps=100, warmup=10, lr=2.0, final_lr_frac=0.1)
    assert learning_rate(c, 0) == 0.2 and learning_rate(c, 9) == 2.0 and learning_rate(c, 10) == 2.0
    assert learning_rate(c, 55) == pytest.approx(1.1) and learning_rate(c, 100) == pytest.approx(0.2)


def test_a_flat_learning_rate_falls_to_0_in_the_last_two_fifths():
    c = config(steps=100, warmup=10, lr=2.0, schedule="flat")
    assert learning_rate(c, 4) == 1.0 and [learning_rate(c, step) for step in (9, 10, 59, 60)] == [2.0] * 4
    assert learning_rate(c, 80) == pytest.approx(1.0) and learning_rate(c, 100) == 0.0


@pytest.mark.parametrize(
    "key, value",
    [
        ("steps", 0), ("steps", -3), ("lr", 0.0), ("lr", float("nan")), ("ema", 1.0),
        ("precision", "half"), ("valid_samples", 1), ("accumulate", 0),
    ],
)
def test_config_refuses(key, value):
    with pytest.raises(ValueError, match=f"{key}="): TrainConfig(**{key: value})


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
    for m in (method, average.method):
        assert {k for k, v in m.named_parameters() if not torch.equal(v, before[k])} == needed


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


def test_fused_adamw_takes_the_steps_of_the_loop(tmp_path, pico):
    t, other = short_trainer(tmp_path / "a", pico), short_trainer(tmp_path / "b", pico)
    assert t.optimisers[0].defaults["fused"] and adamw_kernels(torch.device("mps")) == dict(foreach=True)
    other.optimisers[:] = [torch.optim.AdamW(other.groups, betas=(0.9, 0.99))]
    t.fit(), other.fit()
    for p, q in zip(weights(t), weights(other), strict=True): torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_checkpoints_of_other_kernels_are_resumed(tmp_path, pico):
    "A checkpoint that unfused AdamW wrote, continued by the fused one, ends where the fused one ends alone."
    whole, first = short_trainer(tmp_path / "whole", pico), short_trainer(tmp_path / "cut", pico)
    whole.fit()
    first.optimisers[:] = [torch.optim.AdamW(first.groups, betas=(0.9, 0.99))]
    stop_after(first, 8)
    second = short_trainer(tmp_path / "cut", pico)
    second.fit(resume=True)
    assert {int(s["step"]) for s in second.optimisers[0].state.values()} == {14}
    for p, q in zip(weights(whole), weights(second), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_grouped_muon_is_muon(pico, bfloat16):
    "Against torch's, whose bfloat16 has three digits: the same step, decay included, within 2 % of its length."
    shapes, g = [(6, 4), (4, 9), (6, 4)], torch.Generator().manual_seed(0)
    start, steps = [torch.randn(s, generator=g) for s in shapes], [[torch.randn(s, generator=g) for s in shapes] * 2]
    found = []
    for muon in (torch.optim.Muon, partial(GroupedMuon, bfloat16=bfloat16)):
        params = [torch.nn.Parameter(s.clone()) for s in start]
        optimiser = muon(params, lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw")
        for grads in steps * 3:
            for p, grad in zip(params, grads, strict=False): p.grad = grad.clone()
            optimiser.step()
        found.append(params)
    for p, q, s in zip(*found, start, strict=True): assert (p - q).norm() < 0.02 * (p - s).norm()


@pytest.mark.parametrize("capability, bfloat16", [("AVX512", True), ("AVX2", False)])
def test_muon_is_in_float32_where_bfloat16_is_slow(monkeypatch, pico, tmp_path, capability, bfloat16):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    t = short_trainer(tmp_path, pico, optimiser="muon")
    assert optimisers(t.method, t.config)[0].bfloat16 is bfloat16 and fast_bfloat16(torch.device("cuda"))
    assert SIZES["pico"].width == 16


def test_an_average_knows_how_often_it_was_updated():
    "The first update copies; a mean of all weights so far needs their number, also where a run goes on."
    def mean(averages, values, n):
        for average, value in zip(averages, values): average.add_(value - average, alpha=1 / (n + 1))
    model = torch.nn.Linear(1, 1, bias=False)
    average = Average(model, multi_avg_fn=mean)
    for weight in (1.0, 2.0, 6.0):
        model.weight.data.fill_(weight)
        average.update_parameters(model)
    assert average.module.weight.item() == pytest.approx(3.0) and average.n_averaged == 3
    average.set_updates(5)
    model.weight.data.fill_(9.0)
    for _ in (6, 7): average.update_parameters(model)
    assert average.module.weight.item() == pytest.approx(3 + 2 * 6 / 7) and average.n_averaged == 7
