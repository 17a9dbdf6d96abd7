"Formulas and boundaries where a small change of the code would go unnoticed."
import pytest
import torch

from loflexmdm.exact.ctmc import as_batch
from loflexmdm.process.channels import apply_events
from loflexmdm.process.intensities import TokenLaws, cat_laws
from loflexmdm.process.matching import leave_one_out, reinforce
from loflexmdm.process.paths import Coupling
from loflexmdm.process.readings import ClockProposal
from loflexmdm.process.schedules import clock_log_probs
from loflexmdm.process.states import CLEAN, DROPPED, MASKED, Vocabulary, prefix_example
from loflexmdm.process.streams import HEAD, Stream
from loflexmdm.support.notebook import seeded

def randn(*shape, seed=0): return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def test_leaving_one_of_two_out_takes_the_other_as_baseline():
    losses, log_p = randn(2, 5), randn(2, 5, seed=1)
    torch.testing.assert_close(reinforce(losses, log_p, losses.flip(0)), leave_one_out(losses, log_p))
    torch.testing.assert_close(reinforce(losses, log_p, 0.7), ((losses - 0.7) * log_p + losses).mean(0))


def test_clock_readings_stay_finite_at_the_end_of_the_uniform_distribution(monkeypatch):
    "A uniform number of float64 can be 1 - 2^-53; the reading there is at most that of 1 - 1e-9."
    monkeypatch.setattr(torch, "rand", lambda n, **options: torch.full((n,), 1 - 2.0**-53, dtype=torch.float64))
    tau, weight = ClockProposal(c=2.0)(1, dtype=torch.float64)
    assert 0 < tau.item() <= 2e9 * (1 + 1e-6) and weight.item() == pytest.approx((2 + tau.item()) ** 2 / 2)


def test_laws_of_two_batches_are_those_of_each():
    "Also where every batch keeps its logits by number."
    a, b = randn(2, 3, 6), randn(1, 3, 6, seed=1)
    for parts in ([a, b], [a], [b, a, b]):
        torch.testing.assert_close(cat_laws([TokenLaws.of(p) for p in parts]).dense(), torch.cat(parts))


@pytest.mark.parametrize("values", [(0.7, 1.3, 2.1), (2.0, 0.4, 0.9), (0.1, 3.0, 0.5)])
def test_second_derivatives_of_state_probabilities(values):
    """All pairs of tau, b_in and b_um against finite differences of the first derivatives, which are the same with a
    graph as without one."""
    at = [torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in values]
    for kind in range(3):
        log_p = clock_log_probs(*at)[0, kind]
        plain, kept = (torch.autograd.grad(log_p, at, create_graph=graph, retain_graph=True) for graph in (False, True))
        for a, b in zip(plain, kept, strict=True): torch.testing.assert_close(a, b.detach())
    assert torch.autograd.gradgradcheck(clock_log_probs, at)


def test_positions_start_missing_or_masked():
    for start in (DROPPED, MASKED): assert Coupling(start).start == start
    with pytest.raises(ValueError, match=f"start={CLEAN}: choose"): Coupling(CLEAN)


def test_a_deleted_token_keeps_the_insertions_after_it():
    x = as_batch([[3, 4]])
    event = lambda column: torch.tensor([[int(k == column) for k in range(3)]])
    draw = dict(insert=lambda x, where, column: torch.where(where, 5, x.tokens))
    found = apply_events(x, dict(delete=event(1), insert=event(1)), draw)
    assert found.tokens[0, 1:].tolist() == [5, 4]


def test_the_head_of_a_stream_ends_before_its_size():
    with pytest.raises(ValueError, match="only the first"): Stream(lambda k: (), lambda row, k: "")[HEAD]


def test_examples_of_a_stream_are_those_of_its_rows_however_many_were_read():
    stream = Stream(lambda k: range(97), lambda row, number: prefix_example("", [row], Vocabulary(range(97))))
    for i in (0, 64, 65, 127, 128, 300): assert stream[i].tokens[-1] == Vocabulary(range(97)).encode([i % 97])[0], i
