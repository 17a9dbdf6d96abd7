"Ordered insertion against enumeration, in float64: places, orders, bounds, leaks, the cache, samples, gradients."
import itertools
import math
from collections import Counter

import pytest
import torch
from ordered_models import VOCABULARY, sequences, with_noise
from scipy.stats import chisquare

from loflexmdm.methods import ordered_insertion
from loflexmdm.methods.ordered_insertion import SAVED, OrderedInsertion, OrderedInsertionConfig, OrderScores
from loflexmdm.methods.ordered_insertion import columns_read
from loflexmdm.methods.ordered_insertion import order_term, prompt_of, similar_rows
from loflexmdm.methods.sampling import generate
from loflexmdm.networks.order_causal import DISTANCES, distance_class, places
from loflexmdm.networks.transformer import SIZES, Transformer
from loflexmdm.process.conditions import without_conditions
from loflexmdm.process.plackett_luce import draw_order, left_first, runs_of, step_log_probs
from loflexmdm.process.states import ANY, PAD, Example, PartialSequences, Vocabulary, collate, parse_prompt
from loflexmdm.samplers import EventByEvent, EventDriven, Limits, simulate

pytestmark = pytest.mark.usefixtures("two_blocks")


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model(order="learned", seed=0, noise=0.5, **options) -> OrderedInsertion:
    "A model in float64 with random weights everywhere, none at its zero start."
    torch.manual_seed(seed)
    config = OrderedInsertionConfig(order=order, size="test", order_size="test", max_length=9, **options)
    return with_noise(OrderedInsertion(VOCABULARY, config), noise)


@torch.no_grad()
def draw(m: OrderedInsertion, prompts: PartialSequences, seeds, limits: Limits, record: bool = False):
    "Samples of a model, event by event."
    return simulate(m, prompts, EventByEvent(), list(seeds), limits, record)


def with_gaps() -> PartialSequences:
    "Infilling: 'a' and 'd' given with an open gap between them, the gap at the end closed; 'bc' and 'b' missing."
    one = Example([2, 3, 4, 5, 6], [True, True, False, False, True], [True, False, False, False, True])
    two = Example([2, 3, 4, 6], [True, True, False, True], [True, False, False, True])
    return collate([one, two])


def brute_places(prompt: list[int], events: list[int]):
    "Presence, ranks and neighbours by looking at sorted lists."
    items = prompt + events
    for k in range(len(events) + 1):
        there = sorted(prompt + events[:k])
        for i, column in enumerate(items):
            if column in there:
                rank = there.index(column) + 1
                right = items.index(there[rank]) if rank < len(there) else len(items)
                yield k, i, True, rank, right
            else: yield k, i, False, None, None


def test_places_against_lists():
    g = torch.Generator().manual_seed(0)
    for _ in range(30):
        width = int(torch.randint(3, 9, (), generator=g))
        columns = torch.randperm(width, generator=g)
        given = int(torch.randint(0, width - 1, (), generator=g))
        prompt = sorted({0, *columns[:given].tolist()})
        events = [c for c in columns.tolist() if c not in prompt]
        pad = [width] * 2
        where = places(torch.tensor([prompt + pad]), torch.tensor([events + pad]), width)
        number = [*range(len(prompt)), *range(len(prompt) + 2, width + 4)]  # two columns of padding after the prompt
        none = where.rank.shape[2]
        for k, i, there, rank, right in brute_places(prompt, events):
            assert bool(where.present[0, k, number[i]]) == there
            if not there: continue
            assert int(where.rank[0, k, number[i]]) == rank
            assert int(where.right[0, k, number[i]]) == (none if right == len(prompt + events) else number[right])
        for k in range(len(events)):
            for e in range(k, len(events)):
                there = sorted(c for c in prompt + events[:k] if c < events[e])
                assert int(where.left[0, k, e]) == number[(prompt + events).index(there[-1])]
        assert not where.present[0, :, len(prompt):len(prompt) + 2].any()


def test_distance_classes():
    assert distance_class(torch.arange(-10_000, 10_000)).unique().tolist() == list(range(DISTANCES))
    d = distance_class(torch.arange(-300, 300))
    assert (d.diff() >= 0).all() and d[300] == DISTANCES // 2


