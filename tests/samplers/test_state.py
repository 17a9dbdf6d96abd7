"What fits into a sequence, by hand."
from types import SimpleNamespace

import torch

from loflexmdm.process.channels import CHANNELS
from loflexmdm.samplers import state


def test_channels_that_insert_share_the_room(monkeypatch):
    "Of 6 columns 2 are left: the first channel takes its leftmost, the second what remains."
    monkeypatch.setitem(CHANNELS, "more (test)", SimpleNamespace(growth=1))
    own = SimpleNamespace(limits=state.Limits(9.0, 6), x=SimpleNamespace(lengths=torch.tensor([4, 4, 7])),
                          row=torch.zeros(3, dtype=torch.long))
    first, second = torch.tensor([[1, 0], [0, 5], [1, 1]]), torch.tensor([[1, 1], [1, 0], [0, 1]])
    fit, overflow = state.drop_excess(own, {"insert": first, "more (test)": second})
    assert fit["insert"].tolist() == [[1, 0], [0, 2], [0, 0]]
    assert fit["more (test)"].tolist() == [[1, 0], [0, 0], [0, 0]] and overflow.tolist() == [1, 4, 3]
