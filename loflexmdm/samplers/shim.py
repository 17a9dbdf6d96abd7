"SHIM until the samplers' package lands."
from dataclasses import dataclass
from ..methods.autoregressive import LeftToRight
from ..planners import Planner
from ..sampling import Ancestral, EventDriven, Sampler, TauLeaping
from .base import SAMPLERS


@dataclass(frozen=True)
class FrozenEvents(EventDriven):
    "From event to event, with intensities held between events: fewer calls, biased where lengths vary."
    exact: bool = False


Sampler.papers = ()
for cls, name, papers in ((TauLeaping, "tau", ("tau_leaping",)), (EventDriven, "event", ("gillespie", "first_hitting")), (FrozenEvents, "event-frozen", ("gillespie", "first_hitting")),
                          (Ancestral, "ancestral", ("md4",)), (Planner, "planner", ("papl", "p2", "rdm")), (LeftToRight, "left-to-right", ("transformer",))):
    cls.name, cls.papers = name, papers
    SAMPLERS.add(name, cls)
