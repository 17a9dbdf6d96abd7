# toy_network.py
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from loflexmdm.networks.base import network
from loflexmdm.networks.transformer import size_named


@network
class Recurrent(nn.Module):
    "A recurrent network that reads in both directions; `network_config` is its number of layers."
    name = "gru"

    def __init__(self, vocabulary_size, width, layers):
        super().__init__()
        self.width, self.cond = width, 32
        self.token, self.flag = nn.Embedding(vocabulary_size, width), nn.Embedding(4, width)
        self.shift = nn.Linear(self.cond, width)
        self.gru = nn.GRU(width, width // 2, layers, batch_first=True, bidirectional=True)

    @classmethod
    def from_config(cls, vocabulary_size, size, options=""):
        return cls(vocabulary_size, size_named(size).width, int(options or 1))

    def forward(self, x, cond):
        h = self.token(x.tokens) + self.flag(x.fixed + 2 * x.closed) + self.shift(cond)[:, None]
        rows = pack_padded_sequence(h, x.lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.gru(rows)[0], batch_first=True, total_length=h.shape[1])[0]
