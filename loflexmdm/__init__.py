__version__ = "0.1.0"


def __getattr__(name: str):
    "`loflexmdm.load` brings in torch, so it is imported when first asked for."
    if name == "load":
        from loflexmdm.pretrained import load
        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]: return sorted([*globals(), "load"])
