"Molecules: their notations, data, scores and tasks; growing them from fragments and optimising them."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.molecules.data.sources import SOURCES
    from loflexmdm.molecules.edit_task import MoleculeEditsConfig, MoleculeEditsTask, judge_edits
    from loflexmdm.molecules.growth import grow
    from loflexmdm.molecules.notation.bracket_safe import (
        decode, from_bracket_safe, parse_smiles, plot_fragments, reorder, to_bracket_safe, tokenize,
    )
    from loflexmdm.molecules.notation.fragments import (
        DRUGS, FragmentCase, case_of, contains_fragment, draw_fragment, find_fragment, fragment_prompt,
        fragments_of,
    )
    from loflexmdm.molecules.optimise import best_curve, plot_runs, top_auc
    from loflexmdm.molecules.orders import category_rates, plot_generation
    from loflexmdm.molecules.scores.metrics import (
        compare_properties, distances_to, metrics_table, molecule_grid, molecule_metrics, plot_properties,
        properties,
    )
    from loflexmdm.molecules.task import MoleculesConfig, MoleculesTask
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "data.sources": "SOURCES",
        "edit_task": "MoleculeEditsConfig MoleculeEditsTask judge_edits",
        "growth": "grow",
        "notation.bracket_safe": (
            "decode from_bracket_safe parse_smiles plot_fragments reorder to_bracket_safe tokenize"
        ),
        "notation.fragments": (
            "DRUGS FragmentCase case_of contains_fragment draw_fragment find_fragment fragment_prompt "
            "fragments_of"
        ),
        "optimise": "best_curve plot_runs top_auc",
        "orders": "category_rates plot_generation",
        "scores.metrics": (
            "compare_properties distances_to metrics_table molecule_grid molecule_metrics "
            "plot_properties properties"
        ),
        "task": "MoleculesConfig MoleculesTask",
    })
