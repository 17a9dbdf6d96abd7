"Planners against a slow enumeration written for the tests alone, and through the protocol of all samplers."
import math
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.planner_bounds import greedy_bound, planner_bound
from loflexmdm.methods.sampling import generate
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import BOS, MASK, PAD, SPECIAL_TOKENS, PartialSequences, Vocabulary
from loflexmdm.samplers import GREEDY, SOFT, EventDriven, Info, Limits, Planner, State
from loflexmdm.samplers import merge_samples, simulate

L = 3
STATES = list(product((None, 0, 1), repeat=L))
OUTCOMES = list(product((0, 1), repeat=L))


class Table(Method):
    "Random token laws for every partial sequence of three positions and two tokens, at clean positions too."
    channels = ("unmask",)
    tau_max = 9.0

    def __init__(self, seed):
        super().__init__(Vocabulary("ab"), None)
        laws = (
            torch.rand(len(STATES), L, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) ** 3
            + 0.02
        )
        self.laws = torch.nn.Parameter(laws / laws.sum(-1, keepdim=True), requires_grad=False)

    def law(self, x): return self.laws[STATES.index(tuple(x))]

    def at(self, x, tau):
        logits = torch.zeros(*x.tokens.shape, 5, dtype=torch.float64)
        for row, tokens in enumerate(x.tokens[:, 1:].tolist()):
            logits[row, 1:, 3:] = self.law([None if v == MASK else v - 3 for v in tokens]).log()
        return Intensities(None, x.masked.double(), logits)


def ranked(scores, open_positions, n, softness):
    """Sets of n positions with their probabilities: the best (leftmost of equals), or one by one in
    proportion to score^(1/softness)."""
    if not n: return {frozenset(): 1.0}
    if not softness:
        best = max(open_positions, key=lambda i: (scores[i], -i))
        return {s | {best}: p for s, p in ranked(scores, open_positions - {best}, n - 1, 0).items()}
    total, found = sum(scores[i] ** (1 / softness) for i in open_positions), {}
    for i in open_positions:
        for s, p in ranked(scores, open_positions - {i}, n - 1, softness).items():
            found[s | {i}] = found.get(s | {i}, 0) + p * scores[i] ** (1 / softness) / total
    return found


def choices(planner, d, x, z):
    "The planner's law on the sets that are clean after the next step."
    clean = {i for i in range(L) if x[i] is not None}
    steps = planner.steps or L
    due = next(n for n in (math.floor(L * s / steps + 0.5) for s in range(1, steps + 1)) if n > len(clean))
    scores = {
        None: [1.0] * L, "sampled": [d[i][z[i]] for i in range(L)],
        "top_prob": [max(v) for v in d], "leftmost": [-i for i in range(L)],
    }[planner.confidence]
    soft = planner.softness or (1.0 if planner.confidence is None else 0.0)
    if planner.remask is None:
        return {s | clean: p for s, p in ranked(scores, set(range(L)) - clean, due - len(clean), soft).items()}
    return ranked([s * (1 if i in clean else planner.remask) for i, s in enumerate(scores)], set(range(L)), due, soft)


def enumerated(table, planner):
    "The exact law of what the planner's sampler ends with."
    @cache
    def run(x):
        if None not in x: return {x: 1.0}
        out, d = {}, table.law(x).tolist()
        for z in product(*([0, 1] if v is None else [v] for v in x)):
            chance = math.prod(d[i][z[i]] for i in range(L) if x[i] is None)
            for chosen, p in choices(planner, d, x, z).items():
                for end, q in run(tuple(z[i] if i in chosen else None for i in range(L))).items():
                    out[end] = out.get(end, 0) + chance * p * q
        return out
    law = run((None,) * L)
    return torch.tensor([law.get(z, 0.0) for z in OUTCOMES], dtype=torch.float64)


def slow_bound(table, planner, x0):
    "-(E1 + E2) of a deterministic planner, F by summing over everything that could have been drawn."
    x, total = (None,) * L, 0.0
    while None in x:
        d = table.law(x).tolist()
        (chosen,) = choices(planner, d, x, x0)
        f = sum(
            math.prod(d[i][z[i]] for i in range(L) if x[i] is None)
            for z in product(*([0, 1] if v is None else [v] for v in x))
            if chosen in choices(planner, d, x, [x0[i] if i in chosen else z[i] for i in range(L)])
        )
        total -= sum(math.log(d[i][x0[i]]) for i in chosen if x[i] is None) + math.log(f)
        x = tuple(x0[i] if i in chosen else None for i in range(L))
    return total


