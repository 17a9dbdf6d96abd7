"Training runs behind stored figures, each in a folder of its own under runs/, where an interrupted one goes on."
import time
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.models.pretrained import load
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import recipe_from
from runs import ROOT


def trained(settings: dict, name: str, device: torch.device | str = "cpu", progress: bool = False) -> tuple[
    Method, list[Path], int
]:
    "The model of a recipe, the checkpoints that are kept, and the CPU seconds of all sittings together."
    directory = ROOT / "runs" / name.replace(" ", "-")
    trainer = recipe_from(settings).trainer(directory, device, progress=progress)
    trainer.clock = time.process_time  # checkpoints hold what has passed on it
    trainer.fit(resume=bool(checkpoints(directory)))
    kept = checkpoints(directory)
    return load(kept[-1], device), kept, round(trainer.seconds)
