"Formulas and boundaries where a small change of the code would go unnoticed."
import itertools

import pytest
import torch

from loflexmdm.networks.order_causal import block_mask
from loflexmdm.networks.order_causal_masks import places_with_masks

pytestmark = pytest.mark.usefixtures("pico")


def test_positions_of_masks_are_as_many_as_masks_are_inserted():
    prompt, order = torch.tensor([[0]]), torch.tensor([[2, 4, 3, 5]])  # two masks, then both are decided
    found = places_with_masks(prompt, order, 3)
    assert found.decides.tolist() == [[False, False, True, True]]
    assert found.decisions.tolist() == [[2, 3]]


@pytest.mark.parametrize("paired", [True, False])
def test_blocks_see_what_may_have_happened(paired):
    content, first = 5, 3
    columns = content * 2 if paired else content + 2
    rule = block_mask(columns, first + content, content, torch.device("cpu")).mask_mod
    for column, key in itertools.product(range(columns), range(first + content)):
        seen = bool(rule(0, 0, torch.tensor(column), torch.tensor(key)))
        assert seen == (key <= first + column % content or not paired and column >= content)
