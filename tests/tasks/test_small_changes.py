"Formulas and boundaries where a small change of the code would go unnoticed."

import matplotlib.pyplot as plt
import numpy as np

from loflexmdm.tasks.brackets import edits_to_balanced
from loflexmdm.tasks.star_graphs import StarGraph, draw_star_answer, radial_layout


def test_two_opening_brackets_cost_one_substitution(): assert edits_to_balanced("((") == 1


GRAPH = StarGraph(edges=((0, 1), (1, 2), (1, 3), (1, 4)), source=0, goal=2, path=(0, 1, 2))


def test_the_way_in_is_drawn_opposite_the_way_out():
    places = radial_layout(GRAPH)
    centre = min(places, key=lambda v: np.hypot(*places[v]))
    out, into = (np.array(places[v]) for v in (2, 0))
    assert centre == 1 and np.dot(out, into) < -0.9 * np.hypot(*out) * np.hypot(*into)


def test_an_answer_with_nodes_that_are_not_there_is_drawn_without_them():
    ax = draw_star_answer(GRAPH, "0 1 1 5 5 1".split())
    plt.close(ax.figure)
