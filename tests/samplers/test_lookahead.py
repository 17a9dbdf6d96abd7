"What a lookahead knows of gaps: counted in free draws, solved for an automaton, and read beside every gap."
import itertools

import pytest
import torch

from loflexmdm.process.automata import Automaton
from loflexmdm.process.rules import Requirement
from loflexmdm.process.states import BOS, PartialSequences, Vocabulary
from loflexmdm.samplers import particles
from loflexmdm.samplers.particles import Chances, Lookahead, gaps_of
from loflexmdm.support.random_numbers import seeded

VOCABULARY = Vocabulary("ab")
A, B = VOCABULARY.encode("ab")
AUTOMATON = Requirement.of("contains:ab", VOCABULARY).automaton


def test_what_gaps_took_is_counted():
    "Of 'ab', b first: the empty text takes b, the gap before it a, and three gaps then take nothing."
    found = gaps_of([[A, B]], [[2.0, 1.0]], 2, prior=0.0)
    start, a, b, end = 2, 0, 1, 2
    for beside, token, outcome in [((1, 1), start, b), ((0, 0), a, end), ((0, 1), b, end)]:
        assert found[*beside, token, outcome] == 1
    assert found[1, 0, start].tolist() == [.5, 0, .5]
    assert found[1, 0, a].tolist() == found[0, 0, a].tolist() and found[1, 1, b].tolist() == found[0, 1, b].tolist()


def test_the_prior_is_the_share_of_all_tokens():
    found, third = gaps_of([[A, B], [B]], [[1.0, 2.0], [1.0]], 2), 1 / 3
    total = [third, 1 + third, 2 + third]  # after a generated token, at the end: a is followed by b, b by nothing twice
    share = [v / sum(total) for v in total]
    assert found[0, 1, 0].tolist() == pytest.approx([share[0] / 2, (1 + share[1]) / 2, share[2] / 2])
    assert found[0, 1, 1].tolist() == pytest.approx([share[0] / 3, share[1] / 3, (2 + share[2]) / 3])
    assert found[0, 1, 2].tolist() == pytest.approx(share), "the start is never generated"
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 2, 3, dtype=torch.float64))
    other = gaps_of([[A, BOS, B]], [[1.0, 5.0, 2.0]], 2)
    assert other.equal(gaps_of([[A, B]], [[1.0, 2.0]], 2)), "tokens that are not ordinary are not counted"


def random_gaps(end: float = .8) -> torch.Tensor:
    "Shares of outcomes after each token: none with probability `end`."
    token = torch.rand(2, 2, 3, 2, generator=seeded(0), dtype=torch.float64)
    return torch.cat([(1 - end) * token / token.sum(-1, keepdim=True), torch.full((2, 2, 3, 1), end).double()], -1)


def move(automaton: Automaton, i: int) -> torch.Tensor:
    "Matrix of the states before and after an id."
    return torch.eye(len(automaton), dtype=torch.float64)[automaton.next[:, i]]


def through(gaps, left: int, right: int, before: int, depth: int) -> torch.Tensor:
    "Matrix of the states at both ends of a gap, whose tokens are at most `depth` splits deep."
    found = gaps[left, right, before, -1] * torch.eye(len(AUTOMATON), dtype=torch.float64)
    if not depth: return found
    return found + taking(gaps, left, right, before, depth)


def taking(gaps, left: int, right: int, before: int, depth: int) -> torch.Tensor:
    split = lambda k: (through(gaps, left, 0, before, depth - 1) @ move(AUTOMATON, (A, B)[k])
                       @ through(gaps, 0, right, k, depth - 1))
    return sum(gaps[left, right, before, k] * split(k) for k in range(2))


def test_gaps_are_solved():
    gaps = random_gaps(.97)
    found = Lookahead.of(AUTOMATON, gaps)
    for left, right, before in itertools.product((0, 1), (0, 1), (0, 1, 2)):
        expected = through(gaps, left, right, before, 4)
        torch.testing.assert_close(found.through[left, right, before], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.taking[left, right, before],
                                   taking(gaps, left, right, before, 4) / .03, atol=2e-4, rtol=0)
    torch.testing.assert_close(found.through.sum(-1), torch.ones(2, 2, 3, len(AUTOMATON), dtype=torch.float64))


