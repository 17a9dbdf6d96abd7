"Reports: figures, the comparison of methods, citations."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.models.player import Player as Player, play as play
    from loflexmdm.reports.citations import citation as citation
    from loflexmdm.reports.comparison import (
        Comparison as Comparison,
        compare as compare,
        describe as describe,
        entrant_recipe as entrant_recipe,
        samplers_for as samplers_for,
        table as table,
    )
    from loflexmdm.reports.figures import (
        edit_strip as edit_strip,
        plot_edits as plot_edits,
        trajectory_strip as trajectory_strip,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
