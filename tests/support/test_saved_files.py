"Where a saved model lies, and what its description may hold."
import json

import pytest

from loflexmdm.support.saved_files import describe_training, is_packaged, models_with, names, note_same_name, place_of
from loflexmdm.support.saved_files import read_config, read_description, resolve

META = dict(format=1, method="ar", vocabulary=["a"], config={})


def put(path, text="{}"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))


def test_which_file_is_read(tmp_path):
    "A model itself, else the best of a run, else its newest whole checkpoint."
    with pytest.raises(FileNotFoundError, match="no saved model, checkpoint or run"): resolve(tmp_path)
    put(tmp_path / "metrics.jsonl")
    with pytest.raises(FileNotFoundError, match="a run without checkpoints so far"): resolve(tmp_path)
    for step in ("step_9", "step_10", "step_x"):
        put(tmp_path / "checkpoints" / step / "config.json"), put(tmp_path / "checkpoints" / step / "ema.safetensors")
    put(tmp_path / "checkpoints/step_11/config.json")  # its weights are missing
    assert resolve(tmp_path) == (tmp_path / "checkpoints/step_10", "ema.safetensors")
    put(tmp_path / "best/config.json")
    assert resolve(tmp_path) == (tmp_path / "best", "model.safetensors")
    put(tmp_path / "config.json")
    assert resolve(tmp_path) == (tmp_path, "model.safetensors")
    put(tmp_path / "config.json", dict(files={"ema.safetensors": "0"}))
    assert resolve(tmp_path) == (tmp_path, "ema.safetensors"), "it is missing, and its reader says so"
    put(tmp_path / "config.json"), put(tmp_path / "ema.safetensors")
    assert resolve(str(tmp_path)) == (tmp_path, "ema.safetensors")


def test_models_of_the_package(tmp_path, monkeypatch):
    assert "star-tiny" in names() == sorted(names()) and is_packaged("star-tiny") and not is_packaged("./star-tiny")
    assert not is_packaged(tmp_path / "star-tiny")
    assert place_of("star-tiny").name == "star-tiny" != str(place_of("star-tiny"))
    assert str(place_of("./x")) == "x" and resolve("star-tiny")[0] == place_of("star-tiny")
    assert set(models_with(["C", "c"], "molecules")) >= {"molecules", "molecules-leads"}
    assert not models_with(["C", "§"], "molecules") and "star-tiny" not in models_with([], "molecules")
    monkeypatch.chdir(tmp_path)
    note_same_name("star-tiny")  # a warning would be an error
    (tmp_path / "star-tiny").mkdir()
    with pytest.warns(UserWarning, match="./star-tiny is the directory here"): note_same_name("star-tiny")


@pytest.mark.parametrize("change, message", [
    (dict(format=0), "format=0 must be a positive"), (dict(format=True), "positive whole number"),
    (dict(format=2), "format 2 is newer"),
    (dict(format="1"), "positive whole number"), (dict(vocabulary="ab"), "list of tokens"),
    (dict(vocabulary=["a", 1]), "list of tokens"),
    (dict(dtype="int8"), "dtype='int8'"), (dict(task=[1]), "task="), (dict(trained_for=3), "trained_for=3"),
    (dict(digest="0"), "changed or damaged"),
])
def test_descriptions_that_are_wrong(tmp_path, change, message):
    put(tmp_path / "config.json", META | change)
    with pytest.raises(ValueError, match=message): read_description(tmp_path)


def test_descriptions(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json is missing"): read_description(tmp_path)
    for good in (META, META | dict(dtype="float64", task=None, trained_for={}), META | dict(task=dict(kind="x"))):
        put(tmp_path / "config.json", good)
        assert read_description(tmp_path) == read_config(tmp_path) == good
    put(tmp_path / "config.json", META | dict(method="none"))
    assert read_description(tmp_path)["method"] == "none"
    with pytest.raises(ValueError, match="config.json: method='none'"): read_config(tmp_path)
    for key in META:
        put(tmp_path / "config.json", {k: v for k, v in META.items() if k != key})
        with pytest.raises(ValueError, match=f"'{key}' is missing"): read_description(tmp_path)
    put(tmp_path / "config.json", "[]")
    with pytest.raises(ValueError, match="not a saved model's description"): read_description(tmp_path)


def test_what_a_model_was_trained_for():
    statement = dict(places=dict(inside=1200, end=3), gaps={"1": 9, "2": 4}, lengths=[2, 1500], counted=1203, given=7,
                     classes={}, features={}, unseen=[])
    assert describe_training({}) == ""
    line = ("trained for: a gap inside 1,200, a prefix 3, 2 gaps 4, of 1,203 training sequences counted; "
            "2 to 1,500 tokens, at most 7 of them given\n")
    assert describe_training(statement) == line
    more = statement | dict(classes=dict(low=0, high=5), features=dict(isotopes=2), unseen=[str(i) for i in range(50)])
    assert describe_training(more) == (line + "classes in training: low 0, high 5\nfeatures in training: isotopes 2\n"
                                       f"tokens not seen in training: {' '.join(map(str, range(40)))}\n")
    assert describe_training(statement | dict(classes=dict(low=0))) == line
