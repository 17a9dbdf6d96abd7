"Every registered part, those of tests/plugin included, and each method built small in every variant of its settings."
import signal
import sys
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import edit_sequences, generate
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.process.channels import CHANNELS
from loflexmdm.process.states import Example, Pairs, PartialSequences, Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers import Samples
from loflexmdm.support.configs import config_schema
from loflexmdm.support.registries import METHODS, NETWORKS, SAMPLERS, TASKS

PLUGIN = Path(__file__).parent / "plugin"
TABLES = [registry.classes for registry in (METHODS, SAMPLERS, TASKS, NETWORKS)] + [CHANNELS]
VOCABULARY = Vocabulary("abcd")
SECONDS = 10.0  # after which a generation counts as one without end


def plug_ins() -> list[dict[str, object]]:
    "Import the modules of tests/plugin; return what each of TABLES gains by it, which is taken out again."
    for registry in (METHODS, SAMPLERS, TASKS, NETWORKS): registry.all()
    before = [dict(table) for table in TABLES]
    sys.path.insert(0, str(PLUGIN))
    try:
        for path in sorted(PLUGIN.glob("*/toy_*.py")): import_module(f"{path.parent.name}.{path.stem}")
    finally: sys.path.remove(str(PLUGIN))

    gained = [{name: table[name] for name in table.keys() - old.keys()} for table, old in zip(TABLES, before)]
    for table, new in zip(TABLES, gained):
        for name in new: del table[name]
    return gained


def of_package(table: dict[str, type]) -> dict[str, type]:
    "Return the parts of the package; tests and pages enter others in the same process."
    return {name: cls for name, cls in table.items() if cls.__module__.startswith("loflexmdm.")}


GAINED = plug_ins()
ALL_METHODS, ALL_SAMPLERS, ALL_TASKS, ALL_NETWORKS = (
    dict(sorted((of_package(table) | new).items())) for table, new in zip(TABLES[:4], GAINED)
)


def registered(monkeypatch):
    "Enter the parts of tests/plugin in the registries as long as a test runs, and make the smallest size smaller."
    monkeypatch.setitem(SIZES, "nano", Size(16, 1, 2, 16))
    for table, new in zip(TABLES, GAINED):
        for name, cls in new.items(): monkeypatch.setitem(table, name, cls)


# Methods

def choices(entry: dict) -> list:
    "Values of a setting with few of them, from its JSON schema; sizes of networks are left out."
    values = [True, False] if entry.get("type") == "boolean" else entry.get("enum", [])
    return [] if set(values) <= set(SIZES) else values


def variants(cls: type[Method]) -> dict[str, object]:
    "The first config of a method, under '', and those that differ from it in one setting with few values."
    first = cls.first_config()
    found = {"": first}
    for key, entry in config_schema(cls.Config)["properties"].items():
        for value in choices(entry):
            if value == getattr(first, key): continue
            try: found[f"{key}={value}"] = cls.first_config(**{key: value})
            except ValueError: continue  # it does not go with the other settings
    return found


CASES = {f"{name} {v}".strip(): (cls, c) for name, cls in ALL_METHODS.items() for v, c in variants(cls).items()}


def build(case: str, shake: float = 0.3) -> Method:
    "A model of a case, with random weights everywhere, none at its zero start."
    cls, config = CASES[case]
    torch.manual_seed(0)
    method = cls(VOCABULARY, config).eval()
    with torch.no_grad():
        for p in method.parameters(): p.add_(shake * torch.randn_like(p) / max(p.shape[-1:] or [1]) ** 0.5)
    return method


def draw(method: Method, prompts=None, n=None, **settings) -> Samples:
    "Samples of a method."
    return generate(method, prompts, n, **settings)


def rewrite(method: Method, sequences, keep=None, n=None, **settings) -> Samples:
    "What a method makes of sequences by edits."
    return edit_sequences(method, sequences, keep, n, **settings)


def takes(method: Method, what) -> bool:
    "Whether a method takes what a function gives it, or refuses it."
    try: what(method)
    except ValueError: return False
    return True


