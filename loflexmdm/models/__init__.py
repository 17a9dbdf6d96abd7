"A model on disk, in the package, on the hub, or of the authors."
from typing import TYPE_CHECKING

from loflexmdm import _named

if TYPE_CHECKING:
    from loflexmdm.models.hub import from_hub, model_card
    from loflexmdm.models.import_published import renamed
    from loflexmdm.models.pretrained import load, names
else:
    __all__, __getattr__, __dir__ = _named(__name__, {
        "hub": "from_hub model_card",
        "import_published": "renamed",
        "pretrained": "load names",
    })
