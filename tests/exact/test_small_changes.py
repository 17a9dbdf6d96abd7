"Formulas and boundaries where a small change of the code would go unnoticed."
import pytest
import torch

from loflexmdm.exact.edit_laws import EditLaw, pair_law
from loflexmdm.exact.rank_calibration import randomised_ranks


def test_a_pair_with_several_alignments_has_all_of_its_probability():
    found = pair_law(EditLaw.of({("AB", "BA"): 1.0}, "all optimal"))
    assert found.wanted.tolist() == [[1.0]] and abs(found.made.sum().item() - 1) < 1e-6


@pytest.mark.parametrize("truths, draws", [((2,), (2, 0)), ((3,), (2, 4)), ((2, 2), (2, 4))])
def test_ranks_need_draws_of_each_truth(truths, draws):
    with pytest.raises(ValueError, match="draws"): randomised_ranks(torch.zeros(truths), torch.zeros(draws))
