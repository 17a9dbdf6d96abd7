"Formulas and boundaries where a small change of the code would go unnoticed."
import math
from types import SimpleNamespace

import pytest
import torch

from loflexmdm.exact.ctmc import as_batch
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import MASK
from loflexmdm.samplers import CONFIDENCES, Choices, EventByEvent, EventDriven, Info, LeftToRight, Limits, Planner
from loflexmdm.samplers import Sampler, TauLeaping, fitting_samplers, merge_samples, simulate
from loflexmdm.samplers.base import token_law_at_end
from loflexmdm.samplers.choose import sampler_from
from loflexmdm.samplers.draws import check_whole, most_confident
from loflexmdm.samplers.edits_event_by_event import EventByEventEdits
from loflexmdm.samplers.left_to_right import check_prefixes
from loflexmdm.samplers.masks_event_by_event import EventByEventMasks
from loflexmdm.samplers.simulate import EditTrajectory, _Harvest
from loflexmdm.samplers.state import advance
from loflexmdm.samplers.tau_leaping import leap, leaps, one_event, log_prob_within
from loflexmdm.support.notebook import seeded

pytestmark = pytest.mark.usefixtures("pico")


def randn(*shape, seed=0): return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize("channels", [["unmask"], ["insert", "unmask"]])
def test_chance_of_a_leap_is_that_of_competing_exponentials(channels):
    rates = {name: randn(2, 4, seed=i).exp() for i, name in enumerate(channels)}
    dtau = torch.tensor([[0.3], [2.0]], dtype=torch.float64)
    chance, _ = leaps(Intensities(**rates, logits=randn(2, 4, 6)), channels, dtau)
    total = sum(rates.values())
    for name in channels:
        torch.testing.assert_close(chance[name], rates[name] / total * (1 - torch.exp(-total * dtau)))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_next_token_is_read_at_the_last_column(width):
    "Also where the logits have two columns only."
    x, logits = as_batch([[3] * (width - 1)]), randn(1, width, 6)
    state = LeftToRight().init(x, [seeded(0)], Limits(9.0, 8, channels=("append",)))
    got = LeftToRight().call_network(lambda x, tau: Intensities(logits=logits), state)[0].logits
    assert got.shape == (1, 1, 6)
    torch.testing.assert_close(got[..., 3:], logits[:, -1:, 3:])


def test_merging_nothing_gives_no_samples():
    merged = merge_samples([])
    assert len(merged.sequences) == 0 and merged.network_calls == 0


def test_the_grid_of_tau_leaping_has_its_number_of_calls():
    "`steps` readings, the last one at the end, where only masks are resolved."
    for grid in ("time", "clock"):
        for steps in (2, 3, 12):
            taus = TauLeaping(steps=steps, grid=grid).taus(5.0)
            assert len(taus) == steps and taus[0] == 0 and taus[-1].item() == pytest.approx(5.0)
            assert (taus.diff() > 0).all()


def test_a_leap_of_infinite_length_is_certain():
    out = Intensities(unmask=torch.tensor([[0.5, 2.0]]), logits=torch.zeros(1, 2, 5))
    chance, _ = leaps(out, ["unmask"], torch.tensor([[math.inf]]))
    assert (chance["unmask"] == 1).all()


def test_an_event_without_a_rate_never_happens():
    "Not even where the uniform number is exactly 0, or exactly at the end of an earlier channel's share."
    chance = dict(insert=torch.zeros(1, 2), unmask=torch.full((1, 2), 0.5), delete=torch.zeros(1, 2))
    events = one_event(chance, torch.tensor([[0.0, 0.5]]))
    assert {name: n.tolist() for name, n in events.items()} == {
        "insert": [[0, 0]], "unmask": [[1, 0]], "delete": [[0, 0]]
    }


@pytest.mark.parametrize("column", [3, 5])
def test_logits_that_are_not_numbers_are_refused(column):
    "The end's logit too, in rows that are too short to end."
    logits = torch.zeros(1, 6, dtype=torch.float64)
    logits[0, column] = math.nan
    for short in (True, False):
        with pytest.raises(ValueError, match="NaN"):
            LeftToRight().draw(logits, torch.tensor([short]), torch.full((1, 2), 0.5, dtype=torch.float64))


