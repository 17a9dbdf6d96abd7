"Token logits are computed where they are read: no method or sampler makes a tensor (batch, length, vocabulary)."
import copy
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.edit_flows import EditFlow, EditFlowConfig
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.gen_md4 import GenMD4, GenMD4Config
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.papl import PAPL, PAPLConfig
from loflexmdm.methods.planner_bounds import greedy_bound, planner_bound
from loflexmdm.methods.sampling import generate
from loflexmdm.process.intensities import Intensities, TokenLaws, cat_laws, log_probs_at, unread
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.samplers import CONFIDENCES, SIGNED, Ancestral, EventDriven, Limits
from loflexmdm.samplers import Planner, TauLeaping, simulate
from loflexmdm.support.notebook import seeded

WORDS = 994  # with the special tokens 997, a size that nothing else has
VOCABULARY = Vocabulary([f"w{i}" for i in range(WORDS)])


class Sizes(TorchDispatchMode):
    "Fails at a tensor with as many numbers as `cells` laws of all tokens, views of smaller ones aside."
    def __init__(self, cells: int): super().__init__(); self.cells, self.most = cells, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for v in out if isinstance(out, tuple | list) else [out]:
            if not isinstance(v, torch.Tensor) or v.shape[-1:].numel() < WORDS: continue
            if v.dtype == torch.uint8: continue  # the state of a generator
            view = v.untyped_storage().nbytes() < v.numel() * v.element_size()  # expanded
            if view or v.shape[:-1] == (16,): continue  # 16: a matrix of the token head
            self.most = max(self.most, n := v.numel() // v.shape[-1])
            assert n < self.cells, f"{func}: {tuple(v.shape)}, {self.cells} columns"
        return out


def clean(n: int = 4):
    "Sequences of 14 to 20 tokens, the first two a prompt."
    g = seeded(0)
    words = [VOCABULARY.tokens[i] for i in torch.randint(3, WORDS + 3, (n * 20,), generator=g).tolist()]
    return collate([prefix_example(words[20 * i:20 * i + 2], words[20 * i + 2:20 * i + 14 + 2 * i], VOCABULARY)
                    for i in range(n)])


def made(cls, config, **options):
    torch.manual_seed(0)
    return cls(VOCABULARY, config(size="pico", max_length=24, **options))


MODELS = {
    "loflexmdm": (LoFlexMDM, LoFlexMDMConfig, dict(order_size="pico", unmask="trainable")),
    "flexmdm": (FlexMDM, FlexMDMConfig, {}), "mdm": (MaskedDiffusion, MaskedConfig, {}), "papl": (PAPL, PAPLConfig, {}),
    "genmd4": (GenMD4, GenMD4Config, {}), "ar": (Autoregressive, AutoregressiveConfig, {}),
    "editflow": (EditFlow, EditFlowConfig, dict(coupling="uniform")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_bounds_read_the_logits_of_masks_alone(pico, name):
    model, x1 = made(*MODELS[name][:2], **MODELS[name][2]), clean()
    rows = len(x1.tokens) * (model.config.states if hasattr(model.config, "states") else 1)
    columns = 24 if hasattr(model, "canvas") else x1.tokens.shape[1]
    with Sizes(rows * columns) as sizes: model.loss(x1, seeded(1)).loss.backward()
    with Sizes(len(x1.tokens) * columns): model.nll_bound(x1, samples=2, generator=seeded(2))
    assert sizes.most > 0 and model.token.out.weight.grad.abs().sum() > 0
    if name == "mdm":
        with Sizes(len(x1.tokens) * columns): model.discrete_bound(x1, steps=3, samples=2, generator=seeded(3))


def some_samplers(inserts: bool):
    "Samplers of every kind, with every rule of confidence."
    yield from (EventDriven(), EventDriven(exact=False, events_per_call=2))
    yield from (TauLeaping(steps=4), TauLeaping(steps=4, top_p=0.5))
    for rule in CONFIDENCES:
        yield TauLeaping(steps=3, grid="clock", confidence=rule, softness=0.0 if rule in SIGNED else 0.5)
        yield EventDriven(exact=False, events_per_call=3, confidence=rule, window=2)
    if inserts: return
    yield from (Ancestral(steps=3, confidence="sampled"), Planner())
    yield Planner(confidence="sampled", softness=1.0, steps=4)
    yield from (Planner(remask=1.0, steps=4), Planner(confidence="prob_diff", window=6, steps=4))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loflexmdm", "mdm", "genmd4", "ar"])
def test_samplers_read_the_logits_of_masks_alone(pico, name):
    model, words = made(*MODELS[name][:2], **MODELS[name][2]), VOCABULARY.tokens
    if name == "loflexmdm": torch.nn.init.constant_(model.insert.out.bias, -1.0)  # few insertions, a short simulation
    prompts, caller = [[*words[3:7], ...] if name == "ar" else [*words[3:7], ..., words[9]]] * 3, model.read
    for sampler in [model.default_sampler] if name == "ar" else some_samplers(name == "loflexmdm"):
        sizes = Sizes(0)

        def watched(x, tau, kept, sizes=sizes):
            sizes.cells = x.tokens.numel()  # until the next call
            return caller(x, tau, kept)
        model.read = watched
        with sizes: generate(model, prompts, sampler=sampler, generator=seeded(1), max_length=24)
        assert sizes.most > 0


@pytest.mark.slow
def test_planner_bounds_read_the_logits_of_masks_alone(pico):
    model, x1 = made(MaskedDiffusion, MaskedConfig), clean()
    for planner in (Planner(confidence="sampled", steps=4), Planner(remask=1.0, steps=4)):
        with Sizes(4 * 24): greedy_bound(model, x1, planner)
    with Sizes(4 * 24): planner_bound(model, x1, samples=2, generator=seeded(0))


def test_the_check_finds_a_tensor_of_all_logits(pico):
    model, x1 = made(FlexMDM, FlexMDMConfig), clean()
    with pytest.raises(AssertionError, match="997"), Sizes(x1.tokens.numel()):
        model.intensities(x1, tau=torch.ones(len(x1.tokens)))


# ---- who asks a method gets tensors

@pytest.mark.parametrize("name", MODELS)
def test_intensities_are_tensors_and_callers_agree_with_them(pico, name):
    model, x1 = made(*MODELS[name][:2], **MODELS[name][2]), clean()
    x = x1._replace(tokens=torch.where(x1.free & (torch.arange(x1.tokens.shape[1]) % 2 == 0), 1, x1.tokens))
    tau = torch.full((len(x.tokens),), 0.5)
    with torch.no_grad(): dense, lazy = model.intensities(x, tau=tau), unread(model.intensities, x, tau=tau)
    assert isinstance(dense.logits, torch.Tensor) and isinstance(lazy.logits, TokenLaws)
    assert lazy.logits.shape == dense.logits.shape and lazy.logits.dtype == dense.logits.dtype
    for a, b in zip(dense, lazy.dense(), strict=True):
        if a is not None: torch.testing.assert_close(a, b)


def test_logits_stay_as_they_were_when_the_weights_change(pico):
    model, x = made(FlexMDM, FlexMDMConfig), clean()
    out = model.intensities(x, tau=torch.ones(len(x.tokens)))
    before = out.logits.clone()
    with torch.no_grad(): model.token.out.weight.add_(1.0)
    assert torch.equal(out.logits, before)


def test_a_subclass_that_changes_logits_changes_loss_and_samples(pico):
    class OneWord(FlexMDM):
        def intensities(self, x, t=None, *, tau=None):
            out = super().intensities(x, t, tau=tau)
            return out._replace(logits=out.logits.index_fill(-1, torch.arange(4, WORDS + 3), -torch.inf))
    model = made(OneWord, FlexMDMConfig)
    assert model.loss(clean(), seeded(0)).loss == torch.inf
    samples = generate(model, n=8, sampler=TauLeaping(steps=8), generator=seeded(0))
    assert {t for s in samples.sequences for t in s} == {3}


# ---- the laws themselves

def laws_and_logits():
    "Laws of 2 x 4 columns over 6 tokens with a number added in each, and their logits; requires_grad."
    g = seeded(0)
    hidden, head = torch.randn(2, 4, 3, generator=g, dtype=torch.float64), torch.nn.Linear(3, 6).double()
    shift = torch.randn(2, 4, generator=g, dtype=torch.float64)
    laws = TokenLaws(head, hidden).then(lambda v, by: v * by[:, None], shift)
    return laws, head(hidden) * shift[..., None]


KEYS = (
    torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1]]).bool(), (torch.tensor([1, 0]), torch.tensor([3, 0])),
    (torch.tensor([[0], [1]]), torch.tensor([[2, 3], [0, 0]])), torch.tensor([1]), torch.tensor([False, True]), 0,
    (0, -1), (..., slice(3, None)), (slice(None), 1), (0, 1, 2), torch.zeros(2, 4).bool(),
    torch.arange(48).view(2, 4, 6) % 5 == 0, (torch.tensor([1, 0]), torch.arange(24).view(4, 6) % 13 == 5),
)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_is_that_of_the_tensor(key, keep):
    laws, logits = laws_and_logits()
    if keep: laws.at(KEYS[0], keep=True)
    torch.testing.assert_close(laws[key], logits[key], rtol=1e-12, atol=1e-12)


