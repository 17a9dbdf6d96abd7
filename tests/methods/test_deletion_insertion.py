"Deletion-insertion diffusion against enumeration: targets, the bound, gradients, and what every method does."
import itertools
import math

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, clock_quadrature
from loflexmdm.methods.deletion_insertion import (
    DeletionInsertion, DeletionInsertionConfig, insertion_targets, waiting_probs,
)
from loflexmdm.methods.one_event import LoInsert
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import CLEAN, DROPPED, Example, PartialSequences, Vocabulary, collate, contract, gap_of
from loflexmdm.process.states import prefix_example

pytestmark = pytest.mark.usefixtures("pico")
VOCABULARY = Vocabulary("abc")
INFILL = Example([2, 3, 3, 4, 3, 3, 4], [True, True, False, False, True, False, False], [True, False, *[False] * 5])


def random_rows(generator: torch.Generator) -> PartialSequences:
    "Clean sequences of two letters, some with prefixes, one with a gap between given tokens, padded."
    rows = [INFILL]
    for _ in range(5):
        n, given = torch.randint(0, 6, (2,), generator=generator).tolist()
        letters = "".join("ab"[i] for i in torch.randint(0, 2, (n + given,), generator=generator))
        rows.append(prefix_example(letters[:given], letters[given:], VOCABULARY))
    return collate(rows)


def drop(x1: PartialSequences, generator: torch.Generator) -> torch.Tensor:
    "A state in which every free token is missing with probability one half."
    missing = x1.free & (torch.rand(x1.tokens.shape, generator=generator) < 0.5)
    return torch.where(missing, DROPPED, CLEAN)


def waiting_slowly(x1: PartialSequences, x: PartialSequences) -> torch.Tensor:
    "For one sequence, from all sets of columns that may be missing and leave the same."
    free, found, count = x1.free[0].nonzero()[:, 0].tolist(), torch.zeros(x1.tokens.shape[1], x.tokens.shape[1]), 0
    for missing in itertools.combinations(free, int(x1.lengths - x.lengths)):
        state = torch.full_like(x1.tokens, CLEAN)
        state[0, list(missing)] = DROPPED
        other = contract(x1, state)
        same = torch.equal(other.tokens, x.tokens) and torch.equal(other.fixed, x.fixed)
        if not same or not torch.equal(other.origin[other.fixed], x.origin[x.fixed]): continue
        for c in missing: found[c, gap_of(x1, state)[0, c]] += 1
        count += 1
    return found.double() / count


def test_waiting_against_all_sets():
    g = torch.Generator().manual_seed(0)
    for _ in range(30):
        x1 = random_rows(g)
        x = contract(x1, drop(x1, g))
        found = waiting_probs(x1, x)
        for i in range(len(x1.tokens)):
            alone, part = x1.rows([i]).trim(), x.rows([i]).trim()
            slow = waiting_slowly(alone, part)
            torch.testing.assert_close(found[i, :slow.shape[0], :slow.shape[1]], slow, atol=1e-13, rtol=0)
            assert found[i].sum().item() == pytest.approx(slow.sum().item(), abs=1e-12)


def test_targets_add_up():
    "To the tokens that are missing, in open gaps alone; nothing at special tokens."
    g = torch.Generator().manual_seed(1)
    for _ in range(20):
        x1 = random_rows(g)
        x = contract(x1, drop(x1, g))
        found = insertion_targets(x1, x, len(VOCABULARY))
        torch.testing.assert_close(found.sum((1, 2)), (x1.lengths - x.lengths).double(), atol=1e-12, rtol=0)
        assert (found[..., :3] == 0).all() and (found[~x.open] == 0).all()


LAW = ToyLaw.of({"aab": 0.4, "abb": 0.3, "bab": 0.3})


class Tabled(DeletionInsertion):
    "With intensities that depend on the tokens there and nothing else."
    name = "did, tabled (tests)"
    def at(self, x, tau):
        key = (x.tokens * torch.tensor([7.0, 3.0, 5.0, 2.0])[:x.tokens.shape[1]]).sum(-1, keepdim=True)
        rate = (1.5 + torch.sin(key + torch.arange(x.tokens.shape[1]))).double() * x.open * (x.lengths < 4)[:, None]
        logits = torch.sin(key[..., None] + torch.arange(len(self.vocabulary))).double().expand(*x.tokens.shape, -1)
        return Intensities(insert=rate, insert_logits=logits.clone().index_fill(-1, torch.arange(3), -math.inf))


class Aligned(Tabled):
    name, match = "loinsert, tabled (tests)", LoInsert.match


def all_states(n: int) -> torch.Tensor:
    here = [(CLEAN, *s) for s in itertools.product((DROPPED, CLEAN), repeat=n)]
    return torch.tensor(here)


def losses(cls, tau: float) -> torch.Tensor:
    "The loss in every state of every sequence, (sequences, states)."
    model = cls(LAW.vocabulary, DeletionInsertionConfig(size="pico", max_length=4))
    state, reading = all_states(3), torch.full((8,), tau, dtype=torch.float64)
    return torch.stack([model.match(LAW.x1.rows([k] * 8), state, reading, torch.ones(8, 4)) for k in range(3)])


def test_the_bound_is_that_of_loinsert():
    "Integrated over all states by quadrature; at one reading they differ."
    total, m = {}, (all_states(3)[:, 1:] == CLEAN).sum(-1)
    for cls in (Tabled, Aligned):
        total[cls] = sum(w * ((-torch.expm1(-tau))**m * torch.exp(-tau * (3 - m)) * losses(cls, tau.item())).sum(-1)
                         for tau, w in zip(*clock_quadrature(64)))
    torch.testing.assert_close(total[Tabled], total[Aligned], atol=1e-9, rtol=0)
    share = 0.5**3
    assert (share * (losses(Tabled, 0.7) - losses(Aligned, 0.7)).sum(-1)).abs().max() > 0.01


def test_the_loss_depends_on_what_is_seen_alone():
    "`aab` without either `a` is the same to DID, and not to loinsert."
    one, other = [i for i, s in enumerate(all_states(3).tolist()) if s[1:] in ([0, 2, 2], [2, 0, 2])]
    did, aligned = losses(Tabled, 0.7)[0], losses(Aligned, 0.7)[0]
    assert did[one] == did[other] and (aligned[one] - aligned[other]).abs() > 1e-3


@pytest.mark.parametrize("options, message", [
    (dict(size="huge"), "size='huge'"), (dict(network="mlp"), "network='mlp'"), (dict(proposal=0.0), "proposal=0.0"),
])
def test_refused_settings(options, message):
    with pytest.raises(ValueError, match=message): DeletionInsertionConfig(**options)
