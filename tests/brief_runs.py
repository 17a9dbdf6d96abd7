"Runs of a few steps on brackets, for tests of methods: cut off and resumed, and at the command line."
import json
from functools import partial
from pathlib import Path

import torch
from resuming import whole_and_resumed

from loflexmdm.cli import main
from loflexmdm.training.recipes import recipe_from
from loflexmdm.training.trainer import Trainer

SETTINGS = dict(steps=6, batch_size=8, warmup=2, save_every=3, valid_size=8, log_every=2)


def brief_trainer(directory: Path, model: dict, train: dict) -> Trainer:
    "A trainer of six steps; `model` and `train` are tables of the recipe."
    tables = dict(task=dict(kind="brackets"), model=model, train=SETTINGS | train)
    return recipe_from(tables).trainer(directory, progress=False)


def resumed_weights(directory: Path, model: dict, **train) -> dict[str, torch.Tensor]:
    "Weights of a brief run, which one that dies at step 4 and is resumed must have too."
    whole, found = whole_and_resumed(partial(brief_trainer, model=model, train=train), directory, 4)
    assert all(torch.equal(found[key], value) for key, value in whole.items())
    return whole


def at_the_command_line(directory: Path, model: dict, capsys, *sampling: str):
    "Train, sample, evaluate and tell of a model with the settings `model`; `sampling` are more arguments."
    settings = "\n".join(f"{key} = {json.dumps(value)}" for key, value in model.items())
    recipe, run = directory / "my.toml", str(directory / "run")
    recipe.write_text(f'[task]\nkind = "brackets"\n[model]\n{settings}\n[train]\nsteps = 4\n')
    assert main(["train", str(recipe), "--out", run]) == 0
    assert main(["sample", run, "-n", "2", "--seed", "0", *sampling]) == 0
    assert main(["evaluate", run, "-n", "2", "--nll", "2", *sampling]) == 0
    assert main(["info", run]) == 0 and model["method"] in capsys.readouterr().out
