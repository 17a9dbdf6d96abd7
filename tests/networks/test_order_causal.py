"The network that reads in an order: a block beside attention written out by hand."
from types import SimpleNamespace

import pytest
import torch

from loflexmdm.networks import order_causal
from loflexmdm.networks.order_causal import CHUNK, DISTANCES, HIDDEN, LONGEST, GapPointer, RankBlock, chunks_of
from loflexmdm.networks.order_causal import distance_class, hide_unseen, places


@pytest.fixture
def block():
    "In float64, with output layers that are not the zeros of a fresh one."
    torch.manual_seed(0)
    made = RankBlock(SimpleNamespace(width=8, heads=2)).double()
    for layer in (made.out, made.mlp[2]): torch.nn.init.normal_(layer.weight)
    return made


def by_hand(block, h, keys, values, distance, sees):
    "Column by column and head by head: content and distance, over the root of a head's width, are the scores."
    q, _, _ = block.qkv(block.norm(h)).view(len(h), 3, 2, 4).unbind(1)
    seen = torch.zeros(len(h), 2, 4, dtype=torch.float64)
    for i in range(len(h)):
        for head in range(2):
            query = block.q_norm(q[i, head])
            at = [j for j in range(len(keys)) if sees[i, j]]
            content = [query @ keys[j, head] for j in at]
            place = [(query + block.any[head, 0]) @ block.distance[head, distance[i, j]] for j in at]
            scores = (torch.stack(content) + torch.stack(place)) / 4**0.5
            seen[i, head] = sum(w * values[j, head] for w, j in zip(scores.softmax(0), at))
    h = h + seen.flatten(1) @ block.out.weight.T
    return h + block.mlp(block.mlp_norm(h))


def pairs(block, h):
    _, k, v = block.qkv(block.norm(h)).view(len(h), 3, 2, 4).unbind(1)
    return block.k_norm(k), v


def test_a_block_is_attention_by_content_and_distance(block):
    "Of four columns the last is an event that has not happened: nobody attends to it."
    g = torch.Generator().manual_seed(1)
    h = torch.randn(4, 8, dtype=torch.float64, generator=g)
    distance = torch.randint(DISTANCES, (4, 3), generator=g)
    sees = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=torch.bool)
    with torch.no_grad():
        found, (k, v) = block(h[None], None, hide_unseen(distance, sees)[None], 3)
        keys, values = pairs(block, h[:3])
        torch.testing.assert_close(found[0], by_hand(block, h, keys, values, distance, sees))
        torch.testing.assert_close(k[0].transpose(0, 1), keys)
        torch.testing.assert_close(v[0].transpose(0, 1), values)


def test_what_was_read_before_comes_first_among_the_keys(block):
    g = torch.Generator().manual_seed(2)
    before, h = torch.randn(2, 2, 8, dtype=torch.float64, generator=g)
    distance = torch.randint(DISTANCES, (2, 4), generator=g)
    sees = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]], dtype=torch.bool)
    with torch.no_grad():
        earlier = [(k, v) for k, v in zip(pairs(block, before), pairs(block, h))]
        past = tuple(one.transpose(0, 1)[None] for one in pairs(block, before))
        found, (k, _) = block(h[None], past, hide_unseen(distance, sees)[None], 2)
        keys, values = (torch.cat(both) for both in earlier)
        torch.testing.assert_close(found[0], by_hand(block, h, keys, values, distance, sees))
        torch.testing.assert_close(k[0].transpose(0, 1), keys)


def test_a_fresh_block_passes_its_input_on():
    torch.manual_seed(0)
    h = torch.randn(1, 3, 8)
    everything = torch.ones(1, 3, 3, dtype=torch.bool)
    fresh = RankBlock(SimpleNamespace(width=8, heads=2))
    torch.testing.assert_close(fresh(h, None, everything.long(), 3)[0], h + fresh.mlp[2].bias)


def test_a_fresh_block_draws_its_places_with_these_spreads():
    "A spread estimated from n numbers is off by 1 / sqrt(2 n) of it; five times that is never met by chance."
    torch.manual_seed(1)
    fresh = RankBlock(SimpleNamespace(width=512, heads=2))
    for drawn, spread in ((fresh.distance, 0.1), (fresh.any, 1.0)):
        assert abs(drawn.std().item() / spread - 1) < 5 / (2 * drawn.numel()) ** 0.5


def test_scores_of_gaps_are_those_of_their_neighbours_by_hand():
    "w . l + w . r + a . b + w . d over the root of the width, in two states; 3 stands for the end."
    torch.manual_seed(2)
    pointer = GapPointer(9).double()
    for p in pointer.parameters(): torch.nn.init.normal_(p)
    last, what = torch.randn(2, 9).double(), torch.randn(3, 36).double()
    right, distance = torch.tensor([[1, 2, 3], [2, 3, 1]]), torch.tensor([[0, 5, 2], [1, 1, 3]])
    end = [torch.zeros(9).double(), pointer.end[:9], torch.zeros(9).double(), pointer.end[9:]]
    l, r, a, b = (torch.cat([part, e[None]]) for part, e in zip(what.split(9, -1), end))
    with torch.no_grad():
        for states in (slice(0, 1), slice(0, 2)):
            found = pointer(last[None, states], what[None], right[None, states], distance[None, states])[0]
            for s, w in enumerate(pointer.state(last[states])):
                near = [w @ l[i] + w @ r[j] + a[i] @ b[j] for i, j in enumerate(right[s])]
                far = [w @ pointer.distance[k] for k in distance[s]]
                torch.testing.assert_close(found[s, :3], (torch.stack(near) + torch.stack(far)) / 3)
                torch.testing.assert_close(found[s, 3:], pointer.stop(last[s]))


