"Names of the package and directories that are called so."
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call, refused
from stored_models import stored

import loflexmdm
from loflexmdm.models.pretrained import names
from loflexmdm.training.recipes import tables_like


def test_a_name_means_the_package_and_a_path_the_directory(tmp_path, monkeypatch):
    "Everywhere: a directory of one's own that is called as a model of the package."
    monkeypatch.chdir(tmp_path)
    loflexmdm.load(stored("star-tiny-fixed")).save("star-tiny")
    of = lambda name: loflexmdm.load(name).config.order
    with pytest.warns(UserWarning, match=r"star-tiny: the model of the package; ./star-tiny is the directory here"):
        assert of("star-tiny") == "learned"
    assert of("./star-tiny") == of(Path("star-tiny")) == of(tmp_path / "star-tiny") == "fixed"

    # commands, and what they train further
    told = {name: call(f"info {name}") for name in ("star-tiny", "./star-tiny")}
    assert ['order = "fixed"' in out for _, out, _ in told.values()] == [False, True]
    assert "./star-tiny is the directory here" in told["star-tiny"][2] and not told["./star-tiny"][2]
    assert [tables_like(name)["model"]["order"] for name in ("star-tiny", "./star-tiny")] == ["learned", "fixed"]
    assert Path(tables_like(Path("star-tiny"))["train"]["start_from"]) == tmp_path / "star-tiny"
    refused(call("resume star-tiny"), "is a model of the package; ./star-tiny is the directory here")
    refused(call("resume ./star-tiny"), "holds no run")
    (tmp_path / "star-tiny" / "config.json").unlink()
    refused(call("sample ./star-tiny"), "no saved model")


@pytest.mark.parametrize("name", names())
def test_loading_a_model_draws_no_global_random_number(name):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    loflexmdm.load(name)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
