"Insertion language models against enumeration, in float64: states, costs, the bound, what they generate."
import itertools
import math
from collections import Counter

import pytest
import torch
from ordered_models import VOCABULARY, sequences, with_noise
from scipy.stats import chisquare

from loflexmdm.methods.insertion_lm import EventLaws, InsertionLM, InsertionLMConfig, drop_even, with_tokens
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import CLEAN, DROPPED, PAD, Example, PartialSequences, collate, contract, gap_of
from loflexmdm.samplers import EventDriven

pytestmark = pytest.mark.usefixtures("two_blocks")


def model(seed=0, noise=0.5, **options) -> InsertionLM:
    "A model in float64 with random weights everywhere."
    torch.manual_seed(seed)
    return with_noise(InsertionLM(VOCABULARY, InsertionLMConfig(size="test", max_length=9, **options)), noise)


def with_gap() -> PartialSequences:
    "'a' and 'd' given with an open gap between them in which 'bc' is missing; nothing may come after 'd'."
    return collate([Example([2, 3, 4, 5, 6], [True, True, False, False, True], [True, False, False, False, True])])


def all_states(x1: PartialSequences):
    "Every state of one clean sequence, and its probability in training."
    columns = x1.free[0].nonzero()[:, 0].tolist()
    n = len(columns)
    for here in itertools.product((DROPPED, CLEAN), repeat=n):
        state = torch.full_like(x1.tokens, CLEAN)
        state[0, columns] = torch.tensor(here, dtype=torch.long)
        yield state, 1 / (n + 1) / math.comb(n, here.count(DROPPED))


@torch.no_grad()
def followed(m: InsertionLM, x1: PartialSequences, order) -> torch.Tensor:
    "-log p of the generation that inserts columns of one clean sequence in an order, as the sampler asks for it."
    state = torch.where(x1.free, DROPPED, CLEAN)
    memory, total = m.read_prompts(contract(x1, state)), torch.zeros(())
    for column in order:
        gap, token = gap_of(x1, state)[:, column], x1.tokens[:, column]
        total = total - m.gap_scores(memory)[0, gap] - m.token_logits(memory, gap)[0, token]
        memory = m.insert(memory, gap, token)
        state[:, column] = CLEAN
    assert torch.equal(memory.tokens, x1.tokens)
    return total - m.gap_scores(memory)[:, -1]


