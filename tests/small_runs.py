"Trainers of small models, for tests."
from itertools import count

import torch
from torch.utils.data import Dataset

from loflexmdm.methods.base import method_class
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import read_tables, recipe_from
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary("abc")


class Words(Dataset):
    "Word i: a prompt letter and 0 to 4 letters more."
    def __len__(self): return UNLIMITED
    def __getitem__(self, i): return prefix_example("a", ["abc"[(i * i + j) % 3] for j in range(i % 5)], VOCABULARY)


def model(seed=0, vocabulary=VOCABULARY, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LoFlexMDM(vocabulary, LoFlexMDMConfig(size="nano", order_size="nano", max_length=8, **options))


def config(**options):
    return TrainConfig(
        **dict(steps=8, batch_size=4, warmup=2, log_every=2, valid_every=3, valid_size=4, valid_samples=2, save_every=3)
        | options
    )


def trainer(directory, data=None, method=None, **options):
    words = Words() if data is None else data
    return Trainer(method or model(), words, config(**options), directory, valid=Words(), progress=False)


def same(a, b):
    left, right = (getattr(m, "method", m).state_dict() for m in (a, b))  # a model's method, or the method itself
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


CPU = torch.device("cpu")


SHORT_WORDS = [prefix_example("a", ["abc"[(i + j) % 3] for j in range(i % 3)], VOCABULARY) for i in range(6)]


def short_trainer(directory, pico, progress=False, order="fixed", **options):
    "A trainer of the smallest model; `pico` is the fixture that makes its size."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order=order, size="pico", order_size="pico", max_length=8))
    values = dict(steps=14, batch_size=6, warmup=2, log_every=7, save_every=4, keep=9)
    return Trainer(method, SHORT_WORDS, TrainConfig(**values | options), directory, progress=progress)


def said(t, seconds=0.0):
    "The lines that a trainer says from now on; by its clock, whatever is timed takes `seconds`."
    lines, ticks, worked = [], count(), count()
    t.say = t.compiler.say = lines.append
    t.clock = t.compiler.clock = lambda: seconds * next(ticks)
    t.compiler.worked = lambda: 100 * seconds * next(worked)  # the machine does nothing else
    return lines


def weights(t): return [p.detach().clone() for p in t.method.parameters()]


def star_recipe(name, **train):
    "A recipe of a method's smallest model on the smallest graphs; needs the fixture `pico`."
    order = dict(order_size="pico") if "order_size" in method_class(name).Config.__dataclass_fields__ else {}
    tables = dict(task=read_tables("star-tiny")["task"], model=dict(method=name, size="pico") | order)
    return recipe_from(tables | dict(train=dict(batch_size=8, steps=10, compile=False) | train))
