"Masked diffusion: the canvas, bounds against enumeration, sampling, filling in, a run from end to end."
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from loflexmdm.methods.base import method_class
from loflexmdm.methods.masked import Canvas, MaskedConfig, MaskedDiffusion, clean_log_probs
from loflexmdm.methods.sampling import generate
from loflexmdm.process.paths import hide, hide_some
from loflexmdm.process.states import BOS, MASK, Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers import Ancestral, EventDriven, Samples, TauLeaping, Trajectory
from loflexmdm.support.notebook import seeded

VOCABULARY = Vocabulary("ab")  # ids 3 and 4; the blank is 5
SAMPLERS = [
    EventDriven(exact=False), EventDriven(), EventDriven(exact=False, events_per_call=2, confidence="top_prob"),
    Ancestral(steps=1), Ancestral(steps=3, grid="cosine"), TauLeaping(steps=5),
]


pytestmark = pytest.mark.usefixtures("pico")


def shaken(cls=MaskedDiffusion, seed=1, scale=0.3, max_length=4, **options):
    "A small model with random parameters everywhere, in double precision."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, g = cls(VOCABULARY, MaskedConfig(size="pico", max_length=max_length, **options)), seeded(seed)
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g))
    return model.eval()


def batch(*strings, prompt=""): return collate([prefix_example(prompt, s, VOCABULARY) for s in strings])
def prompts(*given): return collate([parse_prompt(p, VOCABULARY) for p in given])


def cost(model, x1, hidden, *taus):
    "-log mu summed over the hidden columns of one canvas, at each clock reading: a list."
    x = x1._replace(tokens=torch.where(torch.tensor([hidden]), MASK, x1.tokens)).rows([0] * len(taus))
    with torch.no_grad(): logits = model.intensities(x, tau=torch.tensor(taus)).logits.double()
    return (-sum(logits[:, n].log_softmax(-1)[:, x1.tokens[0, n]] for n, h in enumerate(hidden) if h)).tolist()


def states(x1):
    return [
        [bool(h) for h in s] for s in itertools.product(*[(0, 1) if free else (0,) for free in x1.free[0].tolist()])
    ]


def bound(model, x1, quadrature=24):
    "Eq 5 on the clock by quadrature and enumeration; tau = -log v."
    x1 = model.canvas(x1)
    nodes, weights = np.polynomial.legendre.leggauss(quadrature)
    n, total, v = int(x1.free.sum()), 0.0, (nodes + 1) / 2
    for s in states(x1)[1:]:
        total += (
            weights / 2 / v * v ** sum(s) * (1 - v) ** (n - sum(s)) * cost(model, x1, s, *(-np.log(v)).tolist())
        ).sum()
    return total


def discrete(model, x1, readings, uniform=False):
    "The bound of steps at the readings given, which begin with 0, by enumeration."
    x1, total = model.canvas(x1), 0.0
    n = int(x1.free.sum())
    for now, after in zip(readings, [*readings[1:], math.inf]):
        v, chance = math.exp(-now), 1 - math.exp(now - after)
        for s in states(x1)[1:]:
            p = v ** sum(s) * (1 - v) ** (n - sum(s))
            total += p * (
                sum(s) * math.log(3) if uniform and after == math.inf else chance * cost(model, x1, s, now)[0]
            )
    return total


# the canvas

def test_canvas_of_clean_sequences():
    model = shaken(max_length=6)
    x = model.canvas(
        collate(
            [
                prefix_example("", "ab", VOCABULARY),
                prefix_example("ab", "a", VOCABULARY),
                prefix_example("b", "", VOCABULARY),
                prefix_example("", "ababa", VOCABULARY),
            ]
        )
    )
    assert x.tokens.tolist() == [[2, 3, 4, 5, 5, 5], [2, 3, 4, 3, 5, 5], [2, 4, 5, 5, 5, 5], [2, 3, 4, 3, 4, 3]]
    assert x.free.tolist() == [
        [False, True, True, True, True, True], [False] * 3 + [True] * 3, [False] * 2 + [True] * 4, [False] + [True] * 5,
    ]
    assert x.closed.all() and x.origin is None
    assert all(torch.equal(a, b) for a, b in zip(model.canvas(x)[:3], x[:3]))  # a canvas is one already


