"Every sampler against one protocol, on intensities that push for whatever must not happen."
import math
import pickle
import re
from dataclasses import fields, replace

import pytest
import torch
from pushing import LAW, LIMITS, PROMPTS, VOCABULARY, prompts, pushy

from loflexmdm.exact.ctmc import as_batch, compare
from loflexmdm.process.clocks import clock_named
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import MASK, SPECIAL_TOKENS, Example, collate
from loflexmdm.samplers import Ancestral, Euler, EventDriven, Info, Limits
from loflexmdm.samplers import Planner, Remasking, Sampler
from loflexmdm.samplers import Samples, State, TauLeaping, Trajectory, merge_samples
from loflexmdm.samplers import possible
from loflexmdm.samplers import simulate
from loflexmdm.support.registries import SAMPLERS as REGISTRY

SAMPLERS = {
    "thinning": EventDriven(),
    "slack 1": EventDriven(slack=1.0),
    "frozen": EventDriven(exact=False),
    "three a call": EventDriven(exact=False, events_per_call=3),
    "leaps": TauLeaping(steps=12),
    "two leaps": TauLeaping(steps=2),
    "clock grid": TauLeaping(steps=12, grid="clock"),
    "confident leaps": TauLeaping(steps=12, confidence="entropy", top_p=0.7, temperature=0.8),
    "confident events": EventDriven(exact=True, confidence="top_rate", top_p=1e-9),
    "confident frozen": EventDriven(exact=False, events_per_call=3, confidence="prob_diff"),
    "window": TauLeaping(steps=12, confidence="top_prob", window=2),
    "window by ratio": TauLeaping(steps=12, confidence="top_prob", window=3, window_ratio=1.5),
    "leftmost": EventDriven(exact=True, confidence="leftmost"),
    "sampled": TauLeaping(steps=12, confidence="sampled"),
    "sampled events": EventDriven(exact=True, confidence="sampled"),
    "soft": TauLeaping(steps=12, confidence="sampled", softness=0.5),
}
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def run(sampler, limits=LIMITS, some=PROMPTS, model=pushy, seed=0, **kwargs):
    return simulate(model, prompts(some), sampler, range(seed, seed + len(some)), limits, **kwargs)


def complete(*strings):
    return collate([Example([2] + VOCABULARY.encode(s), [True] * (len(s) + 1), [True] * (len(s) + 1)) for s in strings])


@pytest.mark.parametrize("changed", [dict(top_p=0.5), dict(confidence="top_prob"), dict(top_p=0.9, confidence="rates")])
def test_held_by_default_where_samples_are_not_exact(changed):
    default, held, thinned = (run(EventDriven(exact=exact, **changed)) for exact in (None, False, True))
    assert default == held and default.row_evaluations < thinned.row_evaluations
    assert run(EventDriven(events_per_call=2, **changed)) == run(EventDriven(exact=False, events_per_call=2, **changed))


@pytest.mark.parametrize("kept", [{}, dict(temperature=0.7), dict(slack=2.0)])
def test_thinning_by_default_with_the_whole_distribution(kept):
    default, held, thinned = (run(EventDriven(exact=exact, **kept)) for exact in (None, False, True))
    assert default == thinned and default.row_evaluations > held.row_evaluations


@every_sampler
def test_protocol(sampler):
    "init and step: types, shapes, dtypes; clocks that never go back; rows that end; no mask left."
    state = sampler.init(prompts(), [torch.Generator().manual_seed(i) for i in range(5)], LIMITS)
    assert isinstance(sampler, Sampler) and isinstance(state, State) and state.tau.tolist() == [0] * 5
    for _ in range(500):
        before, (state, info) = state, sampler.step(pushy, state)
        assert isinstance(state, State) and isinstance(info, Info)
        assert all(v.shape == (5,) and v.dtype == torch.int64 and (v >= 0).all() for v in info[:3])
        assert state.tau.dtype == state.rate_bound.dtype == torch.float64 and state.done.dtype == torch.bool
        assert state.inserted_at.shape == state.unmasked_at.shape == state.x.tokens.shape and state.x.origin is None
        assert (state.tau >= before.tau).all() and (state.tau <= LIMITS.tau_max).all()
        assert (state.x.lengths >= before.x.lengths).all()
        if state.done.all(): break
    assert state.done.all() and not state.x.masked.any()


