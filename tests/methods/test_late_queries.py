"Queries that pass the last blocks alone, and attention in chunks: leaks, the cache, gradients, saved models."
import json

import pytest
import torch
from ordered_models import VOCABULARY, sequences, with_noise

from loflexmdm.methods import ordered_insertion
from loflexmdm.methods.ordered_edits import OrderedEdits, OrderedEditsConfig
from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig, prompt_of, whole_tiles
from loflexmdm.methods.ordered_masks import OrderedMasks, OrderedMasksConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.networks import order_causal
from loflexmdm.networks.order_causal import OrderCausal
from loflexmdm.process.states import Pairs

pytestmark = pytest.mark.usefixtures("two_blocks")
KINDS = [(OrderedInsertion, OrderedInsertionConfig), (OrderedMasks, OrderedMasksConfig),
         (OrderedEdits, OrderedEditsConfig)]
late = pytest.mark.parametrize("late", [0, 1])
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0].name)


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model(kind, late=1, **options):
    "A model in float64 with random weights everywhere, none at its zero start."
    method, config = kind
    torch.manual_seed(0)
    more = dict(coupling="pairs") if method is OrderedEdits else {}
    sizes = dict(size="test", order_size="test", max_length=20)
    return with_noise(method(VOCABULARY, config(query_blocks=late, **sizes, **more, **options)), 0.5)


def clean(m):
    "Clean sequences, or edit paths for a model of edits."
    if not isinstance(m, OrderedEdits): return sequences("ab|cdab", "c|aacbda", "|b")
    pairs = Pairs(sequences("ab|cdab", "|abca", "c|b"), sequences("ab|dacbd", "|bbdd", "c|a"))
    return m.edit_paths(pairs, torch.Generator().manual_seed(0))


def drawn_from(m, x1, seed=1):
    return m.draw(x1, 1, torch.Generator().manual_seed(seed))


def laws(m, x1, order):
    drawn = m.in_order(x1, m.prompts_of(x1), order, m.scores(x1))
    return m.backbone.laws(m.read_prompts(m.prompts_of(x1)), drawn.tokens, drawn.where)


@torch.no_grad()
@late
@kinds
def test_one_event_at_a_time_costs_what_the_pass_says(kind, late):
    "Each event's outcome and token with the cache, row by row, against the one pass."
    m = model(kind, late)
    x1 = clean(m)
    drawn = drawn_from(m, x1)
    costs, outcomes = m.costs(drawn, m.read_prompts(m.prompts_of(x1))), drawn.where.outcome.diagonal(dim1=1, dim2=2)
    compared = 0
    for row in range(len(drawn.tokens)):
        memory = m.read_prompts(m.prompts_of(x1)).rows([row])
        for k in range(int(drawn.count[row])):
            items = memory.tokens.shape[1]
            what, item = divmod(int(outcomes[row, k]), drawn.where.rank.shape[2])
            event, token = torch.tensor([what * items + item]), drawn.tokens[row, k:k + 1]
            gap = -m.gap_scores(memory).log_softmax(-1)[0, event]
            torch.testing.assert_close(gap, costs.gap[row, k:k + 1], atol=1e-12, rtol=0)
            if costs.token[row, k] != 0:
                found = -m.token_logits(memory, event).log_softmax(-1)[0, token]
                torch.testing.assert_close(found, costs.token[row, k:k + 1], atol=1e-12, rtol=0)
                compared += 1
            memory = m.insert(memory, event, token)
        stop = -m.gap_scores(memory).log_softmax(-1)[0, -1]
        torch.testing.assert_close(stop, costs.stop[row], atol=1e-12, rtol=0)
    assert compared >= 5


def leaks(m) -> float:
    "How far the token distributions before a changed event move; 0 in a network that is causal."
    order, first = torch.tensor([[3, 1, 4, 2, 5]]), 2  # the sequences differ from this event on
    one, other = laws(m, sequences("|abcda"), order), laws(m, sequences("|abcbd"), order)
    assert not torch.equal(one.token[:, first + 1:], other.token[:, first + 1:])
    before = (one.token - other.token)[:, :first + 1].detach().abs().max()
    return float(torch.max(before, (one.gap - other.gap).detach()[:, :first + 1].exp().sub(1).nan_to_num().abs().max()))


def test_nothing_leaks_into_late_queries():
    assert leaks(model(KINDS[0])) == 0.0


def test_a_leak_is_seen(monkeypatch):
    "Queries that take up their own event's token instead of the one before."
    own = lambda net, memory, content, query, where: query + net.from_last(content)
    monkeypatch.setattr(OrderCausal, "begin_queries", own)
    assert leaks(model(KINDS[0])) > 1e-3


