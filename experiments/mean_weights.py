"""Weights between two models of one shape: `python experiments/mean_weights.py MODEL OTHER --out DIR [--share .5]`.

The tensors are those of MODEL plus `share` of the way to OTHER's, saved in bfloat16 with OTHER's configuration."""
import argparse

import torch

from loflexmdm import load
from loflexmdm.models.saved import save_method


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs=2)
    parser.add_argument("--out", required=True)
    parser.add_argument("--share", type=float, default=0.5)
    args = parser.parse_args()
    first, other = (load(name).method for name in args.models)
    before, after = first.state_dict(), other.state_dict()
    if before.keys() != after.keys(): raise ValueError("models: of different shapes")
    other.load_state_dict({key: torch.lerp(before[key].float(), value.float(), args.share)
                           if value.is_floating_point() else value for key, value in after.items()})
    other.trained_for = {}
    save_method(other, args.out, dtype=torch.bfloat16)


if __name__ == "__main__": main()