def can_sample(method: Method) -> bool:
    "Whether generation starts from prompts: one may start from given sequences alone."
    return takes(method, lambda m: m.begin(collate([parse_prompt(["a"], VOCABULARY)]), m.config.max_length, [0]))


def can_edit(method: Method) -> bool:
    "Whether generation starts from given sequences."
    return takes(method, lambda m: m.begin_edit(collate([free_example("ab")])))


def made(method: Method, n: int, **settings) -> Samples:
    "`n` samples from a few prompts, or edits of a few sequences where there is nothing else."
    prompts = [["a"], ["b", "c"], ["d"]]
    if can_sample(method): return draw(method, prompts, -(-n // len(prompts)), **settings)
    return rewrite(method, [list("abc"), list("dd"), list("b")], n=-(-n // 3), **settings)


def clean(*texts: str) -> PartialSequences:
    "Clean sequences, written PROMPT|REST."
    parts = (text.partition("|") for text in texts)
    return collate([prefix_example(prompt, rest, VOCABULARY) for prompt, _, rest in parts])


def complete(*texts: str) -> PartialSequences:
    "Sequences in which every token is given and every gap is closed."
    ids = ([2, *VOCABULARY.encode(list(text))] for text in texts)
    return collate([Example(tokens, [True] * len(tokens), [True] * len(tokens)) for tokens in ids])


def free_example(text: str) -> Example:
    "A sequence of which every token may change."
    ids = [2, *VOCABULARY.encode(list(text))]
    return Example(ids, [True] + [False] * (len(ids) - 1), [False] * len(ids))


def data_for(method: Method, batch: PartialSequences) -> PartialSequences | Pairs:
    "A batch as the method learns from it: sequences, or each with a source in which other tokens are free."
    if not method.takes_pairs or takes(method, lambda m: m.loss(clean("a|bc"))): return batch
    other = 3 + (batch.tokens - 2) % len(VOCABULARY.ordinary)
    return Pairs(batch._replace(tokens=torch.where(batch.free, other, batch.tokens)), batch)


# Samplers, and hooks that spoil their scores

FIRST = [case for case in CASES if " " not in case]  # each method as it is built first
SIMULATED = [(name, case) for name, cls in ALL_SAMPLERS.items() for case in FIRST
             if cls.fits(CASES[case][0].channels)]


def sampler_named(name):
    "A sampler with its defaults, in few steps if it has steps."
    cls = ALL_SAMPLERS[name]
    return cls(steps=5) if getattr(cls, "steps", None) else cls()


# hooks that return something else than scores of the shape that they got
WRONG = {"nothing": lambda v: None, "nan": lambda v: v * torch.nan, "none possible": lambda v: v - torch.inf,
         "another shape": lambda v: v[..., :-1], "numbers": lambda v: v.long(), "a list": lambda v: v.tolist(),
         "infinite": lambda v: v + torch.inf}


class Hook:
    "A hook of any sampler, which changes scores by a function; of `EventByEvent` those of gaps or of tokens alone."
    def __init__(self, change, of=("gaps", "tokens")): self.change, self.of = change, of
    def __call__(self, logits, x, tau): return self.change(logits)
    def gaps(self, scores, x, column): return self.change(scores) if "gaps" in self.of else scores
    def tokens(self, logits, x, column): return self.change(logits) if "tokens" in self.of else logits


def with_hook(sampler, hook):
    "A sampler with a hook; `replace` would take no field that it makes by itself."
    values = {f.name: getattr(sampler, f.name) for f in fields(sampler) if f.init}
    return type(sampler)(**values | dict(logits_hook=hook))


# What a test needs

@contextmanager
def within(seconds: float):
    "TimeoutError for what takes longer."
    def late(*_): raise TimeoutError(f"not over after {seconds:.0f} s")
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seeded(n: int) -> torch.Generator: return torch.Generator().manual_seed(n)


def spoilt(case: str, fill):
    "A model whose every parameter is `fill` of itself."
    method = build(case)
    with torch.no_grad():
        for p in method.parameters(): p.copy_(fill(p))
    return method
