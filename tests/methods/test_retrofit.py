"""Retrofit: the start is the masked model, frozen weights stay, adapters merge without a trace, and what
cannot be retrofitted is refused."""
import importlib.util
import shutil
import sys

import pytest
import torch
from torch.utils.data import Dataset

import loflexmdm
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.lo_flexmdm import LoFlexMDM
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.papl import PAPL, PAPLConfig
from loflexmdm.methods.retrofit import merge, parameter_counts, retrofit
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import save_method
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.process.states import MASK, Vocabulary, collate, prefix_example
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

LETTERS = Vocabulary("abcd")
TEXTS = (("ab", "cdda"), ("", "ddcabb"))
needs_peft = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="peft (the extra loflexmdm[retrofit]) is not installed"
)


class Letters(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return prefix_example(*TEXTS[i % 2], LETTERS)


@pytest.fixture(autouse=True)
def pico(monkeypatch):
    monkeypatch.setitem(SIZES, "pico", Size(32, 2, 4, 16))


def shaken(method):
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in method.parameters(): p.add_(torch.randn(p.shape, generator=g) * 0.2)
    return method.eval()


def masked_model(cls=MaskedDiffusion, config=MaskedConfig, **options):
    return shaken(cls(LETTERS, config(size="pico", max_length=12, **options), dict(kind="letters")))


def states():
    x = collate([prefix_example(*t, LETTERS) for t in TEXTS])
    return x._replace(tokens=torch.where(x.free & (torch.arange(7) % 2 == 1), MASK, x.tokens))


def token_logits(method, x, tau):
    return method.token(method.backbone(x, method.time(torch.full((2,), tau, dtype=method.token.out.weight.dtype))))[
        ..., 3:
    ]


def trained(method, directory, steps=6, **options):
    config = TrainConfig(
        steps=steps, batch_size=8, lr=1e-2, warmup=1, ema=0.5,
        log_every=steps, valid_every=steps, save_every=steps, **options,
    )
    return Trainer(method, Letters(), config, directory, progress=False).fit().method


@pytest.mark.parametrize(
    "target,options",
    [
        ("flexmdm", {}),
        ("loflexmdm", dict(order="fixed")),
        ("loflexmdm", dict(order="learned")),
        ("loflexmdm", dict(order="learned", backbone="shared", unmask="trainable")),
    ],
)
@pytest.mark.parametrize("adapters", [False, pytest.param(True, marks=needs_peft)])
def test_token_logits_at_the_start_are_the_masked_models(target, options, adapters):
    masked, x = masked_model().double(), states()
    method = retrofit(masked, target, rank=2, adapters=adapters, **options).eval()
    known = masked.logits(x, torch.zeros(2))[..., 3:-1]
    for tau in (0.0, 0.7, 9.0): torch.testing.assert_close(token_logits(method, x, tau), known, rtol=0, atol=1e-11)
    assert method.config.size == "pico" and method.config.max_length == 12 and method.task == dict(kind="letters")


def test_the_start_depends_on_neither_time_nor_flags_and_training_changes_that(tmp_path):
    method, x = retrofit(masked_model(), adapters=False).eval(), states()
    other = x._replace(fixed=~x.fixed, closed=~x.closed)
    assert torch.equal(token_logits(method, x, 0.1), token_logits(method, other, 5.0))
    after = trained(method, tmp_path)
    assert not torch.equal(token_logits(after, x, 0.1), token_logits(after, x, 5.0))
    assert not torch.equal(token_logits(after, x, 0.1), token_logits(after, other, 0.1))


@needs_peft
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_what_is_frozen_stays_bit_for_bit(tmp_path, optimiser):
    masked = masked_model()
    kept = {k: v.clone() for k, v in masked.state_dict().items()}
    method = retrofit(masked, rank=2)
    before = {k: v.detach().clone() for k, v in method.named_parameters()}
    after = dict(trained(method, tmp_path, optimiser=optimiser).named_parameters())
    frozen = {k for k, p in method.named_parameters() if not p.requires_grad}
    assert {k for k in before if torch.equal(before[k], after[k])} == frozen
    assert {
        "backbone.token.weight", "backbone.blocks.0.adapt.bias",
        "backbone.blocks.1.qkv.base_layer.weight", "token.out.base_layer.weight",
    } <= frozen
    assert not {"backbone.flag.weight", "backbone.adapt.weight", "insert.out.weight", "time.mlp.0.weight"} & frozen
    assert all(torch.equal(v, kept[k]) for k, v in masked.state_dict().items())


@needs_peft
def test_number_of_trained_weights():
    trained_, total = parameter_counts(retrofit(masked_model(), rank=2))
    d, cond, v = 32, 16, 7
    new = (64 * cond + cond) + (cond * cond + cond) + (d * d + d) + (d + 1) + 4 * d  # time, insertion head, flags
    assert trained_ == new + cond * (2 * 6 * d + 2 * d) + 2 * 2 * (d + 3 * d) + 2 * (d + v)
    plain = parameter_counts(retrofit(masked_model(), adapters=False))
    assert plain[0] == plain[1] == total - 2 * 2 * (d + 3 * d) - 2 * (d + v)


@needs_peft
def test_merged_equals_unmerged_and_is_an_ordinary_model(tmp_path):
    method, x, tau = trained(retrofit(masked_model(), rank=2), tmp_path / "run"), states(), torch.tensor([0.3, 2.0])
    before = method.intensities(x, tau=tau)
    started = token_logits(retrofit(masked_model(), adapters=False).eval(), x, 0.3)
    assert (before.logits[..., 3:] - started).abs().max() > 0.01  # training did move it
    with pytest.raises(ValueError, match="weights of another model"):
        loflexmdm.load(save_method(method, tmp_path / "unmerged"))
    whole = merge(method)
    after = whole.intensities(x, tau=tau)
    for a, b in zip(before[:3], after[:3], strict=True): torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert whole.state_dict().keys() == FlexMDM(LETTERS, whole.config).state_dict().keys()
    assert parameter_counts(whole)[0] == parameter_counts(whole)[1]
    again = loflexmdm.load(save_method(whole, tmp_path / "model"))
    assert isinstance(again.method, FlexMDM)
    assert all(torch.equal(v, whole.state_dict()[k]) for k, v in again.method.state_dict().items())
    draws = [
        generate(m, [["a", "b"], []], n=10, generator=torch.Generator().manual_seed(3)).sequences
        for m in (whole, again.method)
    ]
    assert draws[0] == draws[1] and merge(whole) is whole


@needs_peft
def test_a_run_with_adapters_resumes_exactly(tmp_path):
    def fresh():
        torch.manual_seed(0)
        return retrofit(masked_model(), rank=2)
    config = lambda steps: TrainConfig(
        steps=6, batch_size=8, lr=1e-2, warmup=1, save_every=steps, log_every=1, valid_every=3
    )
    through = Trainer(fresh(), Letters(), config(6), tmp_path / "a", progress=False).fit()
    trainer = Trainer(fresh(), Letters(), config(3), tmp_path / "b", progress=False)
    trainer.fit()
    shutil.rmtree(trainer.checkpoints[-1])
    resumed = Trainer(fresh(), Letters(), config(3), tmp_path / "b", progress=False).fit(resume=True)
    for a, b in zip(through.method.parameters(), resumed.method.parameters(), strict=True): assert torch.equal(a, b)


@needs_peft
def test_learned_order_trains_its_order_model(tmp_path):
    method = retrofit(masked_model(PAPL, PAPLConfig), "loflexmdm", rank=2, order="learned", states=2)
    assert isinstance(method, LoFlexMDM) and all(p.requires_grad for p in method.order_parameters)
    first = method.order.insert.hidden.weight.detach().clone()
    assert not torch.equal(trained(method, tmp_path).order.insert.hidden.weight, first)


def test_bad_input():
    masked, other = masked_model(), masked_model()
    other.backbone = torch.nn.Linear(1, 1)
    for args, options, message in [
        ((other,), {}, "masked: has a network 'transformer'; a retrofit starts from the package's own"),
        ((masked, "ar"), {}, "target='ar': choose one of flexmdm, loflexmdm"),
        ((masked,), dict(rank=0), "rank=0: must be a positive"),
        ((masked,), dict(rank=True), "rank=True"),
        ((masked,), dict(size="nano"), "size='nano': a retrofit has that of the masked model, 'pico'"),
        ((masked,), dict(order="fixed"), "unknown key 'order'"),
        ((masked_model(time=True),), {}, "trained with time=True"),
        ((FlexMDM(LETTERS, FlexMDMConfig(size="pico")),), {}, "masked=FlexMDM: must be a masked diffusion"),
    ]:
        with pytest.raises(ValueError, match=message): retrofit(*args, **options)


def test_without_peft_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"pip install 'loflexmdm\[retrofit\]'") as e: retrofit(masked_model())
    assert "\n" not in str(e.value)
    assert parameter_counts(retrofit(masked_model(), adapters=False))[0] > 0


def test_another_target_size_cannot_come_by_the_back_door():
    assert retrofit(masked_model(), "loflexmdm", adapters=False).config.order_size == "pico"
    assert retrofit(masked_model(), adapters=False, max_length=20, insertion="power:2").config == FlexMDMConfig(
        insertion="power:2", size="pico", max_length=20
    )
