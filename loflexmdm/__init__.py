"""Insertion-based masked diffusion with a learned order of generation.

    import loflexmdm

    model = loflexmdm.load("star-tiny")                # a model of the package, or the directory of a run
    prompts = model.prompts("test", 3)                 # prompts of held-out data, where the task has them
    samples = model.sample(prompts, seed=0)
    samples.texts, samples[0], samples.frame()         # strings, one of them, a table
    samples.save("answers.csv")

    model.sample(prompts, seed=0, temperature=.8)      # another temperature, or another way to draw:
    model.sample(prompts, seed=0, sampler=loflexmdm.TauLeaping(steps=32))

    made = loflexmdm.recipe("brackets", steps=500)     # what to train: a preset, or a file of your own
    made.trainer("runs/brackets").fit()
    loflexmdm.load("runs/brackets").sample(n=3).texts

Main names:

    load                a model by its name or directory; `loflexmdm.models.names()` lists those of the package
    Model               a method with its task: `sample`, `edit`, `score`, `save`, `push`, `prompts`
    Generated           result of `sample`: `texts`, `frame`, `save`, `player`, `completions`; `Samples` are ids only
    Method, LoFlexMDM   the mathematics: network, path, loss, intensities, bound
    EventDriven, TauLeaping, LeftToRight, Limits
                        ways to sample; the others are in `loflexmdm.samplers`
    Vocabulary, collate, prefix_example
                        tokens, batches and prompts
    Task, task_from, SequencesTask
                        data in three splits, with a score; sequences of your own
    recipe, recipe_from, Trainer
                        training
    compare, citation   methods side by side; the papers to cite

Rooms, from the theory up: process, exact, networks, samplers, methods, tasks, models, molecules, training, reports,
cli; each lists in `__all__` what users need of it. Names are imported at first use, so that `import
loflexmdm` does not import torch.
"""
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

__version__ = "0.2.0"
ROOMS = (
    "process", "exact", "networks", "samplers", "methods", "tasks", "models", "molecules", "training", "reports", "cli",
    "support",
)


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
    from loflexmdm.models.generated import Generated as Generated
    from loflexmdm.models.model import Model as Model
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
    from loflexmdm.samplers.state import Limits as Limits
    from loflexmdm.samplers.tau_leaping import TauLeaping as TauLeaping
    from loflexmdm.tasks.base import Task as Task, task_from as task_from
    from loflexmdm.tasks.sequences import SequencesTask as SequencesTask
    from loflexmdm.training.recipes import recipe as recipe, recipe_from as recipe_from
    from loflexmdm.training.trainer import Trainer as Trainer
else:
    _NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__, ROOMS)  # `__all__` comes from `__getattr__`
