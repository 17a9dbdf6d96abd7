"Networks of published checkpoints against plain formulas, a column at a time."
import math

import pytest
import torch
import torch.nn.functional as F

from loflexmdm.networks.published import PublishedBlock, PublishedRateHead, PublishedTokenHead, PublishedTrunk, Trunk
from loflexmdm.networks.published import rate_exponent, start_last, time_features, with_gain
from loflexmdm.process.states import BOS, PAD, Vocabulary, collate, prefix_example

TRUNK = Trunk(width=8, depth=2, heads=2, cond=4, hidden=6, rotary=2)


def with_noise(module):
    "A module in float64 with random weights everywhere."
    module, g = module.double(), torch.Generator().manual_seed(0)
    for p in module.parameters(): torch.nn.init.normal_(p, std=.5, generator=g)
    return module


def randn(*shape): return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_gains_and_modulation():
    h, gain, shift, scale = randn(2, 3, 8), randn(8), randn(2, 8), 2 * randn(2, 8)
    normal = (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(with_gain(h, gain, shift, scale), normal * gain * (1 + scale[:, None]) + shift[:, None])


def turned(x, place: int):
    "The first two features of a head, turned by the place."
    a, b, *rest = x.tolist()
    c, s = math.cos(place), math.sin(place)
    return torch.tensor([a * c - b * s, a * s + b * c, *rest], dtype=torch.float64)


@torch.no_grad()
def test_a_block_column_by_column():
    block, h, cond = with_noise(PublishedBlock(TRUNK)), randn(1, 3, 8), randn(1, 4)
    kept = torch.tensor([[True, True, False]])
    shift, scale, gate, shift2, scale2, gate2 = block.adapt(cond).chunk(6, -1)
    y = with_gain(h, block.norm1, shift, scale)[0]
    q, k, v = (y @ block.qkv.weight.T).view(3, 3, 2, 4).unbind(1)
    heads = []
    for head in range(2):
        rows = []
        for i in range(3):
            scores = torch.stack([turned(q[i, head], i) @ turned(k[j, head], j) / 2 for j in range(2)]).softmax(0)
            rows.append(sum(w * v[j, head] for j, w in enumerate(scores)))
        heads.append(torch.stack(rows))
    out = y + gate * (torch.cat(heads, -1) @ block.out.weight.T)
    expected = out + gate2 * block.mlp(with_gain(out[None], block.norm2, shift2, scale2)[0])
    torch.testing.assert_close(block(h, cond, kept)[0], expected)
    fresh = PublishedBlock(TRUNK)
    assert not fresh.adapt.weight.any() and not fresh.adapt.bias.any() and (fresh.norm1 == 1).all()
    assert (fresh.norm2 == 1).all()


@torch.no_grad()
def test_heads_and_trunk():
    h, cond = randn(2, 3, 8), randn(2, 4)
    rate, token = with_noise(PublishedRateHead(TRUNK)), with_noise(PublishedTokenHead(TRUNK, 5))
    shift, scale = rate.adapt(cond).chunk(2, -1)
    read = with_gain(h, rate.norm, shift, scale)
    torch.testing.assert_close(rate(h, cond), rate.out(F.gelu(rate.hidden(read)))[..., 0])
    shift, scale = token.adapt(cond).chunk(2, -1)
    torch.testing.assert_close(token(h, cond), with_gain(h, token.norm, shift, scale) @ token.out.weight.T)
    assert not PublishedTokenHead(TRUNK, 5).out.weight.any() and not PublishedRateHead(TRUNK).adapt.bias.any()

    trunk, ids, t = with_noise(PublishedTrunk(7, TRUNK)), torch.tensor([[3, 4, PAD], [5, 6, 4]]), torch.tensor([.2,
        .9]).double()
    states, cond = trunk(ids, t)
    torch.testing.assert_close(cond, trunk.time(time_features(t)))
    expected = trunk.token(ids)
    for block in trunk.blocks: expected = block(expected, cond, ids != PAD)
    torch.testing.assert_close(states, expected)
    assert len(trunk.blocks) == 2
    torch.testing.assert_close(states[:1, :2], trunk(ids[:1, :2], t[:1])[0])


def test_features_of_time_and_exponents():
    found = time_features(torch.tensor([.5], dtype=torch.float64))[0]
    k = 7
    assert found.shape == (256,) and found[k].item() == pytest.approx(math.cos(.5 * 10_000 ** (-k / 128)))
    assert found[128 + k].item() == pytest.approx(math.sin(.5 * 10_000 ** (-k / 128)))
    s = torch.tensor([.3], dtype=torch.float64)
    assert rate_exponent(s, "exp", .1, 9.0).item() == pytest.approx(.1 + math.exp(.3))
    assert rate_exponent(s, "softplus", .1, 2.1).item() == pytest.approx(.1 + 2 * math.log1p(math.exp(.3)))
    assert rate_exponent(s, "sigmoid", .1, 2.1).item() == pytest.approx(.1 + 2 / (1 + math.exp(-.3)))


def test_the_start_token_comes_last():
    x = collate([prefix_example("", text, Vocabulary("ab")) for text in ("ab", "b", "")])
    assert start_last(x).tolist() == [[3, 4, BOS], [4, BOS, PAD], [BOS, PAD, PAD]]


@pytest.mark.parametrize("changes, message", [
    (dict(heads=3), "heads=3: must divide the width 8"), (dict(rotary=3), "rotary=3"),
    (dict(rotary=6), "at most width/heads = 4"),
])
def test_sizes_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message): TRUNK._replace(**changes).check()
    assert TRUNK._replace(rotary=4).check().rotary == 4
