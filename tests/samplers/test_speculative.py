"Thinning with several points per network call: the same paths for every number, and the exact distribution."
import pytest
import torch
from pushing import LAW, LIMITS, PROMPTS, VOCABULARY, prompts, pushy

import loflexmdm
from loflexmdm.exact.ctmc import as_batch, compare
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import MASK, PartialSequences, collate, parse_prompt
from loflexmdm.samplers import Limits, Sampler, Speculative, simulate
from loflexmdm.samplers.speculative import AHEAD, Pace, follows, keyed_uniforms, next_bound


def edited(x, tau):
    "All channels that write tokens; rates that depend on the string and the time."
    out = pushy(x, tau)
    return Intensities(insert=out.insert, delete=out.insert / 3, substitute=out.unmask / 4, logits=out.logits,
                       insert_logits=out.logits.flip(-1))


def faster(x, tau):
    "Rates per token behind masks, as trainable unmasking has them."
    out = pushy(x, tau)
    return out._replace(speed=1 + torch.arange(7.0).expand(*x.tokens.shape, 7) / 3)


def run(ahead, model=pushy, limits=LIMITS, n=20, **options):
    sampler = Speculative(ahead=ahead, **options)
    return simulate(model, prompts((PROMPTS * n)[:n]), sampler, range(n), limits, record=True)


def without(logits, x, tau): return logits.index_fill(-1, torch.tensor([4]), -torch.inf)


CASES = {
    "plain": {}, "speed": dict(model=faster), "edits": dict(model=edited, limits=Limits(
        2.0, 10, channels=("insert", "delete", "substitute"))),
    "long enough": dict(limits=LIMITS._replace(min_length=9)), "full": dict(limits=LIMITS._replace(max_length=6)),
    "confidence": dict(confidence="top_prob"), "soft": dict(confidence="sampled", softness=0.5),
    "window": dict(confidence="entropy", window=2), "hook": dict(logits_hook=without), "nucleus": dict(top_p=0.6),
}


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_paths_do_not_depend_on_how_far_is_predicted(options):
    one, *others = (run(k, **options) for k in (1, 2, 6))
    for other in others:
        assert other.sequences == one.sequences and other.trajectories == one.trajectories
        assert (other.overflow, other.forced, other.violations) == (one.overflow, one.forced, one.violations)
        assert other.network_calls < one.network_calls and other.row_evaluations >= one.row_evaluations


def test_the_distribution_is_exact():
    seeds = torch.randint(2**62, (4000,), generator=torch.Generator().manual_seed(7)).tolist()
    samples = simulate(LAW.oracle(), as_batch([()] * 4000), Speculative(ahead=3), seeds, Limits(40.0, 12))
    seen = compare(LAW, samples.sequences)
    assert seen.worst_z < 4 and seen.tv < 2 * seen.floor and seen.outside == 0 and samples.violations == 0


def test_violations_are_counted():
    def rising(x, tau):
        return Intensities((0.2 + tau)[:, None] * x.open, x.masked.double(), torch.zeros(*x.tokens.shape, 7))
    counts = [simulate(rising, prompts(), Speculative(ahead=k, slack=1.0), range(5), LIMITS).violations for k in (1, 4)]
    assert counts[0] == counts[1] > 0


def test_a_model_of_the_package_gives_the_same_paths():
    model = loflexmdm.load("key-adder")
    one, four = (model.sample(n=6, sampler=Speculative(ahead=k), seed=2, record=True, batch_size=6) for k in (1, 4))
    assert one.trajectories == four.trajectories and four.network_calls < one.network_calls


def test_a_step_takes_what_is_true():
    "A wrong guess costs a call and changes nothing: intensities that jump at every evaluation's reading."
    def jumping(x, tau):
        out = pushy(x, tau)
        factor = (1 + 0.4 * torch.sin(1e4 * tau))[:, None].float()
        return out._replace(insert=out.insert * factor, unmask=out.unmask * factor)
    one, four = (run(k, model=jumping) for k in (1, 4))
    assert one.trajectories == four.trajectories


def same_letters(x, tau):
    "The generator of `aaaa` and `bbbb`, NaN where a string has both."
    shown = torch.stack([(x.tokens == v).any(-1) for v in (3, 4)], -1)
    even = torch.where(shown.any(-1, keepdim=True), torch.where(shown, 0.0, -torch.inf), 0.0)
    logits = torch.full((*x.tokens.shape, 5), -torch.inf)
    logits[..., 3:] = torch.where(shown.all(-1, keepdim=True), torch.nan, even)[:, None]
    return Intensities(unmask=x.masked.double(), logits=logits)


