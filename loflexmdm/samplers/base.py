"SHIM until the samplers' package lands."
from ..registries import Registry
SAMPLERS = Registry("sampler", ("loflexmdm.samplers",), "loflexmdm.samplers")
