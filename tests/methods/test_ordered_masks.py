"Ordered insertion with masks: padding, parts, gaps, samples, guidance, resuming, the command line."
from collections import Counter

import pytest
import torch
from ordered_models import VOCABULARY, sequences, with_noise

from loflexmdm.methods import ordered_insertion
from loflexmdm.methods.ordered_insertion import prompt_of, similar_rows
from loflexmdm.methods.ordered_masks import OrderedMasks, OrderedMasksConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.process.mask_orders import decisions_of, draw_events, masks_of
from loflexmdm.process.states import ANY, MASK, Example, PartialSequences, Vocabulary, collate, prefix_example
from loflexmdm.samplers import EventByEvent, EventDriven

pytestmark = pytest.mark.usefixtures("two_blocks")


def model(order="learned", seed=0, noise=0.5, **options) -> OrderedMasks:
    "A model in float64 with random weights everywhere, none at its zero start."
    torch.manual_seed(seed)
    config = OrderedMasksConfig(order=order, size="test", order_size="test", max_length=20, **options)
    return with_noise(OrderedMasks(VOCABULARY, config), noise)


def costs_in(m: OrderedMasks, x: PartialSequences, order: torch.Tensor):
    "Costs of sequences whose events come in an order each."
    return m.costs(m.in_order(x, prompt_of(x), order, m.scores(x)), m.read_prompts(prompt_of(x)))


def test_padding_changes_nothing():
    m, x = model(), sequences("ab|cd", "abcd|abca", "|b")
    order = draw_events(torch.zeros(*x.tokens.shape, 2), x.free, torch.Generator().manual_seed(3))
    together = costs_in(m, x, order)
    for i in range(3):
        alone = x.rows(torch.tensor([i])).trim()
        own = order[i:i + 1, :2 * int(x.free[i].sum())]
        costs = costs_in(m, alone, own)
        torch.testing.assert_close(together.total[i:i + 1], costs.total, atol=1e-12, rtol=0)
        torch.testing.assert_close(together.generator[i:i + 1], costs.generator, atol=1e-12, rtol=0)


def test_a_batch_in_parts_has_the_loss_of_the_whole(monkeypatch):
    monkeypatch.setattr(ordered_insertion, "FEWEST_COLUMNS", 0)
    m, x = model(), sequences(*["|abcdabcdabcd", "abcdabcdab|cd"] * 16)
    assert len(similar_rows(x)) == 2
    terms = m.loss(x, torch.Generator().manual_seed(0))
    scores = m.scores(x)
    whole = m.loss_in_order(x, scores, m.draw_orders(x, scores, 2, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(terms.loss, whole.loss)
    torch.testing.assert_close(terms.metrics, whole.metrics)


@pytest.mark.parametrize("unmask, follows", [("at_once", True), ("last", False)])
def test_how_masks_are_decided(unmask, follows):
    "At once: every decision follows its mask; last: all masks come first. Neither leaves the order of kinds to chance."
    m, x = model("right_to_left", unmask=unmask), sequences("|abc")
    drawn = m.draw(x, 50, torch.Generator().manual_seed(0))
    if follows: assert drawn.order.unique(dim=0).tolist() == [[6, 7, 4, 5, 2, 3]]
    else: assert drawn.order[:, :3].unique(dim=0).tolist() == [[6, 4, 2]] and (drawn.order[:, 3:] % 2 == 1).all()


def test_every_part_learns():
    m = model()
    m.loss(sequences("|abcd", "|dcba"), torch.Generator().manual_seed(0)).loss.backward()
    for part in (m.backbone.masks, m.order, m.unmask, m.token):
        assert sum(p.grad.abs().sum() for p in part.parameters()) > 1e-3
    assert {id(p) for p in m.order_parameters} == {
        id(p) for part in (m.order, m.unmask, m.order_backbone) for p in part.parameters()}


def test_gaps_of_prompts_are_filled_and_others_stay_closed():
    "Infilling: 'a' and 'd' with an open gap between; samples keep both ends and hold no mask."
    m = model(noise=0.3)
    made = generate(m, [["a", ..., "d"]], n=60, seed=0)
    texts = ["".join(VOCABULARY.decode(s)) for s in made.sequences]
    assert all(t[0] == "a" and t[-1] == "d" for t in texts) and len(set(map(len, texts))) > 2
    assert not any(MASK in s for s in made.sequences)
    one = Example([2, 3, 4, 5, 6], [True, True, False, False, True], [True, False, False, False, True])
    assert m.nll_bound(collate([one]), 8)[0].isfinite().all()


@pytest.mark.slow
def test_conditions_are_read_and_guided_and_never_written():
    vocabulary = Vocabulary(["a", "b", "<c:1>", "<c:2>", ANY])
    torch.manual_seed(0)
    m = OrderedMasks(vocabulary, OrderedMasksConfig(size="test", order="uniform", unmask="uniform", max_length=8))
    rows = collate([prefix_example([c], t, vocabulary) for c, t in (("<c:1>", "aa"), ("<c:2>", "bb"))] * 8)
    adam = torch.optim.Adam(m.parameters(), 1e-2)
    for step in range(60):
        adam.zero_grad()
        m.loss(rows, torch.Generator().manual_seed(step)).loss.backward()
        adam.step()
    for w in (0.0, 1.0):
        texts = Counter("".join(vocabulary.decode(s))
                        for s in generate(m, [["<c:1>"]], n=100, seed=0, guidance=w).completions())
        assert texts.most_common(1)[0][0] == "aa" and not any("<" in t for t in texts)


def test_what_is_refused():
    m = model()
    with pytest.raises(ValueError, match="is for methods whose events come at rates"):
        generate(m, n=1, sampler=EventDriven())
    with pytest.raises(ValueError, match="takes EventByEventMasks"): generate(m, n=1, sampler=EventByEvent())
    with pytest.raises(ValueError, match="has no clock"): m.intensities(None)


@pytest.mark.parametrize("options", [dict(), dict(order="uniform", unmask="uniform")])
def test_bfloat16_is_near_float32(options):
    m, x = model(**options).float(), sequences("a|bcd", "|abca")
    with torch.no_grad():
        full = m.loss(x, torch.Generator().manual_seed(0)).metrics["bound"]
        with torch.autocast("cpu", torch.bfloat16): half = m.loss(x, torch.Generator().manual_seed(0)).metrics["bound"]
    assert half.isfinite() and abs(half - full) < 0.05 * abs(full)


def test_the_events_of_a_position_by_hand():
    "The mask of position 1 appears first, then that of 0; position 1 is decided before 0."
    order = torch.tensor([[2, 0, 3, 1]])
    number = order.argsort(-1)
    assert masks_of(order, number).tolist() == [[0, 1, 0, 1]]
    assert decisions_of(order, number).tolist() == [[2, 3, 2, 3]]
