"Runs of equal tokens by hand, and mixtures of orders by enumeration."
import math
from itertools import permutations

import torch

from loflexmdm.process.plackett_luce import (
    draw_order, in_order, left_first, log_alike, mixed_log_probs, place_scores, runs_of, step_log_probs, tie_runs,
)
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.support.random_numbers import seeded

LETTERS = Vocabulary("ab")


def test_a_run_is_of_free_tokens_side_by_side():
    "Of a prompt `a` and the free tokens `a a b b a`: the prompt is in no run with them, nor is the start token."
    x = collate([prefix_example("a", "aabba", LETTERS), prefix_example("", "aab", LETTERS)])
    runs = runs_of(x)
    assert [runs[0][x.free[0]].tolist(), runs[1][x.free[1]].tolist()] == [[2, 2, 3, 3, 4], [1, 1, 2]]
    assert runs[0, :2].tolist() == [0, 1] and runs.dtype == torch.long


def test_a_mixture_gives_each_order_the_weighted_sum_of_its_components():
    "All six orders of three events under two laws: the steps of the mixture multiply to sum_k pi_k q_k(order)."
    scores = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights, valid = torch.tensor([0.2, 0.8], dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool)
    total = 0.0
    for order in permutations(range(3)):
        tables = torch.stack([step_log_probs(law[None, list(order)], valid) for law in scores], -1)
        joint = weights * tables.diagonal(dim1=1, dim2=2).sum(-1).exp()[0]
        mixed, posterior = mixed_log_probs(tables, weights.log())
        torch.testing.assert_close(mixed[0].diagonal().sum().exp(), joint.sum())
        torch.testing.assert_close(posterior[0], joint / joint.sum())
        torch.testing.assert_close(mixed[0].exp().sum(-1), torch.ones(3, dtype=torch.float64))
        total += joint.sum()
    torch.testing.assert_close(total, torch.tensor(1.0, dtype=torch.float64))


def test_drawn_orders_are_of_a_race():
    "The chance of an order is the product of the chances to be the next of those that are left."
    scores, free, n = torch.tensor([0.5, 7.0, -0.4, 1.2]).double(), torch.tensor([True, False, True, True]), 20_000
    drawn, rate = draw_order(scores.expand(n, -1), free.expand(n, -1), seeded(1)), scores.exp().tolist()
    assert drawn.shape == (n, 3)
    for order in permutations((0, 2, 3)):
        p = math.prod(rate[e] / sum(rate[i] for i in order[k:]) for k, e in enumerate(order))
        found = int((drawn == torch.tensor(order)).all(-1).sum())
        assert abs(found - n * p) < 4 * math.sqrt(n * p * (1 - p)), order
    some = draw_order(scores.expand(2, -1), torch.tensor([[False, True, False, False], [True, False, True, False]]),
        seeded(2))
    assert some[0].tolist() == [1, 4] and sorted(some[1].tolist()) == [0, 2]


def test_events_of_runs_by_hand():
    "Columns 1 and 2 are one run, column 3 another; the second row has two events less."
    runs = torch.tensor([[0, 1, 1, 2], [0, 1, 2, 3]])
    order = torch.tensor([[2, 3, 1], [3, 4, 4]])
    assert in_order(runs, order, 9).tolist() == [[1, 2, 1], [3, 9, 9]]
    assert tie_runs(torch.tensor([[5.0, 1.0, 4.0, 8.0], [1.0, 2.0, 3.0, 4.0]]), runs).tolist() == [[5, 2.5, 2.5, 8],
        [1, 2, 3, 4]]
    assert left_first(order, runs).tolist() == [[1, 3, 2], [3, 4, 4]]
    alike = log_alike(order, runs).exp().round().tolist()
    assert alike[0] == [[2, 1, 2], [1, 1, 1], [1, 1, 1]] and alike[1] == [[1, 2, 2], [1, 2, 2], [1, 1, 1]]


def test_scores_of_places():
    x = collate([prefix_example("a", "bab", LETTERS)])
    assert place_scores(x, 2.0)[0].tolist()[2:] == [0, -2, -4]
    assert place_scores(x, 2.0).dtype == torch.get_default_dtype()
