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
    cls.options = {"tau": ("steps", "grid", "hold"), "ancestral": ("steps", "grid"), "event": ("slack",), "event-frozen": ("events_per_call",), "planner": ("steps", "remask")}.get(name, ())
    SAMPLERS.add(name, cls)
EventDriven.compared = classmethod(lambda cls, channels, calls: [cls(exact=False)] if channels == ("unmask",) else [cls(), cls(confidence="top_prob"), cls(exact=False)])
FrozenEvents.compared = classmethod(lambda cls, channels, calls: [])
TauLeaping.compared = classmethod(lambda cls, channels, calls: [] if channels == ("unmask",) else [cls(steps=c) for c in calls])
Ancestral.compared = classmethod(lambda cls, channels, calls: [cls(steps=c) for c in calls])
Planner.compared = classmethod(lambda cls, channels, calls: [cls(confidence="sampled"), cls(remask=1.0)])
