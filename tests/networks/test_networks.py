"The transformer and its heads, networks by name, and networks of other kinds."
import copy
import json
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from torch import nn

import loflexmdm
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.base import trained_groups
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.gen_md4 import GenMD4, GenMD4Config
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.order_model import OrderModel
from loflexmdm.methods.papl import PAPL, PAPLConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.networks.base import network
from loflexmdm.networks.build import build_backbone, probe_rows, reads_ahead
from loflexmdm.networks.hugging_face import refuse
from loflexmdm.networks.transformer import SIZES, SOFTPLUS_ONE, CausalTransformer, ScalarHead, Size
from loflexmdm.networks.transformer import TimeEmbedding, TokenHead, Transformer, bounded_rate
from loflexmdm.networks.transformer import positive_rate, rotary, rotate, size_named
from loflexmdm.process.states import BOS, MASK, PAD, PartialSequences, Vocabulary, collate
from loflexmdm.process.states import prefix_example
from loflexmdm.support.registries import NETWORKS
from loflexmdm.tasks.base import Examples
from loflexmdm.training.optimisers import TrainConfig, optimisers
from loflexmdm.training.trainer import Trainer

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
    # float32 angles
    torch.testing.assert_close(features(backbone, moved)[:, 5:], features(backbone, x), rtol=0, atol=1e-4)


def test_a_condition_that_all_rows_share_is_that_of_each(backbone):
    x = collate([prefix_example("a", "bcdef", VOCABULARY), prefix_example("", "fe", VOCABULARY)])
    cond = torch.linspace(-1, 1, backbone.size.cond, dtype=torch.float64)[None]
    with torch.no_grad(): shared = backbone(x, cond)
    torch.testing.assert_close(shared, features(backbone, x), rtol=0, atol=1e-12)


def test_order_matters(backbone):
    a, b = (features(backbone, collate([prefix_example("", s, VOCABULARY)]))[0, 1] for s in ("abc", "acb"))
    assert (a - b).abs().max() > 1e-3


@pytest.mark.parametrize("flag", ["fixed", "closed"])
def test_prompt_flags_matter(backbone, flag):
    x = collate([prefix_example("", "abc", VOCABULARY)])
    y = x._replace(**{flag: ~getattr(x, flag)})
    assert (features(backbone, x) - features(backbone, y)).abs().max() > 1e-3


def test_a_triangular_mask_and_kept_keys(backbone):
    """Later columns change nothing, and a column alone with the kept keys and values of
    those before it is as in the whole."""
    x = collate([prefix_example("a", "bcdef", VOCABULARY)])
    n, kept = x.tokens.shape[1], []
    cond, triangle = (
        torch.linspace(-1, 1, backbone.size.cond, dtype=torch.float64)[None],
        torch.ones(n, n, dtype=torch.bool).tril(),
    )
    store = [lambda k, v: kept.append((k, v)) or (k, v)] * len(backbone.blocks)
    with torch.no_grad():
        h = backbone.embed(x)
        whole = backbone.run(h, cond, backbone.angles(x), triangle, store)
        changed = backbone.run(torch.cat([h[:, :4], -h[:, 4:]], 1), cond, backbone.angles(x), triangle)
        old = [
            lambda k, v, pair=pair: (torch.cat([pair[0][:, :, :-1], k], 2), torch.cat([pair[1][:, :, :-1], v], 2))
            for pair in kept
        ]
        last = backbone.run(h[:, -1:], cond, tuple(angle[-1:] for angle in backbone.angles(x)), triangle[-1:], old)
    torch.testing.assert_close(changed[:, :4], whole[:, :4], rtol=0, atol=1e-12)
    assert (changed - whole)[:, 4:].abs().max() > 1e-3
    torch.testing.assert_close(last, whole[:, -1:], rtol=0, atol=1e-11)


def test_logits_are_float32_at_least():
    for dtype, expected in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert TokenHead(16, 8).to(dtype)(torch.zeros(1, 2, 16, dtype=dtype)).dtype == expected


def test_rotary_scores_depend_on_differences():
    q, k = torch.randn(2, 1, 1, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).expand(
        2, 1, 64, 1, 32
    )
    cos, sin = (v.double() for v in rotary(64, 32))
    scores = rotate(q, cos, sin)[0, :, 0] @ rotate(k, cos, sin)[0, :, 0].T
    for offset in (-20, 0, 7):
        diagonal = scores.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal), rtol=0, atol=64 * 2**-22)
    assert scores.std() > 0.1


