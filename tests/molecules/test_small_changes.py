"Formulas and boundaries where a small change of the code would go unnoticed."
import pytest
from rdkit import Chem

from loflexmdm.molecules.data.prepared import is_intact
from loflexmdm.molecules.growth import read_as_written
from loflexmdm.molecules.scores.makeable import FLAT, rings_in


def test_written_hydrogens_are_kept(): assert read_as_written("[H]c1ccccc1").GetNumAtoms() == 7


@pytest.mark.parametrize("bridge, bent", [(FLAT - 1, True), (FLAT, False)])
def test_a_long_bridge_leaves_an_aromatic_ring_flat(bridge, bent):
    found = rings_in(Chem.MolFromSmiles(f"c1cc2ccc1{'C' * bridge}2"))
    assert ("bridged aromatic ring" in found) == bent


def test_a_damaged_file_without_a_digest_is_not_taken_for_whole(tmp_path):
    path = tmp_path / "old.arrow"
    path.write_bytes(b"ARROW1\0\0 and no more")
    assert not is_intact(path)