@every_sampler
def test_prompts_survive_and_nothing_special_is_drawn(sampler):
    samples = [run(sampler, seed=s) for s in range(0, 25, 5)]
    for some in samples:
        for prompt, tokens, free in zip(PROMPTS, some.sequences, some.free):
            assert all(t >= len(SPECIAL_TOKENS) for t in tokens) and len(tokens) < LIMITS.max_length
            assert [t for t, f in zip(tokens, free) if not f] == VOCABULARY.encode([p for p in prompt if p is not ...])
            pattern = "".join("[abcd]*" if p is ... else p for p in (prompt if ... in prompt else prompt + [...]))
            assert re.fullmatch(pattern, "".join(VOCABULARY.decode(tokens)))  # nothing in closed gaps
    assert any(any(f) for s in samples for f in s.free)


@pytest.mark.slow
@every_sampler
def test_rows_do_not_depend_on_the_batch(sampler):
    together = run(sampler, record=True)
    apart = merge_samples(
        [simulate(pushy, prompts(PROMPTS[i : i + 1]), sampler, [i], LIMITS, record=True) for i in range(5)]
    )
    backwards = simulate(pushy, prompts(PROMPTS[::-1]), sampler, [4, 3, 2, 1, 0], LIMITS)
    assert together.sequences == apart.sequences == backwards.sequences[::-1]
    assert together.trajectories == apart.trajectories
    assert (together.row_evaluations, together.overflow, together.violations) == (
        apart.row_evaluations,
        apart.overflow,
        apart.violations,
    )
    assert run(sampler, seed=1).sequences != together.sequences


@every_sampler
def test_complete_prompts_cost_nothing(sampler):
    batch = complete("abc", "", "d")
    samples = simulate(pushy, batch, sampler, [0, 1, 2], LIMITS, record=True)
    assert [VOCABULARY.decode(s) for s in samples.sequences] == [["a", "b", "c"], [], ["d"]]
    assert samples.network_calls == samples.row_evaluations == 0 and not any(any(f) for f in samples.free)
    assert [len(t.frames) for t in samples.trajectories] == [1, 1, 1]


@every_sampler
def test_masks_in_the_prompt_are_resolved(sampler):
    batch = complete("abc")._replace(
        tokens=torch.tensor([[2, 3, MASK, 5]]), fixed=torch.tensor([[True, True, False, True]])
    )
    tokens = simulate(pushy, batch, sampler, [0], LIMITS).sequences[0]
    assert len(tokens) == 3 and tokens[::2] == [3, 5] and tokens[1] in range(3, 7)


@every_sampler
def test_overflow_is_trimmed_counted_and_ends_the_row(sampler):
    def greedy(x, tau):
        return Intensities(torch.full(x.tokens.shape, 50.0), x.masked.double(), torch.zeros(*x.tokens.shape, 7))
    samples = run(sampler, model=greedy)
    assert [len(s) + 1 for s in samples.sequences] == [LIMITS.max_length] * 5
    assert samples.overflowing == 5 <= samples.overflow
    assert samples.network_calls < 150  # not one proposal after the other until the clock runs out
    calm = run(
        sampler,
        model=lambda x, tau: Intensities(
            torch.zeros(x.tokens.shape), x.masked.double(), torch.zeros(*x.tokens.shape, 7)
        ),
    )
    assert calm.overflow == calm.overflowing == 0


@every_sampler
def test_lengths_are_kept(sampler):
    def silent(x, tau):
        return Intensities(torch.zeros(x.tokens.shape), x.masked.double(), torch.zeros(*x.tokens.shape, 7))
    short = run(sampler, LIMITS._replace(min_length=6), model=silent)
    assert [len(s) + 1 for s in short.sequences] == [6, 6, 6, 6, 6] and short.forced == 5 + 4 + 3 + 3 + 1
    assert run(sampler, LIMITS._replace(min_length=6)).forced < short.forced
    assert run(sampler, LIMITS._replace(max_length=5)).sequences[0]
    assert max(len(s) for s in run(sampler, LIMITS._replace(max_length=5)).sequences) == 4
    stuck = simulate(silent, complete("a"), sampler, [0], LIMITS._replace(min_length=6))  # nowhere to grow
    assert len(stuck.sequences[0]) == 1 and stuck.forced == 0


