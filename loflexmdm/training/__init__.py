"How a model is made: recipes, batches, optimisers, checkpoints, the loop, several processes."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.training.distributed import joined, processes_of
    from loflexmdm.training.log import JsonLines, plot_metrics
    from loflexmdm.training.optimisers import TrainConfig
    from loflexmdm.training.recipes import Recipe, presets, read_tables, recipe, recipe_from
    from loflexmdm.training.trainer import Trainer
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "distributed": "joined processes_of",
        "log": "JsonLines plot_metrics",
        "optimisers": "TrainConfig",
        "recipes": "Recipe presets read_tables recipe recipe_from",
        "trainer": "Trainer",
    })
