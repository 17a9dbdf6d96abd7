"Numbers that decide results where nobody gives others: with another value the same command means something else."
import inspect

from loflexmdm.molecules import growth
from loflexmdm.molecules.data.cleaning import Cleaning
from loflexmdm.molecules.data.matched_pairs import Matching
from loflexmdm.molecules.data.sources import hub_smiles
from loflexmdm.molecules.edit_task import SIMILAR
from loflexmdm.molecules.optimise import Genetic


def default(function, name): return inspect.signature(function).parameters[name].default


def test_what_is_exchanged_and_counts_as_similar():
    assert (Matching().most, Matching().share) == (10, 0.5) and SIMILAR == 0.4
    assert (Cleaning().slicer, Cleaning().max_tokens, Cleaning().salts) == ("brics", 0, "refuse")


def test_how_streams_are_shuffled(): assert default(hub_smiles, "buffer") == 10_000


def test_how_spellings_and_parents_are_tried():
    assert (growth.TRIALS, growth.ENOUGH, growth.FINALISTS) == (16, 15, 3)
    assert (Genetic().size, Genetic().mutation, Genetic().ranked) == (50, 0.1, False)
