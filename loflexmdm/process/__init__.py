"The nouns of the theory: states, clocks, channels, paths, intensities, and the loss that matches them."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.process.channels import CHANNELS, Channel
    from loflexmdm.process.clocks import Clock, Kumaraswamy, clock_named
    from loflexmdm.process.intensities import Intensities
    from loflexmdm.process.matching import LossTerms
    from loflexmdm.process.paths import hide_some
    from loflexmdm.process.states import (
        ANY, BOS, Example, MASK, PAD, PartialSequences, Vocabulary, collate, insert_masks, parse_prompt,
        prefix_example,
    )
    from loflexmdm.process.streams import UNLIMITED
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "channels": "CHANNELS Channel",
        "clocks": "Clock Kumaraswamy clock_named",
        "intensities": "Intensities",
        "matching": "LossTerms",
        "paths": "hide_some",
        "states": (
            "ANY BOS Example MASK PAD PartialSequences Vocabulary collate insert_masks parse_prompt "
            "prefix_example"
        ),
        "streams": "UNLIMITED",
    })