def test_rows_padding_and_joining_move_columns():
    laws, logits = laws_and_logits()
    pad = lambda v: torch.nn.functional.pad(v, (0, 2))
    one, two = (Intensities(logits=laws.columns(lambda v, i=i: pad(v[i:i + 1]))) for i in (1, 0))
    joined = Intensities.cat([one, two]).rows(torch.tensor([1, 0, 1])).logits
    assert joined.shape == (3, 6, 6)
    where = torch.tensor([[0, 1, 0, 1, 0, 0]] * 3).bool()
    torch.testing.assert_close(joined.at(where), logits[[0, 1, 0]][:, [1, 3]].flatten(0, 1), rtol=1e-12, atol=1e-12)
    twice = cat_laws([laws, laws]).then(lambda v: v + 1)
    torch.testing.assert_close(twice.dense(), torch.cat([logits, logits]) + 1, rtol=1e-12, atol=1e-12)


def test_what_is_kept_is_not_computed_again():
    calls = []
    laws = TokenLaws(lambda v: calls.append(len(v)) or v, torch.randn(2, 3, 5))
    where = torch.tensor([[0, 1, 1], [1, 0, 0]]).bool()
    first = laws.at(where, keep=True)
    assert laws.at(where) is first and calls == [3]
    torch.testing.assert_close(laws[torch.tensor([1]), torch.tensor([0])], first[2:])
    torch.testing.assert_close(laws.then(lambda v: 2 * v).at(where), 2 * first)
    assert calls == [3]
    laws.at(~where)
    assert calls == [3, 3]


