"Event times of whole generations: one set of them is one trajectory, and its states have the laws that paths say."
from itertools import product

import pytest
import torch

from loflexmdm.process.channels import CHANNELS
from loflexmdm.process.clocks import clock_named
from loflexmdm.process.paths import Coupling, Inserting, InsertUnmask, TwoClocks, Unmasking, hide_some
from loflexmdm.process.states import CLEAN, DROPPED, MASK, MASKED, Vocabulary, collate, prefix_example
from loflexmdm.samplers.edits_event_by_event import Remove, Replace
from loflexmdm.samplers.event_by_event import Place
from loflexmdm.samplers.masks_event_by_event import Decide, PlaceMask
from loflexmdm.support.notebook import seeded
from loflexmdm.support.registries import METHODS

VOCABULARY = Vocabulary("abcd")
RATES = {InsertUnmask: 2, TwoClocks: 0, Unmasking: 1, Inserting: 1}  # that a path takes
PATHS = [
    InsertUnmask(), TwoClocks(clock_named("linear"), clock_named("power:2")), Unmasking(), Inserting(),
    TwoClocks(clock_named("shifted:0.01"), clock_named("power:0.5")),
]


def batch(n=1):
    "Rows with a prompt, without one, and with nothing that is free."
    words = [("ab", "cdcd"), ("", "dc"), ("abc", "")]
    return collate([prefix_example(*word, VOCABULARY) for word in words] * n)


def rates_of(path, x1, seed=0):
    return [torch.rand(x1.tokens.shape, generator=seeded(seed + k), dtype=torch.float64) + .2
            for k in range(RATES[type(path)])]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_a_sample_is_the_state_of_a_generation_with_the_same_random_numbers(path, dtype):
    x1 = batch(50)
    rates = [r.to(dtype) for r in rates_of(path, x1)]
    tau = torch.rand(len(x1.tokens), generator=seeded(9)).to(dtype) * 3
    times = path.times(x1, *rates, generator=seeded(1))
    assert len(times) == len(path.channels) == len(path.states) - 1
    assert torch.equal(path.at(times, tau), path.sample(x1, tau, *rates, generator=seeded(1)))


@pytest.mark.parametrize("path", PATHS)
def test_a_generation_leads_from_the_source_to_the_data_and_never_back(path):
    x1 = batch(20)
    times = path.times(x1, *rates_of(path, x1), generator=seeded(2))
    knots = torch.cat([torch.zeros(1), torch.logspace(-3, 2.5, 40)]).double()
    states = torch.stack([path.at(times, knot.expand(len(x1.tokens))) for knot in knots])
    assert (states.diff(dim=0) >= 0).all()
    assert torch.equal(states[0], path.coupling.states(x1)) and (states[-1] == CLEAN).all()
    assert set(states[:, x1.free].unique().tolist()) <= set(path.states)


@pytest.mark.parametrize("path", PATHS)
def test_prompts_and_padding_have_always_been_there(path):
    x1 = batch()
    times = path.times(x1, *rates_of(path, x1), generator=seeded(3))
    assert all((time[~x1.free] == -torch.inf).all() and time[x1.free].isfinite().all() for time in times)
    for reading in (0.0, 1e-9, 0.005, 1.0):  # the shifted schedule begins at a reading of 0.01
        state = path.at(times, torch.full((3,), reading, dtype=torch.float64))
        assert (state[~x1.free] == CLEAN).all()


def test_times_have_no_gradient():
    x1 = batch()
    rates = [r.requires_grad_() for r in rates_of(InsertUnmask(), x1)]
    assert not any(time.requires_grad for time in InsertUnmask().times(x1, *rates, generator=seeded(0)))


