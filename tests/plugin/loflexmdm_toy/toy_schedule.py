# toy_schedule.py
import math

import torch

from loflexmdm.process.clocks import Clock
from loflexmdm.support.configs import Positive, config


@config
class Gentle(Clock):
    "A schedule that is slow at both ends: kappa = sin(pi t / 2)^(2 power)."
    name, number = "gentle", "power"
    power: Positive = 1.0  # the larger, the later

    def tau(self, t): return -torch.log1p(-torch.sin(math.pi / 2 * t) ** (2 * self.power))
    def time(self, tau): return 2 / math.pi * torch.asin((-torch.expm1(-tau)) ** (0.5 / self.power))

    def shape(self, t):
        sine, cosine = torch.sin(math.pi / 2 * t), torch.cos(math.pi / 2 * t)
        kappa = sine ** (2 * self.power)
        return math.pi * self.power * kappa * cosine / sine / (1 - kappa)
