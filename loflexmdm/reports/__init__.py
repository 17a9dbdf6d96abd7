"What a person looks at: figures, the player, the comparison of methods, citations."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.reports.citations import citation
    from loflexmdm.reports.comparison import Comparison, compare, describe, entrant_recipe, samplers_for, table
    from loflexmdm.reports.figures import edit_strip, plot_edits, trajectory_strip
    from loflexmdm.reports.player import Player, play
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "citations": "citation",
        "comparison": "Comparison compare describe entrant_recipe samplers_for table",
        "figures": "edit_strip plot_edits trajectory_strip",
        "player": "Player play",
    })