def test_blanks_go_where_the_gap_is():
    "A training sequence whose open gap lies before a fixed suffix, and one without a gap."
    model, suffix = shaken(max_length=6), batch("aab")
    fixed, closed = torch.tensor([[True, False, False, True]]), torch.tensor([[False, False, False, True]])
    x = model.canvas(suffix._replace(fixed=fixed, closed=closed))
    assert x.tokens.tolist() == [[2, 3, 3, 5, 5, 4]] and x.free.tolist() == [[False, True, True, True, True, False]]
    x = model.canvas(suffix._replace(closed=torch.ones_like(closed)))
    assert x.tokens.tolist() == [[2, 3, 3, 4, 5, 5]] and x.free.tolist() == [[False, True, True, True, False, False]]


def test_starting_from_prompts():
    model = shaken(max_length=6)
    x = model.start(prompts(["a"], [..., "b"], ["a", "<mask>", "b"], ["<mask>", ...]), 5)
    assert x.tokens.tolist() == [[2, 3, 1, 1, 1, 5], [2, 1, 1, 1, 4, 5], [2, 3, 1, 4, 5, 5], [2, 1, 1, 1, 1, 5]]
    assert torch.equal(x.free, x.masked) and x.closed.all()


@pytest.mark.parametrize(
    "prompt, limit, named",
    [
        (["a", ..., "b", ...], 6, "several gaps"),
        ([..., "<mask>", ...], 6, "several gaps"),
        (["a", "b"], 3, "nothing to fill"),
        ("ababab", 6, "max_length is 6"),
    ],
)
def test_prompts_without_a_canvas(prompt, limit, named):
    with pytest.raises(ValueError, match=named): shaken(max_length=6).start(prompts(prompt), limit)


def test_nothing_to_fill_names_the_prompt():
    x = prompts(["a"], ["a", "<mask>"])
    with pytest.raises(ValueError, match="prompt 1: nothing to fill"):
        shaken(max_length=6).start(x._replace(tokens=torch.where(x.masked, 3, x.tokens)), 6)


def test_sequences_without_a_canvas():
    with pytest.raises(ValueError, match="a sequence has 5 tokens"): shaken().canvas(batch("ab", "abab"))
    x = batch("aa")
    with pytest.raises(ValueError, match="several gaps"):
        shaken().canvas(x._replace(fixed=torch.tensor([[True, True, False]])))


def test_finishing_removes_blanks_everywhere():
    raw = Samples(
        [[3, 5, 4, 5]],
        [[False, True, True, True]],
        network_calls=7,
        trajectories=[
            Trajectory([(0.0, [3, 1, 1, 1]), (0.5, [3, 5, 1, 1]), (2.0, [3, 5, 4, 5])], [0.0] * 4, [0.0, 0.5, 1.0, 2.0])
        ],
    )
    out = shaken().finish(raw)
    assert (out.sequences, out.free, out.network_calls) == ([[3, 4]], [[False, True]], 7)
    assert out.trajectories == [
        Trajectory([(0.0, [3, 1, 1, 1]), (0.5, [3, 1, 1]), (2.0, [3, 4])], [0.0, 0.0], [0.0, 1.0])
    ]
    assert raw.sequences == [[3, 5, 4, 5]]


# hiding

def test_hide_masks_free_tokens_with_the_chance_given():
    x1 = shaken(max_length=6).canvas(batch("ab", prompt="b")).rows([0] * 20_000)
    x = hide(x1, torch.tensor([[0.3]]), seeded(0))
    assert not x.masked[~x1.free].any() and torch.equal(x.tokens[~x.masked], x1.tokens[~x.masked])
    z = (x.masked[x1.free].double().mean() - 0.3) / (0.21 / x1.free.sum()) ** 0.5
    assert abs(z) < 4
    assert torch.equal(hide(x1, torch.ones(1, 1), seeded(0)).masked, x1.free)
    assert not hide(x1, torch.zeros(1, 1), seeded(0)).masked.any()


