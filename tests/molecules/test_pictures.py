"Pictures of molecules: labels of atoms, lines of bonds, and the molecules that a text was."
import math
import re
from dataclasses import dataclass

import pytest
from rdkit import Chem

from loflexmdm.molecules.pictures import _bond, _stages, atom_label, drawing_of, molecule_picture, stages_picture
from loflexmdm.process.states import MASK, Vocabulary

VOCABULARY = Vocabulary(["C", "O", "="])


@pytest.mark.parametrize("smiles, labels", [
    ("CCO", ["", "", "OH"]), ("C", ["CH₄"]), ("C[NH3+]", ["", "NH₃⁺"]), ("[Ca+2]", ["Ca2⁺"]),
    ("[O-]C", ["O⁻", ""]),
    ("[13CH3]C", ["CH₃", ""]), ("C[CH2-]", ["", "CH₂⁻"]),
])
def test_labels_of_atoms(smiles, labels):
    assert [*map(atom_label, Chem.MolFromSmiles(smiles).GetAtoms())] == labels


@pytest.mark.parametrize("start, end, order, gaps, svg", [
    ((1, 2), (3, 2), 1.0, (.5, .25), "M1.50 2.00l1.25 0.00"),
    ((1, 2), (1, -1), 1.0, (.5, 0.0), "M1.00 1.50l0.00 -2.50"),
    ((0, 0), (3, 4), 1.5, (1.0, 0.0), "M0.60 0.80l2.40 3.20"),
    ((0, 0), (2, 0), 2.0, (0.0, 0.0), "M0.00 -0.11l2.00 0.00M0.00 0.11l2.00 0.00"),
    ((0, 0), (0, 2), 3.0, (0.0, .5), "M0.17 0.00l0.00 1.50M0.00 0.00l0.00 1.50M-0.17 0.00l0.00 1.50"),
    ((1, 1), (1, 1), 1.0, (0.0, 0.0), "M1.00 1.00l0.00 0.00"),
])
def test_a_bond_is_as_many_lines_as_its_order(start, end, order, gaps, svg):
    assert _bond(start, end, order, gaps) == svg


def test_parts_of_a_drawing():
    drawn = drawing_of(Chem.MolFromSmiles("C=CO"))
    assert [(i, j) for _, i, j in drawn.bonds] == [(0, 1), (1, 2)]
    assert [svg.count("M") for svg, _, _ in drawn.bonds] == [2, 1]
    assert ["OH" in svg for svg in drawn.atoms] == [False, False, True]
    left, top, width, height = drawn.box
    assert 2 < height < width and left < 0 < left + width and top < 0 < top + height


def lengths(drawn) -> list[float]:
    "Length of the first line of every bond."
    parts = [re.search(r"l(\S+) (\S+?)[M\"]", svg).groups() for svg, _, _ in drawn.bonds]
    return [math.hypot(float(x), float(y)) for x, y in parts]


def test_bonds_leave_room_for_labels_and_rings_have_alternate_double_bonds():
    drawn = drawing_of(Chem.MolFromSmiles("CCO"))
    assert lengths(drawn) == pytest.approx([1.5, 1.5 - .38], abs=.01)
    assert sorted(svg.count("M") for svg, _, _ in drawing_of(Chem.MolFromSmiles("c1ccccc1")).bonds) == [1, 1, 1, 2, 2,
        2]
    assert all("<circle" in svg and svg.startswith("<g {}>") and svg.endswith("</g>") for svg in drawn.atoms)


def centres(drawn) -> list[tuple[float, float]]:
    return [tuple(map(float, re.search(r'cx="(\S+)" cy="(\S+)"', svg).groups())) for svg in drawn.atoms]


def test_the_box_is_one_wider_than_the_atoms_on_each_side():
    drawn = drawing_of(Chem.MolFromSmiles("CC(C)CO"))
    (left, top, width, height), (x, y) = drawn.box, zip(*centres(drawn))
    assert (left, top) == pytest.approx((min(x) - 1, min(y) - 1), abs=.01)
    assert (width, height) == pytest.approx((max(x) - min(x) + 2, max(y) - min(y) + 2), abs=.01)


def test_a_molecule_lies_as_the_one_before_it():
    before = Chem.MolFromSmiles("OCc1ccccc1N")
    first, second = drawing_of(before), drawing_of(Chem.MolFromSmiles("Nc1c(CO)cccc1F"), before)
    wanted = [centres(first)[k] for k in (8, 7, 2, 1, 0)]
    for place, known in zip([centres(second)[k] for k in range(5)], wanted): assert place == pytest.approx(known,
        abs=.02)


def test_bonds_appear_with_the_later_of_their_atoms():
    picture = molecule_picture(Chem.MolFromSmiles("CO"), [2, 0], [[(5, 2)], [(9, 2)], [(3, 2)]])
    assert [kind for kind, _ in picture.parts] == ["lp-bond", "lp-atom", "lp-atom"]
    assert picture.changes == [[(3, 1), (5, 2)], [(3, 2)], [(5, 2)]]


@dataclass
class Track:
    frames: list[dict]


def frames_of(*texts: str) -> Track:
    "Frames whose tokens are at every other place."
    known = {c: i for c, i in zip("CO=?", [*VOCABULARY.encode(["C", "O", "="]), MASK])}
    return Track([{2 * k: known[c] for k, c in enumerate(text)} for text in texts])


def test_stages_are_the_molecules_that_differ():
    track = frames_of("", "C=", "CC", "C?C", "CO", "OC", "CCO", "C=O")
    found = _stages(track, VOCABULARY, "".join)
    assert [(k, Chem.MolToSmiles(mol)) for k, mol in found] == [(2, "CC"), (4, "CO"), (6, "CCO"), (7, "C=O")]
    assert [k for k, _ in _stages(track, VOCABULARY, "".join, 2)] == [2, 7]
    picture = stages_picture(track, VOCABULARY, "".join)
    assert picture.changes == [[(2, 2), (4, 0)], [(4, 2), (6, 0)], [(6, 2), (7, 0)], [(7, 2)]]
    assert [svg.count("<path") for _, svg in picture.parts] == [1, 1, 2, 1]
    assert [svg.count("<circle") for _, svg in picture.parts] == [2, 2, 3, 2]
    assert all(svg.count("<g ") == svg.count("</g>") and svg.count("{}") == 1 for _, svg in picture.parts)
    boxes = [drawing_of(mol, before).box for (_, mol), (_, before) in zip(found, [(0, None), *found])]
    assert picture.box[0] == min(b[0] for b in boxes)
    assert picture.box[1] + picture.box[3] == pytest.approx(max(b[1] + b[3] for b in boxes))
    with pytest.raises(ValueError, match="at no time a molecule"): stages_picture(frames_of("", "C="), VOCABULARY,
        "".join)
