"What a model was trained for is counted from its training sequences, saved, shown, and compared with requests."
import itertools

import pytest

import loflexmdm
from loflexmdm.cli.info import describe_model
from loflexmdm.models.trained_for import COUNTED, notes, trained_for
from loflexmdm.process.states import Vocabulary, filled_example
from loflexmdm.support.saved_files import CONFIG_FILE, read_config
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe_from

TEXTS = ["".join(letters) for letters in itertools.product("ab", repeat=6)]


def recipe_on(tmp_path, method="ordered-insertion", **task):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    task = dict(kind="text", file=str(tmp_path / "texts.txt"), unit="characters") | task
    train = dict(steps=1, batch_size=4, valid_size=4)
    return recipe_from(dict(task=task, model=dict(method=method, size="nano"), train=train))


def statement_of(recipe) -> dict:
    task, method = recipe.build()
    return trained_for(task.dataset("train"), method.vocabulary, method.channels, task.features_of)


@pytest.mark.parametrize("method", ["ar", "ordered-insertion"])
def test_saved_with_the_model_and_shown(tmp_path, method):
    recipe = recipe_on(tmp_path, method)
    recipe.trainer(tmp_path / "run", progress=False).fit()
    made = loflexmdm.load(tmp_path / "run")
    assert made.method.trained_for == statement_of(recipe) == read_config(tmp_path / "run" / "best")["trained_for"]
    assert "trained for: nothing given" in describe_model(str(tmp_path / "run"))
    made.save(tmp_path / "again")
    assert loflexmdm.load(tmp_path / "again").method.trained_for == made.method.trained_for
    assert CONFIG_FILE in {p.name for p in (tmp_path / "again").iterdir()}


@pytest.mark.parametrize("prompt, without, one, two", [
    ([], 0, 0, 0), (["a", ..., "b"], 1, 0, 0), (["a", ..., "b", ..., "a"], 1, 1, 0), (list("ab" * 4), 2, 1, 1),
])
def test_gaps_that_the_training_did_not_have(tmp_path, prompt, without, one, two):
    gaps = [{}, dict(infill=0.7), dict(infill=0.7, infill_gaps=2)]
    found = [notes(statement_of(recipe_on(tmp_path, **task)), prompt) for task in gaps]
    assert [len(lines) for lines in found] == [without, one, two], found
    assert ["--infill" in "".join(lines) for lines in found] == [without > 0, False, False]


def test_a_prefix_is_a_state_of_a_model_that_appends(tmp_path):
    assert notes(statement_of(recipe_on(tmp_path, "ar")), ["a"]) == []
    said = notes(statement_of(recipe_on(tmp_path)), ["a"])
    assert len(said) == 1 and said[0].startswith("a prefix: none of the ")


def test_isotopes_and_stereo_of_molecules():
    task = task_from(dict(kind="molecules", source="embedded", limit=40))
    features = {"isotopes": "C[2H]", "stereo": "C[C@H](N)O"}
    for name, text in features.items(): assert task.features_of(["C", *text]) == {name}
    assert task.features_of(["F", "/", "C", "=", "C", "\\", "F", ...]) == {"stereo"} and not task.features_of("CCO")
    statement = trained_for(task.dataset("train"), task.vocabulary, (), task.features_of)
    said = notes(statement, ["C"], {"isotopes"})
    assert any(line.startswith("isotopes: none of the") for line in said)


def test_work_is_bounded_and_classes_are_counted():
    vocabulary = Vocabulary([*"ab", "<k:1>", "<k:2>", "<any>"])
    seen = []

    class Rows(list):
        def __getitem__(self, i):
            seen.append(i)
            return filled_example(["<k:1>", ...], ["ab"], vocabulary)
    statement = trained_for(Rows(range(5 * COUNTED + 1)), vocabulary)
    assert COUNTED / 2 < len(seen) == statement["counted"] <= COUNTED and max(seen) > 4 * COUNTED
    assert statement["classes"] == {"<k:1>": len(seen), "<k:2>": 0}
    assert notes(statement, ["<k:1>", ...]) == [] == notes(statement, ["<any>", ...])
    assert notes(statement, ["<k:2>", ...])[0].startswith("<k:2>: none of the")
