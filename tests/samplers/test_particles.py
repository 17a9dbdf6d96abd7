"Particles: their weights, what resampling draws, and what is recorded of them."
import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from registered import VOCABULARY, build, registered

from loflexmdm.methods.sampling import encode_prompts, generate
from loflexmdm.process.rules import Requirement
from loflexmdm.process.states import BOS, MASK, Example, collate
from loflexmdm.samplers import Limits
from loflexmdm.samplers.particles import (
    Chosen, Finished, NextEvent, NextMask, ancestors, chosen_among, draw_particles, effective_number, log_mean,
    number_of,
    one_of, only_end, proposal_of,
)


@pytest.fixture(autouse=True)
def parts(monkeypatch): registered(monkeypatch)


def drawn(rule: str, seeds: list[int], particles: int = 4, record: bool = False, n: int = 3) -> Chosen:
    "Particles of a model under a rule, without a lookahead."
    method = build("ar")
    rows = method.begin(encode_prompts(None, n, VOCABULARY, 8), 8, seeds)
    limits = Limits(method.tau_max, 8, 0, method.channels, 8)
    proposal = proposal_of(method.default_sampler, method.channels)(
        method.default_sampler, Requirement.of(rule, VOCABULARY), limits)
    with torch.inference_mode(): return draw_particles(method, rows, proposal, seeds, particles, record)


def test_frames_are_the_sequence_at_every_change():
    for one in drawn("length:3-5", [4, 5, 6], record=True).found:
        texts = [tokens for _, tokens in one.frames]
        assert texts[0] == [] and texts[-1] == one.tokens
        assert [len(t) for t in texts] == list(range(len(one.tokens) + 1))
        assert all(text == one.tokens[:len(text)] for text in texts)
    assert not drawn("length:3-5", [4, 5, 6]).found[0].frames


def test_a_sample_depends_on_its_own_seed():
    together = drawn("contains:b", [4, 5, 6])
    for i, seed in enumerate((4, 5, 6)):
        alone = drawn("contains:b", [seed], n=1)
        assert alone.found[0].tokens == together.found[i].tokens
        assert alone.log_probability[0] == pytest.approx(together.log_probability[i])
    assert drawn("contains:b", [7, 8, 9]).found != together.found


class NeverBefore:
    "A hook of events: nothing comes before what was written first, and b is never drawn."
    def gaps(self, scores, x, column):
        assert scores.shape[0] == len(x.tokens) and column.shape[1] == scores.shape[1] - 1
        scores = scores.clone()
        scores[:, :-1] = scores[:, :-1].masked_fill((column == 0) & (x.lengths > 1)[:, None], -torch.inf)
        return scores

    def tokens(self, logits, x, column):
        return logits.index_fill(-1, torch.tensor([VOCABULARY.index["b"]]), -torch.inf)


def test_hooks_of_events_see_gaps_and_tokens():
    method = build("ordered-insertion")
    sampler = replace(method.default_sampler, logits_hook=NeverBefore())
    found = generate(method, n=8, seed=0, sampler=sampler, record=True)
    assert any(map(len, found.sequences)) and not any(VOCABULARY.index["b"] in s for s in found.sequences)
    for path in found.trajectories:
        texts = [tokens for _, tokens in path.frames if tokens]
        assert all(text[0] == texts[0][0] for text in texts)


def test_what_a_finished_particle_says():
    for one in drawn("length:2-4", [1, 2, 3]).found:
        assert 2 <= len(one.tokens) <= 4 and one.free == [True] * len(one.tokens)
        assert all(len(times) == len(one.tokens) for times in one.times)


def test_weights_that_are_all_zero_have_no_effective_number():
    w = torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf], [-torch.inf] * 4]).double()
    assert effective_number(w).tolist() == [2, 0]
    assert log_mean(torch.tensor([1.0, 3.0]).double().log()).item() == pytest.approx(math.log(2))
    assert log_mean(w)[1] == -torch.inf


def test_ancestors_and_the_one_that_is_drawn():
    w = torch.tensor([1.0, 0.0, 3.0]).double().log()
    assert ancestors(w, 0.0) == [0, 2, 2] and ancestors(w, 0.99) == [2, 2, 2]
    assert [one_of(w, u) for u in (0.0, 0.24, 0.26, 0.999)] == [0, 0, 2, 2]


def test_events_without_an_allowed_one_are_drawn_freely_and_weigh_nothing():
    p = torch.tensor([[0.25, 0.75], [0.5, 0.5]]).double()
    proposed, total = chosen_among(p, torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double())
    assert proposed.exp().tolist() == [[0.25, 0], [0.5, 0.5]] and total.exp().tolist() == [0.25, 0]
    ends = only_end(p, torch.tensor([False, True]))
    assert ends.tolist() == [[0.25, 0.75], [0, 1]]


def test_numbers_of_tokens_for_a_lookahead():
    automaton = Requirement.of("contains:b", VOCABULARY).automaton
    first, last = automaton.tokens.start, automaton.tokens.stop - 1
    found = number_of(automaton, torch.tensor([0, first, last, last + 1, last + 2])).tolist()
    assert found == [automaton.ordinary, 0, automaton.ordinary - 1, automaton.ordinary, automaton.ordinary]