@kinds
def test_late_queries_change_what_a_model_computes(kind):
    m = model(kind)
    x1 = clean(m)
    drawn = drawn_from(m, x1)
    token = lambda: m.costs(drawn, m.read_prompts(m.prompts_of(x1))).token.sum()
    with torch.no_grad():
        before = token()
        m.backbone.from_last[1].weight.zero_()
        assert (token() - before).abs() > 1e-3


def test_queries_that_pass_every_block_have_no_weights_of_their_own():
    names = lambda late: set(model(KINDS[0], late).state_dict())
    assert names(0) == names(2) == names(5) and names(1) - names(0) == {
        "backbone.from_last.0.weight", "backbone.from_last.0.bias", "backbone.from_last.1.weight"}


def test_a_model_saved_before_there_was_a_choice_is_read_as_it_was(tmp_path):
    torch.set_default_dtype(torch.float32)
    made = model(KINDS[0], 0).float()
    folder = save_method(made, tmp_path / "model")
    file = folder / "config.json"
    meta = json.loads(file.read_text())
    assert meta["config"].pop("query_blocks") == 0
    meta.pop("files", None)
    file.write_text(json.dumps({k: v for k, v in meta.items() if k in
                                ("format", "method", "version", "vocabulary", "config", "task")}))
    with pytest.warns(UserWarning, match="without a digest"):
        again = load_method(folder)
    assert again.backbone.content_blocks == 0
    assert generate(again, n=4, seed=0).sequences == generate(made.eval(), n=4, seed=0).sequences


def with_gradient(m, x1) -> list:
    m.zero_grad()
    terms = m.loss_in_order(x1, m.scores(x1), m.draw_orders(x1, m.scores(x1), 2, torch.Generator().manual_seed(0)))
    terms.loss.backward()
    return [terms.loss.detach(), *terms.metrics.values(), *(p.grad for p in m.parameters() if p.grad is not None)]


@late
@kinds
def test_attention_in_chunks_has_the_loss_and_the_gradient_of_attention_at_once(kind, late, monkeypatch):
    m = model(kind, late)
    x1 = clean(m)
    whole, seen = with_gradient(m, x1), []
    cut = order_causal.chunks_of
    monkeypatch.setattr(order_causal, "CHUNK", 2)
    monkeypatch.setattr(order_causal, "chunks_of", lambda *args: seen.append(cut(*args)) or seen[-1])
    torch.testing.assert_close(with_gradient(m, x1), whole, atol=1e-11, rtol=1e-11)
    chunks = seen[-1]
    assert len(chunks) >= 4 and chunks[0].keys < max(chunk.keys for chunk in chunks)


@kinds
def test_events_in_whole_tiles_have_the_loss_and_the_gradient_of_events_alone(kind, monkeypatch):
    "A GPU gets columns in multiples of 16; the last ones stand for nothing."
    m = model(kind)
    x1 = clean(m)
    alone, widths, laws = with_gradient(m, x1), [], m.backbone.laws
    on_a_gpu = lambda events, device: whole_tiles(events, torch.device("cuda"))
    monkeypatch.setattr(ordered_insertion, "whole_tiles", on_a_gpu)
    monkeypatch.setattr(m.backbone, "laws", lambda *args: widths.append(args[1].shape[1]) or laws(*args))
    torch.testing.assert_close(with_gradient(m, x1), alone, atol=1e-11, rtol=1e-11)
    assert widths == [16]


def test_a_chunk_that_sees_too_little_is_noticed(monkeypatch):
    m = model(KINDS[0])
    x1 = clean(m)
    whole, cut = with_gradient(m, x1), order_causal.chunks_of
    monkeypatch.setattr(order_causal, "CHUNK", 2)
    less = lambda *args: tuple(chunk._replace(keys=chunk.keys - 1) for chunk in cut(*args))
    monkeypatch.setattr(order_causal, "chunks_of", less)
    assert abs(float(with_gradient(m, x1)[0] - whole[0])) > 1e-6


def test_prompts_of_different_lengths_are_read_as_alone():
    m = model(KINDS[0])
    x = sequences("ab|cd", "abcd|abca", "|b")
    drawn = drawn_from(m, x)
    together = m.costs(drawn, m.read_prompts(prompt_of(x)))
    for i in range(3):
        alone, n = x.rows([i]).trim(), int(x.free[i].sum())
        order = drawn.order[i:i + 1, :n]
        costs = m.costs(m.in_order(alone, prompt_of(alone), order, m.scores(alone)), m.read_prompts(prompt_of(alone)))
        torch.testing.assert_close(together.total[i:i + 1], costs.total, atol=1e-12, rtol=0)
