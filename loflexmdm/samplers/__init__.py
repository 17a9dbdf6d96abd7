"Samplers: the protocol, and one module per kind. Everything public is found here, as `loflexmdm.samplers.EventDriven`."
from loflexmdm.samplers.base import *  # noqa: F403
from loflexmdm.samplers.draws import *  # noqa: F403
from loflexmdm.samplers.entropy_bounded import *  # noqa: F403
from loflexmdm.samplers.event_by_event import *  # noqa: F403
from loflexmdm.samplers.event_driven import *  # noqa: F403
from loflexmdm.samplers.left_to_right import *  # noqa: F403
from loflexmdm.samplers.planner import *  # noqa: F403
from loflexmdm.samplers.simulate import *  # noqa: F403
from loflexmdm.samplers.state import *  # noqa: F403
from loflexmdm.samplers.tau_leaping import *  # noqa: F403
from loflexmdm.samplers.generation_order import frames_text, generation_times, normalised_order, plot_raster, spearman

__all__ = [  # what users need; every public name of the modules above can be imported from here as well
    "Ancestral", "CONFIDENCES", "EntropyBounded", "Euler", "EventDriven", "Info",
    "LeftToRight", "Limits", "Planner", "Sampler", "Samples", "State", "TauLeaping", "advance",
    "frames_text", "generation_times", "normalised_order", "plot_raster", "row_uniforms", "simulate", "spearman",
]
