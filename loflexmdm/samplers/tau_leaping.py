from ..sampling import TauLeaping, Ancestral  # noqa
