"Networks: the interface of a backbone, the transformer, its heads and checks."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.networks.adder import Adder as Adder
    from loflexmdm.networks.base import Backbone as Backbone, network as network
    from loflexmdm.networks.build import (
        build_network as build_network,
        check_network as check_network,
    )
    from loflexmdm.networks.hugging_face import HuggingFaceBackbone as HuggingFaceBackbone
    from loflexmdm.networks.transformer import (
        SIZES as SIZES,
        Size as Size,
        SizeName as SizeName,
        size_named as size_named,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
