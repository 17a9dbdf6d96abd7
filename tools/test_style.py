"What the style's counts find, in texts of which it is known."
import ast

import pytest
import style


@pytest.mark.parametrize("text, expected", [
    ("a loss that is no bound", 1), ("there is no bound", 0), ("it is no longer so", 0), ("text that is none", 1),
    ("empty if there is none", 0), ("only the leftmost so many masks", 1), ('"the loss is "\n    "no bound"', 1),
    ("it repairs; it never mends", 1), ("two tokens a call", 1), ("two tokens per call", 0), ("lost in silence", 1),
    ("where it is none of them", 0), ("# the smallest rate of\n# late", 1), ("x is None", 0),
    ("samples held against the law", 1), ("compared with the law", 0), ("a longer training", 1), ("a training run", 0),
    ("hazards blow up", 1), ("0.7 s a step", 1), ("one step per call", 0), ("any list will do, as long", 1),
])
def test_phrases_that_the_list_finds(text, expected): assert len(list(style.phrases_in(text))) == expected


CASE, EXPORT, HIDDEN = "1 + 1", "#| export\ndef f(): return 1", "#| hide\nimport x"


@pytest.mark.parametrize("cells, expected", [
    ([EXPORT, CASE], False), ([CASE, EXPORT], True), ([HIDDEN, EXPORT], False),
    (["#| export\nimport x", CASE, EXPORT], True), ([CASE], None), (["#| export\nimport x\nfrom y import z"], None),
])
def test_what_counts_as_a_case_first(cells, expected):
    section = style.Section("", cells)
    assert (None if section.exported is None else section.shows_a_case) == expected


def test_a_method_hidden_by_an_attribute_is_found():
    assert style.shadowed(ast.parse("class A:\n def __init__(self): self.read = 1\n def read(self): ...")) == ["A.read"]


@pytest.fixture
def package(tmp_path):
    "A package of one module with what is counted."
    (tmp_path / "loflexmdm").mkdir()
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "loflexmdm" / "rows.py").write_text(
        '"Read rows (Talts et al. 2018)."\n\n\ndef rows_kept(n):\n    "Return rows. Without the last one."\n\n\n'
        'def padding(x):\n    "Whether `x` is padded. ValueError for text. `x` is a tensor. Return the rest."\n\n\n'
        'def read_lines(): "Read lines. They end at newlines. In order."\n')
    return tmp_path


def test_sentences_without_a_verb_and_participles_are_found(package):
    where = "loflexmdm/rows.py"
    found = ["rows_kept: Without the last one.", "read_lines: In order."]
    assert list(style.verbless(package)) == [f"{where} {name}" for name in found]
    assert list(style.participles(package)) == [f"{where} rows_kept"]
    assert [d.partition(": ")[0] for d in style.openings(package)] == [f"{where} padding"]
