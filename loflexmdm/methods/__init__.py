"Methods: a network, a path and a loss that belong together, one module per method."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.methods.autoregressive import (
        Autoregressive as Autoregressive,
        AutoregressiveConfig as AutoregressiveConfig,
    )
    from loflexmdm.methods.base import Method as Method
    from loflexmdm.methods.edit_flows import EditFlow as EditFlow, EditFlowConfig as EditFlowConfig
    from loflexmdm.methods.flexmdm import FlexMDM as FlexMDM, FlexMDMConfig as FlexMDMConfig
    from loflexmdm.methods.gen_md4 import GenMD4 as GenMD4, GenMD4Config as GenMD4Config
    from loflexmdm.methods.lo_flexmdm import (
        LoFlexMDM as LoFlexMDM,
        LoFlexMDMConfig as LoFlexMDMConfig,
    )
    from loflexmdm.methods.masked import (
        Canvas as Canvas,
        MaskedConfig as MaskedConfig,
        MaskedDiffusion as MaskedDiffusion,
        clean_log_probs as clean_log_probs,
    )
    from loflexmdm.methods.papl import PAPL as PAPL, PAPLConfig as PAPLConfig
    from loflexmdm.methods.published import (
        PublishedConfig as PublishedConfig,
        PublishedLoFlexMDM as PublishedLoFlexMDM,
    )
    from loflexmdm.methods.retrofit import merge as merge
    from loflexmdm.methods.sampling import (
        Request as Request,
        edit_sequences as edit_sequences,
        generate as generate,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