@every_sampler
def test_trajectories(sampler):
    samples = run(sampler, record=True)
    for tokens, free, (frames, born, settled) in zip(samples.sequences, samples.free, samples.trajectories):
        assert frames[-1][1] == tokens and [t for t, _ in frames] == sorted(t for t, _ in frames)
        assert len(born) == len(settled) == len(tokens)
        assert all(
            (0 < b or sampler == SAMPLERS["frozen"]) and b <= s <= LIMITS.tau_max if f else b == s == 0
            for b, s, f in zip(born, settled, free)
        )


@every_sampler
def test_hook_reaches_every_token(sampler):
    def only_d(logits, x, tau): return torch.full_like(logits, -torch.inf).index_fill(-1, torch.tensor([0, 1, 6]), 0.0)
    samples = run(
        type(sampler)(**{f.name: getattr(sampler, f.name) for f in fields(sampler)} | {"logits_hook": only_d})
    )
    assert {t for s in samples.completions() for t in s} == {6}


@every_sampler
@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
def test_broken_rates_are_refused(sampler, broken):
    def model(x, tau): return pushy(x, tau)._replace(insert=torch.full(x.tokens.shape, broken))
    with pytest.raises(ValueError, match="rate"): run(sampler, model=model)


@every_sampler
def test_no_token_left_is_refused(sampler):
    with pytest.raises(ValueError, match="logits"):
        run(sampler, model=lambda x, tau: pushy(x, tau)._replace(logits=torch.full((*x.tokens.shape, 7), -torch.inf)))


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(top_p=0), dict(top_p=1.1), dict(temperature=0), dict(temperature=math.nan),
        dict(temperature=math.inf), dict(confidence="best"),
    ],
)
@pytest.mark.parametrize("sampler", [TauLeaping, EventDriven])
def test_settings_are_checked(sampler, kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))): sampler(**kwargs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TauLeaping(steps=1),
        lambda: TauLeaping(steps=-5),
        lambda: TauLeaping(steps=2.5),
        lambda: TauLeaping(steps=math.inf),
        lambda: TauLeaping(steps="3"),
        lambda: Planner(steps=math.nan),
        lambda: TauLeaping(grid="even"),
        lambda: EventDriven(events_per_call=2),
        lambda: EventDriven(exact=False, events_per_call=0),
        lambda: EventDriven(exact=False, events_per_call=math.inf),
        lambda: EventDriven(slack=0.9),
        lambda: EventDriven(slack=math.inf),
    ],
)
def test_sampler_settings_are_checked(make):
    with pytest.raises(ValueError): make()


# Choices, which all samplers inherit

NONSENSE = "nonsense", -3.0, math.nan, [], {}, object()


@pytest.mark.parametrize("cls", REGISTRY.usable().values(), ids=lambda cls: cls.__name__)
def test_every_field_of_every_sampler_is_checked(cls):
    "Each by name, whatever it is given."
    own = [f.name for f in fields(cls) if f.init]
    assert {"temperature", "top_p", "confidence", "softness", "window", "logits_hook"} <= set(own)
    for name in own:
        for wrong in NONSENSE:
            with pytest.raises(ValueError, match=rf"\b{name}[=:]"): cls(**{name: wrong})


@pytest.mark.parametrize("wrong", [dict(hold="nonsense"), dict(window_ratio=-3.0), dict(window_ratio=2.0)])
@pytest.mark.parametrize("cls", [TauLeaping, Ancestral, Euler, Remasking])
def test_fields_of_leaps_are_checked_in_all_of_them(cls, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))): cls(**wrong)


CHOICES = dict(temperature=0.5, top_p=0.5, confidence="top_prob", softness=0.5, window=2)