def test_token_laws_at_the_end_are_those_of_a_wait_without_end():
    "Of tokens that show at speeds of their own, mu is what shows in the end; what shows next is in proportion to w mu."
    logits, speed = randn(2, 3, 6), randn(2, 3, 6, seed=1).exp()
    out = Intensities(unmask=torch.ones(2, 3, dtype=torch.float64), logits=logits, speed=speed)
    got = token_law_at_end(out, torch.tensor([True, False])).dense()
    torch.testing.assert_close(got[1], logits[1])
    forever = torch.full((3,), math.inf, dtype=torch.float64)
    torch.testing.assert_close(got[0].log_softmax(-1), log_prob_within(logits[0], speed[0], forever))
    torch.testing.assert_close((got[0] + speed[0].log()).log_softmax(-1), logits[0].log_softmax(-1))


SCORES = dict(
    top_prob=lambda k, rate, v: max(k), entropy=lambda k, rate, v: sum(p * math.log(p) for p in k),
    prob_diff=lambda k, rate, v: sorted(k)[-1] - sorted(k)[-2], rates=lambda k, rate, v: rate,
    top_rate=lambda k, rate, v: rate * max(k), sampled=lambda k, rate, v: k[v],
)


@pytest.mark.parametrize("name", [*SCORES, "leftmost"])
def test_confidences_in_closed_form(name):
    k, rate, drawn = randn(4, 6).softmax(-1), randn(4, seed=1).exp(), torch.tensor([0, 5, 2, 2])
    score = CONFIDENCES[name](k, rate, drawn)
    if name == "leftmost": return torch.testing.assert_close(score.argsort(descending=True), torch.arange(4))
    slow = [SCORES[name](*one) for one in zip(k.tolist(), rate.tolist(), drawn.tolist())]
    torch.testing.assert_close(score, torch.tensor(slow, dtype=torch.float64))


@pytest.mark.parametrize("channels", [
    ("unmask",), ("insert", "unmask"), ("insert", "delete", "substitute"), ("insert",), ("append",),
])
def test_samplers_to_compare_fit_the_channels(channels):
    for name, kind in fitting_samplers(channels).items():
        for sampler in kind.comparison_settings(channels, (8, 32)):
            assert isinstance(sampler, kind) and sampler.fits(channels), name
            assert sampler.confidence is None or "unmask" in channels


def test_speeds_per_token_are_for_unmasking_alone():
    one, laws = torch.ones(1, 2), torch.zeros(1, 2, 5)
    out = Intensities(insert=one, unmask=one, logits=laws, speed=laws + 1)
    with pytest.raises(ValueError, match="for unmasking alone"): leaps(out, ["insert", "unmask"], torch.ones(1, 1))


def test_channels_share_one_uniform_number_side_by_side():
    "Channel by channel an interval as long as its probability; none in what is left."
    u = (torch.arange(100) + 0.5).div(100)[None]
    chance = {name: torch.full_like(u, p) for name, p in (("insert", 0.25), ("unmask", 0.4), ("delete", 0.2))}
    events = one_event(chance, u)
    assert {name: int(n.sum()) for name, n in events.items()} == {"insert": 25, "unmask": 40, "delete": 20}
    assert int(sum(events.values()).max()) == 1 and not sum(events.values())[0, 85:].any()


def test_a_window_holds_its_number_of_masks():
    x = as_batch([[MASK, 3, MASK, MASK]])
    for n, columns in ((1, [1]), (2, [1, 3]), (3, [1, 3, 4])):
        assert Planner(confidence="top_prob", window=n).candidates(x)[0].nonzero()[:, 0].tolist() == columns


