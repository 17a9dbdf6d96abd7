"Steps that mask clean tokens again: the share of clean tokens stays that of the clock; results of rules."
import math

import pytest
import torch

from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import MASK, Vocabulary, collate, parse_prompt
from loflexmdm.samplers import Limits, Remasking
from loflexmdm.samplers.simulate import RuleResult
from loflexmdm.support.random_numbers import seeded

VOCABULARY = Vocabulary("ab")
A, B = VOCABULARY.encode("ab")


def test_chances_of_masking_keep_the_share():
    now, after = torch.tensor([.5, .2]).double(), torch.tensor([.6, .9]).double()
    sigma, shown = Remasking().chances(now, after)
    assert sigma.tolist() == pytest.approx([.8, .5])
    torch.testing.assert_close(now * (1 - sigma) + (1 - now) * shown, after)
    assert Remasking(share=.5).chances(now, after)[0].tolist() == pytest.approx([.4, .25])
    assert Remasking(cap=.3).chances(now, after)[0].tolist() == pytest.approx([.3, .3])
    assert Remasking().chances(now, torch.tensor([.5, .2]))[0].tolist() == pytest.approx([1, 1])
    sigma, shown = Remasking(share=0.0).chances(now, after)
    assert sigma.tolist() == [0, 0] and shown.tolist() == pytest.approx([.2, .875])


@pytest.mark.parametrize("share", [0.0, .5, 1.0])
def test_steps_keep_the_share_and_end_without_masks(share):
    n, sampler = 800, Remasking(steps=5, share=share)
    prompt = parse_prompt(["<mask>", "a", "<mask>", "<mask>"], VOCABULARY)
    logits = torch.tensor([0, 0, 0, 1.0, 2.0])
    network = lambda x, tau: Intensities(unmask=torch.ones(x.tokens.shape), logits=logits.expand(*x.tokens.shape, -1))
    limits = Limits(9.0, 8, 0, ("unmask",))
    state, again, calls = sampler.init(collate([prompt] * n), [seeded(i) for i in range(n)], limits), 0, 0
    while not state.done.all():
        was, last = state.x.tokens == MASK, bool(state.tau[0] >= state.limits.tau_max)
        state, info = sampler.step(network, state)
        masked, calls = state.x.tokens == MASK, calls + 1
        again += int((masked & ~was).sum())
        clean = 1.0 if last else calls / 5
        found = 1 - masked[:, [1, 3, 4]].double().mean().item()
        assert abs(found - clean) <= 4 * math.sqrt(clean * (1 - clean) / (3 * n)) and state.x.tokens[:, 2].eq(A).all()
        assert [int(count.sum()) for count in info[:3]] == [0, 0, 0]
    assert (again > 0) == (share > 0) and calls == 5 and not (state.x.tokens == MASK).any()
    p = math.e / (1 + math.e)
    assert abs((state.x.tokens[:, [1, 3, 4]] == B).double().mean().item() - p) < 4 * math.sqrt(p * (1 - p) / (3 * n))


def test_results_of_a_rule_by_hand():
    draws, particles = RuleResult(8, 2, reasons=["odd", "odd", "long"]), RuleResult(0, 0, [.1, .3], [4.0, 2.0])
    assert draws.of_draws == (.25, pytest.approx(math.sqrt(.25 * .75 / 8))) and draws.of_particles == (0.0, math.inf)
    assert particles.of_particles == (pytest.approx(.2), pytest.approx(.1)) and particles.of_draws == (0.0, math.inf)
    assert RuleResult(5, 0).of_draws == (0, math.inf) and RuleResult(0, 0, [.4]).of_particles == (.4, math.inf)
    both = draws + particles
    assert both == RuleResult(8, 2, [.1, .3], [4.0, 2.0], ["odd", "odd", "long"]) and not both.disagrees
    assert both.probability == particles.of_particles, "their error is the smaller one, for their size"
    assert RuleResult().probability == (0.0, math.inf) and RuleResult(8, 2).probability == draws.of_draws
    exact = RuleResult(10_000, 5_000) + RuleResult(0, 0, [.1, .1001], [4.0, 2.0])
    assert exact.disagrees and exact.probability == exact.of_draws and not RuleResult(10_000, 5_000, [.1]).disagrees


def test_results_of_a_rule_in_words():
    words = "rule: probability 0.25 +- 0.2, 1 of 4 free draws satisfied it"
    assert str(RuleResult(4, 1)) == words
    assert str(RuleResult(4, 1, reasons=list("aab"))) == words + ", left out: 2 a, 1 b"
    assert str(RuleResult(0, 0, [.5, .5],
        [2.0, 3.0])) == "rule: probability 0.5 +- 0, 2 by particles, 2.5 of them effective"
    far = RuleResult(10_000, 5_000, [.1, .1001], [4.0, 2.0])
    assert "particles find 0.1: prompts differ" in str(far)
    ends = "left out: 2 a, 1 b, 1 c, 1 d, 1 e, 1 f, 1 g, 1 h"
    assert str(RuleResult(11, 1, reasons=list("abcdefgha"))).endswith(ends)
    assert str(RuleResult(11, 1, reasons=list("abcdefghaij"))).endswith(ends + " and 2 other reasons")


def test_the_estimate_with_the_smaller_error_for_its_size_counts():
    both = RuleResult(8, 4, [.1, .3], [2.0, 2.0])
    assert both.of_particles[1] < both.of_draws[1] and not both.disagrees
    assert both.probability == both.of_draws, ".18 of .5 is less than .1 of .2"