def test_order_law():
    "Drawn orders against the product of step probabilities, which sums to 1 over all orders."
    scores = torch.tensor([[9.0, 0.3, -0.7, 1.1, 5.0]])
    free = torch.tensor([[False, True, True, True, False]])
    law = {}
    for order in itertools.permutations([1, 2, 3]):
        s = scores[:, list(order)]
        law[order] = float(step_log_probs(s, torch.ones(1, 3, dtype=torch.bool)).diagonal(dim1=1, dim2=2).sum().exp())
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    drawn = draw_order(scores.expand(20_000, -1), free.expand(20_000, -1), torch.Generator().manual_seed(0))
    counts = [(drawn == torch.tensor(order)).all(1).sum().item() for order in law]
    assert sum(counts) == 20_000
    assert chisquare(counts, [20_000 * p for p in law.values()]).pvalue > 1e-3


def test_certain_orders():
    x = sequences("|abca", "|ab")
    certain = dict(left_to_right=[[1, 2, 3, 4], [1, 2, 5, 5]], right_to_left=[[4, 3, 2, 1], [2, 1, 5, 5]])
    for name, expected in certain.items():
        drawn = model(name).draw(x, 3, torch.Generator().manual_seed(0))
        assert drawn.order.tolist() == expected * 3
        assert drawn.log_q.diagonal(dim1=1, dim2=2).eq(0).all()


def test_merged_law():
    "Runs of equal tokens, from left to right within: a law over fewer orders that sums to 1; drawn orders have it."
    m = model(merge=True)
    x = sequences("|aabbb")
    scores, runs = m.scores(x), runs_of(x)
    law = {}
    for order in itertools.permutations(range(1, 6)):
        o = torch.tensor([order])
        if not torch.equal(left_first(o, runs), o): continue
        drawn = m.in_order(x, prompt_of(x), o, scores)
        law[order] = float(drawn.log_q.detach().diagonal(dim1=1, dim2=2).sum().exp())
    assert len(law) == math.comb(5, 2) and sum(law.values()) == pytest.approx(1, abs=1e-12)
    drawn = m.draw(x, 20_000, torch.Generator().manual_seed(0)).order
    counts = [(drawn == torch.tensor(order)).all(1).sum().item() for order in law]
    assert sum(counts) == 20_000
    assert chisquare(counts, [20_000 * p for p in law.values()]).pvalue > 1e-3


def texts(memory) -> list[tuple]:
    "The sequences that a memory holds, without padding."
    ids = memory.tokens.gather(1, memory.rank.argsort(-1)).tolist()
    return [tuple(t for t in row if t != PAD) for row in ids]


