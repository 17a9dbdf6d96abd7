"Sequences and weights for tests of models that insert in an order."
import torch
from torch import nn

from loflexmdm.process.states import PartialSequences, Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abcd")


def with_noise(made: nn.Module, noise: float) -> nn.Module:
    "A model in float64 with random weights everywhere, none at its zero start."
    made = made.double()
    with torch.no_grad():
        for p in made.parameters(): p += noise * torch.randn_like(p) / max(p.shape[-1], 1)**0.5
    return made


def sequences(*texts: str) -> PartialSequences:
    "Clean sequences, written PROMPT|REST."
    parts = (t.partition("|") for t in texts)
    return collate([prefix_example(prompt, rest, VOCABULARY) for prompt, _, rest in parts])