def test_rules_with_too_many_states_have_no_lookahead(monkeypatch):
    unknowns = 2 * len(AUTOMATON)
    monkeypatch.setattr(particles, "UNKNOWNS", unknowns)
    assert Lookahead.of(AUTOMATON, random_gaps()) is not None
    monkeypatch.setattr(particles, "UNKNOWNS", unknowns - 1)
    assert Lookahead.of(AUTOMATON, random_gaps()) is None


ROWS = [  # ids, whether each was given, the columns after which gaps are open
    ([B, A], [True, False], {0, 1, 2}), ([A, A], [True, True], {1}), ([B, B], [False, False], {0, 2}),
    ([A, B], [True, False], {2}),
]


class Row:
    "One row with a lookahead, and its chances by products of matrices."
    def __init__(self, ids, given, open_at):
        self.ids, self.given, self.open = [BOS, *ids], [1, *map(int, given), 1], open_at
        self.lookahead = Lookahead.of(AUTOMATON, random_gaps())
        self.end = AUTOMATON.accepting.double()

    def chances(self, rightwards: bool = False) -> Chances:
        n = len(self.ids)
        closed = torch.tensor([[k not in self.open for k in range(n)]])
        x = PartialSequences(torch.tensor([self.ids]), torch.tensor([self.given[:n]]).bool(), closed)
        return Chances(AUTOMATON, x, ~closed, self.lookahead, rightwards)

    def number(self, c: int) -> int: return {A: 0, B: 1}.get(self.ids[c], 2)

    def gap(self, c: int) -> torch.Tensor:
        if c not in self.open: return torch.eye(len(AUTOMATON), dtype=torch.float64)
        return self.lookahead.through[self.given[c], self.given[c + 1], self.number(c)]

    def with_gap(self, c: int | None, own: torch.Tensor | None = None) -> float:
        "Chance of acceptance, with another matrix for the gap after column c."
        v = torch.eye(len(AUTOMATON), dtype=torch.float64)[0]
        for k, i in enumerate(self.ids):
            if k: v = v @ move(AUTOMATON, i)
            v = v @ (own if k == c else self.gap(k))
        return float(v @ self.end)


@pytest.mark.parametrize("ids, given, open_at", ROWS)
def test_chances_beside_every_gap(ids, given, open_at):
    row = Row(ids, given, open_at)
    chances, ahead = row.chances(), row.lookahead
    assert float(chances.now) == pytest.approx(row.with_gap(None))
    for first in (0, 1):
        found = row.chances().gaps(first)[0].tolist()
        assert found[:first] == [0.0] * first
        for c in range(first, 3):
            more = ahead.taking[row.given[c], row.given[c + 1], row.number(c)]
            assert c not in open_at or found[c] == pytest.approx(row.with_gap(c, more))
    for c in open_at:
        at = torch.tensor([c])
        assert float(row.chances().ends(at)) == pytest.approx(row.with_gap(c, torch.eye(len(AUTOMATON)).double()))
        left = ahead.through[row.given[c], 0, row.number(c)]
        right = [move(AUTOMATON, i) @ ahead.through[0, row.given[c + 1], k] for k, i in enumerate((A, B))]
        assert row.chances().tokens(at)[0].tolist() == pytest.approx([row.with_gap(c, left @ r) for r in right])
        if c > min(open_at): continue
        assert row.chances(True).tokens(at)[0].tolist() == pytest.approx([row.with_gap(c, r) for r in right])


def test_rows_of_different_lengths_and_gaps_are_as_alone():
    rows = [Row(*ROWS[0]), Row(*ROWS[2]), Row(*ROWS[3])]
    parts = [row.chances() for row in rows]
    x = PartialSequences(*(torch.cat([getattr(p.x, name) for p in parts]) for name in ("tokens", "fixed", "closed")))
    together = Chances(AUTOMATON, x, ~x.closed, rows[0].lookahead)
    assert together.now.tolist() == pytest.approx([row.with_gap(None) for row in rows])
    at = torch.tensor([0, 2, 2])
    expected = [row.chances().tokens(c[None])[0].tolist() for row, c in zip(rows, at)]
    assert together.tokens(at).tolist() == [pytest.approx(e) for e in expected]