def test_logits_are_not_computed_for_a_choice_that_needs_none():
    out = Intensities(unmask=torch.ones(1, 3), logits=torch.zeros(1, 3, 6))
    x = as_batch([[MASK, MASK]])
    for confidence in (None, "rates", "leftmost"):
        assert Choices(confidence=confidence).read_logits(out, x.masked) is out
    assert Choices(confidence="top_prob").read_logits(out, x.masked) is not out


def test_rows_in_which_nothing_is_due_are_not_looked_at():
    "Logits of such a row may be anything: another batch would refuse them."
    x, logits = as_batch([[MASK, MASK]] * 2), torch.zeros(2, 3, 6)
    logits[1] = math.nan
    sampler = TauLeaping(confidence="top_prob")
    state = sampler.init(x, [seeded(0), seeded(1)], Limits(9.0, 8, channels=("unmask",)))
    fire, u = torch.tensor([[False, True, False], [False] * 3]), torch.rand(2, 6, generator=seeded(2)).double()
    args = torch.zeros(2, dtype=torch.bool), Intensities(unmask=torch.ones(2, 3), logits=logits), state, u
    tokens = sampler.resolve(fire, *args)
    assert tokens[1].tolist() == x.tokens[1].tolist() and (tokens[0] == MASK).sum() == 1
    with pytest.raises(ValueError): sampler.resolve(fire.flip(0), *args)


def test_masks_outside_the_window_are_not_looked_at():
    x, logits = as_batch([[MASK, MASK]]), torch.zeros(1, 3, 6)
    logits[0, 2] = math.nan
    sampler = TauLeaping(confidence="top_prob", window=1)
    state = sampler.init(x, [seeded(0)], Limits(9.0, 8, channels=("unmask",)))
    out, u = Intensities(unmask=torch.ones(1, 3), logits=logits), torch.rand(1, 6, generator=seeded(2)).double()
    at_end = torch.zeros(1, dtype=torch.bool)
    tokens = sampler.resolve(torch.tensor([[False, True, False]]), at_end, out, state, u)
    assert tokens[0, 1] != MASK and tokens[0, 2] == MASK


def test_a_sampler_of_its_own_has_to_say_its_step():
    with pytest.raises(NotImplementedError): Sampler.step(TauLeaping(), None, None)


@pytest.mark.parametrize("channels, full", [(("insert", "unmask"), True), (("insert", "delete", "substitute"), False)])
def test_a_row_that_gave_up_an_insertion_is_full_unless_it_can_shrink(channels, full):
    state = TauLeaping().init(as_batch([[3, 3]]), [seeded(0)], Limits(9.0, 4, channels=channels))
    new, overflow = advance(state, state.tau, dict(insert=torch.tensor([[0, 2, 1]])), {})
    assert new.x.lengths.tolist() == [4] and overflow.tolist() == [2] and new.full.tolist() == [full]


def test_a_bound_is_violated_beyond_the_rounding_of_float32():
    state = SimpleNamespace(limits=Limits(9.0, 8), rate_bound=torch.ones(3).double(), tau=torch.zeros(3).double())
    total = torch.tensor([1.0, 1 + 5e-7, 1 + 2e-6], dtype=torch.float64)
    out = SimpleNamespace(total=lambda: total)
    violated = EventDriven().thin(out, state, torch.ones(3).double(), torch.ones(3).double())[3]
    assert violated.tolist() == [False, False, True]


def test_what_a_trajectory_of_edits_tells():
    "Three frames: the first token goes, the second is written over, a third comes."
    frames = [(0.0, [3, 4]), (1.5, [4]), (2.5, [5, 3])]
    told = EditTrajectory(frames, [0.0, 2.5], [2.5, 2.5], [[1, 2], [2], [2, 3]])
    assert told.edits() == [dict(insert=[], delete=[1], substitute=[]), dict(insert=[3], delete=[], substitute=[2])]
    assert told.deletions() == [(1.5, 3)]


def test_a_message_shows_eight_tokens():
    with pytest.raises(ValueError) as error: check_prefixes(as_batch([[3] * 9 + [MASK]]), "prompt")
    assert str([3] * 8) in str(error.value) and str([3] * 9) not in str(error.value)