def test_two_readings_of_a_generation_have_the_joint_law_of_the_chain():
    n, b, c, first, second = 40_000, .7, 1.6, .5, 1.3
    x1 = collate([prefix_example([], "a", VOCABULARY)] * n)
    of = lambda rate: torch.full(x1.tokens.shape, rate, dtype=torch.float64)
    path, at = InsertUnmask(), lambda tau: torch.full((n,), tau, dtype=torch.float64)
    times = path.times(x1, of(b), of(c), generator=seeded(4))
    pairs = 3 * path.at(times, at(first))[:, 1] + path.at(times, at(second))[:, 1]
    share = torch.bincount(pairs, minlength=9).view(3, 3).double() / n

    R = torch.tensor([[-b, b, 0], [0, -c, c], [0, 0, 0]], dtype=torch.float64)
    start = torch.tensor([1, 0, 0], dtype=torch.float64) @ torch.linalg.matrix_exp(R * first)
    joint = start[:, None] * torch.linalg.matrix_exp(R * (second - first))
    z = (share - joint) / (joint * (1 - joint) / n).sqrt().clamp_min(1e-12)
    assert z.abs().max() < 4.5

    apart = path.sample(x1, at(second), of(b), of(c), generator=seeded(5))[:, 1]
    assert (apart < path.at(times, at(first))[:, 1]).any()  # of another generation: it may lie behind


@pytest.mark.parametrize("path", [p for p in PATHS if not isinstance(p, TwoClocks)])
def test_probabilities_of_all_states_are_those_of_draws(path):
    n, x1 = 20_000, collate([prefix_example("a", "bc", VOCABULARY)])
    rates, reading = rates_of(path, x1, 7), .9
    states = torch.tensor(list(product(*(path.states if f else (CLEAN,) for f in x1.free[0].tolist()))))
    each = lambda k: (x1.map(lambda v: v.expand(k, -1)), torch.full((k,), reading, dtype=torch.float64))
    many, tau = each(len(states))
    p = path.log_prob(many, states, tau, *(r.expand(len(states), -1) for r in rates)).exp()
    assert abs(p.sum().item() - 1) < 1e-12
    many, tau = each(n)
    drawn = path.sample(many, tau, *(r.expand(n, -1) for r in rates), generator=seeded(6))
    frequency = (drawn[:, None] == states).all(-1).double().mean(0)
    assert ((frequency - p).abs() / (p * (1 - p) / n).sqrt()).max() < 4.5


def test_the_first_state_of_a_path_is_its_coupling():
    assert [path.coupling for path in PATHS[:4]] == [Coupling(s) for s in (DROPPED, DROPPED, MASKED, DROPPED)]
    with pytest.raises(ValueError, match="start=2"): Coupling(CLEAN)


def test_every_channel_says_whether_it_is_clocked():
    METHODS.all()  # whose modules define channels
    event_by_event = {Place.name, PlaceMask.name, Decide.name, Replace.name, Remove.name}
    assert {name for name, channel in CHANNELS.items() if not channel.clocked} == {"append", "fill", *event_by_event}
    assert all(CHANNELS[name].clocked for path in PATHS for name in path.channels)


def test_some_hidden_tokens_are_a_set_of_any_size():
    "Of three free tokens each of the seven sets of k has chance 1 / 3 / C(3, k); the share is of mean k / 4."
    n, x = 6000, collate([prefix_example("a", "bab", VOCABULARY), prefix_example("ab", "", VOCABULARY)])
    masked, share = hide_some(x.rows([0] * n), seeded(0))
    hidden = masked.tokens != x.rows([0] * n).tokens
    assert not hidden[:, :2].any() and (masked.tokens[hidden] == MASK).all()
    for choice in list(product((False, True), repeat=3))[1:]:
        p, found = 1 / 3 / (1, 3, 3, 1)[sum(choice)], (hidden[:, 2:5] == torch.tensor(choice)).all(-1)
        assert abs(found.sum() - n * p) < 4 * (n * p * (1 - p)) ** .5
        assert share[found].mean() == pytest.approx(sum(choice) / 4, abs=4 * .25 / int(found.sum()) ** .5)
    sizes = hidden.sum(-1)
    assert [int((sizes == k).sum()) for k in (1, 2, 3)] == [n // 3] * 3, "sizes come from a lattice"
    same, share = hide_some(x.rows([1, 1]), seeded(0))
    assert same.tokens.equal(x.rows([1, 1]).tokens) and share.tolist() == [1, 1]