def test_hide_some_draws_every_number_evenly_and_its_share():
    x1 = shaken().canvas(batch(*["ab"] * 6000))
    x, share = hide_some(x1, seeded(0))
    k = x.masked.sum(-1)
    assert k.bincount().tolist() == [0, 2000, 2000, 2000]  # the lattice leaves nothing to chance
    sets = x.masked[k == 1].long().argmax(-1).bincount(minlength=4)[1:]
    assert stats.chisquare(sets.numpy()).pvalue > 1e-4
    for n in (1, 2, 3): assert stats.kstest(share[k == n].numpy(), stats.beta(n, 4 - n).cdf).pvalue > 1e-4


def test_rows_with_nothing_free():
    model = shaken()
    x1 = batch("ab")._replace(fixed=torch.tensor([[True] * 3]), closed=torch.tensor([[True] * 3]))
    assert not hide_some(model.canvas(x1), seeded(0))[0].masked.any()
    assert model.nll_bound(x1, 2)[0].tolist() == [0.0]
    assert model.loss(x1).loss == 0
    assert model.discrete_bound(x1, 3, 2)[0].tolist() == [0.0]


# the loss and the bounds

MODELS = dict(linear={}, time=dict(time=True, schedule="polynomial:2"))


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_bounds_against_enumeration(options):
    "Also of a network that sees the clock: the reading must fit the number of masks."
    model, x1 = shaken(**options), batch("ab", "b")
    many = x1.rows(torch.arange(2).repeat_interleave(1500))
    # features of the clock oscillate
    truth = [bound(model, x1.rows([i]), 600 if model.config.time else 24) for i in range(2)]
    x, tau, rate = model.draw(model.canvas(many), seeded(0))
    with torch.no_grad(): draws = -rate * clean_log_probs(model.logits(x, tau), model.canvas(many), x).sum(-1)
    for values in (model.nll_bound(many, 2, seeded(1))[0], draws):
        for v, true in zip(values.double().view(2, -1), truth):
            assert abs(v.mean() - true) < 4 * v.std() / len(v) ** 0.5


@pytest.mark.parametrize("options", [{}, dict(time=True)], ids=["still", "time"])
@pytest.mark.parametrize("how", ["network", "uniform"])
def test_discrete_bounds_against_enumeration(options, how):
    model, x1 = shaken(**options), batch("ab")
    # the cosine clock at 0, 1/3, 2/3
    readings = [0.0, -math.log(math.cos(math.pi / 6)), -math.log(math.cos(math.pi / 3))]
    values = model.discrete_bound(x1.rows([0] * 4000), 3, 2, seeded(2), how, "cosine")[0]
    assert abs(values.mean() - discrete(model, x1, readings, how == "uniform")) < 4 * values.std() / len(values) ** 0.5


def test_one_step_is_exact():
    model, x1 = shaken(), batch("ab")
    mean, error = model.discrete_bound(x1, 1, 3)
    assert mean.item() == pytest.approx(discrete(model, x1, [0.0]), rel=1e-6) and error.item() < 1e-6
    assert model.discrete_bound(x1, 1, 3, reconstruction="uniform")[0].item() == pytest.approx(
        3 * math.log(3), rel=1e-12
    )