def slow_soft_bound(table, tau, x0, x=(None,) * L):
    "-(E1 + E2) of soft greedy with the expectation outside the logarithm (Cor A.9), from x on."
    if None not in x: return 0.0
    d, masks, total = table.law(x).tolist(), [i for i in range(L) if x[i] is None], 0.0
    norm = lambda z: sum(d[i][z[i]] ** (1 / tau) for i in masks)
    put = lambda z, i: tuple(x0[i] if j == i else z[j] for j in range(L))
    for i in masks:
        drawn = [z for z in product(*([0, 1] if v is None else [v] for v in x))]
        other = sum(math.prod(d[j][z[j]] for j in masks) * math.log(norm(put(z, i))) for z in drawn)
        step = other - math.log(norm(x0)) - math.log(d[i][x0[i]])
        total += d[i][x0[i]] ** (1 / tau) / norm(x0) * (step + slow_soft_bound(table, tau, x0, put(x, i)))
    return total


def empty(n, length=L):
    tokens = torch.full((n, length + 1), MASK).index_fill(1, torch.tensor(0), BOS)
    return PartialSequences(tokens, tokens == BOS, torch.ones_like(tokens) > 0)


def outcomes(): return empty(8)._replace(tokens=torch.tensor([[BOS, *(v + 3 for v in z)] for z in OUTCOMES]))


PLANNERS = {
    "uniform": Planner(),
    "greedy": GREEDY,
    "soft": Planner(confidence="sampled", softness=0.6),
    "top": Planner(confidence="top_prob"),
    "left": Planner(confidence="leftmost"),
    "two steps": Planner(confidence="sampled", steps=2),
    "soft, two steps": Planner(confidence="sampled", softness=1.0, steps=2),
    "uniform, two steps": Planner(steps=2),
    "one step": Planner(steps=1),
    "rdm": Planner(remask=1.0),
    "p2": Planner(remask=3.0),
    "soft p2": Planner(remask=3.0, softness=0.4),
}
every_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)


@every_planner
def test_samples_have_the_exact_law(planner):
    table, n = Table(1), 2000
    seeds = torch.randint(2**62, (n,), generator=torch.Generator().manual_seed(5)).tolist()
    samples = simulate(table, empty(n), planner, seeds, Limits(9.0, 4))
    p = enumerated(table, planner)
    torch.testing.assert_close(p.sum(), torch.tensor(1.0, dtype=torch.float64))
    counts = torch.bincount(
        torch.tensor([OUTCOMES.index(tuple(t - 3 for t in s)) for s in samples.sequences]), minlength=8
    )
    often = n * p > 5
    assert ((counts / n - p) / (p * (1 - p) / n).sqrt())[often].abs().max() < 4.5
    assert samples.network_calls == (planner.steps or L)


def test_frozen_events_have_the_planners_law():
    "The event-driven sampler with the same position rule: the law of the planner, at random times."
    table, n = Table(2), 2000
    for event, planner in (
        (EventDriven(exact=False), Planner()),
        (EventDriven(exact=False, confidence="sampled"), GREEDY),
    ):
        samples = simulate(table, empty(n), event, range(n), Limits(12.0, 4))
        counts, p = (
            torch.bincount(
                torch.tensor([OUTCOMES.index(tuple(t - 3 for t in s)) for s in samples.sequences]), minlength=8
            ),
            enumerated(table, planner),
        )
        assert ((counts / n - p) / (p * (1 - p) / n).sqrt())[n * p > 5].abs().max() < 4.5


