"Runs of equal tokens by hand, and mixtures of orders by enumeration."
from itertools import permutations

import torch

from loflexmdm.process.plackett_luce import mixed_log_probs, runs_of, step_log_probs
from loflexmdm.process.states import Vocabulary, collate, prefix_example

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
