"Models: a method with its task, on disk, in the package, on the hub, or of the authors."
from typing import TYPE_CHECKING

from loflexmdm.support.lazy import lazy_names

if TYPE_CHECKING:
    from loflexmdm.models.generated import Generated as Generated
    from loflexmdm.models.hub import model_card as model_card
    from loflexmdm.models.import_published import our_name as our_name
    from loflexmdm.models.model import Model as Model
    from loflexmdm.models.player import Player as Player, play as play
    from loflexmdm.models.pretrained import from_hub as from_hub, load as load
    from loflexmdm.models.saved import load_method as load_method, save_method as save_method
    from loflexmdm.support.saved_files import names as names
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
