import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest

matplotlib.use("agg")

from loflexmdm.support.colours import COLOURS  # noqa: E402
from loflexmdm.reports.figures import trajectory_strip  # noqa: E402
from loflexmdm.samplers import Trajectory  # noqa: E402
from loflexmdm.process.states import MASK, Vocabulary  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
VOCABULARY = Vocabulary(["<a>", "b&"])
GROWING = Trajectory(
    [(0.0, []), (0.1, [MASK]), (0.2, [MASK, MASK]), (0.5, [3, MASK]), (0.9, [3, 4])], [0.1, 0.2], [0.5, 0.9]
)


def texts(strip):
    return [
        [t.text or "_" for t in row.iter(SVG + "text")] for row in ElementTree.fromstring(strip.svg).findall(SVG + "g")
    ]


def test_a_strip_has_a_row_for_each_change_and_escapes_tokens():
    assert texts(trajectory_strip(GROWING, VOCABULARY)) == [[], ["_"], ["_", "_"], ["<a>", "_"], ["<a>", "b&"]]


def test_a_strip_marks_what_was_inserted():
    rows = ElementTree.fromstring(trajectory_strip(GROWING, VOCABULARY).svg).findall(SVG + "g")
    edges = [[r.get("stroke") == COLOURS["insert"] for r in row.iter(SVG + "rect")] for row in rows]
    assert edges == [[], [True], [False, True], [False, False], [False, False]]


def test_a_long_strip_is_thinned_and_keeps_both_ends():
    shown = texts(trajectory_strip(GROWING, VOCABULARY, most=2))
    assert shown == [[], ["<a>", "b&"]]


def test_a_strip_leaves_the_prompt_out(tmp_path):
    strip = trajectory_strip(GROWING, VOCABULARY, skip=1)
    assert texts(strip)[-1] == ["b&"] and strip.save(tmp_path / "s.svg").read_text() == strip.svg


@pytest.mark.parametrize("options, named", [(dict(most=1), "most=1"), (dict(seconds=0), "seconds=0")])
def test_wrong_strips(options, named):
    with pytest.raises(ValueError, match=named): trajectory_strip(GROWING, VOCABULARY, **options)
