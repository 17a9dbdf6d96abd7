"SHIM until the samplers' package lands."
from ..registries import Registry
from ..sampling import COUNTERS, EventDriven, Ancestral, Sampler, Samples, TauLeaping  # noqa: F401
SAMPLERS = Registry("sampler", ("loflexmdm.samplers",), "loflexmdm.samplers")
Sampler.papers, Sampler.options, Sampler.common_options = (), (), ("temperature", "top_p", "confidence", "softness", "window")
Sampler.fits = classmethod(lambda cls, channels: tuple(channels) in cls.channels)
Sampler.__init_subclass__ = classmethod(lambda cls, **kw: SAMPLERS.add(cls.name, cls) if "name" in vars(cls) else None)


def channel_words(channels):
    names = {("insert", "unmask"): "methods that insert", ("unmask",): "masked diffusion", ("append",): "autoregressive methods"}
    return " and for ".join(names[c] for c in channels)


def fitting_samplers(channels): return {name: cls for name, cls in SAMPLERS.all().items() if cls.fits(channels)}


def _compared(cls, channels, calls):
    from dataclasses import fields
    return [cls(steps=c) for c in calls] if "steps" in {f.name for f in fields(cls)} else [cls()]


Sampler.compared = classmethod(_compared)
