"Counts and lists of texts from any caller."
import numpy as np
import pytest
import torch

from loflexmdm.support.arguments import read_count, read_items
from loflexmdm.support.limits import Limit

FEW = Limit(10, "rows", "LOFLEXMDM_MAX_FOR_TESTS")


@pytest.mark.parametrize("value", [3, "3", " 3\n", 3.0, np.int64(3), np.uint8(3), np.float64(3), torch.tensor(3)])
def test_a_count_has_many_spellings(value):
    assert read_count("n", value) == 3 and type(read_count("n", value)) is int


@pytest.mark.parametrize("value", [
    True, False, 0, -1, "-1", 2.5, "2.5", "three", "", None, float("nan"), float("inf"), [3], "9" * 30, "²", object(),
    np.float64(2.5), torch.tensor([1, 2]), 1e400,
], ids=lambda value: type(value).__name__)
def test_other_counts_are_refused_by_name(value):
    with pytest.raises(ValueError, match=r"^states=.*: must be (a whole number of )?at least 1$") as e:
        read_count("states", value)
    assert "\n" not in str(e.value)


def test_counts_have_a_least_and_a_limit():
    assert read_count("seed", 0, 0) == 0 and read_count("n", 10, 1, FEW) == 10
    with pytest.raises(ValueError, match="n: 11 rows; at most 10"): read_count("n", "11", 1, FEW)
    with pytest.raises(ValueError, match="at least 5"): read_count("n", 4, 5)


def columns():
    pandas = pytest.importorskip("pandas")
    return [pandas.Series(["CCO", "C"]), pandas.Series(["CCO", "C"], index=[7, 3]), pandas.Index(["CCO", "C"])]


def test_columns_arrays_and_iterators_are_lists():
    for value in [["CCO", "C"], ("CCO", "C"), np.array(["CCO", "C"]), iter(["CCO", "C"]), *columns()]:
        assert read_items("texts", value) == ["CCO", "C"]
    assert read_items("texts", "CCO") == ["CCO"] and read_items("prompts", [("a", ...), ["b"]]) == [("a", ...), ["b"]]


class Mol:
    def GetNumAtoms(self): return 1


@pytest.mark.parametrize("value, message", [
    (None, "texts=None: a list"), (7, "texts=7: a list"), (b"CCO", "texts=b'CCO': a list"), ({"CCO": 1}, "texts={"),
    ({"CCO"}, "texts={"), ([], "texts=.*at least one"), (["CCO", None], r"texts\[1\]=None: is missing"),
    (["CCO", float("nan")], r"texts\[1\]=nan: is missing"), ([7], r"texts\[0\]=7: is of type int"),
    (["CCO", Mol()], r"texts\[1\]=.*: is a molecule; give its SMILES"), (Mol(), "texts=.*: a list"),
])
def test_other_lists_are_refused_by_name_and_place(value, message):
    with pytest.raises(ValueError, match=message): read_items("texts", value)


def test_a_frame_is_not_a_list_of_texts():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="texts=.*a list"): read_items("texts", pandas.DataFrame(dict(a=["CCO"])))
    for missing in (None, float("nan"), pandas.NA, pandas.NaT):
        with pytest.raises(ValueError, match=r"texts\[1\]=.*is missing"):
            read_items("texts", pandas.Series(["a", missing], dtype=object))
