"Small rules of the readers of molecules, each with the case that only it decides."
import pytest

from loflexmdm.molecules.closures import ring_size
from loflexmdm.molecules.data.records import holds_smiles, sdf_parts

BLOCK = ["m", "", "", "  0  0", "M  END"]


def test_a_property_ends_at_a_blank_line():
    assert sdf_parts([*BLOCK, "> <a>", "1", "", "stray", "> <b>", "", "2", ""])[1] == {"a": "1", "b": "2"}
    assert sdf_parts([*BLOCK, "> <a>", "1", "2", "", "3"])[1] == {"a": "1\n2"}


def test_a_molfile_without_its_end_ends_at_the_first_property():
    text, properties = sdf_parts([*BLOCK[:-1], "> <a>", "1", ""])
    assert text == "\n".join(BLOCK[:-1]) + "\n" and properties == {"a": "1"}
    assert sdf_parts(BLOCK[:-1]) == ("\n".join(BLOCK[:-1]) + "\n", {})


@pytest.mark.parametrize("good, bonds, result", [
    (10, 10, True), (8, 8, True), (7, 7, False), (10, 5, True), (10, 4, False),
])
def test_a_column_of_smiles_has_four_fifths_molecules_and_bonds_in_half(good, bonds, result):
    cells = ["CC=O"] * bonds + ["CCO"] * (good - bonds) + ["none!"] * (10 - good)
    assert holds_smiles(cells) is result


def test_the_size_of_a_ring_that_atoms_close():
    fragment = "*CCCC*"
    for outside in (2, 3): assert ring_size("C1CCC" + "N" * outside + "1", "*CCCC*") == 4 + outside
    assert ring_size("C1CCCN1", fragment) == 0  # no atom stands for both points
    assert ring_size("NCCCCN", fragment) == 0 and ring_size(None, fragment) == 0
