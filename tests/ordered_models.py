"Sequences and weights for tests of models that insert in an order."
import torch
from torch import nn

from loflexmdm.methods.ordered_insertion import order_term
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


def gradient(m, loss) -> torch.Tensor:
    found = torch.autograd.grad(loss, list(m.parameters()), allow_unused=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.flatten() for p, g in zip(m.parameters(), found)])


def exact_and_estimated(m, orders, costs_of) -> tuple[torch.Tensor, torch.Tensor]:
    "The gradient of the exact bound, and the mean of the surrogate's gradient over all pairs of orders."
    costs = costs_of(orders)
    q = costs.log_q.sum(-1).exp()
    exact = gradient(m, (q * costs.total).sum())
    pairs = torch.cartesian_prod(torch.arange(len(orders)), torch.arange(len(orders))).T
    both = costs_of(orders[pairs.flatten()])
    each = both.generator.unflatten(0, (2, -1)).mean(0) + order_term(both, 2).unflatten(0, (2, -1)).mean(0)
    return exact, gradient(m, (q.detach()[pairs].prod(0) * each).sum())
