"What a person looks at: figures, the player, the comparison of methods, citations."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
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
    from loflexmdm.reports.player import Player as Player, play as play
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "citations": "citation",
        "comparison": "Comparison compare describe entrant_recipe samplers_for table",
        "figures": "edit_strip plot_edits trajectory_strip",
        "player": "Player play",
    })
