"Formulas and boundaries where a small change of the code would go unnoticed."
from loflexmdm.exact.edit_laws import EditLaw, pair_law


def test_a_pair_with_several_alignments_has_all_of_its_probability():
    found = pair_law(EditLaw.of({("AB", "BA"): 1.0}, "all optimal"))
    assert found.wanted.tolist() == [[1.0]] and abs(found.made.sum().item() - 1) < 1e-6