def test_rotation_keeps_lengths_and_dtype():
    x = torch.randn(2, 10, 3, 8, dtype=torch.bfloat16)
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
    block = {
        "adapt.weight": (384, 64), "adapt.bias": (384,), "qkv.weight": (192, 64),
        "out.weight": (64, 64), "q_norm.weight": (16,), "k_norm.weight": (16,),
        "mlp.0.weight": (256, 64), "mlp.0.bias": (256,), "mlp.2.weight": (64, 256), "mlp.2.bias": (64,),
    }
    expected = {"token.weight": (10, 64), "flag.weight": (4, 64), "adapt.weight": (128, 64), "adapt.bias": (128,)}
    assert shapes == expected | {f"blocks.{i}.{k}": v for i in range(3) for k, v in block.items()}
    assert set(TimeEmbedding(8).state_dict()) == {"mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"}


N = len(VOCABULARY)
NANO, MICRO = SIZES["nano"], SIZES["micro"]


def copied(head, backbone):
    with torch.no_grad(): head.out.weight.copy_(backbone.token.weight)
    return head


def constant(size): return nn.Parameter(torch.randn(size.cond) * 0.5)


# Each network built part by part, as the methods did when each had a constructor of its own. The order is what a seed
# means.
def flexmdm(unmask=False, order=None):
    out = dict(
        backbone=Transformer(N, NANO), time=TimeEmbedding(64),
        token=TokenHead(64, N), insert=ScalarHead(64, SOFTPLUS_ONE),
    )
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
         (MaskedDiffusion, MaskedConfig(size="nano", time=True), lambda: masked(True)),
         (PAPL, PAPLConfig(size="nano"), masked), (GenMD4, GenMD4Config(size="nano"), gen_md4),
         (Autoregressive, AutoregressiveConfig(size="nano"), autoregressive),
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
        inner = {"": part} if isinstance(part, nn.Parameter) else {f".{k}": v for k, v in part.state_dict().items()}
        by_hand |= {name + k: v for k, v in inner.items()}
    assert torch.equal(torch.get_rng_state(), after)
    state = {k: v for k, v in method.state_dict().items() if k != "slowest"}
    assert state.keys() == by_hand.keys() and all(torch.equal(v, by_hand[k]) for k, v in state.items())


@pytest.mark.parametrize("cls, config, parts", BUILT)
def test_every_parameter_is_in_one_group_and_the_groups_are_who_trains_them(cls, config, parts):
    method = cls(VOCABULARY, config)
    groups, name = trained_groups(method), {id(p): name for name, p in method.named_parameters()}
    trained = {k for k, p in method.named_parameters() if p.requires_grad}  # not the head of frozen unmasking rates
    named = {key: [name[id(p)] for p in group] for key, group in groups.items()}
    assert sorted(sum(named.values(), [])) == sorted(name.values())
    matrices = {k for k, p in method.named_parameters() if p.ndim == 2}
    assert set(named["hidden"]) == {k for k in matrices if k.startswith("backbone.blocks.")}
    starts = ("order.", "order_backbone.", "raw_speed")
    assert set(named["order"]) == {k for k in name.values() if k.startswith(starts)}
    muon, adam = optimisers(method, TrainConfig(optimiser="muon"))
    assert [name[id(p)] for g in muon.param_groups for p in g["params"]] == named["hidden"]
    rows = [(g["order"], bool(g["weight_decay"]), p.ndim >= 2) for g in adam.param_groups for p in g["params"]]
    assert all(decay == matrix for _, decay, matrix in rows)
    assert sum(order for order, _, _ in rows) == len(trained & {*named["order"]})


def test_a_causal_transformer_sees_no_later_column_and_reads_the_last_one_alone():
    torch.manual_seed(0)
    net = shaken(CausalTransformer(N, NANO))
    x = collate([prefix_example("a", "bcdef", VOCABULARY), prefix_example("", "fe", VOCABULARY)])
    pairs = []
    cond = torch.linspace(-1, 1, 64, dtype=torch.float64)[None]
    with torch.no_grad():
        whole = net(x, cond, [lambda k, v: pairs.append((k, v)) or (k, v)] * 3)
        for n in range(1, x.tokens.shape[1]):
            torch.testing.assert_close(net(x.map(lambda v, n=n: v[:, :n]), cond), whole[:, :n], rtol=0, atol=1e-11)
        last = net.last_column(x, cond, [lambda k, v, pair=pair: pair for pair in pairs])
    torch.testing.assert_close(last[:, 0], whole[torch.arange(2), x.lengths - 1], rtol=0, atol=1e-11)


