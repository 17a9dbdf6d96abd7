"Bounded error: what a check counts and makes up for, what it costs, what is carried and what is refused."
import math
from itertools import product

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, as_batch, compare
from loflexmdm.process.intensities import Intensities, TokenLaws
from loflexmdm.process.states import BOS, MASK, PartialSequences
from loflexmdm.samplers import bounded_error
from loflexmdm.samplers import BoundedError, EventDriven, Limits, measured_bound, simulate
from loflexmdm.samplers.bounded_error import Held, Plan, beyond_room, after_events, lowest_rate
from loflexmdm.samplers.bounded_error import plan_leap
from loflexmdm.samplers.bounded_error import row_total, with_missing_laws
from loflexmdm.support.registries import SAMPLERS

MASKS_ONLY = ("unmask",)


def masks(n, length):
    "Rows of masks between closed gaps."
    tokens = torch.tensor([[BOS] + [MASK] * length]).repeat(n, 1)
    return PartialSequences(tokens, tokens == BOS, torch.ones_like(tokens, dtype=torch.bool))


def constant(x, tau):
    "Every mask is resolved at rate 1, `a` three times as often as `b`."
    logits = torch.tensor([0, 0, 0, 3.0, 1.0]).log()
    return Intensities(unmask=x.masked.double(), logits=logits.expand(*x.tokens.shape, 5))


def gaps(x, tau):
    "Fixed tokens; each gap between them takes one token or none, independently, with probability 1/2."
    taken = torch.nn.functional.pad((x.valid & ~x.fixed)[:, 1:], (0, 1))
    rate = (torch.exp(-tau) / (1 + torch.exp(-tau)))[:, None]
    return Intensities(rate * (x.open & x.fixed & ~taken), x.masked.double(), torch.zeros(*x.tokens.shape, 5))


def gaps_between(n, tokens=19):
    "Rows of fixed tokens with open gaps."
    x = torch.tensor([[BOS] + [3] * tokens]).repeat(n, 1)
    return PartialSequences(x, x > 0, x < 0)


def tokens_in(x, tau):
    "Tokens without masks: three of them, each `a` or `b`, wherever they come."
    k = x.lengths - 1
    return Intensities(insert=((3 - k).clamp_min(0) / (k + 1))[:, None] * x.open,
                       insert_logits=torch.zeros(*x.tokens.shape, 5))


def switching(x, tau):
    "A mask of rate 1 that becomes `a` before the clock reads 1, and `b` from then on."
    late = (tau > 1)[:, None, None]
    logits = torch.where(late, torch.tensor([0, 0, 0, 0, 1.0]), torch.tensor([0, 0, 0, 1.0, 0])).log()
    return Intensities(unmask=x.masked.double(), logits=logits.expand(*x.tokens.shape, 5))


class Everything(BoundedError):
    "Holds all rates, at two checks per event."
    def leap(self, out, rates, caught_up, held, state, u):
        often = 2 * row_total(rates)
        wait = torch.where(often > 0, -torch.log(u) / often, torch.inf)
        return Plan(often, (rates > 0).double().flatten(1)), (state.tau + wait).clamp_max(state.limits.tau_max)


def test_is_registered_with_its_options():
    assert SAMPLERS["bounded-error"] is BoundedError and "error" in BoundedError.options
    assert BoundedError.fits(("insert", "unmask")) and not BoundedError.fits(("insert", "delete"))


@pytest.mark.slow
def test_independent_masks_are_resolved_together_at_no_cost():
    start, limits = masks(100, 40), Limits(50.0, 41, channels=MASKS_ONLY)
    samplers = BoundedError(), EventDriven()
    ours, thinning = (simulate(constant, start, s, range(100), limits).row_evaluations for s in samplers)
    assert ours < 0.5 * thinning
    assert measured_bound(BoundedError(), constant, start, range(100), limits) == (0.0, 0.0)