def test_the_loss_is_the_mean_of_its_draws_and_its_gradient_reaches_everything():
    for options in ({}, dict(time=True)):
        model, x1 = shaken(**options).train(), batch("ab", "b", "aba")
        terms = model.loss(x1, seeded(3))
        x, tau, rate = model.draw(model.canvas(x1), seeded(3))
        by_hand = (
            sum(
                r
                * -sum(
                    model.logits(x, tau)[i, n].log_softmax(-1)[model.canvas(x1).tokens[i, n]]
                    for n in range(4)
                    if x.masked[i, n]
                )
                for i, r in enumerate(rate.tolist())
            )
            / 3
        )
        torch.testing.assert_close(terms.loss, by_hand)
        assert terms.metrics["bound_tight"].item() == pytest.approx(terms.loss.item())
        assert not any(v.requires_grad for v in terms.metrics.values())
        terms.loss.backward()
        assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_a_subclass_changes_the_weights_alone():
    class Doubled(MaskedDiffusion):
        def weights(self, log_k, masked, rate): return 2 * super().weights(log_k, masked, rate)
    x1 = batch("ab", "b")
    ours, theirs = shaken(Doubled).loss(x1, seeded(0)), shaken().loss(x1, seeded(0))
    torch.testing.assert_close(ours.loss, 2 * theirs.loss)
    torch.testing.assert_close(ours.metrics["bound_tight"], theirs.loss.detach())
    assert method_class("mdm") is MaskedDiffusion and MaskedDiffusion.channels == Canvas.channels == ("unmask",)


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda m, x: m.nll_bound(x, 1), "samples=1"),
        (lambda m, x: m.discrete_bound(x, 0), "steps=0"),
        (lambda m, x: m.discrete_bound(x, 2.5), "steps=2.5"),
        (lambda m, x: m.discrete_bound(x, 2, 1), "samples=1"),
        (lambda m, x: m.discrete_bound(x, 2, reconstruction="none"), "reconstruction='none'"),
        (lambda m, x: m.discrete_bound(x, 2, grid="square"), "schedule 'square'"),
        (lambda m, x: m.intensities(x), "either t or tau"),
        (lambda m, x: m.intensities(x, torch.ones(1), tau=torch.ones(1)), "either t or tau"),
    ],
)
def test_bad_calls(call, named):
    with pytest.raises(ValueError, match=named): call(shaken(), batch("ab"))


@pytest.mark.parametrize(
    "options, named",
    [
        (dict(schedule="quadratic"), "schedule 'quadratic'"),
        (dict(schedule="polynomial:0"), "w=0.0"),
        (dict(size="huge"), "size='huge'"),
        (dict(max_length=1), "max_length=1"),
    ],
)
def test_bad_configs(options, named):
    with pytest.raises(ValueError, match=named): MaskedConfig(**options)


def test_padding_costs_nothing_when_there_is_none():
    "A sequence that fills its canvas of two columns: one after the other in either order, evenly."
    model, x1 = shaken(max_length=3), batch("ab")
    assert torch.equal(model.canvas(x1).tokens, x1.tokens)
    alone, first, both = ([False, False, True], [False, True, False], [False, True, True])
    by_hand = sum(cost(model, x1, s, 1.0)[0] for s in (alone, first, both)) / 2
    assert bound(model, x1) == pytest.approx(by_hand, rel=1e-6)


# the network

def test_the_network_sees_tokens_only():
    "Flags of prompts change nothing; a time changes nothing unless asked for; special tokens are never predicted."
    model, x = shaken(), prompts(["a", "<mask>", "b"])
    out = model.intensities(x, tau=torch.ones(1))
    other = model.intensities(x._replace(fixed=~x.fixed, closed=~x.closed), tau=torch.full((1,), 3.0))
    assert torch.equal(out.logits, other.logits) and out.insert is None
    assert torch.equal(out.unmask, x.masked.float())
    assert out.logits[..., :3].eq(-torch.inf).all()
    assert out.logits[..., 3:].isfinite().all()
    timed = shaken(time=True)
    assert not torch.equal(
        timed.intensities(x, tau=torch.ones(1)).logits, timed.intensities(x, tau=torch.full((1,), 3.0)).logits
    )
    torch.testing.assert_close(
        timed.intensities(x, torch.tensor([0.5])).logits, timed.intensities(x, tau=torch.tensor([math.log(2)])).logits
    )


# sampling

@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_every_sampler(sampler):
    "Prompts stay, no mask or blank is left, and a sequence depends on its seed, not on its batch."
    model, given = shaken(max_length=8), [["a"], ["a", "<mask>", "b"], ["b", ..., "a"], []]
    a, b, c = (
        generate(model, given, n=3, sampler=sampler, generator=seeded(1), batch_size=size) for size in (512, 5, 1)
    )
    assert a.sequences == b.sequences == c.sequences and a.free == b.free
    assert all(t in (3, 4) for s in a.sequences for t in s) and max(map(len, a.sequences)) <= 7
    kept = [[t for t, free in zip(s, f) if not free] for s, f in zip(a.sequences, a.free)]
    assert kept == [[3]] * 3 + [[3, 4]] * 3 + [[4, 3]] * 3 + [[]] * 3
    assert all(len(s) <= 3 and s[0] == 3 and s[-1] == 4 for s in a.sequences[3:6])


