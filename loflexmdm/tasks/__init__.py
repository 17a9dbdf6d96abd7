"Data in three splits, prompts and a score: one module per task."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.tasks.base import (
        Examples as Examples,
        Task as Task,
        TaskEdits as TaskEdits,
        TaskOutput as TaskOutput,
        check_prompts as check_prompts,
        check_split as check_split,
        exact_match as exact_match,
        task_from as task_from,
    )
    from loflexmdm.tasks.brackets import (
        BracketsConfig as BracketsConfig,
        BracketsTask as BracketsTask,
    )
    from loflexmdm.tasks.key import (
        KeyConfig as KeyConfig,
        KeyTask as KeyTask,
        early_ciphers as early_ciphers,
    )
    from loflexmdm.tasks.repair import RepairConfig as RepairConfig, RepairTask as RepairTask
    from loflexmdm.tasks.sequences import (
        SequencesConfig as SequencesConfig,
        SequencesTask as SequencesTask,
    )
    from loflexmdm.tasks.star_graphs import (
        StarConfig as StarConfig,
        StarTask as StarTask,
        draw_star_answer as draw_star_answer,
        draw_star_generation as draw_star_generation,
        draw_star_graph as draw_star_graph,
        star_verdict as star_verdict,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
