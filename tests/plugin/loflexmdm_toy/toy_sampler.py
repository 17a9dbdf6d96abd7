# toy_sampler.py
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from loflexmdm.samplers import Sampler
from loflexmdm.samplers.draws import CONFIDENCES, row_uniforms
from loflexmdm.samplers.state import Info, advance


@dataclass(frozen=True)
class InSteps(Sampler):
    "The masks with the most certain tokens, a few per network call. ValueError unless `pace` is at least 1."
    name: ClassVar[str] = "in-steps"
    channels: ClassVar[tuple[str, ...]] = ("unmask",)
    options: ClassVar[tuple[str, ...]] = ("pace",)
    confidence: str | None = field(default="top_prob", metadata=dict(choices=CONFIDENCES))  # position rule
    pace: int = 2  # masks that become tokens per network call

    def __post_init__(self):
        super().__post_init__()
        if self.pace < 1: raise ValueError(f"pace={self.pace}: must be at least 1")

    def step(self, intensity_fn, state):
        out, state = self.call_network(intensity_fn, state)
        masked = state.x.masked
        due = masked & (masked.cumsum(-1) <= self.pace)  # how many; `resolve` takes that number, the most certain first
        u = row_uniforms(state.generators, state.x.lengths)
        tokens = self.resolve(due, torch.zeros_like(state.done), out, state, u)
        tau = (state.tau + 1 / masked.shape[1]).clamp_max(state.limits.tau_max)
        events, write = (tokens != state.x.tokens).long(), lambda x, where, column: tokens
        new, overflow = advance(state, tau, dict(unmask=events), dict(unmask=write))
        return new._replace(done=~new.x.masked.any(-1)), Info(overflow, *torch.zeros(2, len(tau)))