def test_logits_are_checked_where_a_point_counts():
    "Predicted strings may have both letters, and NaN there is nobody's fault; after a true point it is refused."
    tokens = torch.tensor([[2, MASK, MASK, MASK, MASK]]).repeat(40, 1)
    x = PartialSequences(tokens, tokens == 2, torch.ones_like(tokens, dtype=torch.bool))
    limits = Limits(30.0, 5, channels=("unmask",))
    one, eight = (simulate(same_letters, x, Speculative(ahead=k), range(40), limits, record=True) for k in (1, 8))
    assert one.trajectories == eight.trajectories and all(len(set(s)) == 1 for s in one.sequences)
    broken = lambda x, tau: same_letters(x, tau)._replace(logits=torch.full((*x.tokens.shape, 5), torch.nan))
    for k in (1, 8):
        with pytest.raises(ValueError, match="logits"): simulate(broken, x, Speculative(ahead=k), range(40), limits)


def test_a_point_must_follow_in_every_respect():
    state = Speculative().init(prompts(), [torch.Generator().manual_seed(i) for i in range(5)], LIMITS)
    parent = torch.arange(5)
    assert follows(state, parent, state).all()
    others = [state._replace(tau=state.tau + 1e-12), state._replace(rate_bound=state.rate_bound + 1e-12),
              state._replace(full=~state.full), state._replace(birth=state.birth + 1),
              state._replace(memory=state.memory._replace(pending=~state.memory.pending)),
              state._replace(x=state.x._replace(tokens=state.x.tokens + 1))]
    for other in others: assert not follows(state, parent, other).any()


def test_one_column_that_differs_is_enough_and_padding_does_not_count():
    state = Speculative().init(prompts(), [torch.Generator().manual_seed(i) for i in range(5)], LIMITS)
    parent = torch.tensor([3, 1, 1])
    points = state.rows(parent)
    n = points.x.tokens.shape[1]
    assert follows(state, parent, points).all() and n < state.x.tokens.shape[1]
    assert not follows(state, torch.tensor([1, 3, 3]), points).any()

    # the last token of the first row alone
    last = points.x.lengths[0] - 1
    tokens, birth = points.x.tokens.clone(), points.birth.clone()
    tokens[0, last] += 1
    birth[0, last] += 1
    for other in (points._replace(x=points.x._replace(tokens=tokens)), points._replace(birth=birth)):
        assert follows(state, parent, other).tolist() == [False, True, True]

    # what stands at padding is nobody's number
    padding = points._replace(birth=torch.where(points.x.valid, points.birth, 9))
    assert not points.x.valid.all() and follows(state, parent, padding).all()


def test_uniforms_are_those_of_their_key_and_do_not_repeat():
    key = torch.tensor([1234567, 5])
    u = keyed_uniforms(key, torch.tensor([0, 0]), torch.arange(1, 4).expand(2, -1))
    known = 6457827717110365317, 3203168211198807973, 9817491932198370423  # SplitMix64's first for this key
    assert [int(v * 2**52) for v in u[0].tolist()] == [z >> 12 for z in known]
    many = keyed_uniforms(torch.arange(50), torch.arange(50) % 7, torch.arange(300).expand(50, -1))
    assert many.unique().numel() == many.numel() and 0 < many.min() and many.max() < 1


def test_the_bound_stays_within_its_band():
    g = torch.Generator().manual_seed(0)
    total, bound = 10 * torch.rand(2, 1000, generator=g, dtype=torch.float64)
    new = next_bound(total, bound, 1.5)
    kept = (bound >= 1.5 * total) & (bound <= 3 * total)
    assert torch.equal(new[kept], bound[kept]) and 0 < kept.sum() < 1000
    ratio = new[~kept] / (1.5 * total[~kept])
    assert ratio.min() >= 1 and ratio.max() < 2 ** 0.25 + 1e-9
    assert next_bound(torch.zeros(1).double(), torch.ones(1).double(), 1.5) == 0


def test_a_finished_row_and_an_empty_batch_cost_nothing():
    closed = collate([parse_prompt(["a", "b"], VOCABULARY)])
    samples = simulate(pushy, closed._replace(closed=torch.ones_like(closed.closed)), Speculative(), [0], LIMITS)
    assert samples.network_calls == 0 and MASK not in samples.sequences[0]


class Clocked(Speculative):
    "Speculative sampling on a clock of its own; what was chosen is noted."
    seconds, chosen = 0.0, []
    def now(self): return Clocked.seconds
    def predict(self, state):
        Clocked.chosen.append(self.ahead)
        return super().predict(state)


def clocked(cost, n=8, **options):
    "A run with `ahead` chosen by a clock on which a call about rows takes cost(rows, calls before it)."
    Clocked.seconds, Clocked.chosen = 0.0, []

    def model(x, tau):
        Clocked.seconds += cost(len(x.tokens), len(Clocked.chosen))
        return pushy(x, tau)
    sampler = Clocked(ahead="auto", **options)
    return simulate(model, prompts((PROMPTS * n)[:n]), sampler, range(n), LIMITS, record=True), sampler


