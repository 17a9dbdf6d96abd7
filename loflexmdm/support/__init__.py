"Files, readers, configurations, registries, random numbers and notebooks; no theory."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.support.configs import AtLeastTwo as AtLeastTwo, Positive as Positive, config as config
    from loflexmdm.support.notebook import (
        Checks as Checks,
        refusal as refusal,
        seeded as seeded,
        setup as setup,
        table as table,
    )
    from loflexmdm.support.registries import (
        METHODS as METHODS,
        NETWORKS as NETWORKS,
        SAMPLERS as SAMPLERS,
        SCHEDULES as SCHEDULES,
        TASKS as TASKS,
    )
    from loflexmdm.support.statistics import estimate as estimate
    from loflexmdm.support.stop_signals import Interrupted as Interrupted
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
