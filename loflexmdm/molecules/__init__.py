"Molecules: their notations, data, scores and tasks; growing them from fragments and optimising them."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.molecules.data.sources import SOURCES as SOURCES
    from loflexmdm.molecules.edit_task import (
        MoleculeEditsConfig as MoleculeEditsConfig,
        MoleculeEditsTask as MoleculeEditsTask,
        judge_edits as judge_edits,
    )
    from loflexmdm.molecules.growth import grow as grow
    from loflexmdm.molecules.notation.bracket_safe import (
        decode as decode,
        from_bracket_safe as from_bracket_safe,
        parse_smiles as parse_smiles,
        plot_fragments as plot_fragments,
        reorder as reorder,
        to_bracket_safe as to_bracket_safe,
        tokenize as tokenize,
    )
    from loflexmdm.molecules.notation.fragments import (
        DRUGS as DRUGS,
        FragmentCase as FragmentCase,
        case_of as case_of,
        contains_fragment as contains_fragment,
        draw_fragment as draw_fragment,
        find_fragment as find_fragment,
        fragment_prompt as fragment_prompt,
        fragments_of as fragments_of,
    )
    from loflexmdm.molecules.optimise import (
        alerts as alerts,
        best_curve as best_curve,
        plot_runs as plot_runs,
        top_auc as top_auc,
        sound as sound,
    )
    from loflexmdm.molecules.orders import (
        category_rates as category_rates,
        plot_generation as plot_generation,
    )
    from loflexmdm.molecules.closures import (
        closing_text as closing_text,
        ring_size as ring_size,
    )
    from loflexmdm.molecules.rules import Linker as Linker
    from loflexmdm.molecules.notation.notations import notation_of as notation_of, random_smiles as random_smiles
    from loflexmdm.molecules.scores.makeable import objection as objection
    from loflexmdm.molecules.scores.metrics import (
        compare_properties as compare_properties,
        distances_to as distances_to,
        judge as judge,
        metrics_table as metrics_table,
        molecule_grid as molecule_grid,
        molecule_metrics as molecule_metrics,
        plot_properties as plot_properties,
        properties as properties,
    )
    from loflexmdm.molecules.task import (
        MoleculesConfig as MoleculesConfig,
        MoleculesTask as MoleculesTask,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
