# toy_channel.py
import torch

from loflexmdm.process.channels import Channel
from loflexmdm.process.states import BOS, insert_masks


class Duplicate(Channel):
    "A token is duplicated in the gap after it."
    name, growth = "duplicate", 1

    def legal(self, x): return x.open & ~x.masked & (x.tokens != BOS)

    def apply(self, x, events, draw=None):
        new = insert_masks(x, events)
        copies = x.tokens.gather(-1, new.origin.cummax(-1).values)  # of the nearest old column to the left
        return new._replace(tokens=torch.where(new.valid & (new.origin < 0), copies, new.tokens))
