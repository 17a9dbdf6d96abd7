"Runs of a few steps on brackets at the command line, for tests of methods."
import json
from pathlib import Path

from loflexmdm.cli import main


def at_the_command_line(directory: Path, model: dict, capsys, *sampling: str):
    "Train, sample, evaluate and tell of a model with the settings `model`; `sampling` are more arguments."
    settings = "\n".join(f"{key} = {json.dumps(value)}" for key, value in model.items())
    recipe, run = directory / "my.toml", str(directory / "run")
    recipe.write_text(f'[task]\nkind = "brackets"\n[model]\n{settings}\n[train]\nsteps = 4\n')
    assert main(["train", str(recipe), "--out", run]) == 0
    assert main(["sample", run, "-n", "2", "--seed", "0", *sampling]) == 0
    assert main(["evaluate", run, "-n", "2", "--nll", "2", *sampling]) == 0
    assert main(["info", run]) == 0 and model["method"] in capsys.readouterr().out
