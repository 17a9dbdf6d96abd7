__version__ = "0.1.0"


def __getattr__(name: str):
    "`loflexmdm.load` and `loflexmdm.citation` bring in torch, so they are imported when first asked for."
    if name == "load":
        import loflexmdm.reports.player  # noqa: F401  gives samples their `player`
        import loflexmdm.tasks.base  # noqa: F401  gives models their `task_object` and samples their `texts`
        from loflexmdm.models.pretrained import load
        return load
    if name == "citation":
        from loflexmdm.reports.citations import citation
        return citation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]: return sorted([*globals(), "citation", "load"])