def test_small_eta_is_greedy():
    table = Table(3)
    torch.testing.assert_close(enumerated(table, Planner(remask=1e-9)), enumerated(table, GREEDY))
    a, b = (
        simulate(table, empty(50), p, range(50), Limits(9.0, 4)).sequences
        for p in (Planner(remask=1e-9), GREEDY)
    )
    assert a == b


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["top", "left"])
def test_the_likelihood_of_blind_rules_is_exact(name, seed):
    table = Table(seed)
    torch.testing.assert_close(
        greedy_bound(table, outcomes(), PLANNERS[name]).tight, -enumerated(table, PLANNERS[name]).log()
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["greedy", "two steps", "rdm", "p2"])
def test_greedy_bounds_are_bounds(name, seed):
    table = Table(seed)
    nll, (tight, loose) = -enumerated(table, PLANNERS[name]).log(), greedy_bound(table, outcomes(), PLANNERS[name])
    assert (nll <= tight + 1e-9).all() and (tight <= loose + 1e-9).all() and (tight < loose - 1e-6).any()
    torch.testing.assert_close(
        tight, torch.tensor([slow_bound(table, PLANNERS[name], x0) for x0 in OUTCOMES], dtype=torch.float64)
    )


@pytest.mark.parametrize("name", ["greedy", "two steps", "rdm"])
def test_ties_are_broken_alike_in_sampler_and_bound(name):
    "All laws equal, so that scores often are: the leftmost wins."
    table = Table(0)
    table.laws.data[:] = torch.tensor([0.25, 0.75])
    torch.testing.assert_close(
        greedy_bound(table, outcomes(), PLANNERS[name]).tight,
        torch.tensor([slow_bound(table, PLANNERS[name], x0) for x0 in OUTCOMES], dtype=torch.float64),
    )


def test_the_papers_example():
    "c = 1/4, 1/2, 1/4, 1/2: greedy reaches (1, 1) with 1/32, and both bounds are tight."
    table = Table(0)
    table.laws.data.fill_(0.5)
    for x, i, p in (((None, None, 0), 0, 0.25), ((None, 0, 0), 0, 0.25)):
        table.laws.data[STATES.index(x), i] = torch.tensor([p, 1 - p])
    x1 = empty(1)._replace(tokens=torch.tensor([[BOS, 3, 3, 3]]), fixed=torch.tensor([[True, False, False, True]]))
    tight, loose = greedy_bound(table, x1)
    torch.testing.assert_close(torch.cat([tight, loose]), torch.full((2,), math.log(32), dtype=torch.float64))


def test_random_rules_have_bounds():
    table, many = Table(4), outcomes().map(lambda v: None if v is None else v.repeat(100, 1))
    for planner in (Planner(), SOFT):
        means = [
            planner_bound(table, many, planner, 2, draws, torch.Generator().manual_seed(0))[0].unflatten(0, (100, 8))
            for draws in (1, 8)
        ]
        nll = -enumerated(table, planner).log()
        for values in means: assert ((values.mean(0) - nll) / (values.std(0) / 10 + 1e-12) > -4.5).all()
        if planner == SOFT:
            exact = torch.tensor([slow_soft_bound(table, 1.0, x0) for x0 in OUTCOMES], dtype=torch.float64)
            assert ((means[0].mean(0) - exact) / (means[0].std(0) / 10)).abs().max() < 4.5
            assert means[1].mean() < means[0].mean()


# --- the protocol, on a model that pushes for whatever must not happen

ABCD = Vocabulary("abcd")
LIMITS = Limits(tau_max=9.0, max_length=9)
RULES = {
    "uniform": Planner(),
    "greedy": GREEDY,
    "three steps": Planner(steps=3, confidence="entropy", top_p=0.7, temperature=0.8),
    "soft": Planner(confidence="sampled", softness=2.0, steps=2),
    "window": Planner(confidence="top_prob", window=2),
    "rdm": Planner(remask=1.0),
    "p2, two steps": Planner(remask=5.0, steps=2),
    "soft p2": Planner(remask=1.0, softness=1.0),
    "p2, window": Planner(remask=2.0, window=1),
}
every_rule = pytest.mark.parametrize("planner", RULES.values(), ids=RULES)


def pushy(x, tau):
    "Clean tokens that look bad the longer they stand, NaN in padding, special tokens far likelier than ordinary ones."
    logits = torch.sin(
        torch.arange(7.0) * (torch.arange(x.tokens.shape[1])[:, None] + 1) + x.tokens.sum(-1)[:, None, None]
    )
    logits = (
        logits
        + 3 * tau[:, None, None] * torch.sin(torch.arange(7.0) + x.tokens[..., None])
        + torch.tensor([90.0, 80.0, 70.0, 0, 0, 0, 0])
    )
    return Intensities(None, torch.where(x.valid, 1.0, torch.nan), torch.where(x.valid[..., None], logits, torch.nan))


