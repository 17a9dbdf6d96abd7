"Training: recipes, batches, optimisers, checkpoints, the loop and several processes."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.training.distributed import process_group as process_group, processes_of as processes_of
    from loflexmdm.training.log import JsonLines as JsonLines, plot_metrics as plot_metrics
    from loflexmdm.training.optimisers import TrainConfig as TrainConfig
    from loflexmdm.training.recipes import (
        Recipe as Recipe,
        presets as presets,
        read_tables as read_tables,
        recipe as recipe,
        recipe_from as recipe_from,
    )
    from loflexmdm.training.trainer import Trainer as Trainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
