"The transformer and its heads."
import math

import pytest
import torch
import torch.nn.functional as F

from loflexmdm.networks import (SIZES, SOFTPLUS_ONE, Backbone, ScalarHead, Size, TimeEmbedding, TokenHead, bounded_rate, positive_rate,
                                rotary, rotate, size_named)
from loflexmdm.states import BOS, MASK, PAD, PartialSequences, Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abcdef")


def shaken(module, seed=0):
    "Random parameters everywhere: fresh gates are zero and would let most checks pass trivially."
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters(): p.add_(0.2 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return module.double()


@pytest.fixture(params=["nano", "tiny"])
def backbone(request):
    torch.manual_seed(0)
    return shaken(Backbone(len(VOCABULARY), SIZES[request.param]))


def features(backbone, x):
    cond = torch.linspace(-1, 1, backbone.size.cond, dtype=torch.float64)
    with torch.no_grad(): return backbone(x, cond.expand(len(x.tokens), -1))


@pytest.mark.parametrize("longest", [4, 9, 40])
def test_padding_changes_nothing(backbone, longest):
    short, long = prefix_example("a", "bc", VOCABULARY), prefix_example("d", "ef" * (longest // 2), VOCABULARY)
    alone = features(backbone, collate([short]))[0]
    torch.testing.assert_close(features(backbone, collate([short, long]))[0, :4], alone, rtol=0, atol=1e-10)


def test_the_content_of_padding_changes_nothing(backbone):
    x = collate([prefix_example("a", "bc", VOCABULARY), prefix_example("d", "efefef", VOCABULARY)])
    other = x._replace(fixed=x.fixed | ~x.valid, closed=x.closed & x.valid)
    torch.testing.assert_close(features(backbone, x)[x.valid], features(backbone, other)[x.valid], rtol=0, atol=0)


def test_absolute_position_does_not_matter(backbone):
    x = collate([prefix_example("a", "bcdef", VOCABULARY)])
    left = lambda v, fill: F.pad(v, (5, 0), value=fill)
    moved = PartialSequences(left(x.tokens, PAD), left(x.fixed, False), left(x.closed, True))
    torch.testing.assert_close(features(backbone, moved)[:, 5:], features(backbone, x), rtol=0, atol=1e-4)  # float32 angles


def test_order_matters(backbone):
    a, b = (features(backbone, collate([prefix_example("", s, VOCABULARY)]))[0, 1] for s in ("abc", "acb"))
    assert (a - b).abs().max() > 1e-3


@pytest.mark.parametrize("flag", ["fixed", "closed"])
def test_prompt_flags_matter(backbone, flag):
    x = collate([prefix_example("", "abc", VOCABULARY)])
    y = x._replace(**{flag: ~getattr(x, flag)})
    assert (features(backbone, x) - features(backbone, y)).abs().max() > 1e-3


def test_a_triangular_mask_and_kept_keys(backbone):
    "Later columns change nothing, and a column alone with the kept keys and values of those before it is as in the whole."
    x = collate([prefix_example("a", "bcdef", VOCABULARY)])
    n, kept = x.tokens.shape[1], []
    cond, triangle = torch.linspace(-1, 1, backbone.size.cond, dtype=torch.float64)[None], torch.ones(n, n, dtype=torch.bool).tril()
    store = [lambda k, v: kept.append((k, v)) or (k, v)] * len(backbone.blocks)
    with torch.no_grad():
        h = backbone.embed(x)
        whole = backbone.run(h, cond, backbone.angles(x), triangle, store)
        changed = backbone.run(torch.cat([h[:, :4], -h[:, 4:]], 1), cond, backbone.angles(x), triangle)
        old = [lambda k, v, pair=pair: (torch.cat([pair[0][:, :, :-1], k], 2), torch.cat([pair[1][:, :, :-1], v], 2)) for pair in kept]
        last = backbone.run(h[:, -1:], cond, tuple(angle[-1:] for angle in backbone.angles(x)), triangle[-1:], old)
    torch.testing.assert_close(changed[:, :4], whole[:, :4], rtol=0, atol=1e-12)
    assert (changed - whole)[:, 4:].abs().max() > 1e-3
    torch.testing.assert_close(last, whole[:, -1:], rtol=0, atol=1e-11)


def test_logits_are_float32_at_least():
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)):
        assert TokenHead(16, 8).to(dtype)(torch.zeros(1, 2, 16, dtype=dtype)).dtype == expected


def test_rotary_scores_depend_on_differences():
    q, k = torch.randn(2, 1, 1, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).expand(2, 1, 1, 64, 32)
    cos, sin = (v.double() for v in rotary(64, 32))
    scores = (rotate(q, cos, sin) @ rotate(k, cos, sin).mT)[0, 0]
    for offset in (-20, 0, 7):
        diagonal = scores.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal), rtol=0, atol=64 * 2**-22)
    assert scores.std() > 0.1