def test_only_candidates_are_chosen():
    chosen, candidates = torch.tensor([[True, True, True]]), torch.tensor([[False, True, True]])
    found = most_confident(chosen, candidates, torch.tensor([[9.0, 1.0, 2.0]]))
    assert found.tolist() == [[False, True, True]]
    found = most_confident(torch.tensor([[True, False, False]]), candidates, torch.tensor([[9.0, 1.0, 2.0]]))
    assert found.tolist() == [[False, False, True]]


def test_whole_numbers_from_the_least_on():
    for value in (2, 2.0, 3): check_whole("steps", value, 2)
    for value in (1, 2.5, math.inf, math.nan, True, None, "2"):
        with pytest.raises(ValueError, match="steps=.*a whole number, at least 2"): check_whole("steps", value, 2)


def test_a_soft_choice_needs_positive_scores():
    for confidence in (None, "entropy", "leftmost"):
        with pytest.raises(ValueError, match="softness=0.5: needs a confidence"):
            TauLeaping(confidence=confidence, softness=0.5)


def test_tokens_keep_their_numbers():
    state = TauLeaping().init(as_batch([[3], [3, 4, 3], [4, 4]]), [seeded(i) for i in range(3)], Limits(9.0, 8))
    state = state._replace(birth=torch.arange(12).view(3, 4), born=torch.tensor([5, 6, 7]))
    kept = state.select(torch.tensor([True, False, True]))
    assert kept.birth.tolist() == [[0, 1, 2], [8, 9, 10]] and kept.born.tolist() == [5, 7]


OUTCOMES = {  # of three items: each row's drawn outcome
    EventByEvent: dict(place=1, end=3), EventByEventMasks: dict(place=1, decide=4, end=6),
    EventByEventEdits: dict(place=1, replace=4, remove=7, end=9),
}


@pytest.mark.parametrize("kind", OUTCOMES)
@pytest.mark.parametrize("full", [False, True])
def test_an_insertion_that_a_full_row_gives_up_is_counted_and_no_other_event(kind, full):
    "One row for each outcome, which its scores make all but certain."
    outcomes = OUTCOMES[kind]
    n, sampler = len(outcomes), kind()
    scores = torch.zeros(n, outcomes["end"] + 1, dtype=torch.float64)
    for row, outcome in enumerate(outcomes.values()): scores[row, outcome] = 60.0
    limits = Limits(9.0, 3 if full else 4, channels=sampler.channels)
    state = sampler.init(as_batch([[3, 3]] * n), [seeded(i) for i in range(n)], limits)
    info = sampler.draw_gap(scores, state, torch.full((n,), 0.5, dtype=torch.float64))[2]
    assert dict(zip(outcomes, info.overflow.tolist())) == {name: int(full and name == "place") for name in outcomes}
    assert not info.forced.any() and not info.violations.any()


def test_a_full_row_ends_if_nothing_else_is_possible():
    "A hook may have refused the end, which a full row takes nevertheless; another row takes its gap."
    scores, sampler = torch.tensor([[-math.inf, 0.0, -math.inf]], dtype=torch.float64), EventByEvent()
    for most, ends in ((2, True), (9, False)):
        state = sampler.init(as_batch([[3]]), [seeded(0)], Limits(9.0, most, channels=("place",)))
        drawn, end, info = sampler.draw_gap(scores, state, torch.tensor([0.5], dtype=torch.float64))
        assert (drawn.item(), end.item(), info.overflow.item()) == (0 if ends else 1, ends, int(ends))


def test_counts_of_steps_are_added_up_row_by_row():
    "Two given up in the third of three rows, and one more when it is the only row left: three insertions, one row."
    counted, nothing = _Harvest(3, False, Limits(9.0, 8)), torch.zeros(2, dtype=torch.long)
    counted.count(Info(torch.tensor([0, 2]), nothing, nothing + 1), torch.tensor([0, 2]))
    counted.count(Info(torch.tensor([1]), nothing[:1], nothing[:1]), torch.tensor([2]))
    one = counted.result()
    assert (one.overflow, one.overflowing, one.violations, one.forced) == (3, 1, 0, 2)
    assert (one.network_calls, one.row_evaluations) == (2, 3)
    both = merge_samples([one, one])
    assert (both.overflow, both.overflowing, both.violations, both.forced) == (6, 2, 0, 4)


