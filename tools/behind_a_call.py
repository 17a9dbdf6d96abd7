"""Count the members of the main classes, and the functions of the package behind a call, in the package on the path.

`python tools/behind_a_call.py` prints them as JSON; `tools/house.py` runs it in the checkout that it measures. Counted
are functions and files of the package that run between the beginning and the end of a call, after a first call that
makes what is made once. Lambdas and comprehensions belong to the function that holds them."""
import contextlib
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType

import torch

import loflexmdm
from loflexmdm.cli import commands
from loflexmdm.training.recipes import recipe

PACKAGE = f"{Path(loflexmdm.__file__).parent}{os.sep}"
CLASSES = {"Method": "methods.base", "Model": "models.model", "Task": "tasks.base", "Samples": "samplers.simulate"}
FRAGMENT = ["sample", "molecules-moses-ar", "--fragment", "*c1ccncc1", "-n", "4", "--device", "cpu", "--seed", "0"]
BRIEF = ["--steps", "2", "--device", "cpu", "--seed", "0"]
NETWORKS = f"{PACKAGE}networks{os.sep}"


def members(name: str) -> int | None:
    "Count the public attributes of a class that are not those of torch's module or of a tuple; None without the class."
    try: cls = getattr(import_module(f"loflexmdm.{CLASSES[name]}"), name)
    except (ImportError, AttributeError): return None
    found = {*dir(cls)} - {*dir(torch.nn.Module)} - {*dir(tuple)}
    return sum(not key.startswith("_") for key in found)


def is_network(frame: FrameType) -> bool:
    "Check whether a frame is the forward pass of a network."
    return frame.f_code.co_filename.startswith(NETWORKS) and frame.f_code.co_name == "forward"


class Calls:
    "Functions of the package that run while one named `start` does; all of them without a name."
    def __init__(self, start: str = ""):
        self.start, self.found, self.to_network = start, set(), 0
        self.inside: list[FrameType] = []

    def profile(self, frame: FrameType, event: str, _):
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"): return
        if event == "call":
            if self.inside or not self.start or code.co_qualname == self.start: self.inside.append(frame)
            if not self.inside: return
            self.found.add((code.co_filename, code.co_qualname))
            if is_network(frame) and not any(map(is_network, self.inside[:-1])):
                self.to_network = max(self.to_network, len(self.inside))
        elif event == "return" and self.inside and self.inside[-1] is frame: self.inside.pop()

    def during(self, work: Callable) -> "Calls":
        sys.setprofile(self.profile)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()): work()
        finally: sys.setprofile(None)
        return self

    def figures(self, name: str) -> dict[str, int | None]:
        files = {file for file, _ in self.found}
        return {f"functions behind {name}": len(self.found), f"files behind {name}": len(files),
                f"functions from {name} to the network": self.to_network}


def train(steps: int):
    with tempfile.TemporaryDirectory() as directory:
        recipe("star-tiny", steps=steps).trainer(directory, progress=False).fit()


def behind_calls() -> dict[str, int]:
    "Return the figures of a training step, of `sample`, and of `sample --fragment` and `train FILE` at the shell."
    model = loflexmdm.load("star-tiny")
    task = getattr(model, "task_object", None) or model.task
    prompts = task.prompts("test", 2)
    with tempfile.TemporaryDirectory() as directory:
        numbers = itertools.count()
        def shell(): commands.main([*FRAGMENT, "--out", f"{directory}/{next(numbers)}.csv"])
        (own := Path(directory, "own.txt")).write_text("\n".join(f"{i} + {i} = {2 * i}" for i in range(200)))
        def train_file(): commands.main(["train", str(own), "--out", f"{directory}/{next(numbers)}", *BRIEF])
        works = {"train_step": lambda: train(2), "sample": lambda: model.sample(prompts, seed=0),
                 "sample --fragment at the shell": shell, "train FILE at the shell": train_file}
        starts = {"train_step": "Trainer.train_step"}
        for work in works.values(): Calls().during(work)
        counted = [Calls(starts.get(name, "")).during(work).figures(name) for name, work in works.items()]
        return {key: value for figures in counted for key, value in figures.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    counted = {f"public members of {name}": members(name) for name in CLASSES}
    print(json.dumps(counted | behind_calls()))
