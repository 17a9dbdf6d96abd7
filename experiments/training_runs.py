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
    "The model of a recipe, the checkpoints that are kept, and CPU seconds, of the last sitting if there were several."
    directory, start = ROOT / "runs" / name.replace(" ", "-"), time.process_time()
    recipe_from(settings).trainer(directory, device, progress=progress).fit(resume=bool(checkpoints(directory)))
    kept = checkpoints(directory)
    return load(kept[-1], device), kept, round(time.process_time() - start)