def canvases():
    "Masks between, before and after fixed tokens, in rows of different lengths."
    rows = [
        [BOS, MASK, MASK, MASK],
        [BOS, 3, MASK, MASK, 4, MASK, MASK, MASK],
        [BOS, MASK, MASK, MASK, MASK, 5, 6, 3],
        [BOS, 4, 4, MASK, MASK, MASK, MASK, MASK, MASK],
    ]
    tokens = torch.tensor([r + [PAD] * (9 - len(r)) for r in rows])
    return PartialSequences(tokens, (tokens != MASK) & (tokens != PAD), torch.ones_like(tokens) > 0)


def run(planner, rows=slice(None), seeds=range(4), **kwargs):
    return simulate(pushy, canvases().rows(rows).trim(), planner, list(seeds), LIMITS, **kwargs)


@every_rule
def test_protocol(planner):
    start = canvases()
    state = planner.init(start, [torch.Generator().manual_seed(i) for i in range(4)], LIMITS)
    total, steps = start.masked.sum(-1), planner.steps or int(start.masked.sum(-1).max())
    for s in range(1, steps + 1):
        before, (state, info) = state, planner.step(pushy, state)
        assert isinstance(state, State)
        assert isinstance(info, Info)
        assert all(v.shape == (4,) and v.dtype == torch.int64 and not v.any() for v in info[:3])
        assert (state.tau >= before.tau).all() and (state.tau <= LIMITS.tau_max).all() and state.x.origin is None
        assert ((state.unmasked_at.isnan() == state.x.masked) | ~state.x.valid).all()
        assert not state.inserted_at[state.x.valid].any()
        clean = (state.x.free & ~state.x.masked).sum(-1)
        share = (
            torch.floor(total * s / planner.steps + 0.5) if planner.steps else torch.full((4,), float(s)).minimum(total)
        )
        assert clean.tolist() == share.long().tolist()
        assert (state.x.tokens == start.tokens)[start.fixed | ~start.valid].all()
        assert (state.x.tokens[start.free & ~state.x.masked] >= len(SPECIAL_TOKENS)).all()
    assert state.done.all() and not state.x.masked.any()


def test_every_step_is_planned_and_rounded_half_up():
    for n, steps in ((length, steps) for length in range(1, 13) for steps in range(1, length + 1)):
        seen, x = [0], empty(1, n)
        while seen[-1] < n:
            seen.append(
                int(
                    Planner(steps=steps).due(
                        x._replace(tokens=torch.where(torch.arange(n + 1) <= seen[-1], BOS, x.tokens))
                    )
                )
            )
        assert seen == [math.floor(n * s / steps + 0.5) for s in range(steps + 1)]


@every_rule
def test_rows_do_not_depend_on_the_batch(planner):
    together = run(planner, record=True)
    apart = merge_samples([run(planner, slice(i, i + 1), [i], record=True) for i in range(4)])
    assert together.sequences == apart.sequences == run(planner, [3, 2, 1, 0], [3, 2, 1, 0]).sequences[::-1]
    assert together.trajectories == apart.trajectories and together.row_evaluations == apart.row_evaluations
    assert run(planner, seeds=range(10, 14)).sequences != together.sequences


def test_remasking_happens_and_masks_keep_no_time():
    takes_back = lambda planner: sum(
        b == MASK != a
        for t in run(planner, record=True).trajectories
        for (_, f), (_, g) in zip(t.frames, t.frames[1:])
        for a, b in zip(f, g)
    )
    assert takes_back(RULES["rdm"]) > 0 and takes_back(Planner(remask=1e-9)) == takes_back(GREEDY) == 0
    for t in run(RULES["rdm"], record=True).trajectories:
        assert not any(math.isnan(v) for v in t.unmasked_at) and max(t.unmasked_at) <= LIMITS.tau_max


def test_the_window_moves_from_left_to_right():
    for t in run(Planner(confidence="top_prob", window=1), record=True).trajectories:
        for _, tokens in t.frames:
            assert MASK not in tokens or all(
                v == MASK or fixed
                for v, fixed in zip(tokens[tokens.index(MASK) :], [s == 0 for s in t.unmasked_at][tokens.index(MASK) :])
            )