@torch.no_grad()
def generator_law(m: OrderedInsertion, prompt: PartialSequences, most: int) -> dict[tuple, float]:
    """Probabilities of all sequences of at most `most` events, and of () for the rest, by following every event with
    the cache."""
    law, memory, log_p = Counter(), m.read_prompts(prompt), torch.zeros(1)
    for depth in range(most + 1):
        gaps = m.gap_scores(memory).log_softmax(-1)
        for text, p in zip(texts(memory), (log_p + gaps[:, -1]).exp().tolist()): law[text] += p
        row, gap = gaps[:, :-1].isfinite().nonzero(as_tuple=True)
        if depth == most or not len(row): break
        tokens = m.token_logits(memory.rows(row), gap).log_softmax(-1)[:, 3:]
        log_p = ((log_p[row] + gaps[row, gap])[:, None] + tokens).flatten()
        row, gap = (v.repeat_interleave(tokens.shape[1]) for v in (row, gap))
        memory = m.insert(memory.rows(row), gap, torch.arange(3, len(VOCABULARY)).repeat(len(row) // tokens.shape[1]))
    law[()] = float((log_p[row] + gaps[row, gap]).exp().sum()) if len(row) else 0.0
    return law


@torch.no_grad()
def exact_bound(m: OrderedInsertion, x: PartialSequences) -> tuple[float, float]:
    "E_q[-log p(generation) + log q] and -log sum of p(generation), over all orders of one sequence."
    columns = x.free[0].nonzero()[:, 0].tolist()
    orders = torch.tensor(list(itertools.permutations(columns)))
    if m.config.merge: orders = orders[(left_first(orders, runs_of(x).expand(len(orders), -1)) == orders).all(1)]
    many = x.map(lambda v: v.repeat(len(orders), 1))
    drawn = m.in_order(many, prompt_of(x), orders, m.scores(many))
    costs = m.costs(drawn, m.read_prompts(prompt_of(many)))
    q = costs.log_q.sum(-1).exp()
    assert float(q.sum()) == pytest.approx(1, abs=1e-10)
    log_p = costs.log_q.sum(-1) - costs.total
    assert float((q * costs.generator).sum()) == pytest.approx(-float((q * log_p).sum()), abs=1e-10)
    return float((q * costs.total).sum()), float(-log_p.logsumexp(0))


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("text", ["|abc", "|aab", "ab|caa", "|abcb"])
def test_bound_is_above(text, merge):
    "The exact bound lies above -log p(x), which is a sum over all orders; the Rao-Blackwellised cost has its mean."
    m = model(merge=merge)
    x = sequences(text)
    bound, nll = exact_bound(m, x)
    law = generator_law(m, prompt_of(x), int(x.free.sum()))
    truth = -math.log(law[tuple(x.tokens[0].tolist())])
    assert bound >= truth - 1e-12
    if not merge: assert nll == pytest.approx(truth, abs=1e-10)
    assert sum(law.values()) == pytest.approx(1, abs=1e-10)


def test_bound_with_gaps():
    "Infilling: the same, with an open gap between two given tokens; closed gaps take nothing."
    m = model()
    x = with_gaps().rows([0])
    bound, nll = exact_bound(m, x)
    law = generator_law(m, prompt_of(x), 2)
    assert all(t == () or t[:2] == (2, 3) and t[-1] == 6 for t in law)
    assert nll == pytest.approx(-math.log(law[tuple(x.tokens[0].tolist())]), abs=1e-10) and bound > nll


@torch.no_grad()
def posterior(m: OrderedInsertion, x: PartialSequences) -> tuple[list, torch.Tensor]:
    columns = x.free[0].nonzero()[:, 0].tolist()
    orders = torch.tensor(list(itertools.permutations(columns)))
    many = x.map(lambda v: v.repeat(len(orders), 1))
    costs = m.costs(m.in_order(many, prompt_of(x), orders, m.scores(many)), m.read_prompts(prompt_of(many)))
    return orders, (costs.log_q.sum(-1) - costs.total).log_softmax(0)


def test_equality_at_the_optimum():
    "With two free tokens any posterior is Plackett-Luce: at its scores the bound is -log p(x)."
    m = model("uniform")
    x = sequences("|ab")
    orders, log_post = posterior(m, x)
    ratio = float(log_post[0] - log_post[1])  # of column 1 first to column 2 first
    m.scores = lambda x: torch.tensor([[0.0, ratio, 0.0]]).expand(len(x.tokens), -1)
    bound, nll = exact_bound(m, x)
    assert bound == pytest.approx(nll, abs=1e-12) and abs(ratio) > 1e-3
    m.scores = lambda x: torch.zeros(len(x.tokens), 3)
    assert exact_bound(m, x)[0] > nll + 1e-6


@pytest.mark.slow
def test_tight_bound():
    "More orders inside the logarithm: between the bound and -log p(x)."
    m, x, g = model(), sequences("|abc"), torch.Generator().manual_seed(0)
    bound, nll = exact_bound(m, x)
    estimate, error = m.nll_bound(x, 2000, g)
    assert abs(float(estimate - bound)) < 4 * float(error)
    tight = m.tight_bound(x.map(lambda v: v.repeat(200, 1)), 8, g)  # 200 estimates
    assert nll < float(tight.mean()) + 4 * float(tight.std()) / 200**0.5
    assert float(tight.mean()) < bound - 4 * float(tight.std()) / 200**0.5


def all_laws(m: OrderedInsertion, x: PartialSequences, order: torch.Tensor):
    drawn = m.in_order(x, prompt_of(x), order, m.scores(x))
    laws = m.backbone.laws(m.read_prompts(prompt_of(x)), drawn.tokens, drawn.where)
    return laws, drawn


def test_nothing_leaks():
    "What comes later, tokens and places, changes nothing before it: bit for bit."
    m, order = model(), torch.tensor([[3, 1, 4, 2, 5]])
    x, y = sequences("|abcda"), sequences("|abcbd")
    changed = {4: 2, 5: 4}  # columns of other tokens -> moments at which they are inserted
    laws, _ = all_laws(m, x, order)
    other, _ = all_laws(m, y, order)
    first = min(changed.values())
    assert torch.equal(laws.gap[:, :first + 1], other.gap[:, :first + 1])
    assert torch.equal(laws.token[:, :first + 1], other.token[:, :first + 1])
    assert not torch.equal(laws.gap[:, first + 1:], other.gap[:, first + 1:])
    moved, _ = all_laws(m, sequences("|dabcd"), torch.tensor([[4, 2, 1, 5, 3]]))  # c, a, then others elsewhere
    again, _ = all_laws(m, sequences("|abcda"), torch.tensor([[3, 1, 5, 2, 4]]))
    gaps = lambda laws, states, items: laws.gap[:, :states, :items]
    assert torch.equal(gaps(moved, 3, 3), gaps(again, 3, 3)) and torch.equal(moved.token[:, :2], again.token[:, :2])


def test_padding_changes_nothing():
    m = model()
    x = sequences("ab|cd", "abcd|abca", "|b")
    order = draw_order(torch.zeros(x.tokens.shape), x.free, torch.Generator().manual_seed(3))
    together = m.costs(m.in_order(x, prompt_of(x), order, m.scores(x)), m.read_prompts(prompt_of(x)))
    for i in range(3):
        alone, n = x.rows([i]).trim(), int(x.free[i].sum())
        o = order[i:i + 1, :n]
        costs = m.costs(m.in_order(alone, prompt_of(alone), o, m.scores(alone)), m.read_prompts(prompt_of(alone)))
        torch.testing.assert_close(together.total[i:i + 1], costs.total, atol=1e-12, rtol=0)
        torch.testing.assert_close(together.generator[i:i + 1], costs.generator, atol=1e-12, rtol=0)


@pytest.mark.parametrize("neighbours", [True, False])
def test_cached_is_recomputed(neighbours):
    "One event at a time with the cache against the one pass of training."
    m = model(neighbours=neighbours)
    for x in (sequences("ab|cdab", "c|aacb"), with_gaps().rows([0, 0])):
        order = draw_order(torch.zeros(x.tokens.shape), x.free, torch.Generator().manual_seed(1))
        with torch.no_grad():
            laws, drawn = all_laws(m, x, order)
            memory, given = m.read_prompts(prompt_of(x)), drawn.where.prompt
            for k in range(order.shape[1]):
                here = torch.cat([laws.gap[:, k, :given + k], laws.gap[:, k, -1:]], 1)
                torch.testing.assert_close(m.gap_scores(memory).log_softmax(-1), here, atol=1e-12, rtol=0)
                gap, token = drawn.where.gap[:, k], drawn.tokens[:, k]
                torch.testing.assert_close(m.token_logits(memory, gap), m.token(laws.token)[:, k], atol=1e-12, rtol=0)
                memory = m.insert(memory, gap, token)
            torch.testing.assert_close(m.gap_scores(memory).log_softmax(-1), laws.gap[:, -1], atol=1e-12, rtol=0)
            ids = memory.tokens.gather(1, memory.rank.argsort(-1))[:, :x.tokens.shape[1]]
            assert torch.equal(ids, x.tokens)


def test_sampler_has_the_law():
    "Samples against the law by enumeration, chi-square."
    m, n = model(noise=0.3, seed=1), 8_000
    with torch.no_grad():
        m.backbone.pointer.stop.bias += 1.0
        m.token.out.weight *= 0.2  # a flatter law, with more sequences to count
    prompt = collate([parse_prompt(["a"], VOCABULARY)])
    law = generator_law(m, prompt, 3)
    made = draw(m, prompt.map(lambda v: v.repeat(n, 1)), range(n), Limits(9.0, 9, 0, ("place",)))
    known = sorted((t for t, p in law.items() if t and p * n > 8), key=law.get)
    counts = {t: 0 for t in known}
    for s in made.sequences:
        t = (2, *s)
        if t in counts: counts[t] += 1
    expected = [law[t] * n for t in known]
    rest = n - sum(expected)
    assert len(known) >= 20 and rest > 8
    assert chisquare([*counts.values(), n - sum(counts.values())], [*expected, rest]).pvalue > 1e-3


def test_rows_do_not_depend_on_each_other():
    m, limits = model(seed=2), Limits(9.0, 9, 0, ("place",))
    prompts = collate([parse_prompt(list(p), VOCABULARY) for p in ("a", "", "abcd", "ab")])
    together = draw(m, prompts, [5, 6, 7, 8], limits, record=True)
    for i in range(4):
        alone = draw(m, prompts.rows([i]).trim(), [5 + i], limits, record=True)
        assert alone.sequences[0] == together.sequences[i]
        assert alone.trajectories[0].frames == together.trajectories[i].frames


def test_lengths():
    m = model(seed=3)
    prompts = collate([parse_prompt([], VOCABULARY)] * 200)
    made = draw(m, prompts, range(200), Limits(9.0, 6, 4, ("place",)))
    lengths = [len(s) + 1 for s in made.sequences]
    assert min(lengths) >= 4 and max(lengths) <= 6 and made.forced > 0


def gradient(m: OrderedInsertion, loss) -> torch.Tensor:
    found = torch.autograd.grad(loss, list(m.parameters()), allow_unused=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.flatten() for p, g in zip(m.parameters(), found)])


@pytest.mark.parametrize("merge", [False, True])
def test_gradient_is_unbiased(merge):
    "The mean of the surrogate's gradient over all pairs of orders is the gradient of the exact bound."
    m, x = model(merge=merge), sequences("a|bbc")
    columns = x.free[0].nonzero()[:, 0].tolist()
    orders = torch.tensor(list(itertools.permutations(columns)))
    if merge: orders = orders[(left_first(orders, runs_of(x).expand(len(orders), -1)) == orders).all(1)]
    n = len(orders)
    many = x.map(lambda v: v.repeat(n, 1))
    costs = m.costs(m.in_order(many, prompt_of(x), orders, m.scores(many)), m.read_prompts(prompt_of(many)))
    q = costs.log_q.sum(-1).exp()
    exact = gradient(m, (q * costs.total).sum())

    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n)).T  # (2, pairs): two orders of the sequence
    twice = x.map(lambda v: v.repeat(2 * n * n, 1))
    drawn = m.in_order(twice, prompt_of(x), orders[pairs.flatten()], m.scores(twice))
    both = m.costs(drawn, m.read_prompts(prompt_of(twice)))
    weight = q.detach()[pairs].prod(0)
    each = both.generator.unflatten(0, (2, -1)).mean(0) + order_term(both, 2).unflatten(0, (2, -1)).mean(0)
    torch.testing.assert_close(gradient(m, (weight * each).sum()), exact, atol=1e-10, rtol=0)
    assert exact[-50:].abs().max() > 1e-6


