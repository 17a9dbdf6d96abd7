"""Insertion-based masked diffusion with a learned order of generation.

    import loflexmdm

    model = loflexmdm.load("star-tiny")                # a model of the package, or the directory of a run
    prompts = model.task_object.prompts("test", 3)     # prompts of held-out data, where the task has them
    samples = model.sample(prompts, seed=0)
    samples.texts, samples[0], samples.frame()         # strings, one of them, a table
    samples.save("answers.csv")

    sampler = loflexmdm.TauLeaping(steps=32)           # another way to draw
    model.sample(prompts, seed=0, sampler=sampler)

    made = loflexmdm.recipe("brackets", steps=500)     # what to train: a preset, or a file of your own
    made.trainer("runs/brackets").fit()
    loflexmdm.load("runs/brackets").sample(n=3).texts

Main names:

    load                a model by its name or directory; `loflexmdm.models.names()` lists those of the package
    Method, LoFlexMDM   what a model is; `sample`, `edit`, `save_pretrained`, `from_pretrained`, `push_to_hub`
    Samples             what `sample` returns: `texts`, `frame`, `save`, `player`, `completions`
    EventDriven, TauLeaping, LeftToRight, Speculative, Limits
                        ways to sample; the others are in `loflexmdm.samplers`
    Vocabulary, collate, prefix_example
                        tokens, batches and prompts
    Task, task_from, SequencesTask
                        data in three splits, with a score; sequences of your own
    recipe, recipe_from, Trainer
                        training
    compare, citation   methods side by side; the papers to cite

Rooms, from the theory up: process, exact, networks, samplers, methods, models, tasks, molecules, training, reports,
cli; each lists in `__all__` what users need of it. Names are imported when they are first asked for, so that
`import loflexmdm` does not bring in torch.
"""
from typing import TYPE_CHECKING

__version__ = "0.1.0"
ROOMS = (
    "process", "exact", "networks", "samplers", "methods", "models", "tasks", "molecules", "training", "reports", "cli",
    "support",
)


def _named(package: str, modules: dict[str, str]) -> tuple:
    """`__all__`, `__getattr__` and `__dir__` of a package whose names are imported when they are first asked for.

    `modules` has the names of each module, between spaces. Type checkers read the same names in the branch of
    TYPE_CHECKING, and a test compares the two."""
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def get(name: str):
        from importlib import import_module
        if name == "__all__" and package == __name__ and not _asks_for_help(): return sorted(homes)
        if name in homes: return getattr(import_module(homes[name]), name)
        if name in ROOMS and package == __name__: return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        import sys
        return sorted({*vars(sys.modules[package]), *homes, *(ROOMS if package == __name__ else ())})

    return sorted(homes), get, listed


def _asks_for_help() -> bool:
    "Whether it is pydoc that asks for `__all__`: `help(loflexmdm)` would print every class in it after the page above."
    import sys
    return sys._getframe(2).f_globals.get("__name__") == "pydoc"


if TYPE_CHECKING:
    from loflexmdm import (
        cli as cli,
        exact as exact,
        methods as methods,
        models as models,
        molecules as molecules,
        networks as networks,
        process as process,
        reports as reports,
        samplers as samplers,
        support as support,
        tasks as tasks,
        training as training,
    )
    from loflexmdm.methods.base import Method as Method
    from loflexmdm.methods.lo_flexmdm import LoFlexMDM as LoFlexMDM
    from loflexmdm.models.pretrained import load as load
    from loflexmdm.process.states import (
        Vocabulary as Vocabulary,
        collate as collate,
        prefix_example as prefix_example,
    )
    from loflexmdm.reports.citations import citation as citation
    from loflexmdm.reports.comparison import compare as compare
    from loflexmdm.samplers.event_driven import EventDriven as EventDriven
    from loflexmdm.samplers.left_to_right import LeftToRight as LeftToRight
    from loflexmdm.samplers.simulate import Samples as Samples
    from loflexmdm.samplers.speculative import Speculative as Speculative
    from loflexmdm.samplers.state import Limits as Limits
    from loflexmdm.samplers.tau_leaping import TauLeaping as TauLeaping
    from loflexmdm.tasks.base import Task as Task, task_from as task_from
    from loflexmdm.tasks.sequences import SequencesTask as SequencesTask
    from loflexmdm.training.recipes import recipe as recipe, recipe_from as recipe_from
    from loflexmdm.training.trainer import Trainer as Trainer
else:
    _NAMES, __getattr__, __dir__ = _named(__name__, {  # `__all__` comes from `__getattr__`
        "methods.base": "Method",
        "methods.lo_flexmdm": "LoFlexMDM",
        "models.pretrained": "load",
        "process.states": "Vocabulary collate prefix_example",
        "reports.citations": "citation",
        "reports.comparison": "compare",
        "samplers.event_driven": "EventDriven",
        "samplers.left_to_right": "LeftToRight",
        "samplers.simulate": "Samples",
        "samplers.speculative": "Speculative",
        "samplers.state": "Limits",
        "samplers.tau_leaping": "TauLeaping",
        "tasks.base": "Task task_from",
        "tasks.sequences": "SequencesTask",
        "training.recipes": "recipe recipe_from",
        "training.trainer": "Trainer",
    })