@every_rule
def test_complete_rows_cost_nothing(planner):
    x = canvases()
    samples = simulate(
        pushy, x._replace(tokens=torch.where(x.masked, 5, x.tokens), fixed=x.valid), planner, range(4), LIMITS
    )
    assert samples.network_calls == 0 and not any(map(any, samples.free))


def test_the_hook_reaches_every_token():
    only_d = lambda logits, x, tau: torch.full_like(logits, -torch.inf).index_fill(-1, torch.tensor([0, 6]), 0.0)
    for planner in (GREEDY, RULES["rdm"]):
        assert {t for s in run(replace(planner, logits_hook=only_d)).completions() for t in s} == {6}


def test_no_token_left_is_refused():
    with pytest.raises(ValueError, match="logits"):
        simulate(
            lambda x, tau: pushy(x, tau)._replace(logits=torch.full((*x.tokens.shape, 7), -torch.inf)),
            canvases(),
            GREEDY,
            range(4),
            LIMITS,
        )


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(remask=0.0), dict(remask=-1.0), dict(remask=math.nan), dict(remask=math.inf), dict(steps=0),
        dict(steps=-2), dict(steps=1.5), dict(steps=math.nan), dict(softness=-1.0, confidence="sampled"),
        dict(softness=1.0), dict(confidence="entropy", remask=1.0), dict(confidence="best"),
        dict(window=0, confidence="sampled"), dict(top_p=0.0), dict(temperature=-1.0),
    ],
)
def test_settings_are_checked(kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))): Planner(**kwargs)


def test_starts_are_checked():
    for planner, what in (
        (Planner(steps=4), "steps=4"),
        (Planner(confidence="sampled", steps=2, window=2), "window=2"),
    ):
        with pytest.raises(ValueError, match=what): run(planner)
    with pytest.raises(ValueError, match="open gap"):
        simulate(pushy, canvases()._replace(closed=canvases().fixed), Planner(), range(4), LIMITS)


def test_bounds_are_checked():
    table, x1 = Table(0), outcomes()
    inserting = LoFlexMDM(ABCD, LoFlexMDMConfig(size="nano", order="fixed", states=1, max_length=8))
    for call, what in [
        (lambda: greedy_bound(table, x1, SOFT), "planner_bound"),
        (lambda: greedy_bound(table, x1, Planner()), "planner_bound"),
        (lambda: planner_bound(table, x1, GREEDY), "greedy_bound"),
        (lambda: planner_bound(table, x1, Planner(steps=2)), "steps"),
        (lambda: planner_bound(table, x1, Planner(remask=1.0, softness=1.0)), "remask"),
        (lambda: planner_bound(table, x1, samples=1), "samples=1"),
        (lambda: planner_bound(table, x1, draws=0), "draws=0"),
        (lambda: greedy_bound(inserting, x1), "only unmask"),
        (lambda: greedy_bound(table, empty(2)), "clean"),
        (lambda: greedy_bound(table, x1, EventDriven()), "Planner"),
        (lambda: generate(inserting, n=1, sampler=Planner()), "is for masked diffusion"),
    ]:
        with pytest.raises(ValueError, match=what): call()


def test_with_a_network():
    "Through Method.sample, with prompts, whatever the batch size; and the bounds, in the same order of steps."
    torch.manual_seed(0)
    model = MaskedDiffusion(ABCD, MaskedConfig(size="nano", max_length=8))
    for p in model.parameters(): torch.nn.init.normal_(p, std=0.2)
    draw = lambda batch_size: generate(
            model,
        [["a", "<mask>", "b", ...], ["d"]], n=3, sampler=Planner(remask=2.0, steps=3),
        generator=torch.Generator().manual_seed(0), batch_size=batch_size, max_length=8,
    )
    samples = draw(512)
    assert samples.sequences == draw(2).sequences and samples.network_calls == 3
    assert all(s[0] == 3 and s[2] == 4 for s in samples.sequences[:3]) and all(s[0] == 6 for s in samples.sequences[3:])
    x1 = model.canvas(
        PartialSequences(
            torch.tensor([[BOS, 3, 4, 5]]), torch.tensor([[True, False, False, False]]), torch.zeros(1, 4) > 0
        )
    )
    tight, loose = greedy_bound(model, x1)
    assert tight.isfinite().all() and (tight <= loose).all()
