"The exact laws of edits: known values, wrong rates that must be seen, and refusals."
import math

import pytest
import torch

from loflexmdm.exact.ctmc import as_batch
from loflexmdm.exact.edit_laws import EditLaw, columns_by, edit_bounds, edit_nll, edit_oracle
from loflexmdm.exact.edit_laws import edit_residual, generated_views, label_rates, pair_law

PAIRS = {(a, b): 0.25 for a in "AB" for b in "AB"}


def test_substitutions_only_have_a_closed_form():
    found = pair_law(EditLaw.of(PAIRS))
    assert abs(found.made[0, 0].item() * 2 - (1 + math.exp(-1)) / 2) < 1e-8


@pytest.mark.parametrize("how, bound", [("interleaved", 1.2639), ("block", 1.2639), ("optimal", 0.8466)])
def test_bounds_of_the_smallest_law(how, bound):
    law = EditLaw.of(PAIRS, how)
    paper, tight = edit_bounds(law)
    assert abs(law.probs @ tight - bound) < 1e-4
    assert (edit_nll(law) < tight).all() and (tight <= paper + 1e-12).all()


def test_the_forward_equation_sees_a_wrong_rate():
    law = EditLaw.of(PAIRS, "interleaved", rates=dict(insert=2.0))
    rates = label_rates(law, torch.tensor([0.4], dtype=torch.float64))[0]
    assert edit_residual(law, 0.4).abs().max() < 1e-12
    assert edit_residual(law, 0.4, rates * torch.linspace(0.9, 1.1, len(rates))).abs().max() > 1e-3


def test_the_source_shown_keeps_the_coupling_and_its_end_is_reached():
    law = EditLaw.of({("AB", "A"): 0.5, ("BA", "A"): 0.2, ("BA", "AB"): 0.3}, "block", "both")
    found = pair_law(law)
    torch.testing.assert_close(found.made, found.wanted, rtol=0, atol=1e-7)
    assert abs(generated_views(law).sum(1) - 1).max() < 1e-12


def test_the_oracle_is_silent_where_the_law_never_is():
    out = edit_oracle(EditLaw.of(PAIRS))(as_batch([(3,), (3, 3, 3)]), 0.5)
    assert out.substitute[0, 1] > 0 and out.total()[1] == 0


@pytest.mark.parametrize("tau", [.2, 1.5])
def test_the_oracle_has_the_rates_of_the_law_at_the_reading(tau):
    "Of strings of one letter a substitution alone is possible; a reading below the least counts as that."
    law = EditLaw.of(PAIRS)
    rate = lambda tau: edit_oracle(law)(as_batch([(3,), (4,)]), tau).substitute[:, 1]
    known = label_rates(law, torch.tensor([tau], dtype=torch.float64))[0]
    assert rate(tau).tolist() == pytest.approx([known[law.states.source == k].sum().item() for k in (0, 1)])
    assert rate(tau)[0] != pytest.approx(rate(.7)[0].item()) and rate(0.0).equal(rate(1e-9))
    assert rate(90.0).equal(rate(80.0))


@pytest.mark.parametrize("options, message", [
    (dict(view="x"), "view='x'"), (dict(rates=dict(insert=0.0)), "rates="), (dict(how="best"), "alignment='best'"),
])
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message): EditLaw.of(PAIRS, **options)


def test_probabilities_must_sum_to_one():
    with pytest.raises(ValueError, match="sum to"): EditLaw.of({("A", "B"): 0.5})


def test_optimal_columns_start_with_substitutions():
    found = columns_by("all optimal", (3, 4), (4, 3))
    assert len(found) == 3 and found[0] == ((3, 4), (4, 3)) == columns_by("optimal", (3, 4), (4, 3))[0]
