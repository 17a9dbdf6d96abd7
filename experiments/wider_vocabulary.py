"""A model with further tokens, to be trained further: `python experiments/wider_vocabulary.py MODEL RECIPE.toml OUT`.

OUT is the model of the recipe with the weights of MODEL. The rows of a token that MODEL lacks are those of a token that
is like it: of an atom in brackets those of the atom without charge, hydrogens and configuration; otherwise, as for
bonds of a configuration, those of the single bond. Weights that MODEL lacks stay as they begin."""
import argparse
import re

import torch

from loflexmdm import load
from loflexmdm.methods.base import Method
from loflexmdm.models.saved import save_method
from loflexmdm.training.recipes import recipe
from torch import Tensor


def like(token: str, known: dict[str, int]) -> str:
    "A token of the model that is like one that it lacks."
    if token in known: return token
    atom = re.match(r"\[(Br|Cl|[A-Za-z])", token)
    candidates = (atom[1] if atom else "", dict(I="Br", P="S").get(token, ""), "5" if token.isdigit() else "-")
    return next(t for t in candidates if t in known)


def widened(value: Tensor, own: Tensor, rows: list[int]) -> Tensor:
    "A tensor with a row, or a column, per token with those of the wider vocabulary; any other as it is."
    if value.shape == own.shape: return value
    dim = next(d for d in range(value.dim()) if value.shape[d] != own.shape[d])
    return value.index_select(dim, torch.tensor(rows))


def wider(old: Method, new: Method) -> Method:
    "The second model with the weights of the first."
    known = {t: i for i, t in enumerate(old.vocabulary.tokens)}
    rows = [known[like(t, known)] for t in new.vocabulary.tokens]
    there, own = old.state_dict(), new.state_dict()
    new.load_state_dict(own | {name: widened(value.to(own[name]), own[name], rows) for name, value in there.items()})
    return new


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "recipe", "out"): parser.add_argument(name)
    args = parser.parse_args()
    made = recipe(args.recipe)
    old, (_, new) = load(args.model).method, made.build()
    known = {t: i for i, t in enumerate(old.vocabulary.tokens)}
    print({t: like(t, known) for t in new.vocabulary.tokens if t not in known})
    save_method(wider(old, new), args.out)


if __name__ == "__main__": main()