@pytest.mark.slow
@pytest.mark.parametrize("cost", [
    lambda rows, calls: 1.0 + 1e-3 * rows, lambda rows, calls: rows * 1.0, lambda rows, calls: 100 * (calls * 7 % 5),
    lambda rows, calls: 1.0 if calls < 8 else rows**2,
], ids=["calls are dear", "rows are dear", "at random", "changing"])
@pytest.mark.parametrize("options", [{}, dict(confidence="sampled", softness=0.5)], ids=["plain", "soft"])
def test_a_clock_changes_no_path(cost, options):
    auto, _ = clocked(cost, 40, **options)
    assert len(set(Clocked.chosen)) > 2
    one = run(1, n=40, **options)
    assert auto.sequences == one.sequences and auto.trajectories == one.trajectories
    assert (auto.overflow, auto.forced, auto.violations) == (one.overflow, one.forced, one.violations)


@pytest.mark.parametrize("cheapest", AHEAD)
def test_the_choice_converges_to_the_cheapest_and_follows_it(cheapest):
    cost = lambda k, best: 1 + abs(AHEAD.index(k) - AHEAD.index(best)) / 5
    pace = Pace()
    for best in (cheapest, 1, 16):  # what is cheapest changes
        made = []
        for _ in range(240):
            made.append(pace.choice())
            pace = pace.after(made[-1], cost(made[-1], best), 1.0)
        assert pace.best() == best and made[-40:].count(best) >= 32


def test_the_best_is_that_with_the_fewest_seconds_per_point():
    pace = Pace().after(4, 2.0, 1.0).after(8, 3.0, 2.0)
    assert pace.best() == 8 and pace.choice() == 16 and Pace().choice() == 4
    assert pace.after(16, 9.0, 4.0).choice() == 8
    assert pace.spent == {4: (2.0, 1.0), 8: (3.0, 2.0)}
    assert pace.after(8, 3.0, 0.5).best() == 4  # 5.7 s for 2.3 points: the older ones count nine tenths


def test_what_was_measured_is_kept_for_the_next_batch_by_the_number_of_rows():
    _, sampler = clocked(lambda rows, calls: 1.0 + rows, 40)
    assert len(sampler.paces) > 3 and set(sampler.paces) <= set(range(1, 7))
    assert sampler == Clocked(ahead="auto") and "paces" not in repr(sampler)
    first = sampler.paces[6].calls
    simulate(pushy, prompts((PROMPTS * 8)[:40]), sampler, range(40), LIMITS)
    assert sampler.paces[6].calls > first


@pytest.mark.parametrize("rows, taken", [(40, 16), (20, 16), (1, 1), (2, 1)])
def test_a_batch_begins_with_what_was_measured_at_the_nearest_size(rows, taken):
    known = lambda best: Pace({k: (1.0 + (k != best), 1.0) for k in AHEAD}, calls=1)
    sampler, Clocked.chosen = Clocked(ahead="auto"), []
    sampler.paces.update({1: known(1), 6: known(16)})
    simulate(pushy, prompts((PROMPTS * 8)[:rows]), sampler, range(rows), LIMITS)
    assert Clocked.chosen[0] == taken


@pytest.mark.parametrize("wrong", [
    dict(ahead=0), dict(ahead=1.5), dict(ahead="many"), dict(slack=0.9), dict(slack=float("nan")),
])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))): Speculative(**wrong)


def test_a_recording_looks_at_the_state_itself_by_default():
    state = Sampler().init(prompts(), [torch.Generator()] * 5, LIMITS)
    assert Sampler().recorded_states(state) is state


def test_every_recorded_token_has_its_number():
    "Also where one network call makes several frames of a row."
    limits = Limits(2.0, 10, channels=("insert", "delete", "substitute"))
    for ahead in (1, 5):
        paths = run(ahead, model=edited, limits=limits).trajectories
        assert any(path.deletions() for path in paths)
        for path in paths:
            assert [len(own) for own in path.labels] == [len(ids) for _, ids in path.frames]
            for own in path.labels: assert len(set(own)) == len(own)


@pytest.mark.parametrize("channel", CASES["edits"]["limits"].channels)
def test_a_negative_rate_is_refused_in_whichever_channel(channel):
    def wrong(x, tau):
        out = edited(x, tau)
        return out._replace(**{channel: -getattr(out, channel)})
    with pytest.raises(ValueError, match="every rate must be finite and not negative"):
        run(1, model=wrong, limits=CASES["edits"]["limits"])
