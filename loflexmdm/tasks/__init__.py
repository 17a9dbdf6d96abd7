"Data in three splits, prompts and a score: one module per task."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.tasks.base import Examples, Task, check_prompts, check_split, exact_match, task_from
    from loflexmdm.tasks.brackets import BracketsConfig, BracketsTask
    from loflexmdm.tasks.digits import DigitsConfig, DigitsTask
    from loflexmdm.tasks.key import KeyConfig, KeyTask, early_ciphers
    from loflexmdm.tasks.mazes import MazeConfig, MazeTask
    from loflexmdm.tasks.repair import RepairConfig, RepairTask
    from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask
    from loflexmdm.tasks.star_graphs import StarConfig, StarTask, draw_star_answer, draw_star_graph, star_verdict
    from loflexmdm.tasks.words import WordsConfig, WordsTask
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "base": "Examples Task check_prompts check_split exact_match task_from",
        "brackets": "BracketsConfig BracketsTask",
        "digits": "DigitsConfig DigitsTask",
        "key": "KeyConfig KeyTask early_ciphers",
        "mazes": "MazeConfig MazeTask",
        "repair": "RepairConfig RepairTask",
        "sequences": "SequencesConfig SequencesTask",
        "star_graphs": "StarConfig StarTask draw_star_answer draw_star_graph star_verdict",
        "words": "WordsConfig WordsTask",
    })