def test_rows_that_are_drawn_again_add_to_the_estimates():
    first = Chosen([None, Finished([3])], [0.0, -1.0], [1.0, 2.0], 3, 12)
    both = first.replace_at([0], Chosen([Finished([4])], [-2.0], [4.0], 2, 4))
    assert [one.tokens for one in both.found] == [[4], [3]]
    assert both == Chosen([Finished([4]), Finished([3])], [0.0, -1.0, -2.0], [1.0, 2.0, 4.0], 5, 16)


@pytest.mark.parametrize("rule", ["contains:b", "count:b=1", "regex:a(b|c)*", "length:2", "excludes:d"])
def test_what_masks_may_become(rule):
    "A token or nothing is allowed at a mask where some choice for the other masks satisfies the rule."
    requirement, (a, b, c, d) = Requirement.of(rule, VOCABULARY), VOCABULARY.encode("abcd")
    rows = [[a, MASK, MASK], [MASK, b, MASK], [a, c, MASK]]
    proposal = NextMask(build("mdm").default_sampler, requirement, None)
    proposal.prepare(SimpleNamespace(x=collate([Example([BOS, *row], [True] * 4, [False] * 4) for row in rows])))

    expected = []
    for row in rows:
        masks = [k for k, token in enumerate(row) if token == MASK]
        choices = [(a, b, c, d, None) if k in masks else (row[k],) for k in range(3)]
        good = [text for text in itertools.product(*choices) if requirement.accepts([t for t in text if t is not None])]
        expected += [[any(text[k] == t for text in good) for t in (a, b, c, d, None)] for k in masks]
    assert proposal.allowed[:, [a, b, c, d, -1]].tolist() == expected
    assert not proposal.allowed[:, :a].any() and proposal.masked.sum() == 5


def next_event(rule: str, ids: str, open_at: set[int], most: int = 8, power: float = 1.0) -> NextEvent:
    "A proposal of insertion in any order, without a lookahead, that looks at one row."
    closed = [k not in open_at for k in range(len(ids) + 1)]
    x = collate([Example([BOS, *VOCABULARY.encode(ids)], [True] * len(closed), closed)])
    limits = Limits(9.0, most, 0, ("insert",), most)
    proposal = NextEvent(build("ordered-insertion").default_sampler, Requirement.of(rule, VOCABULARY), limits)
    proposal.start(SimpleNamespace(x=x))
    return proposal


def test_events_are_drawn_among_those_that_a_rule_allows():
    "In proportion to the model's. Of 'ab', with one b: a gap takes a, c or d; the weight is of the gap and the token."
    proposal, scores = next_event("count:b=1", "ab", {0, 2}), torch.tensor([[.5, .2, .3]]).log()
    column = torch.tensor([[0, 2]])
    gaps = proposal.gaps(scores, proposal.x, column)
    assert gaps.exp().tolist() == [pytest.approx([.5, .2, .3])] and proposal.of_gap.exp().item() == pytest.approx(1)
    a, b, c, d = VOCABULARY.encode("abcd")
    p = torch.zeros(1, len(VOCABULARY)).index_fill(1, torch.tensor([a, b]), 1.0).softmax(-1)
    tokens = proposal.tokens(p.log(), proposal.x, torch.tensor([2])).exp()[0]
    known = p[0, [a, c, d]] / p[0, a:d + 1].sum()
    assert tokens[[a, c, d]].tolist() == pytest.approx(known.tolist()) and tokens[b] == 0 and not tokens[:a].any()
    drawn = known.sum()
    assert proposal.of_token.exp().item() == pytest.approx(drawn.item())
    going, done = (SimpleNamespace(done=torch.tensor([value])) for value in (False, True))
    assert proposal.log_weight(going).item() == pytest.approx(drawn.log().item())
    assert proposal.log_weight(done).item() == pytest.approx(0)


def test_gaps_and_ends_that_a_rule_forbids():
    "'a' must get one b: it cannot end as it is, and ends where there is no room."
    column, scores = torch.tensor([[0, 1]]), torch.tensor([[.5, .2, .3]]).log()
    proposal = next_event("count:b=1", "a", {0, 1})
    assert proposal.gaps(scores, proposal.x, column).exp().tolist() == [pytest.approx([.5, .2, 0])]
    assert proposal.of_gap.exp().item() == pytest.approx(.7)
    complete = next_event("count:b=1", "b", {0, 1}, most=2)
    assert complete.gaps(scores, complete.x, column).exp().tolist() == [pytest.approx([0, 0, 1])]
    one_left = next_event("count:b=1", "b", {0, 1}, most=3)
    assert one_left.gaps(scores, one_left.x, column).exp().tolist() == [pytest.approx([.5, .2, .3])]
    closed = next_event("regex:ab", "a", {1})
    assert closed.gaps(scores, closed.x, column).exp().tolist() == [pytest.approx([0, .2, 0])]
    assert closed.of_gap.exp().item() == pytest.approx(.2)
