"Runs of equal tokens, by hand."
import torch

from loflexmdm.process.plackett_luce import runs_of
from loflexmdm.process.states import Vocabulary, collate, prefix_example

LETTERS = Vocabulary("ab")


def test_a_run_is_of_free_tokens_side_by_side():
    "Of a prompt `a` and the free tokens `a a b b a`: the prompt is in no run with them, nor is the start token."
    x = collate([prefix_example("a", "aabba", LETTERS), prefix_example("", "aab", LETTERS)])
    runs = runs_of(x)
    assert [runs[0][x.free[0]].tolist(), runs[1][x.free[1]].tolist()] == [[2, 2, 3, 3, 4], [1, 1, 2]]
    assert runs[0, :2].tolist() == [0, 1] and runs.dtype == torch.long
