"The nouns of the theory: states, clocks, channels, paths, intensities, and the loss that matches them."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.process.channels import CHANNELS as CHANNELS, Channel as Channel
    from loflexmdm.process.clocks import (
        Clock as Clock,
        Kumaraswamy as Kumaraswamy,
        clock_named as clock_named,
    )
    from loflexmdm.process.grammars import JsonSchema as JsonSchema
    from loflexmdm.process.intensities import Intensities as Intensities
    from loflexmdm.process.matching import LossTerms as LossTerms
    from loflexmdm.process.paths import hide_some as hide_some
    from loflexmdm.process.rules import Contains as Contains, Regex as Regex
    from loflexmdm.process.schedules import (
        clock_log_probs as clock_log_probs,
        order_log_prob as order_log_prob,
        sample_event_taus as sample_event_taus,
    )
    from loflexmdm.process.states import (
        ANY as ANY,
        BOS as BOS,
        Example as Example,
        MASK as MASK,
        PAD as PAD,
        PartialSequences as PartialSequences,
        Vocabulary as Vocabulary,
        collate as collate,
        insert_masks as insert_masks,
        parse_prompt as parse_prompt,
        prefix_example as prefix_example,
    )
    from loflexmdm.process.streams import UNLIMITED as UNLIMITED
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
