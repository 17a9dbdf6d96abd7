# toy_channel.py
from loflexmdm.processes import Channel
from loflexmdm.states import BOS, insert_masks


class Duplicate(Channel):
    "A token appears once more, in the gap after it."
    name, growth = "duplicate", 1

    def legal(self, x): return x.open & ~x.masked & (x.tokens != BOS)

    def apply(self, x, events, draw=None):
        new = insert_masks(x, events)
        copied = new.origin.cummax(-1).values  # the nearest old column to the left
        return new._replace(tokens=x.tokens.gather(-1, copied))
