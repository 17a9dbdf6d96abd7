"Formulas and boundaries where a small change of the code would go unnoticed."
import itertools
import json

import pytest
import torch

import loflexmdm
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models import saved
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.process.states import Vocabulary


@pytest.mark.slow
def test_samples_are_saved_in_the_formats_of_their_task(tmp_path):
    samples = loflexmdm.load("molecules").sample(n=4, seed=0)
    lines = samples.save(tmp_path / "a.smi").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [s for s in samples.smiles if s]


VOCABULARY = Vocabulary("abc")
pytestmark = pytest.mark.usefixtures("pico")


def model():
    torch.manual_seed(0)
    return LoFlexMDM(VOCABULARY, LoFlexMDMConfig(size="pico", order_size="pico", max_length=8))


@pytest.mark.parametrize("content", ['["format", "method", "vocabulary", "config"]', '"format"', "7", "{}"])
def test_a_directory_with_another_config_is_not_written_into(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="holds other files"): save_method(model(), tmp_path)
    assert (tmp_path / "config.json").read_text() == content


def test_text_files_of_a_model_are_replaced_with_it(tmp_path):
    save_method(model(), tmp_path, NOTES_md="first")
    save_method(model(), tmp_path, NOTES_md="second")
    assert (tmp_path / "NOTES.md").read_text() == "second"
    (tmp_path / "NOTES.md").write_text("changed by hand")
    with pytest.raises(ValueError, match="NOTES.md"): save_method(model(), tmp_path)
    assert (tmp_path / "NOTES.md").read_text() == "changed by hand"


def test_reading_a_model_that_is_always_replaced_ends_with_the_error(tmp_path, monkeypatch):
    save_method(model(), tmp_path)
    tries = itertools.count()
    monkeypatch.setattr(saved, "_file_stamp", lambda directory: (0, next(tries)))  # another file at every look
    def damaged(*args): raise ValueError("damaged weights file")
    monkeypatch.setattr(saved, "read_tensors", damaged)
    with pytest.raises(ValueError, match="damaged weights file"): load_method(tmp_path)


def test_a_warning_about_a_file_comes_once(tmp_path):
    with pytest.warns(UserWarning, match="no digest") as told:
        for _ in range(3): saved.notice(tmp_path / "model", "no digest")
        saved.notice(tmp_path / "other", "no digest")
    assert len(told) == 2


def test_whole_numbers_are_not_loaded_as_weights(tmp_path):
    "Also from a file without a digest, where other floating-point numbers are allowed."
    own = model()
    tensors = {name: v.clone() for name, v in own.state_dict().items()}
    name = next(name for name, v in tensors.items() if v.is_floating_point() and v.ndim == 2)
    with pytest.warns(UserWarning, match="holds float64"):
        saved.check_weights(own, tensors | {name: tensors[name].double()}, tmp_path / "other", strict=False)
    with pytest.raises(ValueError, match=f"{name} is int64"):
        saved.check_weights(own, tensors | {name: tensors[name].long()}, tmp_path / "model", strict=False)


@pytest.mark.parametrize("name", ["../notes_md", "sub/notes_md", "model_safetensors", "config_json"])
def test_text_files_have_plain_names_of_their_own(tmp_path, name):
    with pytest.raises(ValueError, match="no name for a text file"):
        save_method(model(), tmp_path / "m", **{name: ""})
    assert not (tmp_path / "notes.md").exists() and not (tmp_path / "m").exists()


def test_four_entries_describe_a_model(tmp_path):
    about, path = dict(format=1, method="x", vocabulary=[], config={}), tmp_path / "config.json"
    path.write_text(json.dumps(about))
    assert saved._describes_a_model(path)
    path.write_text(json.dumps({key: value for key, value in about.items() if key != "format"}))
    assert not saved._describes_a_model(path)


def test_a_saved_model_names_no_other_file(tmp_path, monkeypatch):
    "A name of a network that is also a file of the folder would be read."
    loflexmdm.load("star-tiny").save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config.pop("digest", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("{}")
    for value in ("mine", "../mine", "x" * 101):
        config["config"]["network_config"] = value
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match="a saved model reads no other files"): load_method(tmp_path / "model")
