"The transformer and its heads."
import math

import pytest
import torch
import torch.nn.functional as F

from torch import nn

from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.gen_md4 import GenMD4, GenMD4Config
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig, OrderModel
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.papl import PAPL, PAPLConfig
from loflexmdm.networks import (SIZES, SOFTPLUS_ONE, CausalTransformer, ScalarHead, Size, TimeEmbedding, TokenHead,
                                Transformer, bounded_rate, positive_rate, rotary, rotate, size_named)
from loflexmdm.states import BOS, MASK, PAD, PartialSequences, Vocabulary, collate, prefix_example
from loflexmdm.training import TrainConfig, optimisers

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
    return shaken(Transformer(len(VOCABULARY), SIZES[request.param]))


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
    with pytest.raises(ValueError, match=named): Transformer(8, size)


def test_unknown_names_and_ranges():
    with pytest.raises(ValueError, match="size='huge'.*nano"): size_named("huge")
    for bad in (1.0, 0.5, -2.0):
        with pytest.raises(ValueError, match="b_range"): bounded_rate(torch.zeros(1), bad)


def test_parameter_names_and_shapes_are_stable():
    "Stored checkpoints depend on them."
    shapes = {k: tuple(v.shape) for k, v in Transformer(10, SIZES["nano"]).state_dict().items()}
    block = {"adapt.weight": (384, 64), "adapt.bias": (384,), "qkv.weight": (192, 64), "out.weight": (64, 64), "q_norm.weight": (16,), "k_norm.weight": (16,),
             "mlp.0.weight": (256, 64), "mlp.0.bias": (256,), "mlp.2.weight": (64, 256), "mlp.2.bias": (64,)}
    expected = {"token.weight": (10, 64), "flag.weight": (4, 64), "adapt.weight": (128, 64), "adapt.bias": (128,)}
    assert shapes == expected | {f"blocks.{i}.{k}": v for i in range(3) for k, v in block.items()}
    assert set(TimeEmbedding(8).state_dict()) == {"mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"}


N = len(VOCABULARY)
NANO, MICRO = SIZES["nano"], SIZES["micro"]


def copied(head, backbone):
    with torch.no_grad(): head.out.weight.copy_(backbone.token.weight)
    return head


def constant(size): return nn.Parameter(torch.randn(size.cond) * 0.5)


# Each network built part by part, as the methods did when each had a constructor of its own. The order is what a seed means.
def flexmdm(unmask=False, order=None):
    out = dict(backbone=Transformer(N, NANO), time=TimeEmbedding(64), token=TokenHead(64, N), insert=ScalarHead(64, SOFTPLUS_ONE))
    copied(out["token"], out["backbone"])
    if unmask: out["unmask"] = ScalarHead(64, SOFTPLUS_ONE)
    if order == "separate": out["order_backbone"] = Transformer(N, MICRO)
    if order: out["order"] = OrderModel(out.get("order_backbone", out["backbone"]))
    return out


def masked(time=False):
    out = dict(backbone=Transformer(N + 1, NANO), token=TokenHead(64, N + 1))
    copied(out["token"], out["backbone"])
    return out | (dict(time=TimeEmbedding(64)) if time else dict(cond=constant(NANO)))


def gen_md4():
    out = dict(backbone=Transformer(N + 1, NANO), time=TimeEmbedding(64), token=TokenHead(64, N + 1))
    copied(out["token"], out["backbone"])
    return out | dict(raw_speed=nn.Parameter(torch.zeros(N + 1)))


def autoregressive(): return dict(backbone=CausalTransformer(N, NANO), cond=constant(NANO), token=TokenHead(64, N + 1))


BUILT = [(FlexMDM, FlexMDMConfig(size="nano"), flexmdm), (MaskedDiffusion, MaskedConfig(size="nano"), masked),
         (MaskedDiffusion, MaskedConfig(size="nano", time=True), lambda: masked(True)), (PAPL, PAPLConfig(size="nano"), masked),
         (GenMD4, GenMD4Config(size="nano"), gen_md4), (Autoregressive, AutoregressiveConfig(size="nano"), autoregressive),
         *((LoFlexMDM, LoFlexMDMConfig(size="nano", order_size="micro", unmask=unmask, **more),
            lambda unmask=unmask, order=order: flexmdm(unmask == "trainable", order))
           for unmask in ("frozen", "trainable")
           for more, order in ((dict(order="fixed"), None), (dict(), "separate"), (dict(backbone="shared"), "shared")))]
BUILT = [pytest.param(*case, id=f"{case[0].name}-{i}") for i, case in enumerate(BUILT)]


@pytest.mark.parametrize("cls, config, parts", BUILT)
def test_a_seed_means_the_same_weights_as_parts_built_by_hand(cls, config, parts):
    torch.manual_seed(3)
    method, after = cls(VOCABULARY, config), torch.get_rng_state()
    torch.manual_seed(3)
    by_hand = {}
    for name, part in parts().items():
        by_hand |= {name: part} if isinstance(part, nn.Parameter) else {f"{name}.{k}": v for k, v in part.state_dict().items()}
    assert torch.equal(torch.get_rng_state(), after)
    state = {k: v for k, v in method.state_dict().items() if k != "slowest"}
    assert state.keys() == by_hand.keys() and all(torch.equal(v, by_hand[k]) for k, v in state.items())


@pytest.mark.parametrize("cls, config, parts", BUILT)
def test_every_parameter_is_in_one_group_and_the_groups_are_who_trains_them(cls, config, parts):
    method = cls(VOCABULARY, config)
    groups, name = method.parameter_groups(), {id(p): name for name, p in method.named_parameters()}
    named = {key: [name[id(p)] for p in group] for key, group in groups.items()}
    assert sorted(sum(named.values(), [])) == sorted(name.values())
    assert set(named["hidden"]) == {k for k, p in method.named_parameters() if k.startswith("backbone.blocks.") and p.ndim == 2}
    starts = ("order.", "order_backbone.", "raw_speed")
    assert set(named["order"]) == {k for k in name.values() if k.startswith(starts)}
    muon, adam = optimisers(method, TrainConfig(optimiser="muon"))
    assert [name[id(p)] for g in muon.param_groups for p in g["params"]] == named["hidden"]
    rows = [(g["order"], bool(g["weight_decay"]), p.ndim >= 2) for g in adam.param_groups for p in g["params"]]
    assert all(decay == matrix for _, decay, matrix in rows) and sum(order for order, _, _ in rows) == len(named["order"])


def test_a_causal_transformer_sees_no_later_column_and_reads_the_last_one_alone():
    torch.manual_seed(0)
    net, x = shaken(CausalTransformer(N, NANO)), collate([prefix_example("a", "bcdef", VOCABULARY), prefix_example("", "fe", VOCABULARY)])
    pairs = []
    cond = torch.linspace(-1, 1, 64, dtype=torch.float64)[None]
    with torch.no_grad():
        whole = net(x, cond, [lambda k, v: pairs.append((k, v)) or (k, v)] * 3)
        for n in range(1, x.tokens.shape[1]):
            torch.testing.assert_close(net(x.map(lambda v: v[:, :n]), cond), whole[:, :n], rtol=0, atol=1e-11)
        last = net.last_column(x, cond, [lambda k, v, pair=pair: pair for pair in pairs])
    torch.testing.assert_close(last[:, 0], whole[torch.arange(2), x.lengths - 1], rtol=0, atol=1e-11)