def test_their_tokens_have_the_distribution():
    limits = Limits(50.0, 41, channels=MASKS_ONLY)
    samples = simulate(constant, masks(200, 40), BoundedError(error=1.0), range(200), limits)
    count = sum(s.count(3) for s in samples.sequences)
    assert abs(count / 8000 - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 8000)


def test_a_short_law_is_reproduced_and_the_bound_kept():
    law = ToyLaw.of({s: 1 / 4 for s in ("aab", "bab", "abb", "bba")})
    samples = simulate(law.oracle(), as_batch([()] * 1500), BoundedError(error=0.1), range(1500), Limits(20.0, 30))
    found = compare(law, samples.sequences)
    assert found.worst_z < 4 and found.tv < 0.1
    bound, _ = measured_bound(BoundedError(error=0.1), law.oracle(), as_batch([()] * 300), range(300), Limits(20.0, 30))
    assert bound <= 0.1


@pytest.mark.slow
def test_independent_gaps_take_fewer_calls_within_the_error():
    start, limits, n = gaps_between(300), Limits(20.0, 60), 300
    runs = {e: simulate(gaps, start, BoundedError(error=e), range(n), limits) for e in (0.03, 0.3)}
    thinning = simulate(gaps, start, EventDriven(), range(n), limits)
    calls = [s.row_evaluations for s in (runs[0.3], runs[0.03], thinning)]
    assert calls[0] < 0.85 * calls[2] and calls[0] < calls[1] < calls[2]
    for e, samples in runs.items():
        added = sum(len(s) - 19 for s in samples.sequences) / n
        assert abs(added - 10) < 4 * math.sqrt(5 / n) + 20 * e  # 20 gaps; the mean moves by the error at most
        bound, sd = measured_bound(BoundedError(error=e), gaps, start, range(n), limits)
        assert 0 < bound < e + 2 * sd


def test_a_change_that_was_not_seen_is_measured():
    n, limits = 4000, Limits(30.0, 2, channels=MASKS_ONLY)
    exact = 1 - math.exp(-1)
    share = {}
    for sampler in (BoundedError(error=0.01), Everything()):
        share[sampler] = simulate(switching, masks(n, 1), sampler, range(n), limits).sequences.count([3]) / n
    bound, sd = measured_bound(Everything(), switching, masks(n, 1), range(n), limits)
    z = math.sqrt(exact * (1 - exact) / n)
    assert abs(share[BoundedError(error=0.01)] - exact) < 4 * z
    assert 4 * z < abs(share[Everything()] - exact) < bound + 4 * z  # held beyond 1: too many `a`
    known = math.exp(-1) / 3  # the rate 1 of `a` is held until the event or the first check beyond 1, at rate 2
    assert abs(bound - known) < 4 * sd


def test_insertions_of_tokens_without_masks():
    n, limits = 1600, Limits(30.0, 5, channels=("insert",))
    for sampler in (BoundedError(error=0.01), BoundedError(error=1.0)):
        found = simulate(tokens_in, as_batch([()] * n), sampler, range(n), limits).sequences
        z = [(found.count(list(s)) - n / 8) / math.sqrt(n * 7 / 64) for s in product((3, 4), repeat=3)]
        assert max(map(abs, z)) < 4


def test_trajectories_end_in_the_sequences():
    samples = simulate(gaps, gaps_between(20), BoundedError(error=0.3), range(20), Limits(20.0, 60), record=True)
    for t, s in zip(samples.trajectories, samples.sequences):
        assert t.frames[-1][1] == s and all(a <= b for a, b in zip(t.inserted_at, t.unmasked_at))
        assert [f[0] for f in t.frames] == sorted(f[0] for f in t.frames)


def test_smallest_and_largest_length():
    limits = Limits(20.0, 31, min_length=29)
    samples = simulate(gaps, gaps_between(200), BoundedError(error=1.0), range(200), limits)
    assert {len(s) for s in samples.sequences} <= set(range(28, 31)) and samples.overflow and samples.forced


