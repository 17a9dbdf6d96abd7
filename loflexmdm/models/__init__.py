"A model on disk, in the package, on the hub, or of the authors."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.models.hub import from_hub as from_hub, model_card as model_card
    from loflexmdm.models.import_published import renamed as renamed
    from loflexmdm.models.pretrained import load as load, names as names
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "hub": "from_hub model_card",
        "import_published": "renamed",
        "pretrained": "load names",
    })