@torch.no_grad()
def generator_law(m: InsertionLM, prompt: PartialSequences, most: int) -> Counter:
    "Probabilities of all sequences of at most `most` events, and of () for the rest."
    law, memory, log_p = Counter(), m.read_prompts(prompt), torch.zeros(1)
    for depth in range(most + 1):
        scores = m.gap_scores(memory)
        assert scores.logsumexp(-1).abs().max() < 1e-12
        for text, p in zip(memory.tokens.tolist(), (log_p + scores[:, -1]).exp().tolist()):
            law[tuple(t for t in text if t != PAD)] += p
        row, gap = scores[:, :-1].isfinite().nonzero(as_tuple=True)
        if depth == most or not len(row): break
        tokens = m.token_logits(memory.rows(row), gap)[:, 3:]
        log_p = ((log_p[row] + scores[row, gap])[:, None] + tokens).flatten()
        row, gap = (v.repeat_interleave(tokens.shape[1]) for v in (row, gap))
        memory = m.insert(memory.rows(row), gap, torch.arange(3, len(VOCABULARY)).repeat(len(row) // tokens.shape[1]))
    law[()] = float((log_p[row] + scores[row, gap]).exp().sum()) if len(row) else 0.0
    return law


@pytest.mark.parametrize("x1", [sequences("|abc"), sequences("|aab"), sequences("ab|caa"), sequences("|"), with_gap()])
@torch.no_grad()
def test_costs_are_those_of_uniform_orders(x1):
    "(n + 1) E[cost] - log n! by states, and the mean over all orders; not below -log p, which is a sum over orders."
    m, n = model(), int(x1.free.sum())
    by_states = (n + 1) * sum(p * m.costs(x1, state).item() for state, p in all_states(x1)) - math.lgamma(n + 1)
    runs = torch.stack([followed(m, x1, o) for o in itertools.permutations(x1.free[0].nonzero()[:, 0].tolist())])
    assert by_states == pytest.approx(float(runs.mean()) - math.lgamma(n + 1), abs=1e-10)
    state = torch.where(x1.free, DROPPED, CLEAN)
    law = generator_law(m, contract(x1, state), n)
    assert sum(law.values()) == pytest.approx(1, abs=1e-10)
    truth = -math.log(law[tuple(x1.tokens[0].tolist())])
    assert truth == pytest.approx(-float((-runs).logsumexp(0)), abs=1e-10) and by_states > truth - 1e-10


def test_drawn_states():
    "All 8 states of three free tokens after a given one, chi-square; the given one stays."
    x = sequences("d|abc").map(lambda v: v.repeat(16_000, 1))
    state = drop_even(x, torch.Generator().manual_seed(0))
    assert (state[:, :2] == CLEAN).all()
    counts = Counter(map(tuple, state[:, 2:].tolist()))
    expected = {tuple(s[0, 2:].tolist()): 16_000 * p for s, p in all_states(sequences("d|abc"))}
    found = [counts[s] for s in expected]
    assert sum(found) == 16_000 and chisquare(found, list(expected.values())).pvalue > 1e-3


def test_loss_is_the_mean_cost():
    "Both weights, from the same states; the logged bound is the same."
    x = sequences("|abc", "ab|", "a|bd")
    n, cost = x.free.sum(-1), model().costs(x, drop_even(x, torch.Generator().manual_seed(3)))
    published, bound = (model(weight=w).loss(x, torch.Generator().manual_seed(3)) for w in ("published", "bound"))
    torch.testing.assert_close(published.loss, cost.mean(), atol=1e-12, rtol=0)
    torch.testing.assert_close(bound.loss, ((n + 1) * cost).mean(), atol=1e-12, rtol=0)
    assert published.metrics["bound"] == bound.metrics["bound"]


def test_padding_changes_nothing():
    m, x = model(), sequences("ab|cd", "abcd|abca", "|b", "ab|")
    state = drop_even(x, torch.Generator().manual_seed(1))
    together = m.costs(x, state)
    for i in range(4):
        alone = x.rows([i]).trim()
        torch.testing.assert_close(m.costs(alone, state[i:i + 1, :alone.tokens.shape[1]]), together[i:i + 1])


@pytest.mark.slow
def test_sampled_bound():
    m, x = model(), sequences("|abc")
    exact = 4 * sum(p * m.costs(x, state).item() for state, p in all_states(x)) - math.lgamma(4)
    value, error = m.nll_bound(x, 3_000, torch.Generator().manual_seed(0))
    assert abs(value.item() - exact) < 4 * error.item()
    with pytest.raises(ValueError, match="samples=1: at least 2"): m.nll_bound(x, 1)


def test_samples_have_the_law():
    m, n = model(noise=0.3, seed=1), 8_000
    with torch.no_grad():
        m.end.bias += 1.5
        m.insert_token.out.weight *= 0.2
    law = generator_law(m, contract(sequences("a|"), torch.full((1, 2), CLEAN)), 3)
    made = Counter((2, *s) for s in generate(m, [["a"]], n=n, seed=0).sequences)
    known = [t for t, p in law.items() if t and p * n > 8]
    rest = lambda counts: [*counts, n - sum(counts)]
    assert len(known) >= 20
    assert chisquare(rest([made[t] for t in known]), rest([law[t] * n for t in known])).pvalue > 1e-3


def test_the_end_at_a_threshold():
    "The end comes where its probability is at least `stop_at`, and nowhere else, but for the lengths asked for."
    m = model(noise=0.3, seed=1, stop_at=0.5)
    with torch.no_grad(): m.end.weight += 2 * torch.randn_like(m.end.weight)
    made = generate(m, [["a"]], n=50, seed=0)
    for text in made.sequences:
        x = collate([Example([2, *text], [True] * (len(text) + 1), [False] * (len(text) + 1))])
        assert len(text) == 8 or m.laws(x).stop.exp().item() >= 0.5
    longer = generate(m, [["a"]], n=50, seed=0, min_length=6)
    assert min(map(len, longer.sequences)) >= 5


def test_closed_gaps():
    "Nothing is inserted into closed gaps; where none is open the sequence is complete."
    x = collate([Example([2, 3], [True] * 2, [True] * 2), Example([2, 3], [True] * 2, [True, False])])
    laws = model().laws(x)
    assert laws.stop[0] == 0 and laws.go[0] == -torch.inf and laws.gap[1].tolist() == [-torch.inf, 0.0]
    assert with_tokens(x, torch.tensor([0, 1]), torch.tensor([4, 4])).tokens.tolist() == [[2, 3, 0], [2, 3, 4]]
    assert isinstance(laws, EventLaws)
    assert {s[0] for s in generate(model(), [["a", ..., "b"]], n=20, seed=0).sequences} == {3}
    assert {s[-1] for s in generate(model(), [["a", ..., "b"]], n=20, seed=0).sequences} == {4}


def test_bfloat16_is_near_float32():
    m, x = model().float(), sequences("a|bcd", "|abca")
    with torch.no_grad():
        full = m.loss(x, torch.Generator().manual_seed(0)).loss
        with torch.autocast("cpu", torch.bfloat16): half = m.loss(x, torch.Generator().manual_seed(0)).loss
    assert half.isfinite() and abs(half - full) < 0.05 * abs(full)


@pytest.mark.parametrize("options, message", [
    (dict(weight="even"), "weight='even'"), (dict(stop_at=2.0), "stop_at=2.0"), (dict(size="huge"), "size='huge'"),
    (dict(network="mlp"), "network='mlp'"), (dict(max_length=1), "max_length=1"),
])
def test_refused_settings(options, message):
    with pytest.raises(ValueError, match=message): InsertionLMConfig(**options)


def test_what_is_refused():
    with pytest.raises(ValueError, match="ilm takes EventByEvent"): generate(model(), n=1, sampler=EventDriven())
    with pytest.raises(ValueError, match="ilm has no clock"): model().intensities(None)


@torch.no_grad()
def test_the_bound_is_of_drawn_states():
    "(n + 1) times the cost of each, without the number of orders; the same random numbers give the same states."
    m, x1 = model(), sequences("|abc", "ab|d")
    mean, error = m.nll_bound(x1, 3, torch.Generator().manual_seed(2))
    g = torch.Generator().manual_seed(2)
    costs = torch.stack([m.costs(x1, drop_even(x1, g)) for _ in range(3)])
    n = torch.tensor([3.0, 1.0]).double()
    values = (n + 1) * costs - (n + 1).lgamma()
    torch.testing.assert_close(mean, values.mean(0))
    torch.testing.assert_close(error, values.std(0) / 3 ** .5)
    with pytest.raises(ValueError, match="samples=1"): m.nll_bound(x1, 1)
