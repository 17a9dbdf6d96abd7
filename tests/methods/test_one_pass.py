"A training step beside its former arithmetic: prompts read first, rows padded, attention with a mask, no tables."
import pytest
import torch
import torch.nn.functional as F
from ordered_models import VOCABULARY, sequences, with_noise

from loflexmdm.methods.ordered_edits import OrderedEdits, OrderedEditsConfig
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.methods.ordered_masks import OrderedMasks, OrderedMasksConfig
from loflexmdm.networks import order_causal
from loflexmdm.networks.order_causal import OrderCausal, Packing
from loflexmdm.networks.transformer import HeadNorm, NormedHeads
from loflexmdm.process.states import PAD, Pairs, collate, filled_example

pytestmark = pytest.mark.usefixtures("two_blocks")
KINDS = [(OrderedInsertion, OrderedInsertionConfig), (OrderedMasks, OrderedMasksConfig),
         (OrderedEdits, OrderedEditsConfig)]
late = pytest.mark.parametrize("late", [0, 1])
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0].name)
orders = pytest.mark.parametrize("orders", [1, 2])


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model(kind, late, orders=1):
    "A model in float64 with random weights everywhere, none at its zero start; one order is drawn uniformly."
    method, config = kind
    torch.manual_seed(0)
    more = dict(coupling="pairs") if method is OrderedEdits else {}
    if orders == 1: more |= dict(order="uniform") | (dict(unmask="uniform") if method is OrderedMasks else {})
    sizes = dict(size="test", order_size="test", max_length=20)
    return with_noise(method(VOCABULARY, config(query_blocks=late, **sizes, **more)), 0.5)


def gapped(*rows):
    "Clean sequences from prompts with gaps (`...`) and their fillings."
    return collate([filled_example(prompt, fillings, VOCABULARY) for prompt, fillings in rows])


def ragged(m):
    "Prompts of several lengths, several gaps, a complete prompt, a gap that stays empty, nothing at all."
    if isinstance(m, OrderedEdits):
        pairs = Pairs(sequences("ab|cdab", "|abca", "c|b", "|"), sequences("ab|dacbd", "|bbdd", "c|a", "|"))
        return m.edit_paths(pairs, torch.Generator().manual_seed(0))
    return gapped((["a", ..., "b", ..., "d", "d"], ["cc", "ab"]), (["a", "b", ...], ["cdabcda"]), (list("abcd"), []),
                  (["c", ..., "d"], [""]), ([...], ["ab"]), ([...], [""]))


def step(m, x1, orders) -> list:
    "Loss, metrics and gradients of all weights."
    m.zero_grad()
    drawn = m.draw_orders(x1, m.scores(x1), orders, torch.Generator().manual_seed(0))
    terms = m.loss_in_order(x1, m.scores(x1), drawn)
    terms.loss.backward()
    return [terms.loss.detach(), *terms.metrics.values(), *(p.grad for p in m.parameters() if p.grad is not None)]


def former(patch):
    "The arithmetic before rows were packed."
    per_column = lambda net, tokens, layer=torch.nn.Identity(): layer(net.token(tokens) * (tokens != PAD)[..., None])
    norm = lambda own, x: F.rms_norm(x, own.normalized_shape, own.weight, own.eps)
    patch.setattr(OrderedInsertion, "reads_at_once", lambda *args: False)
    patch.setattr(Packing, "column_numbers", lambda number, there: number.flatten())
    patch.setattr(order_causal, "chunks_of", lambda *args: ())
    patch.setattr(OrderCausal, "_embed_tokens", per_column)
    patch.setattr(HeadNorm, "forward", norm)


def compared(m, x1, orders, patch) -> float:
    "Largest difference of a step from its former arithmetic, over the size of each value."
    new = step(m, x1, orders)
    former(patch)
    old = step(m, x1, orders)
    assert len(new) == len(old) > 20 and all(v.isfinite().all() for v in old)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-3)) for a, b in zip(new, old, strict=True))


@orders
@late
@kinds
def test_a_step_has_the_loss_and_the_gradient_of_its_former_arithmetic(kind, late, orders, monkeypatch):
    m = model(kind, late, orders)
    assert compared(m, ragged(m), orders, monkeypatch) < 1e-12


@late
def test_rows_read_in_one_pass_are_packed_to_the_longest(late, monkeypatch):
    "Six rows with prompts of up to 7 columns and up to 7 events have 10 columns at most, and blocks read 35 in all."
    m, seen, block = model(KINDS[0], late), [], order_causal.RankBlock.forward
    x1 = ragged(m)
    def noted(own, h, past, kind, *args):
        seen.append((len(h), past, kind.shape[2]))
        return block(own, h, past, kind, *args)
    monkeypatch.setattr(order_causal.RankBlock, "forward", noted)
    step(m, x1, 1)
    there, free = int(x1.lengths.sum()), int(x1.free.sum())
    content = there if late else there + free
    assert seen == [(content, None, int(x1.lengths.max())), (there + free, None, int(x1.lengths.max()))]


@kinds
def test_a_wrong_visibility_after_moving_rows_together_is_noticed(kind, monkeypatch):
    moved = order_causal.without_gaps
    def wrong(*args):
        there, kind = moved(*args)
        return there, kind.roll(1, 1)
    m = model(kind, 1)
    monkeypatch.setattr(order_causal, "without_gaps", wrong)
    assert compared(m, ragged(m), 1, monkeypatch) > 1e-4


@pytest.mark.parametrize("x, w", [((3, 2, 4), (4,)), ((2, 3, 2, 5, 4), (2, 1, 4)), ((3, 2, 1, 4), (2, 1, 4))])
def test_the_norm_of_heads_has_the_gradient_of_finite_differences(x, w):
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(x, generator=g, requires_grad=True), torch.randn(w, generator=g, requires_grad=True)
    torch.testing.assert_close(NormedHeads.apply(x, w), F.rms_norm(x, (4,)) * w, atol=1e-15, rtol=0)
    assert torch.autograd.gradcheck(NormedHeads.apply, (x, w))