class Inserts(TauLeaping):
    "Two insertions in every gap at the first step."
    def step(self, intensity_fn, state):
        out = intensity_fn(state.x, state.tau)
        events = dict(insert=2 * state.x.open.long(), unmask=torch.zeros_like(state.x.tokens))
        new, overflow, forced = self.apply_events(out, state, events, state.tau + 1, torch.zeros(*state.x.tokens.shape))
        return new._replace(done=torch.ones_like(new.done)), Info(overflow, torch.zeros_like(overflow), forced)


def test_insertions_beyond_the_largest_length_are_given_up_and_counted():
    "Rows of one, two and three columns with as many gaps: 2, 4 and 6 insertions, where there is room for 4, 3 and 2."
    x = as_batch([[], [3], [3, 3]])
    out = lambda x, tau: Intensities(torch.ones(x.tokens.shape), x.masked.double(), torch.zeros(*x.tokens.shape, 6))
    samples = simulate(out, x, Inserts(), range(3), Limits(9.0, 5))
    assert [len(s) for s in samples.sequences] == [2, 4, 4]
    assert (samples.overflow, samples.overflowing) == (5, 2)


def test_tokens_that_a_row_at_the_end_loses_for_its_length_are_counted():
    "A state may be longer than its result: of two, three and five columns, where three may stay, two tokens go."
    channels, x = ("insert", "delete", "substitute"), as_batch([[3], [3, 4], [3, 4, 5, 3]])
    x = x._replace(fixed=x.fixed & (x.tokens < 3))
    state = TauLeaping().init(x, [seeded(i) for i in range(3)], Limits(9.0, 8, channels=channels, longest=3))
    ones, logits = torch.ones(x.tokens.shape), torch.zeros(*x.tokens.shape, 6)
    out = Intensities(insert=ones, delete=ones, substitute=ones, logits=logits)
    none = {name: torch.zeros_like(x.tokens) for name in channels}
    for tau, lost in ((5.0, [0, 0, 0]), (9.0, [0, 0, 2])):
        now = state._replace(tau=torch.full_like(state.tau, tau))
        new, overflow, _ = TauLeaping().apply_events(out, now, none, now.tau, torch.zeros(x.tokens.shape))
        assert overflow.tolist() == lost and (x.lengths - new.x.lengths).tolist() == lost


def test_settings_of_a_saved_model_reach_its_sampler():
    saved = dict(top_p=0.7)
    assert sampler_from(None, EventDriven(), saved=saved).top_p == 0.7
    assert sampler_from(None, EventDriven(), saved=saved, top_p=0.9).top_p == 0.9


def test_a_leap_with_speeds_is_the_chance_that_any_token_is_shown():
    "Token k of a mask is shown at speed s_k: the weight of k is p_k / s_k, and of a column without a mask nothing is."
    logits, speed = randn(1, 2, 5), randn(1, 2, 5, seed=1).exp()
    out = Intensities(unmask=torch.tensor([[2.0, 0.0]]).double(), logits=logits, speed=speed)
    weight = (logits[0, 0].exp() / speed[0, 0])
    expected = (weight * (1 - torch.exp(-0.7 * speed[0, 0]))).sum() / weight.sum()
    chance, found = leap(out, torch.tensor([[0.7]]).double())
    assert chance[0].tolist() == pytest.approx([expected.item(), 0.0]) and found.speed is None
    assert leap(out, torch.tensor([[0.0]]).double())[0][0].tolist() == pytest.approx([1.0, 0.0])
    plain = out._replace(speed=None)
    chance, same = leap(plain, torch.tensor([[0.7]]).double())
    assert chance[0].tolist() == pytest.approx([1 - math.exp(-1.4), 0.0]) and same is plain