@network
class Windows(nn.Module):
    "A network of a third party: each column with its two neighbours; the faults are for tests of what is refused."
    name, fault = "windows", ""

    def __init__(self, vocabulary_size, width):
        super().__init__()
        self.width, self.cond = width, 8
        self.token, self.flag = nn.Embedding(vocabulary_size, width), nn.Embedding(4, width)
        self.project = nn.Linear(8, width)
        self.blocks = nn.ModuleList([nn.Conv1d(width, width, 3, padding=1), nn.Linear(width, width)])
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))  # an average of integers would fail

    @classmethod
    def from_config(cls, vocabulary_size, size, options="", causal=False):
        return cls(vocabulary_size, int(options or 16))

    def forward(self, x, cond):
        h = self.token(x.tokens) + self.flag(x.fixed + 2 * x.closed) + self.project(cond)[:, None]
        if self.fault == "shape": return h.mean(1)
        if self.fault == "type": return dict(h=h)
        if self.fault == "raises": return h @ h
        if self.fault != "padding": h = h * x.valid[..., None]
        conv, last = self.blocks
        return last(torch.tanh(h + conv(h.mT).mT))


@network
class OneWay(Windows):
    "Only for methods that look both ways, as it says nothing of `causal`."
    name = "one_way"

    @classmethod
    def from_config(cls, vocabulary_size, size, options=""): return cls(vocabulary_size, 16)


OWN = [(LoFlexMDM, dict(order_size="nano")), (LoFlexMDM, dict(order_size="nano", order_network="windows")),
       (LoFlexMDM, dict(backbone="shared", unmask="trainable")), (FlexMDM, {}), (MaskedDiffusion, {}),
       (MaskedDiffusion, dict(time=True)), (PAPL, {}), (GenMD4, {})]


def batch(): return collate([prefix_example("a", "bcde", VOCABULARY), prefix_example("", "fe", VOCABULARY)])


@pytest.mark.parametrize("cls, options", OWN)
def test_an_own_network_serves_every_method_and_is_saved_and_loaded_by_name(cls, options, tmp_path):
    torch.manual_seed(0)
    method = cls(VOCABULARY, cls.Config(size="nano", network="windows", network_config="12", max_length=9, **options))
    assert type(method.backbone) is Windows and method.backbone.width == 12
    method.loss(batch(), torch.Generator().manual_seed(0)).loss.backward()
    assert all(p.grad is not None for p in method.backbone.parameters())
    groups, names = trained_groups(method), {id(p): k for k, p in method.named_parameters()}
    assert [names[id(p)] for p in groups["hidden"]] == ["backbone.blocks.1.weight"]
    again = loflexmdm.load(save_method(method, tmp_path / "model"))
    assert json.loads((tmp_path / "model" / "config.json").read_text())["config"]["network"] == "windows"
    draw = lambda m: generate(m, n=6, generator=torch.Generator().manual_seed(1)).sequences
    assert again.config == method.config and draw(again.method) == draw(method)


def test_an_own_network_as_order_model_alone():
    method = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(size="nano", order_network="windows", order_network_config="20"))
    assert type(method.backbone) is Transformer and method.order_backbone.width == 20
    assert {id(p) for p in method.order_backbone.parameters()} <= {id(p) for p in method.order_parameters}
    b_in, _ = method.schedule(batch())
    assert b_in.shape == batch().tokens.shape


def test_an_own_network_trains_with_averaging_and_muon(tmp_path):
    method = FlexMDM(VOCABULARY, FlexMDMConfig(size="nano", network="windows", max_length=9))
    data = Examples(8, lambda i: prefix_example("", "abcdef"[i % 6] * 3, VOCABULARY))
    config = TrainConfig(steps=3, batch_size=4, warmup=1, optimiser="muon", log_every=3, valid_every=3, save_every=3)
    trained = Trainer(method, data, config, tmp_path, progress=False).fit()
    assert trained.method.backbone.calls.dtype == torch.long
    muon, adam = optimisers(method, config)
    assert isinstance(muon, torch.optim.Muon) and isinstance(adam, torch.optim.AdamW)


