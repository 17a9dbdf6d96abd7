"Rates that undo edits, and guidance on Intensities with zeros in them."
import pytest
import torch

from loflexmdm.exact.edit_laws import EditLaw, edit_matrix, label_rates, view_probs
from loflexmdm.exact.reverse_rates import reverse_matrix, reverse_rates
from loflexmdm.process.intensities import Intensities
from loflexmdm.samplers.guidance import guide

LAW = EditLaw.of({("A", "B"): 0.3, ("AB", "A"): 0.3, ("", "BA"): 0.4}, "interleaved", rates=dict(delete=2.0))


@pytest.mark.parametrize("tau", [0.1, 1.0, 4.0])
def test_forward_and_reverse_together_keep_the_law(tau):
    at = torch.tensor([tau], dtype=torch.float64)
    p, u, r = view_probs(LAW, at)[0], edit_matrix(LAW, label_rates(LAW, at))[0], reverse_rates(LAW, at)
    assert (p @ (u + reverse_matrix(LAW, r)[0])).abs().max() < 1e-14
    assert (p @ (u + reverse_matrix(LAW, 1.1 * r)[0])).abs().max() > 1e-3


def rates(insert, logits):
    return Intensities(insert=torch.tensor([insert]).double(), insert_logits=torch.tensor([logits]).double())


def test_zeros_are_kept_and_a_zero_reference_leaves_the_condition():
    c = rates([0.0, 2.0, 3.0], [[0.0, 1.0], [0.0, -torch.inf], [0.0, 2.0]])
    u = rates([1.0, 0.0, 3.0], [[0.0, 1.0], [0.0, 1.0], [-torch.inf, 0.0]])
    for scheme in ("naive", "fixed", "weighted"):
        for w in (0.0, 0.5, 1.0, 2.0, 4.0):
            out = guide(c, u, w, scheme)
            assert out.insert.isfinite().all() and not out.insert_logits.isnan().any()
            if w: assert out.insert[0, 0] == 0 and out.insert_logits[0, 1, 1] == -torch.inf
    assert guide(c, u, 2.0).insert[0, 1] == 2.0


def test_a_deletion_is_guided_without_a_distribution():
    c, u = Intensities(delete=torch.tensor([[2.0]])), Intensities(delete=torch.tensor([[8.0]]))
    assert guide(c, u, 1.0).delete.item() == pytest.approx(0.5)
    assert guide(c, u, 0.5, "weighted").delete.item() == pytest.approx(4.0)
    assert guide(c, u, 1.0, "fixed").delete.item() == pytest.approx(2.0)


def test_masks_have_no_distribution_in_gaps():
    logits = torch.randn(1, 1, 4, generator=torch.Generator().manual_seed(0))
    c = Intensities(torch.ones(1, 1), torch.ones(1, 1), logits)
    u = Intensities(2 * torch.ones(1, 1), torch.ones(1, 1), torch.zeros(1, 1, 4))
    out = guide(c, u, 1.0)
    assert out.insert.item() == pytest.approx(0.5) and out.unmask.item() == pytest.approx(1.0)
    torch.testing.assert_close(out.logits, torch.log_softmax(2 * logits, -1))
