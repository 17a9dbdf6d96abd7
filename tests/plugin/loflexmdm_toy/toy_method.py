# toy_method.py
import math

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.masked import Canvas, clean_log_probs
from loflexmdm.networks.build import build_network, check_network
from loflexmdm.networks.transformer import SizeName
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.matching import LossTerms
from loflexmdm.process.paths import hide_some
from loflexmdm.samplers import EventDriven
from loflexmdm.support.configs import AtLeastTwo, config
from loflexmdm.support.statistics import estimate

PAPER = """@inproceedings{uria2014deep,
  author = {Uria, Benigno and Murray, Iain and Larochelle, Hugo},
  title = {A Deep and Tractable Density Estimator},
  booktitle = {International Conference on Machine Learning},
  year = {2014},
  eprint = {1310.1757},
  why = {a network trained for all orders at once}
}"""


@config
class AnyOrderConfig:
    "Settings of a model, saved with its weights."
    size: SizeName = "tiny"  # of the network
    network: str = "transformer"  # its kind
    network_config: str = ""  # other settings of that kind
    max_length: AtLeastTwo = 256  # columns: the longest sequence, prompt and start token included

    def __post_init__(self): check_network(self)


class AnyOrder(Canvas, Method):
    "Tokens in uniformly random order: the network predicts every mask from the visible tokens."
    name, Config, papers = "any-order", AnyOrderConfig, (PAPER,)

    def __init__(self, vocabulary, config=AnyOrderConfig(), task=None):
        super().__init__(vocabulary, config, task)
        build_network(self, ("cond", "token"), len(vocabulary) + 1)  # and the blank, which ends a sequence

    @property
    def tau_max(self): return math.log(self.config.max_length / 1e-4)  # by then hardly any mask is left

    @property
    def default_sampler(self): return EventDriven(exact=False)  # exact, as the rates do not change between events

    def at(self, x, tau=None):
        "Rate 1 for every mask, and the distribution of its token."
        logits = self.token(self.backbone(self.network_input(x), self.cond[None]))
        return Intensities(unmask=x.masked.to(logits.dtype), logits=logits)

    def draw(self, x1, generator=None):
        "One draw of the bound on -log p of every canvas, in nats: (batch,)."
        x, _ = hide_some(x1, generator)
        weight = x1.free.sum(-1) / x.masked.sum(-1).clamp_min(1)
        return -weight * clean_log_probs(self.at(x).logits, x1, x).sum(-1)

    def loss(self, batch, generator=None):
        bound = self.draw(self.canvas(batch), generator).mean()
        return LossTerms(bound, dict(bound_tight=bound.detach()))

    @torch.no_grad()
    def nll_bound(self, x1, samples=64, generator=None):
        x1 = self.canvas(x1.to(self.device))
        return estimate(lambda: self.draw(x1, generator), samples)