def test_one_call_for_each_mask_by_default():
    out = generate(shaken(max_length=8), n=20, generator=seeded(2), record=True)
    assert shaken().default_sampler == EventDriven(exact=False)
    assert out.network_calls == 7
    assert out.row_evaluations == 140
    for s, path in zip(out.sequences, out.trajectories):
        assert path.frames[-1][1] == s and len(path.unmasked_at) == len(s) and all(v > 0 for v in path.unmasked_at)


def test_a_smaller_largest_length():
    out = generate(shaken(max_length=8), n=100, generator=seeded(3), max_length=3)
    assert max(map(len, out.sequences)) <= 2


@pytest.mark.parametrize(
    "kwargs, named",
    [
        (dict(prompts=[["a", ..., "b", ...]]), "several gaps"),
        (dict(prompts=[list("abababa")]), "nothing to fill"),
        (dict(n=1, min_length=2), "min_length=2"),
        (dict(n=1, max_length=1), "nothing to fill"),
    ],
)
def test_bad_sampling(kwargs, named):
    with pytest.raises(ValueError, match=named): generate(shaken(max_length=8), **kwargs)


def test_steps_below_one():
    with pytest.raises(ValueError, match="steps=0"): Ancestral(steps=0)


@pytest.mark.parametrize(
    "sampler, exact", [(EventDriven(exact=False), True), (Ancestral(steps=2), False)], ids=["events", "steps"]
)
def test_the_law_of_what_is_generated(sampler, exact):
    """Chains of a random network over two columns, by hand: one column after the other in
    either order, or also both at once."""
    model, n = shaken(max_length=3), 4000
    def law(*tokens):
        x = prompts(["<mask>", "<mask>"])._replace(tokens=torch.tensor([[BOS, *tokens]]))
        with torch.no_grad(): return model.intensities(x, tau=torch.ones(1)).logits[0, 1:].double().softmax(-1)
    both = law(MASK, MASK)
    truth = {}
    for i, j in itertools.product((3, 4, 5), repeat=2):
        ordered = (both[0, i] * law(i, MASK)[1, j] + both[1, j] * law(MASK, j)[0, i]).item() / 2
        at_once = (both[0, i] * both[1, j]).item()
        # two steps of chance 1/2, then 1: as often both in one
        truth[i, j] = ordered if exact else ordered / 2 + at_once / 2
    found = [tuple(s) for s in raw_canvases(model, sampler, n)]
    assert stats.chisquare([found.count(k) for k in truth], [n * p for p in truth.values()]).pvalue > 1e-4


def raw_canvases(model, sampler, n):
    "Generated canvases with their blanks."
    class Raw(MaskedDiffusion):
        def finish(self, samples): return samples
    raw = Raw(VOCABULARY, model.config)
    raw.load_state_dict(model.state_dict())
    return generate(raw, n=n, sampler=sampler, generator=seeded(4), batch_size=n).sequences


# from end to end


def test_rows_without_a_gap_get_fixed_blanks_whatever_their_neighbours():
    from loflexmdm.process.states import BOS, Example, collate
    model = MaskedDiffusion(Vocabulary("ab"), MaskedConfig(size="nano", max_length=6))
    short = Example([BOS, 3], [True, False], [True, True])
    long = Example([BOS, 3, 4, 3], [True, False, False, False], [True, True, True, True])
    together, alone = model.canvas(collate([short, long])), model.canvas(collate([short]))
    assert together.fixed[0].tolist() == alone.fixed[0].tolist() == [True, False, True, True, True, True]
    assert together.tokens[0].tolist() == [BOS, 3] + [model.blank] * 4