@pytest.mark.parametrize("cls", REGISTRY.usable().values(), ids=lambda cls: cls.__name__)
def test_a_choice_that_a_sampler_cannot_use_is_refused(cls):
    for name in CHOICES:
        needed = dict(confidence="top_prob") if name in ("softness", "window") else {}
        options = needed | {name: CHOICES[name]}
        if options.keys() <= set(cls.common_options): assert getattr(cls(**options), name) == CHOICES[name]
        else:
            with pytest.raises(ValueError, match="(confidence|softness|window|temperature|top_p)="): cls(**options)


def test_a_changed_sampler_keeps_its_other_choices():
    hook = lambda logits, x, tau: logits
    sampler = TauLeaping(steps=32, temperature=0.8, top_p=0.9, confidence="top_prob", window_ratio=2.0)
    assert replace(replace(sampler, logits_hook=hook), logits_hook=None) == sampler
    others = dict(steps=32, temperature=0.8, confidence="top_prob", window_ratio=2.0)
    assert replace(sampler, top_p=1.0) == TauLeaping(**others)
    assert pickle.loads(pickle.dumps(sampler)) == sampler


def test_choices_come_first_in_the_order_of_fields():
    "A sampler's repr is in the files of its samples."
    assert [f.name for f in fields(TauLeaping)][-4:] == ["steps", "grid", "hold", "window_ratio"]
    assert repr(TauLeaping()).startswith("TauLeaping(temperature=1.0, top_p=1.0, confidence=None")


def test_simulate_checks_seeds_and_clock():
    with pytest.raises(ValueError, match="seeds"): simulate(pushy, prompts(), TauLeaping(), [1], LIMITS)
    for tau_max in (0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="tau_max"): run(TauLeaping(), LIMITS._replace(tau_max=tau_max))


@pytest.mark.parametrize("grid", ["time", "clock"])
@pytest.mark.parametrize("steps", [2, 3, 64, 1024])
@pytest.mark.parametrize("tau_max", [0.3, 9.210340371976182, 92.10340371976182])
def test_grids_rise_to_exactly_the_end(grid, steps, tau_max):
    taus = TauLeaping(steps=steps, grid=grid).taus(tau_max)
    assert len(taus) == steps and taus[0] == 0 and taus[-1] == tau_max and (taus.diff() > 0).all()


def sampled(sampler, n=4000):
    seeds = torch.randint(2**62, (n,), generator=torch.Generator().manual_seed(7)).tolist()
    return simulate(LAW.oracle(), as_batch([()] * n), sampler, seeds, Limits(40.0, 12))


@pytest.mark.slow
def test_thinning_reproduces_the_law():
    samples = sampled(EventDriven(slack=2.0))
    seen = compare(LAW, samples.sequences)
    assert seen.worst_z < 4 and seen.tv < 2 * seen.floor and seen.outside == 0 and samples.violations == 0


def test_the_frozen_mode_is_biased_and_valid():
    seen = compare(LAW, sampled(EventDriven(exact=False), 1000).sequences)
    assert seen.tv > 0.2 and seen.worst_z > 8 and seen.outside < 0.01


def test_violations_are_counted():
    rising = simulate(
        lambda x, tau: Intensities((0.2 + tau)[:, None] * x.open, x.masked.double(), torch.zeros(*x.tokens.shape, 7)),
        prompts(),
        EventDriven(slack=1.0),
        range(5),
        LIMITS,
    )
    assert rising.violations > 0


def test_samples_are_shown_in_a_line():
    "However many there are, and with trajectories."
    samples = Samples(
        [[3] * 1000] * 50,
        [[True] * 1000] * 50,
        network_calls=7,
        trajectories=[Trajectory([(0.0, [3] * 1000)], [0.0] * 1000, [1.0] * 1000)] * 50,
    )
    assert repr(samples).startswith("Samples(50 sequences, 7 network calls)") and len(repr(samples)) < 200


def test_a_soft_rule_chooses_as_many_as_are_due_even_where_a_score_is_zero():
    sampler = TauLeaping(confidence="rates", softness=0.5)
    x = prompts([[]])._replace(
        tokens=torch.tensor([[2, 1, 1, 1]]),
        fixed=torch.zeros(1, 4, dtype=torch.bool),
        closed=torch.ones(1, 4, dtype=torch.bool),
    )
    state = sampler.init(x, [torch.Generator().manual_seed(0)], LIMITS)
    out = possible(Intensities(unmask=torch.tensor([[0.0, 0.0, 1.0, 0.0]]), logits=torch.zeros(1, 4, 6)), state)
    due = torch.tensor([[False, True, True, False]])
    chosen = sampler.choose(due, out, state, state.x.tokens)
    assert chosen.sum() == 2 and chosen[0, 2]