def test_temperature_nucleus_and_hook():
    start, limits = masks(100, 20), Limits(50.0, 21, channels=MASKS_ONLY)

    def share(**options):
        samples = simulate(constant, start, BoundedError(**options), range(100), limits)
        return sum(s.count(3) for s in samples.sequences) / 2000
    assert abs(share(temperature=0.5) - 0.9) < 4 * math.sqrt(0.09 / 2000)
    assert share(top_p=0.7) == 1.0
    assert share(logits_hook=lambda logits, x, tau: logits.index_fill(-1, torch.tensor([3]), -torch.inf)) == 0.0


def test_rates_per_token_value():
    def fast_a(x, tau):  # hidden tokens are even; `a` shows at rate 3, `b` at rate 1
        b_left, a_left = torch.exp(-tau), torch.exp(-3 * tau)
        share = (a_left / (a_left + b_left))[:, None]
        speed = torch.tensor([1.0, 1, 1, 3, 1]).expand(*x.tokens.shape, 5)
        first = torch.stack([*[torch.zeros_like(share)] * 3, 3 * share, 1 - share], -1).expand(*x.tokens.shape, 5)
        return Intensities(unmask=(3 * share + 1 - share) * x.masked, logits=first.log(), speed=speed)
    limits = Limits(0.5, 2, channels=MASKS_ONLY)
    samples = simulate(fast_a, masks(2000, 1), BoundedError(error=0.01), range(2000), limits)
    assert abs(samples.sequences.count([3]) / 2000 - 0.5) < 4 * math.sqrt(0.25 / 2000)


def test_a_used_up_error_leaves_thinning():
    rates, loss, none = torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 0.0]]), torch.zeros(1)
    assert plan_leap(rates, loss, none, none + 0.1, none + 9, 1.5, none > 0).level.all()
    spent = plan_leap(rates, loss, none, none, none + 9, 1.5, none > 0)
    assert not spent.level.any() and spent.often.item() == 4.5


@pytest.mark.parametrize("spent, left", [(0.0, 0.1), (0.06, 0.04), (0.1, 0.0), (0.3, 0.0)])
def test_a_leap_may_cost_what_is_left_of_the_error(spent, left, monkeypatch):
    "Nine tenths of what is left, shared by the five masks that are still to be shown."
    asked = []

    def planned(rates, loss, rise, allowed, *rest):
        asked.append(allowed.item())
        return plan_leap(rates, loss, rise, allowed, *rest)
    monkeypatch.setattr(bounded_error, "plan_leap", planned)
    sampler, x = BoundedError(error=0.1), masks(1, 5)
    state = sampler.init(x, [torch.Generator().manual_seed(0)], Limits(9.0, 6, channels=MASKS_ONLY))
    held = state.memory._replace(spent=torch.tensor([spent], dtype=torch.float64))
    rates = x.masked.double()[..., None]
    out = constant(x, state.tau)
    sampler.leap(out, rates, torch.zeros(1, dtype=torch.bool), held, state, torch.full((1,), 0.5).double())
    assert asked == [pytest.approx(0.9 * left / 5)]


def test_what_is_made_up_for_has_the_missing_distribution():
    log = lambda *p: TokenLaws.of(torch.tensor([[p]], dtype=torch.float64).log())
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    old = Held(one, one, *[None] * 4, dict(unmask=log(0.5, 0.5)))
    out, laws = Intensities(unmask=2 * one[..., 0]), dict(unmask=log(0.2, 0.8))
    weight = with_missing_laws(out, 2 * one, old, laws, one > 0, MASKS_ONLY).logits.at(one[..., 0] > 0).exp()
    torch.testing.assert_close(weight, torch.tensor([[0.0, 1.1]], dtype=torch.float64))  # 2 (.2, .8) - (.5, .5)