FAULTS = dict(shape=r"expected hidden states \(batch, length, width\) = \(2, 6, 16\), got \(2, 16\)", type="got dict",
              raises="fails on a batch of two rows", padding="padding changes the hidden states of other columns")


@pytest.mark.parametrize("fault, message", FAULTS.items())
def test_a_network_that_does_not_do_what_it_must_is_refused_in_one_line(monkeypatch, fault, message):
    monkeypatch.setattr(Windows, "fault", fault)
    for make in (lambda: FlexMDM(VOCABULARY, FlexMDMConfig(network="windows")),
                 lambda: LoFlexMDM(VOCABULARY, LoFlexMDMConfig(size="nano", order_network="windows"))):
        with pytest.raises(ValueError, match=message) as e: make()
        assert "network='windows': " in str(e.value) and "\n" not in str(e.value)
    assert str(e.value).startswith("order_network")


@pytest.mark.parametrize("name", ["width", "cond", "token"])
def test_a_missing_attribute_is_named(monkeypatch, name):
    init = Windows.__init__
    monkeypatch.setattr(Windows, "__init__", lambda self, *args: (init(self, *args), delattr(self, name))[0])
    with pytest.raises(ValueError, match=f"network='windows': attribute '{name}' must be of type"):
        FlexMDM(VOCABULARY, FlexMDMConfig(network="windows"))


def test_building_a_network_leaves_no_trace_in_the_random_state(monkeypatch):
    "Probing draws random numbers where a network does, as dropout would; what is built next must not depend on that."
    torch.manual_seed(0)
    Windows(N, 16)
    expected, forward = torch.get_rng_state(), Windows.forward
    monkeypatch.setattr(Windows, "forward", lambda self, x, cond: forward(self, x, cond) + 0 * torch.rand(1))
    torch.manual_seed(0)
    network_ = build_backbone(SimpleNamespace(config=FlexMDMConfig(network="windows")), N)
    assert torch.equal(torch.get_rng_state(), expected) and network_.training


def test_from_left_to_right_needs_a_network_that_does_not_look_ahead():
    config = lambda name: AutoregressiveConfig(size="nano", network=name)
    with pytest.raises(ValueError, match="network='windows': later columns change"):
        Autoregressive(VOCABULARY, config("windows"))
    with pytest.raises(ValueError, match="network='one_way': cannot generate from left to right, as method 'ar' needs"):
        Autoregressive(VOCABULARY, config("one_way"))
    assert FlexMDM(VOCABULARY, FlexMDMConfig(network="one_way")).backbone.width == 16


@pytest.mark.parametrize("values, message", [
    (dict(network="window"), "^network='window' .did you mean 'windows'..: choose .*hugging_face, .*transformer"),
    (dict(order_network="window"), "^order_network='window'"), (dict(size="huge"), "size='huge'")])
def test_unknown_networks_are_refused_with_the_config(values, message):
    with pytest.raises(ValueError, match=message): LoFlexMDMConfig(**values)


@pytest.mark.parametrize("options", ["8 heads", "dropout=1", "dropout=-0.1", "dropout", "tied=yes", "dropout=0.1 tied"])
def test_other_options_of_the_transformer_are_refused(options):
    said = f"network_config='{options}': options of the transformer are tied, prefix and"
    with pytest.raises(ValueError, match=said):
        FlexMDM(VOCABULARY, FlexMDMConfig(network_config=options))


def test_a_tied_head_has_the_weights_of_the_embedding(tmp_path):
    torch.manual_seed(0)
    plain = FlexMDM(VOCABULARY, FlexMDMConfig(size="nano"))
    torch.manual_seed(0)
    tied = FlexMDM(VOCABULARY, FlexMDMConfig(size="nano", network_config="tied"))
    matrix = tied.backbone.token.weight
    assert sum(p.numel() for p in plain.parameters()) - sum(p.numel() for p in tied.parameters()) == matrix.numel()
    x1 = collate([prefix_example("", "ab", VOCABULARY)] * 16)
    before = tied.loss(x1, torch.Generator().manual_seed(0)).loss
    assert torch.equal(before, plain.loss(x1, torch.Generator().manual_seed(0)).loss)
    old = matrix.detach().clone()
    before.backward()
    torch.optim.SGD(tied.parameters(), 0.1).step()
    assert tied.token.out.weight is tied.backbone.token.weight and not torch.equal(old, tied.token.out.weight)
    save_method(tied, tmp_path / "m")
    for again in (load_method(tmp_path / "m"), copy.deepcopy(tied)):
        assert again.token.out.weight is again.backbone.token.weight is not matrix
        assert torch.equal(again.token.out.weight, matrix) and torch.equal(again.token.out.bias, tied.token.out.bias)


