"""How far it is from a call to the arithmetic: `python experiments/call_paths.py`, on an untrained model of star-tiny.

Functions and files of the package through which one call of `LoFlexMDM.loss` runs, by the step of Algorithm 1 in which
they are first met; those of `LoFlexMDM.match`, Eq 5 at states that are given; and frames of the package from a training
step, and from `sample`, to the network, both ends counted. Networks are apart. The loss of flow_matching, with which
these figures are compared, gets a state that was drawn before, and its count leaves out the network: its counterpart
here is `match`. Lambdas and comprehensions belong to the function that holds them; what torch runs is not counted."""
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import loflexmdm
from loflexmdm.models.model import Model
from loflexmdm.process.states import collate
from loflexmdm.training.recipes import recipe

PACKAGE = Path(loflexmdm.__file__).parent


class Function(NamedTuple):
    "A function of the package, as a call path shows it."
    file: str  # from the package's folder on
    name: str  # with its class

    @classmethod
    def of(cls, code: CodeType) -> "Function | None":
        "The function that a piece of code is, or None if it is of another package or part of another function."
        path = Path(code.co_filename)
        if PACKAGE not in path.parents or code.co_name.startswith("<"): return None
        return cls(str(path.relative_to(PACKAGE)), code.co_qualname)

    @property
    def is_network(self) -> bool:
        return self.file.startswith("networks/") or self.name.endswith(".forward") and self.file.startswith("methods/")

    @property
    def is_property(self) -> bool:
        module = import_module("loflexmdm." + self.file.removesuffix(".py").replace("/", "."))
        holder, _, name = self.name.rpartition(".")
        return isinstance(getattr(getattr(module, holder, None), name, None), property)


def calls(work: Callable) -> list[list[Function]]:
    "For every call of a function of the package while `work()` runs: the functions that are active, outermost first."
    found = []

    def profile(frame: FrameType, event: str, _):
        if event != "call" or Function.of(frame.f_code) is None: return
        active = []
        while frame is not None:
            active.append(Function.of(frame.f_code))
            frame = frame.f_back
        found.append([function for function in reversed(active) if function])

    sys.setprofile(profile)
    try: work()
    finally: sys.setprofile(None)
    return found


def to_network(work: Callable, start: str) -> list[Function]:
    "The longest way from the function named `start` to a backbone's `forward`, both counted."
    ways = [way for way in calls(work) if way[-1].name == "Transformer.forward"]
    names = [[function.name for function in way] for way in ways]
    found = [way[named.index(start):] for way, named in zip(ways, names) if start in named]
    return max(found, key=len)


def first_met(ways: list[list[Function]]) -> dict[Function, str]:
    "Every function that was called, with the step of the outermost function, one that this calls, where it is first."
    steps = {}
    for way in ways:
        step = "networks" if way[-1].is_network else way[min(1, len(way) - 1)].name
        steps.setdefault(way[-1], step)
    return steps


class CallPaths(NamedTuple):
    "What is on the way: of the two calls the functions and their steps, of the two others the functions on the stack."
    loss: dict[Function, str]
    match: dict[Function, str]
    train_step: list[Function]
    sample: list[Function]


def measured() -> CallPaths:
    "The call paths of an untrained model of star-tiny."
    run = recipe("star-tiny", steps=2)
    with tempfile.TemporaryDirectory() as directory:
        trainer = run.trainer(directory, progress=False)
        method = trainer.method.train()
        batch = collate([trainer.data[i] for i in range(run.train.batch_size)])
        method.loss(batch)  # what is made once, such as a clock, is there from now on
        loss = first_met(calls(lambda: method.loss(batch)))
        drawn = method.draw(batch, *method.schedule(batch))
        match = first_met(calls(lambda: method.match(*drawn[:5])))

        stream = trainer.processes.batches(trainer.data, run.train, 0, trainer.device)
        train_step = to_network(lambda: trainer.train_step(stream), "Trainer.train_step")
        model = Model(method)
        prompts = model.prompts("test", 2)
        sample = to_network(lambda: model.sample(prompts), "Model.sample")
        return CallPaths(loss, match, train_step, sample)


def without_networks(steps: dict[Function, str]) -> list[Function]:
    return [function for function in steps if steps[function] != "networks"]


def files_of(functions: Iterable[Function]) -> set[str]:
    return {function.file for function in functions}


def report(title: str, functions: list[Function]):
    "One line with the numbers, then a line for each function."
    print(f"{title}: {len(functions)} functions in {len(files_of(functions))} files")
    for function in functions: print(f"    {function.file:32}{function.name}")


def main():
    found = measured()
    for name, steps in (("loss", found.loss), ("match", found.match)):
        ours = without_networks(steps)
        properties = sum(function.is_property for function in ours)
        print(f"LoFlexMDM.{name} without networks: {len(ours)} functions, {properties} of them properties, "
              f"in {len(files_of(ours))} files")
        for step in dict.fromkeys(steps.values()): report(f"  {step}", [f for f in steps if steps[f] == step])
    report("train_step to the network", found.train_step)
    report("sample to the network", found.sample)


if __name__ == "__main__": main()
