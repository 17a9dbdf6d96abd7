"""Training runs behind stored figures: each in a folder of its own under runs/, where an interrupted one goes on, or
several in turn for equal CPU seconds (`race`)."""
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.models.pretrained import load
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import longest_trial, recipe_from
from loflexmdm.training.trainer import Trainer
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
    return load(kept[-1], device).method, kept, round(trainer.seconds)


class Racer:
    """A run that ends after some CPU seconds instead of steps: rates, the start of an order model and the trial of a
    mixture follow the share of the time that is gone."""
    def __init__(self, trainer: Trainer, seconds: float):
        self.trainer = trainer
        self.stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
        self.seconds, self.spent = seconds, 0.0
        self.learns_order = bool(self.trainer.config.order_start)

    def step(self):
        "Take a step, and add its CPU time."
        begun = time.process_time()
        self.trainer.train_step(self.stream)
        self.spent += time.process_time() - begun
        steps = self.trainer.step + max(1, round(self.trainer.step * (self.seconds / self.spent - 1)))
        start = steps // 4 if self.learns_order else 0
        self.trainer.config = replace(self.trainer.config, steps=steps, order_start=start)
        for method in (self.trainer.method, self.method):
            if getattr(method, "mixture", None) is not None:
                method.mixture.trial = longest_trial(method.config, steps)

    @property
    def method(self) -> Method:
        "The averaged weights."
        return self.trainer.ema.module.eval()


def race(recipes: Mapping[str, dict | Callable[[str], Trainer]], seconds: float) -> dict[str, Racer]:
    """Train recipes for equal CPU seconds, in turn: the next step is that of the run that has spent least.

    So all of them meet the same load of the machine. In place of a recipe a function may make the trainer in a
    directory."""
    def trainer(recipe: dict | Callable[[str], Trainer], directory: str) -> Trainer:
        return recipe(directory) if callable(recipe) else recipe_from(recipe).trainer(directory, progress=False)

    with tempfile.TemporaryDirectory() as directory:
        racers = {name: Racer(trainer(recipe, f"{directory}/{name}"), seconds) for name, recipe in recipes.items()}
        while min(racer.spent for racer in racers.values()) < seconds:
            min(racers.values(), key=lambda racer: racer.spent).step()
        for racer in racers.values(): racer.stream.close()
    return racers