@pytest.mark.parametrize("order, orders", [("learned", 2), ("learned", 3), ("uniform", 1), ("left_to_right", 2)])
def test_every_generation_that_is_evaluated_is_counted(order, orders, monkeypatch):
    m, batch, seen = model(order, orders=orders), sequences("|ab", "|abca"), []
    costs = m.costs
    monkeypatch.setattr(m, "costs", lambda drawn, memory: seen.append(costs(drawn, memory)) or seen[-1])
    m.loss(batch, torch.Generator().manual_seed(0))
    assert sum(len(c.generator) for c in seen) == len(batch.tokens) * m.evaluations_per_loss


def test_a_certain_order_is_drawn_once_and_costs_what_two_would():
    m, batch = model("right_to_left", orders=2), sequences("|ab", "|abca")
    assert m.evaluations_per_loss == 1
    once = m.loss(batch, torch.Generator().manual_seed(0))
    scores = m.scores(batch)
    twice = m.loss_in_order(batch, scores, m.draw_orders(batch, scores, 2, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(once, twice)


def test_advantages_are_not_zero():
    "Different orders of a sequence cost differently: learning has something to go by."
    m = model()
    costs = m.all_costs(sequences("|abcd", "|dcba"), 2, torch.Generator().manual_seed(0))
    assert costs.to_go.unflatten(0, (2, -1)).diff(dim=0).abs().max() > 1e-3


# As every method


@pytest.mark.parametrize("order", ["uniform", "left_to_right", "right_to_left", "learned"])
def test_bfloat16_is_near_float32(order):
    torch.set_default_dtype(torch.float32)
    m = model(order).float()
    x = sequences("a|bcd", "|abca")
    with torch.no_grad():
        full = m.loss(x, torch.Generator().manual_seed(0)).metrics["bound"]
        with torch.autocast("cpu", torch.bfloat16): half = m.loss(x, torch.Generator().manual_seed(0)).metrics["bound"]
    assert half.isfinite() and abs(half - full) < 0.05 * abs(full)


def test_what_is_refused():
    m = model("uniform")
    with pytest.raises(ValueError, match="is for methods whose events come at rates"):
        generate(m, n=1, sampler=EventDriven())
    with pytest.raises(ValueError, match="has no clock"): m.intensities(None)
    with pytest.raises(ValueError, match="samples=1: at least 2"): m.nll_bound(sequences("|ab"), 1)
    assert all(v.isfinite().all() for v in m.nll_bound(sequences("|ab"), 2))
    with pytest.raises(ValueError, match="gap_temperature|temperature"): EventByEvent(gap_temperature=-1.0)


def tilted(one, other):
    "The powers 2 and -1 of two distributions, of one row each, multiplied and normalised; 0 stays 0."
    p, q = one.double().softmax(-1), other.double().softmax(-1)
    powers = torch.where(p > 0, p**2 / q, 0.0)
    return (powers / powers.sum())[0]


@torch.no_grad()
def guided_law(m, memories, most, p=1.0) -> Counter:
    "Probability of every sequence of at most `most` events, from two memories: with the condition and without."
    gaps = tilted(*map(m.gap_scores, memories))
    text = memories[0].tokens[0][memories[0].rank[0].argsort()]
    law = Counter({tuple(text.tolist()): p * gaps[-1].item()})
    for gap in gaps[:-1].nonzero()[:, 0] if most else ():
        at = gap[None]
        tokens = (m.token_logits(kept, at)[:, 3:5] for kept in memories)
        for token, share in enumerate(tilted(*tokens).tolist(), 3):
            inserted = [m.insert(kept, at, torch.tensor([token])) for kept in memories]
            law.update(guided_law(m, inserted, most - 1, p * gaps[gap].item() * share))
    return law


def test_guided_samples_have_the_law_of_guided_events():
    "Of every short sequence: the product of the guided distributions of its events, summed over its orders."
    vocabulary = Vocabulary(["a", "b", "<c:1>", "<c:2>", ANY])
    torch.manual_seed(0)
    m = OrderedInsertion(vocabulary, OrderedInsertionConfig(order="uniform", size="test", max_length=9))
    with torch.no_grad():
        for p in m.parameters(): p += 0.3 * torch.randn_like(p) / max(p.shape[-1], 1) ** 0.5
        m.backbone.pointer.stop.bias += 1.0

    prompt = collate([parse_prompt(["<c:1>"], vocabulary)])
    bare = without_conditions(prompt, vocabulary)
    law = guided_law(m, [m.read_prompts(prompt), m.read_prompts(bare)], 3)
    n = 6_000
    made = generate(m, [["<c:1>"]], n, guidance=1.0, seed=0)
    found = Counter((2, *s) for s in made.sequences)
    known = [t for t, p in law.items() if p * n > 8]
    expected, seen = [law[t] * n for t in known], [found[t] for t in known]
    assert len(known) >= 8
    assert chisquare([*seen, n - sum(seen)], [*expected, n - sum(expected)]).pvalue > 1e-3
    assert made.row_evaluations % 2 == 0


def test_conditions_are_never_written():
    "However likely the weights make them."
    vocabulary = Vocabulary(["a", "<c:1>", ANY])
    m = OrderedInsertion(vocabulary, OrderedInsertionConfig(order="uniform", size="test", max_length=9))
    with torch.no_grad(): m.token.out.bias[vocabulary.index["<c:1>"]] = 50.0
    written = {t for s in generate(m, [["<c:1>"]], 50, seed=0).completions() for t in s}
    assert written == {vocabulary.index["a"]}


@pytest.fixture
def in_parts(monkeypatch):
    "Small batches are read in parts too."
    monkeypatch.setattr(ordered_insertion, "FEWEST_COLUMNS", 0)


def of_two_sizes(n: int) -> PartialSequences:
    "By turns a sequence of which nothing is given, and one of which most is."
    return sequences(*["|abcdabcdabcd", "abcdabcdab|cd"] * (n // 2))


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("merge, order", [(False, "learned"), (True, "learned"), (False, "left_to_right")])
def test_a_batch_in_parts_has_the_loss_and_the_gradient_of_the_whole(merge, order):
    m, x = model(order, merge=merge), of_two_sizes(32)
    parts = similar_rows(x)
    assert [len(p) for p in parts] == [16, 16] and sorted(torch.cat(parts).tolist()) == list(range(32))
    events = x.free.sum(-1)
    given = x.lengths - events
    read = lambda rows: columns_read(given[rows].numpy(), events[rows].numpy())
    assert sum(map(read, parts)) <= (1 - SAVED) * read(torch.arange(32))

    def gradient(terms):
        m.zero_grad()
        terms.loss.backward()
        return [p.grad.clone() for p in m.parameters() if p.grad is not None]

    terms = m.loss(x, torch.Generator().manual_seed(0))
    scores = m.scores(x)
    drawn = m.draw_orders(x, scores, m.config.orders, torch.Generator().manual_seed(0))
    whole = m.loss_in_order(x, scores, drawn)
    torch.testing.assert_close(terms.loss, whole.loss)
    torch.testing.assert_close(terms.metrics, whole.metrics)
    torch.testing.assert_close(gradient(terms), gradient(whole))


@pytest.mark.usefixtures("in_parts")
def test_parts_of_unequal_numbers_of_rows_are_weighted_by_them():
    "Of 33 rows: each counts once, whichever part it is read in."
    m, x = model("learned"), sequences(*["|abcdabcdabcd"] * 16, *["abcdabcdab|cd"] * 17)
    assert [len(rows) for rows in similar_rows(x)] == [17, 16]
    terms, scores = m.loss(x, torch.Generator().manual_seed(0)), m.scores(x)
    order = m.draw_orders(x, scores, m.config.orders, torch.Generator().manual_seed(0))
    whole = m.loss_in_order(x, scores, order)
    torch.testing.assert_close(terms.loss, whole.loss, atol=1e-12, rtol=0)
    torch.testing.assert_close(terms.metrics, whole.metrics, atol=1e-12, rtol=0)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("x", [of_two_sizes(30), sequences(*["|abcd"] * 64)], ids=["few rows", "one size"])
def test_a_batch_that_gains_nothing_is_read_at_once(x):
    [rows] = similar_rows(x)
    assert rows.tolist() == list(range(len(x.tokens)))


def test_a_batch_of_few_columns_is_read_at_once():
    "Of two sizes and 4,096 columns it is read in parts, of fewer it is not: columns cost less than calls."
    assert [len(similar_rows(of_two_sizes(n))) for n in (116, 118)] == [1, 2]


def test_places_are_counted_from_both_ends():
    "Of a prompt and the free tokens a b c: 0, 1, 2 from the first of them, and 2, 1, 0 from the last."
    scores = OrderScores(Transformer(len(VOCABULARY), SIZES["test"]), features=2)
    x = sequences("d|abc")
    found = scores.from_ends(x)[0]
    angle = torch.tensor([[0.0, 2], [1, 1], [2, 0]]) * torch.pi  # the period of one feature is 2
    by_hand = torch.stack([angle.cos(), angle.sin()], -1).flatten(1)
    torch.testing.assert_close(found[x.free[0]], by_hand.to(found.dtype), atol=1e-6, rtol=0)
    assert not found[~x.free[0]].any()


@pytest.mark.parametrize("order", ["left_to_right", "right_to_left"])
@pytest.mark.parametrize("merge", [False, True])
def test_a_certain_order_has_the_loss_and_the_gradient_of_its_whole_table(order, merge, monkeypatch):
    "Bit for bit, with many events, one and none; with merged neighbours to the last digits, as probabilities add up."
    m, found = model(order, orders=1, merge=merge), []
    def noted():
        m.zero_grad()
        drawn = m.draw(x1, 2, torch.Generator().manual_seed(0))
        terms = m.loss(x1, torch.Generator().manual_seed(0))
        terms.loss.backward()
        found.append([terms.loss.detach(), *terms.metrics.values(), *(p.grad for p in m.parameters())])
        return drawn.log_q.shape
    for x1 in (sequences("ab|cdabb", "c|", "|bb"), sequences("a|b"), sequences("ab|", "|")):
        events = int(x1.free.sum(-1).max())
        assert noted() == (2 * len(x1.tokens), events, 1)
        with monkeypatch.context() as patch:
            patch.setattr(OrderedInsertionConfig, "certain", False)
            assert noted() == (2 * len(x1.tokens), events, events)
        if not merge: assert all(map(torch.equal, *found[-2:]))
        for own, other in zip(*found[-2:]): torch.testing.assert_close(own, other, atol=1e-12, rtol=0)
