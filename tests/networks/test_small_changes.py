"Formulas and boundaries where a small change of the code would go unnoticed."
import pytest
import torch

from loflexmdm.networks.order_causal_masks import places_with_masks

pytestmark = pytest.mark.usefixtures("pico")


def test_positions_of_masks_are_as_many_as_masks_are_inserted():
    prompt, order = torch.tensor([[0]]), torch.tensor([[2, 4, 3, 5]])  # two masks, then both are decided
    found = places_with_masks(prompt, order, 3)
    assert found.decides.tolist() == [[False, False, True, True]]
    assert found.decisions.tolist() == [[2, 3]]
