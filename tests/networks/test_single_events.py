"Events one at a time, written into tables with room, against the pass over all of them."
import pytest
import torch

from loflexmdm.networks import order_causal
from loflexmdm.networks.order_causal import OrderCausal, places
from loflexmdm.networks.transformer import Size
from loflexmdm.process.states import Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abcd")
PROMPTS = collate([prefix_example("ab", "", VOCABULARY), prefix_example("", "", VOCABULARY)])
EVENTS = 7


def network(**options) -> OrderCausal:
    "In float64, with random weights everywhere."
    torch.manual_seed(0)
    net = OrderCausal(len(VOCABULARY), Size(16, 2, 2, 16), **options).double()
    with torch.no_grad():
        for p in net.parameters(): p += 0.5 * torch.randn_like(p) / max(p.shape[-1], 1) ** 0.5
    return net


def drawn(seed: int):
    "Columns of events in a random order, and their tokens."
    g = torch.Generator().manual_seed(seed)
    order = torch.stack([3 + torch.randperm(EVENTS, generator=g) for _ in range(2)])
    return order, torch.randint(3, 7, (2, EVENTS), generator=g)


def places_of(order):
    given = torch.tensor([[0, 1, 2], [0, 99, 99]])
    return places(given, order, 99)


def passed(net, order, tokens) -> torch.Tensor:
    "Log-probabilities of gaps after all events, and features of their tokens."
    laws = net.laws(net.read(PROMPTS), tokens, places_of(order))
    return torch.cat([laws.gap[:, -1].exp().flatten(), laws.token.flatten()])


def followed(net, order, tokens, memory=None, first=0) -> torch.Tensor:
    "The same, event by event."
    memory, where, found = net.read(PROMPTS) if memory is None else memory, places_of(order), []
    for k in range(first, EVENTS):
        found.append(net.token_features(memory, where.gap[:, k]))
        memory = net.insert(memory, where.gap[:, k], tokens[:, k])
    gap = net.gap_scores(memory).log_softmax(-1).exp()
    return torch.cat([gap.flatten(), torch.stack(found, 1).flatten()])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("options", [{}, dict(query_blocks=1), dict(neighbours=False)])
@pytest.mark.parametrize("spare", [1, 2, 32])
def test_events_one_by_one_are_those_of_the_pass(monkeypatch, mode, options, spare):
    monkeypatch.setattr(order_causal, "_SPARE", spare)
    net, (order, tokens) = network(**options), drawn(1)
    with mode(): found, wanted = followed(net, order, tokens), passed(net, order, tokens)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_a_state_can_be_continued_twice():
    "Three events, then others after each of two fourth ones, in turns; the state itself is what it was."
    net, (order, tokens) = network(), drawn(2)
    other, where = 3 + (tokens - 2) % 4, places_of(order)
    with torch.inference_mode():
        memory = net.read(PROMPTS)
        for k in range(3): memory = net.insert(memory, where.gap[:, k], tokens[:, k])
        scores = net.gap_scores(memory)
        one, two = (net.insert(memory, where.gap[:, 3], t[:, 3]) for t in (tokens, other))
        assert torch.equal(net.gap_scores(memory), scores)
        for state, fourth in ((one, tokens), (two, other), (one, tokens)):
            whole = torch.cat([tokens[:, :3], fourth[:, 3:4], tokens[:, 4:]], 1)
            found, wanted = followed(net, order, whole, state, 4), passed(net, order, whole)
            outcomes = 2 * (3 + EVENTS + 1)
            torch.testing.assert_close(found[:outcomes], wanted[:outcomes], atol=1e-12, rtol=0)


@pytest.mark.parametrize("index", [torch.tensor([1]), [1], torch.tensor([False, True])])
def test_selected_rows_continue_alone(index):
    net, (order, tokens) = network(), drawn(3)
    where = places_of(order)
    with torch.inference_mode():
        memory = net.read(PROMPTS)
        for k in range(3): memory = net.insert(memory, where.gap[:, k], tokens[:, k])
        both = net.insert(memory, where.gap[:, 3], tokens[:, 3])
        alone = net.insert(memory.rows(index), where.gap[1:, 3], tokens[1:, 3])
        torch.testing.assert_close(net.gap_scores(alone), net.gap_scores(both)[1:], atol=1e-12, rtol=0)


def test_a_state_of_inference_mode_continues_outside_of_it():
    net, (order, tokens) = network(), drawn(4)
    with torch.inference_mode():
        memory = net.insert(net.read(PROMPTS), places_of(order).gap[:, 0], tokens[:, 0])
        inside = followed(net, order, tokens, memory, 1)
        memory = net.insert(net.read(PROMPTS), places_of(order).gap[:, 0], tokens[:, 0])
    with torch.no_grad(): outside = followed(net, order, tokens, memory, 1)
    torch.testing.assert_close(outside, inside, atol=1e-12, rtol=0)


def gradients(net, found) -> list[torch.Tensor]:
    weights = torch.randn(len(found), dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    grads = torch.autograd.grad((found * weights).sum(), list(net.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(grads, net.parameters())]


def test_gradients_of_events_one_by_one_are_those_of_the_pass():
    net, (order, tokens) = network(query_blocks=1), drawn(5)
    found, wanted = (gradients(net, call(net, order, tokens)) for call in (followed, passed))
    for own, other in zip(found, wanted): torch.testing.assert_close(own, other, atol=1e-10, rtol=1e-9)


def test_a_state_without_gradients_continues_with_them():
    net, (order, tokens) = network(), drawn(7)
    with torch.no_grad(): memory = net.insert(net.read(PROMPTS), places_of(order).gap[:, 0], tokens[:, 0])
    kept = memory.tables.keys[0].clone()
    assert all(g.isfinite().all() for g in gradients(net, followed(net, order, tokens, memory, 1)))
    assert torch.equal(memory.tables.keys[0][..., :4], kept[..., :4])


@pytest.mark.parametrize("query_blocks, number", [(0, 0), (1, 1), (2, 0)])
def test_queries_begin_with_the_start_token_at_their_depth(monkeypatch, query_blocks, number):
    "It is what the first block of queries is given, of the columns of the first prompt and then of the second."
    given, real = [], order_causal.in_turn

    def in_turn(net, block, h, *rest):
        given.append(h.reshape(-1, 16))
        return real(net, block, h, *rest)
    monkeypatch.setattr(order_causal, "in_turn", in_turn)
    net = network(query_blocks=query_blocks)
    with torch.no_grad(): memory = net.read(PROMPTS)
    assert len(given) == 2 and memory.start.shape == (2, 16)
    torch.testing.assert_close(memory.start[0], given[number][0])
    assert not torch.allclose(given[0][0], given[1][0])
