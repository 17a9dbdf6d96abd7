"The oracle by enumeration: exact distributions, rates and bounds of cases small enough to list."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.exact.ctmc import (
        ToyLaw as ToyLaw,
        as_batch as as_batch,
        compare as compare,
        total_variation as total_variation,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