def test_rotation_keeps_lengths_and_dtype():
    x = torch.randn(2, 3, 10, 8, dtype=torch.bfloat16)
    assert rotate(x, *rotary(10, 8)).dtype == torch.bfloat16
    y = x.double()
    torch.testing.assert_close(rotate(y, *rotary(10, 8)).norm(dim=-1), y.norm(dim=-1), rtol=1e-6, atol=0)


def test_heads_start_at_one_and_uniform():
    h = torch.randn(2, 5, 16)
    torch.testing.assert_close(positive_rate(ScalarHead(16, SOFTPLUS_ONE)(h)), torch.ones(2, 5))
    torch.testing.assert_close(bounded_rate(ScalarHead(16)(h), 10.0), torch.ones(2, 5))
    torch.testing.assert_close(TokenHead(16, 8)(h).softmax(-1)[..., 3:], torch.full((2, 5, 5), 0.2))


def test_special_tokens_have_probability_zero():
    head = shaken(TokenHead(16, 8)).float()
    p = head(10 * torch.randn(4, 7, 16)).softmax(-1)
    assert (p[..., [PAD, MASK, BOS]] == 0).all() and torch.isfinite(p).all()


@pytest.mark.parametrize("b_range", [1.5, 10.0, 100.0])
def test_bounded_rate_is_symmetric_and_bounded(b_range):
    raw = torch.linspace(-1e3, 1e3, 4001, dtype=torch.float64)
    log_b = bounded_rate(raw, b_range).log()
    torch.testing.assert_close(log_b, -log_b.flip(0), rtol=0, atol=1e-12)
    assert log_b.abs().max() <= math.log(b_range) * (1 + 1e-12) and (log_b.diff() >= 0).all()


def test_positive_rate_has_finite_logarithm_and_gradient():
    raw = torch.tensor([-1e4, -100.0, 0.0, 100.0], requires_grad=True)
    rate = positive_rate(raw)
    rate.log().sum().backward()
    assert (rate > 0).all() and torch.isfinite(raw.grad).all()


def test_time_feature_is_bounded_and_does_not_saturate():
    torch.manual_seed(0)
    embed = TimeEmbedding(16)
    out = embed(torch.tensor([0.0, 1e-6, 1e9, 1e30]))
    assert torch.isfinite(out).all()
    late = embed(torch.tensor([16.7, 25.0, 40.0, 92.0]))  # float32 t is 1 at all of them
    assert (late.diff(dim=0).abs().amax(1) > 1e-4).all()


@pytest.mark.parametrize("size, named", [(Size(30, 1, 4), "width=30"), (Size(20, 1, 4), "width=20")])
def test_widths_that_do_not_fit(size, named):
    with pytest.raises(ValueError, match=named): Backbone(8, size)


def test_unknown_names_and_ranges():
    with pytest.raises(ValueError, match="size='huge'.*nano"): size_named("huge")
    for bad in (1.0, 0.5, -2.0):
        with pytest.raises(ValueError, match="b_range"): bounded_rate(torch.zeros(1), bad)


def test_parameter_names_and_shapes_are_stable():
    "Stored checkpoints depend on them."
    shapes = {k: tuple(v.shape) for k, v in Backbone(10, SIZES["nano"]).state_dict().items()}
    block = {"adapt.weight": (384, 64), "adapt.bias": (384,), "qkv.weight": (192, 64), "out.weight": (64, 64), "q_norm.weight": (16,), "k_norm.weight": (16,),
             "mlp.0.weight": (256, 64), "mlp.0.bias": (256,), "mlp.2.weight": (64, 256), "mlp.2.bias": (64,)}
    expected = {"token.weight": (10, 64), "flag.weight": (4, 64), "adapt.weight": (128, 64), "adapt.bias": (128,)}
    assert shapes == expected | {f"blocks.{i}.{k}": v for i in range(3) for k, v in block.items()}
    assert set(TimeEmbedding(8).state_dict()) == {"mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"}