def test_a_head_of_other_outcomes_cannot_be_tied():
    with pytest.raises(ValueError, match="network_config='tied': the token head has 10 outcomes .* 9 tokens"):
        Autoregressive(VOCABULARY, AutoregressiveConfig(size="nano", network_config="tied"))


def test_dropout_acts_in_training_alone():
    x1 = collate([prefix_example("", "abab", VOCABULARY)])
    model = FlexMDM(VOCABULARY, FlexMDMConfig(size="nano", network_config="dropout=0.5"))
    for p in model.parameters(): torch.nn.init.normal_(p, std=0.3)
    run = lambda: model.intensities(x1, torch.tensor([0.5])).logits[..., 3:]
    assert not torch.equal(run(), run()) and torch.equal(model.eval() and run(), run())
    state = torch.random.get_rng_state()
    run()
    assert torch.equal(state, torch.random.get_rng_state())
    plain = FlexMDM(VOCABULARY, FlexMDMConfig(size="nano"))
    plain.load_state_dict(model.state_dict())
    model, state = plain.train(), torch.random.get_rng_state()
    first = run()
    assert torch.equal(state, torch.random.get_rng_state()) and torch.equal(first, plain.eval() and run())


def test_parameters_are_counted_on_the_meta_device():
    with torch.device("meta"): method = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order="fixed", network="windows"))
    assert method.backbone.token.weight.is_meta


@pytest.mark.parametrize("kind", ["transformer", "adder", "hugging_face"])
def test_conditioning_per_column_is_that_per_row_where_it_is_constant(kind):
    torch.manual_seed(0)
    if kind == "hugging_face": pytest.importorskip("transformers")
    cls = NETWORKS[kind]
    net = cls.from_config(7, "nano", "bert" if kind == "hugging_face" else "").eval()
    with torch.no_grad():
        for p in net.parameters(): p.add_(0.1 * torch.randn(p.shape))
    x = probe_rows(7, torch.device("cpu"))
    cond = torch.randn(len(x.tokens), net.cond)
    every = cond[:, None].expand(-1, x.tokens.shape[1], -1)
    with torch.no_grad():
        by_row, by_column = net(x, cond), net(x, every)
        torch.testing.assert_close(by_column, by_row, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(net(x, cond[:1, None]), net(x, cond[:1]), rtol=1e-5, atol=1e-5)

        # the columns of one row may differ: another vector for column 2 changes what it holds
        other = every.clone()
        other[0, 2] += 1
        moved = (net(x, other) - by_column).abs().amax(-1)
    assert moved[0, 2] > 1e-3 and moved[1].max() < 1e-5


def test_a_time_for_each_column():
    torch.manual_seed(0)
    embed, tau = TimeEmbedding(8), torch.rand(2, 3)
    columns = torch.stack([embed(tau[:, i]) for i in range(3)], 1)
    torch.testing.assert_close(embed(tau), columns)


class Running(torch.nn.Module):
    "Sums of the tokens so far, or of those that follow too."
    cond = 1

    def __init__(self, ahead):
        super().__init__()
        self.ahead = ahead

    def forward(self, x, cond):
        sums = x.tokens.cumsum(1).float()
        return (sums + self.ahead * x.tokens.sum(1, keepdim=True))[..., None]


@pytest.mark.parametrize("ahead", [False, True])
def test_whether_a_network_reads_ahead(ahead):
    assert reads_ahead(Running(ahead), probe_rows(9, torch.device("cpu"))) == ahead


@pytest.mark.parametrize("options, shown", [("gpt2", "'gpt2'"), ("x" * 79, repr("x" * 79)),
                                            ("x" * 80, repr("x" * 77 + "..."))])
def test_a_network_config_is_refused_in_one_line_that_begins_with_it(options, shown):
    with pytest.raises(ValueError) as e: refuse(options, "why\n  not " + "y" * 300)
    assert str(e.value) == f"network_config={shown}: why not {'y' * 242}"