@pytest.mark.parametrize("grid", ("linear", "cosine", "polynomial:2"))
def test_euler_steps_hold_the_rate(grid):
    sampler, clock = Euler(steps=8, grid=grid), clock_named(grid)
    taus = sampler.taus()
    chance = -torch.expm1(-sampler.duration(taus[:-1], taus[1:]))
    expected = (clock.shape(torch.arange(7, dtype=torch.float64) / 8) / 8).clamp(max=1)
    torch.testing.assert_close(chance, expected, atol=1e-8, rtol=0)
    ancestral = -torch.expm1(-taus.diff())
    assert torch.allclose(chance, ancestral, atol=1e-8) == (grid == "linear")


def test_euler_steps_need_a_step_and_a_clock():
    with pytest.raises(ValueError, match="steps=0"): Euler(steps=0)
    with pytest.raises(ValueError, match="schedule 'sine'"): Euler(grid="sine")


def test_a_window_as_large_as_the_step_unmasks_the_leftmost():
    """With one candidate per mask to unmask the scores decide nothing, and a window without limits changes nothing."""
    draw = lambda **o: run(TauLeaping(steps=9, **o), some=PROMPTS * 6, record=True)
    same = lambda a, b: (a.sequences, a.trajectories) == (b.sequences, b.trajectories)
    assert same(draw(confidence="top_prob", window_ratio=1.0), draw(confidence="leftmost"))
    assert same(draw(confidence="top_prob", window_ratio=1e6), draw(confidence="top_prob"))
    assert same(draw(confidence="top_prob", window_ratio=1e6, window=2), draw(confidence="top_prob", window=2))
    assert not same(draw(confidence="top_prob", window_ratio=1.5), draw(confidence="leftmost"))


@pytest.mark.parametrize("wrong", [dict(window_ratio=0.5), dict(window_ratio=math.inf), dict(window_ratio=math.nan)])
def test_ratios_of_a_window_that_are_refused(wrong):
    with pytest.raises(ValueError, match="window_ratio="): TauLeaping(confidence="top_prob", **wrong)
    with pytest.raises(ValueError, match="window_ratio=2.0: needs a confidence"): TauLeaping(window_ratio=2.0)


@pytest.mark.parametrize("k", [1, 3])
def test_what_would_come_after_the_end_of_the_clock_does_not_come(k):
    "At a rate of 1e-9 an event comes within the clock's unit once in 1e8 runs of this test."
    def slow(x, tau):
        logits = torch.zeros(*x.tokens.shape, len(VOCABULARY), dtype=torch.float64)
        return Intensities(insert=torch.full(x.tokens.shape, 1e-9, dtype=torch.float64), logits=logits)
    limits = Limits(1.0, 9, channels=("insert",))
    found = simulate(slow, prompts(PROMPTS), EventDriven(exact=False, events_per_call=k), range(len(PROMPTS)), limits)
    unchanged = simulate(slow, prompts(PROMPTS), EventDriven(), range(len(PROMPTS)), limits)
    lengths = prompts(PROMPTS).lengths.tolist()
    assert found.sequences == unchanged.sequences and [len(s) + 1 for s in found.sequences] == lengths


def test_remasking_chooses_at_random():
    with pytest.raises(ValueError, match="confidence='top_prob': which tokens are masked again is random"):
        Remasking(confidence="top_prob")
    assert Remasking(share=0.5, cap=0.1).share == 0.5


def test_what_is_counted_is_said_in_words_if_it_happened():
    samples = Samples([], [], network_calls=3, row_evaluations=5, violations=6)
    assert samples.counters_text() == "3 network calls, 5 row evaluations, 6 rate bounds exceeded (violations)"
    assert samples.counters_text() in repr(samples)
    assert Samples([], [], network_calls=3, rule="kept").counters_text() == "3 network calls; kept"
    assert repr(Samples([], [])) == "Samples(0 sequences)"