def test_nothing_is_held_in_a_gap_that_has_had_its_event():
    x = as_batch([(3,)])
    state = BoundedError().init(x, [torch.Generator()], Limits(9.0, 5, channels=("insert",)))
    ones = torch.ones(1, 2, 1, dtype=torch.float64)
    held = state.memory._replace(rates=ones, level=ones, loss=ones)
    after = after_events(held, torch.tensor([[[True], [False]]]), torch.tensor([[0, 1]]), state)
    assert after.rates.flatten().tolist() == [0.0, 1.0] and after.level.flatten().tolist() == [0.0, 1.0]
    assert after.events.tolist() == [1.0]


def test_no_more_gaps_are_held_than_there_is_room():
    state = BoundedError().init(as_batch([(3, 3)]), [torch.Generator()], Limits(9.0, 5))
    rates = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    assert not beyond_room(rates, state).any()
    full = state._replace(limits=Limits(9.0, 4))
    assert beyond_room(rates, full).nonzero().tolist() == [[0, 2, 0]]  # the second gap, not the mask


@pytest.mark.parametrize(
    "options, named",
    [
        (dict(error=0), "error=0: within"), (dict(error=1.01), "error=1.01: within"),
        (dict(error=math.nan), "error=nan: within"), (dict(slack=0.9), "slack=0.9"),
        (dict(confidence="entropy"), "confidence='entropy'"), (dict(softness=1.0), "softness=1.0"),
        (dict(window=2), "window=2"),
    ],
)
def test_refusals(options, named):
    with pytest.raises(ValueError, match=named): BoundedError(**options)


def test_editing_channels_are_refused():
    with pytest.raises(ValueError, match="'delete' has no bound"):
        simulate(gaps, as_batch([()]), BoundedError(), [0], Limits(1.0, 4, channels=("insert", "delete")))


def test_the_loss_that_is_expected_is_left_out_in_advance():
    rates, some = torch.tensor([[4.0, 4.0]]).double(), torch.ones(1).double()
    found = plan_leap(rates, torch.tensor([[0.5, 0.5]]).double(), 0 * some, 0.02 * some, 9 * some, 1.5, some < 0)
    assert ((0 < found.level) & (found.level < 1)).all() and found.often < 1.5 * 8
    held = rates[0, 0] * found.level[0, 0]
    assert any(math.isclose(held, 4 - 0.5 * n) for n in (1, 2, 4))


def test_after_an_event_that_has_happened_checks_expect_a_rise():
    rates, some = torch.tensor([[2.0, 1.0]]).double(), torch.ones(1).double()
    often = [plan_leap(rates, rates, 2 * some, 0 * some, 9 * some, 1.5, some > v).often.item() for v in (2, 0)]
    assert often == [1.5 * 3, 1.5 * (3 + 2)]


@pytest.mark.slow
def test_independent_gaps_take_few_evaluations():
    sampler, limits = BoundedError(error=0.1), Limits(20.0, 64)
    samples = simulate(gaps, gaps_between(200, 29), sampler, range(200), limits)
    bound, sd = measured_bound(sampler, gaps, gaps_between(200, 29), range(200), limits)
    assert samples.row_evaluations / 200 < 40 and bound < 0.1 + 2 * sd


@pytest.mark.parametrize("allowed, most, left_out, often", [
    (0.05, 1e9, 0, 3.0),  # held: 3 a unit lose 0.2 each, 0.05 of 4 events are allowed
    (0.5, 1e9, 0, 1.5),   # what is not held, 1 of 4, at the slack
    (0.5, 1.0, 0, 3.0),   # an event unseen at most
    (0.05, 1e9, 1, 2.0),  # the same, but the first is for nothing: times 3 / (3 + 1.5)
])
def test_the_lowest_rate_of_checks_by_hand(allowed, most, left_out, often):
    d = lambda v: torch.tensor([[v]], dtype=torch.float64)
    found = lowest_rate(d(3.0), d(0.2), d(4.0), d(0.0), d(allowed), d(most), 1.5, left_out)
    torch.testing.assert_close(found, d(often))