def test_laws_act_as_a_tensor():
    laws, logits = laws_and_logits()
    other = torch.ones(6, dtype=torch.float64)
    for fn in (
        lambda v: torch.softmax(v, -1), lambda v: v.log_softmax(-1), lambda v: v + other, lambda v: other - v,
        lambda v: -v, lambda v: 2 * v, lambda v: (v > 0).double(), lambda v: torch.cat([v, v]),
        lambda v: torch.where(torch.ones(2, 4, 1).bool(), v, 0.0), lambda v: torch.stack((v, v))[0],
    ):
        torch.testing.assert_close(fn(laws), fn(logits), rtol=1e-12, atol=1e-12)
    assert copy.copy(laws).known is laws.known
    with pytest.raises(AttributeError): getattr(laws, "nothing_of_the_kind")  # noqa: B009


@pytest.mark.parametrize("tensor", [True, False])
def test_log_probabilities_where_they_count(tensor):
    laws, logits = laws_and_logits()
    where, token = KEYS[0], torch.randint(0, 6, (2, 4), generator=seeded(1))
    found = log_probs_at(logits if tensor else laws, token, where)
    expected = torch.where(where, logits.log_softmax(-1).gather(-1, token[..., None])[..., 0], 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_hook_gets_a_tensor_of_all_logits(pico):
    seen = []

    def hook(logits, x, tau):
        seen.append(type(logits))
        return logits
    model = made(FlexMDM, FlexMDMConfig)
    generate(model, n=2, sampler=TauLeaping(steps=3, logits_hook=hook), generator=seeded(0))
    assert set(seen) == {torch.Tensor}


def test_other_channels_draw_from_laws_too():
    "Substitutes and inserted tokens come from lazy logits as from tensors."
    g = seeded(0)
    hidden = torch.randn(4, 60, 7, generator=g, dtype=torch.float64)

    def model(x, tau, lazy):
        h, ones = hidden[:len(x.tokens), :x.tokens.shape[1]], torch.ones(x.tokens.shape)
        logits = TokenLaws(lambda v: 3 * v, h) if lazy else 3 * h
        return Intensities(insert=0.3 * ones, delete=0.3 * ones, substitute=ones, logits=logits, insert_logits=logits)
    x = clean()
    x = x._replace(tokens=torch.where(x.tokens > 6, 3 + x.tokens % 4, x.tokens))
    limits = Limits(1.0, 40, channels=("delete", "substitute", "insert"))
    a, b = (simulate(partial(model, lazy=lazy), x, TauLeaping(steps=8), range(4), limits).sequences
            for lazy in (True, False))
    assert a == b and a != x.tokens[:, 1:].tolist()
