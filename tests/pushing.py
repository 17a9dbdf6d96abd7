"Intensities that push for whatever must not happen, and prompts for them."
import torch

from loflexmdm.exact.ctmc import ToyLaw
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import Vocabulary, collate, parse_prompt
from loflexmdm.samplers import Limits

VOCABULARY = Vocabulary("abcd")
LIMITS = Limits(tau_max=9.0, max_length=14)
PROMPTS = [[], ["a"], ["a", ..., "b"], [..., "c", "d"], ["a", "b", ..., "c", "d", ...]]


def pushy(x, tau):
    """Falling rates everywhere, closed gaps, padding and clean tokens included;
    NaN in padding; special tokens far likelier than ordinary ones."""
    column = torch.arange(x.tokens.shape[1])
    rate = (2.0 / (1 + tau))[:, None] * (1 + torch.sin(column + x.tokens.sum(-1, keepdim=True)) / 2)
    rate = torch.where(x.valid, rate, torch.nan).float()
    logits = torch.sin(torch.arange(7.0) * (column[:, None] + 1)) + torch.tensor([90.0, 80.0, 70.0, 0, 0, 0, 0])
    return Intensities(rate, rate + 0.5, logits.expand(*x.tokens.shape, 7))


def prompts(some=PROMPTS): return collate([parse_prompt(p, VOCABULARY) for p in some])


LAW = ToyLaw.of(
    {s: 1 / 6 for s in ("a", "b", "ab", "bb", "aab", "bab")},
    b_in=lambda s: [0.5 + len(s) / 3] * len(s),
    b_um=lambda s: [1 / len(s)] * len(s),
)