def kept_numbers(columns, chunked):
    "Numbers that a block keeps for the gradient."
    block, kept = RankBlock(SimpleNamespace(width=8, heads=2)), [0]
    def keep(x):
        kept[0] += x.numel() * x.is_floating_point()
        return x
    sees = torch.ones(1, columns, columns, dtype=torch.bool).tril()
    kind = hide_unseen(torch.zeros(1, columns, columns, dtype=torch.int8), sees)
    h = torch.randn(1, columns, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        block(h, None, kind, columns, chunks_of(kind, columns) if chunked else ())
    return kept[0]


def test_attention_in_chunks_keeps_numbers_per_column_not_per_pair(monkeypatch):
    "Beyond the first KEPT weights."
    kept = kept_numbers(1024, True)
    monkeypatch.setattr(order_causal, "KEPT", 300_000)
    some = kept_numbers(1024, True)
    monkeypatch.setattr(order_causal, "KEPT", 0)
    assert 200_000 < some - kept_numbers(1024, True) <= 300_000 and kept > some + 10**6 / 2
    chunked, whole = ([kept_numbers(n, way) for n in (256, 1024)] for way in (True, False))
    assert chunked[1] < 4.1 * chunked[0] and whole[1] > 10 * whole[0]


def attended(block, h, kind, cut) -> list:
    "The output of a block, and the gradients of its input and its weights."
    out, _ = block(h, None, kind, h.shape[1], cut)
    return [out, *torch.autograd.grad(out.square().mean(), [h, *block.parameters()])]


@pytest.mark.parametrize("kept", [0, 100_000])
def test_weights_that_are_computed_again_give_the_same_gradient(block, monkeypatch, kept):
    columns = 6 * CHUNK
    place = torch.arange(columns)
    kind = hide_unseen(distance_class(place - place[:, None]), torch.ones(columns, columns).bool().tril())[None]
    h = torch.randn(1, columns, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4), requires_grad=True)
    whole = attended(block, h, kind, chunks_of(kind, columns))
    monkeypatch.setattr(order_causal, "KEPT", kept)
    again = attended(block, h, kind, chunks_of(kind, columns))
    assert all(torch.equal(a, b) for a, b in zip(again, whole, strict=True))


@pytest.mark.parametrize("sign", [1, -1])
def test_first_keys_of_one_class_have_the_attention_and_the_gradient_of_plain_attention(block, sign):
    "From left to right and back; the second row has hidden keys, and in the fifth chunk a hidden first one."
    columns = LONGEST + 3 * CHUNK
    place = torch.arange(columns)
    kind = hide_unseen(distance_class(sign * (place - place[:, None])), torch.ones(columns, columns).bool().tril())
    kind = torch.stack([kind, kind])
    kind[1, 10:20, :10] = kind[1, LONGEST + 1, 0] = HIDDEN
    h = torch.randn(2, columns, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    cut = chunks_of(kind, columns)
    found, whole = (attended(block, h, kind, way) for way in (cut, ()))
    torch.testing.assert_close(found, whole, atol=1e-12, rtol=1e-12)
    near, far = 181, 0 if sign == 1 else DISTANCES - 1  # beyond 16 * 2**3.5 there is one class
    assert [(c.alike, c.kind) for c in cut] == [(0, 0)] * 5 + [(c.first - near, far) for c in cut[5:]] and len(cut) == 7


@pytest.mark.parametrize("items", [2**15 - 1, 2**15, 40_000])
def test_places_after_a_prompt_of_more_items_than_two_bytes_count(items):
    "Three tokens are inserted before the last two of a prompt, the third one before the others."
    prompt = torch.tensor([[*range(items - 5), items - 2, items - 1]])
    where = places(prompt, torch.tensor([[items - 4, items - 3, items - 5]]), items)
    first = items - 3  # number of the first event's item; the prompt's last two are before it
    assert where.rank[0, -1].tolist() == [*range(1, items - 4), items - 1, items, items - 3, items - 2, items - 4]
    assert where.gap.tolist() == [[items - 6, first, items - 6]]
    assert where.following.tolist() == [[items - 5, items - 5, first]]
    assert where.right[0, -1, -5:].tolist() == [items - 4, items, first + 1, items - 5, first]


def test_scores_of_gaps_in_chunks_have_the_values_and_gradients_of_all_at_once(monkeypatch):
    "In each state for the items that may be there by the last state of its chunk; 0 for others."
    monkeypatch.setattr(order_causal, "CHUNK", 2)
    states, items, g = 5, 7, torch.Generator().manual_seed(0)
    randn = lambda *shape: torch.randn(2, *shape, generator=g, dtype=torch.float64).requires_grad_()
    inputs = randn(states, 3), randn(items, 3), randn(items + 1, 3), randn(items + 1, items), randn(states, 4)
    there = torch.tensor([[i < items - states + min(2 * (s // 2 + 1),
        states) for i in range(items)] for s in range(states)])
    present = [items - states + s + 1 for s in range(states)]
    right = torch.stack([torch.randint(0, n, (2, items), generator=g) for n in present], 1)
    right = torch.where(torch.rand(right.shape, generator=g) < .3, items, right)
    distance = torch.randint(0, 4, right.shape, generator=g)

    w, l, r, pairs, of_class = inputs
    whole = w @ l.mT + (w @ r.mT).gather(2, right) + pairs.gather(1, right) + of_class.gather(2, distance)
    expected, found = torch.where(there, whole, 0.0), order_causal.ChunkedGaps.apply(*inputs, right, distance)
    torch.testing.assert_close(found, expected)
    weight = torch.randn(found.shape, generator=g, dtype=torch.float64)
    for own, other in zip(*(torch.autograd.grad((v * weight).sum(), inputs) for v in (found, expected))):
        torch.testing.assert_close(own, other)
