"Models of the repository: those of the package by name, and others by the path of their directory."
from pathlib import Path

MODELS = Path(__file__).parents[1] / "experiments" / "models"


def stored(name: str) -> str:
    "Return the path of a model in experiments/models; another name as it is."
    path = MODELS / name
    return str(path) if path.is_dir() else name
