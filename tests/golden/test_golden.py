"""Golden samples, losses, gradients and bounds of every method and sampler: a net under changes that keep results.

`python tests/golden/test_golden.py --write` computes every case anew and writes tests/golden/golden.json; do so only
where results are meant to change, and say which cases did. `--write NAME ...` rewrites (or adds) the cases whose names
begin so, and keeps the others. A case returns a flat dict:

- strings are sha256 digests (of sampled ids, which of them are free, and trajectories) and integers are counters:
  compared exactly;
- floats are losses, bounds, intensities and gradients' norms: compared relative to their size, at 1e-12, gradients
  at 1e-10.

All are computed in float64: weights, default dtype and what the package casts to float32 (`float64` below). On
another machine or another torch the last digits differ, which hardly ever moves a sample; digests of samples are
therefore compared everywhere (clock readings to nine digits), and numbers at 1e-9, bounds at 1e-5, where the
arithmetic differs. Whether it does is measured: a digest of matrix products, attention and elementary functions
(`arithmetic`) is kept with the results, beside the version of torch and the platform. Cases that begin with "float32"
run as users do, in single precision, their losses compared at 1e-5; these, the constructors' draws and training are
skipped on other arithmetic, training by Muon also where Muon, which works in bfloat16, gives another digest
(`muon_arithmetic`).

The small models' weights are drawn by name (`fill`), so the order of construction does not matter; the
constructors' own draws are the cases "first weights". What is likely to be renamed is named once, in the imports
and in the functions below them; trajectories are read by position.
"""

import hashlib
import json
import math
import platform
import sys
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

import pytest
import torch

from loflexmdm.exact.ctmc import ToyLaw, final_law, oracle, path_bounds
from loflexmdm.methods.base import method_class
from loflexmdm.methods.edit_flows import GIVEN
from loflexmdm.methods.flexmdm import filled_example
from loflexmdm.methods.planner_bounds import greedy_bound, planner_bound
from loflexmdm.methods.retrofit import retrofit
from loflexmdm.methods.sampling import edit_sequences, generate
from loflexmdm.models.pretrained import load
from loflexmdm.process.alignments import Corrupted
from loflexmdm.process.states import CLEAN, DROPPED, Example, Pairs, Vocabulary, collate
from loflexmdm.process.states import parse_prompt, prefix_example
from loflexmdm.samplers import CONFIDENCES, Ancestral, EventDriven, Limits, Planner, TauLeaping
from loflexmdm.samplers import simulate
from loflexmdm.samplers.left_to_right import LeftToRight
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer
from stored_models import stored

FILE = Path(__file__).with_name("golden.json")
VOCABULARY = Vocabulary("abcd")
LAW = ToyLaw.of({"aab": 0.35, "ab": 0.25, "bb": 0.25, "a": 0.15})
COUNTED = ("network_calls", "row_evaluations", "overflow", "overflowing", "violations", "forced")


def seeded(n):
    return torch.Generator().manual_seed(n)


@contextmanager
def float64():
    "All arithmetic in double precision, where the package asks for single precision too."
    single, dtype = torch.Tensor.float, torch.get_default_dtype()
    torch.Tensor.float = lambda self, *args, **kwargs: self.double()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.Tensor.float = single
        torch.set_default_dtype(dtype)


def digest(value) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def muon_arithmetic() -> str:
    "A digest of what Muon, whose matrix products are in bfloat16 where that is fast, makes of matrices here."
    weights = [
        torch.nn.Parameter(torch.randn(n, m, dtype=torch.float64, generator=seeded(n + m)).float())
        for n, m in ((64, 64), (192, 64), (64, 256), (24, 16))
    ]
    for p in weights:
        p.grad = p.detach().flip(0)
    torch.optim.Muon(weights, lr=1.0).step()
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in weights)).hexdigest()


def arithmetic() -> str:
    "A digest of what this machine makes of the operations that networks consist of."
    found = []
    for dtype in (torch.float32, torch.float64):
        a, b = (torch.randn(n, 64, 96, dtype=torch.float64, generator=seeded(n)).to(dtype) for n in (2, 3))
        w = torch.randn(96, 96, dtype=torch.float64, generator=seeded(4)).to(dtype)
        functions = (
            torch.exp,
            torch.sin,
            torch.expm1,
            torch.sigmoid,
            torch.nn.functional.gelu,
            torch.nn.functional.softplus,
            torch.tanh,
            torch.nn.functional.silu,
        )
        of_positive = (torch.log, torch.log1p, torch.sqrt, torch.rsqrt, torch.log2, lambda v: v**0.7, lambda v: 0.3**v)
        out = [
            a @ w,
            b[:, :7] @ w,
            a.softmax(-1),
            torch.log_softmax(b, -1),
            torch.nn.functional.layer_norm(a, (96,)),
            a.cumsum(-1),
            a.logsumexp(-1),
            a.sum(-1),
            *(f(a) for f in functions),
            *(f(a.abs() + 0.01) for f in of_positive),
        ]
        out += [
            torch.nn.functional.scaled_dot_product_attention(v[:, None], v[:, None], v[:, None]) for v in (a, b[:, :9])
        ]
        found += [hashlib.sha256(v.contiguous().numpy().tobytes()).hexdigest() for v in out]
    return digest(found)


# ---- models

METHODS = {
    "lo learned": ("loflexmdm", dict(order_size="nano")),
    "lo fixed": ("loflexmdm", dict(order="fixed", states=1)),
    "lo shared": ("loflexmdm", dict(backbone="shared")),
    "lo trainable": ("loflexmdm", dict(order_size="nano", unmask="trainable", b_range=4.0)),
    "lo shared trainable": ("loflexmdm", dict(backbone="shared", unmask="trainable", states=3)),
    "lo tight": ("loflexmdm", dict(order_size="nano", bound="tight", a=2.0, proposal=1.0, unmask="trainable")),
    "flexmdm": ("flexmdm", dict()),
    "flexmdm uniform": ("flexmdm", dict(times="uniform")),
    "flexmdm cosine polynomial": ("flexmdm", dict(insertion="cosine", unmasking="polynomial:2")),
    "flexmdm power uniform": ("flexmdm", dict(insertion="power:1.5", unmasking="linear", times="uniform")),
    "mdm": ("mdm", dict()),
    "mdm cosine time": ("mdm", dict(schedule="cosine", time=True)),
    "mdm polynomial": ("mdm", dict(schedule="polynomial:2")),
    "mdm geometric time": ("mdm", dict(schedule="geometric", time=True)),
    "mdm shifted": ("mdm", dict(schedule="shifted:1e-3")),
    "genmd4": ("genmd4", dict()),
    "genmd4 three states": ("genmd4", dict(states=3, w_range=4.0, proposal=1.0)),
    # weights are drawn by the name of a case, which is therefore the former one
    "lomdm learned": ("lounmask", dict(order_size="nano")),
    "lomdm fixed": ("lounmask", dict(order="fixed", states=1)),
    "lomdm given": ("lounmask", dict(order="given", given="forward")),
    "loinsert learned": ("loinsert", dict(order_size="nano", states=3, centre=True)),
    "loinsert fixed": ("loinsert", dict(order="fixed", states=1)),
    "papl": ("papl", dict()),
    "papl time": ("papl", dict(form="time", schedule="cosine", alpha=3.0)),
    "papl interpolate": ("papl", dict(mixture="interpolate", planner_tau=0.5)),
    "papl time interpolate": ("papl", dict(form="time", mixture="interpolate", time=True)),
    "ar": ("ar", dict()),
    "retrofit flexmdm": ("retrofit", dict(target="flexmdm", unmasking="cosine")),
    "retrofit loflexmdm": ("retrofit", dict(target="loflexmdm", unmask="trainable")),
    "edit empty": ("editflow", dict()),
    "edit uniform": ("editflow", dict(coupling="uniform", tokens=4, schedule="linear", times="uniform")),
    "edit masks shown": ("editflow", dict(coupling="masks", tokens=3, source="shown", alignment="padded")),
    "edit corrupted": ("editflow", dict(coupling="corrupted", schedule="cosine", alignment="shuffled:0.5")),
    "edit pairs shown": ("editflow", dict(coupling="pairs", source="shown")),
}
NEW_PARTS = ("time.", "insert.", "unmask.", "order.", "order_backbone.")  # of a retrofit
KINDS = {name: kind for name, (kind, _) in METHODS.items()}
INSERTING = [n for n, k in KINDS.items() if k in ("loflexmdm", "loinsert", "flexmdm", "retrofit", "editflow")]
MASKED = [n for n, k in KINDS.items() if k in ("mdm", "genmd4", "lounmask", "papl")]


def fill(model, salt: str, prefixes=("",)):
    "Draw the parameters whose names begin so, by `salt` and name: matrices of gain 1, vectors 0.2, norms near 1."
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not name.startswith(prefixes):
                continue
            value = torch.randn(p.shape, dtype=torch.float64, generator=seeded(zlib.crc32(f"{salt}.{name}".encode())))
            value = value / p.shape[-1] ** 0.5 if p.ndim > 1 else 0.2 * value
            if "norm" in name:
                value += 1
            if name in ("insert.out.bias", "unmask.out.bias"):
                value -= 2  # sequences of all lengths, and several masks at a time
            if name == "token.out.bias" and salt == "ar":
                value[-1] -= 2  # its end
            p.copy_(value)
    return model


def construct(name: str):
    "A small model as its constructor makes it."
    kind, options = METHODS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "retrofit":
            return retrofit(fill(construct("mdm"), "mdm"), adapters=False, **options)
        cls = method_class(kind)
        return cls(VOCABULARY, cls.Config(size="nano", max_length=12, **options))


def small(name: str):
    "A small model with random parameters everywhere, in double precision inside `float64`."
    model = fill(construct(name), name, NEW_PARTS if METHODS[name][0] == "retrofit" else ("",))
    return model.to(torch.get_default_dtype())


@lru_cache
def shared(name: str, dtype: torch.dtype):
    "A model that a case only reads: a small one, or one of the package's."
    return (small(name) if name in METHODS else load(stored(name)).method).to(dtype).eval()


def model_of(name: str):
    return shared(name, torch.get_default_dtype())


# ---- data

GAPS = (
    filled_example(["a", ..., "b", "c", ...], ["cd", ""], VOCABULARY),
    filled_example([..., "d"], ["abca"], VOCABULARY),
)
PREFIXES = tuple(
    prefix_example(p, t, VOCABULARY) for p, t in (("ab", "cda"), ("", "abcdabc"), ("abc", "d"), ("", "bb"))
)


def examples_for(name: str) -> list[Example]:
    "Clean sequences with prompts: prefixes, and gaps where the method allows them."
    return [*PREFIXES, *(GAPS if name in INSERTING else GAPS[1:] if name in MASKED else ())]


def batch_for(name: str):
    x1 = collate(examples_for(name))
    if METHODS[name][1].get("coupling") != "pairs":
        return x1
    return Pairs(Corrupted(len(VOCABULARY), 1, 3, limit=12).draw(x1, seeded(11)), x1)


def prompts_for(name: str) -> list[list]:
    "Prompts: empty, a prefix, and gaps or masks where the method allows them."
    if name not in METHODS or METHODS[name][0] == "ar":
        return [[], ["a"], ["a", "b", "c"]]
    if name in INSERTING:
        return [[], ["a"], ["a", ..., "b"], [..., "c", "d"], ["a", "b", ..., "c", "d", ...]]
    return [[], ["a"], ["a", ..., "b"], ["a", "<mask>", "b", "<mask>", "<mask>"], ["<mask>", "c", ...]]


def states_of(x1, seed: int):
    "Some state (0 dropped, 1 masked, 2 clean) of every column, fixed ones clean."
    return torch.where(
        x1.free, torch.randint(3, x1.tokens.shape, generator=seeded(seed)), torch.where(x1.valid, CLEAN, DROPPED)
    )


# ---- what is measured


def read(samples) -> dict:
    "Digests of what a simulation returns, and its counters. Clock readings have nine digits."
    times = lambda values: [f"{v:.9g}" for v in values]
    out = dict(sequences=digest(samples.sequences), free=digest(samples.free)) | {
        k: int(getattr(samples, k)) for k in COUNTED
    }
    if samples.trajectories is None:
        return out
    frames = [[(f"{tau:.9g}", list(ids)) for tau, ids in path[0]] for path in samples.trajectories]
    return out | dict(
        frames=digest(frames),
        inserted=digest([times(path[1]) for path in samples.trajectories]),
        unmasked=digest([times(path[2]) for path in samples.trajectories]),
    )


def sampled(name: str, sampler=None, prompts=None, n=3, seed=0, record=True, **options) -> dict:
    return read(
        generate(
            model_of(name), prompts_for(name) if prompts is None else prompts, n,
            sampler=sampler, generator=seeded(seed), record=record, **options,
        )
    )


def edited(name: str, sampler=None, **options) -> dict:
    "What a model makes of given sequences, the first token of one kept, each with its trajectory."
    sources = [list("abca"), list("dd"), list("cabdabc")]
    keep = [[False] * 4, [True, False], [False] * 7]
    drawn = edit_sequences(
        model_of(name), sources, keep, 3, sampler=sampler, generator=seeded(0), record=True, **options
    )
    return read(drawn)


def toy_samples(sampler) -> dict:
    "The exact generator of a toy law, simulated from several prompts."
    prompts = collate([parse_prompt(p, LAW.vocabulary) for p in ([], ["b"], ["a", ..., "b"]) for _ in range(8)])
    return read(simulate(oracle(LAW), prompts, sampler, range(24), Limits(9.0, 6), record=True))


def numbers(prefix: str, tensor) -> dict:
    "A tensor's size and direction in two numbers: its root of summed squares, and its product with fixed numbers."
    v = tensor.detach().double().flatten()
    return {
        f"{prefix} norm": float(v.norm()),
        f"{prefix} projection": float(v @ torch.cos(torch.arange(len(v), dtype=torch.float64))),
    }


def norms(named) -> dict[str, float]:
    "The norm of every part of a model: of the tensors whose names begin with the same word."
    squares = {}
    for name, value in named:
        squares.setdefault(name.split(".")[0], []).append(float(value.detach().double().square().sum()))
    return {part: math.sqrt(sum(values)) for part, values in sorted(squares.items())}


def gradients(model) -> dict:
    "The norm of the gradient of every part of the model."
    return {
        f"gradient of {part}": v
        for part, v in norms((n, p.grad) for n, p in model.named_parameters() if p.grad is not None).items()
    }


def lost(name: str, with_gradients=True) -> dict:
    "The training loss at a fixed draw, all it logs, the end of the clock after it, and gradients' norms."
    model = small(name)
    terms = model.train().loss(batch_for(name), seeded(3))
    out = (
        dict(loss=float(terms.loss.detach()))
        | {f"metric {k}": float(v) for k, v in terms.metrics.items()}
        | dict(tau_max=float(model.tau_max))
    )
    if not with_gradients:
        return out
    terms.loss.backward()
    return out | gradients(model)


def bounded(name: str, x1=None) -> dict:
    mean, error = model_of(name).nll_bound(batch_for(name) if x1 is None else x1, 4, seeded(5))
    return {f"bound {i}": v for i, v in enumerate(mean.tolist())} | {
        f"error {i}": v for i, v in enumerate(error.tolist())
    }


@torch.no_grad()
def intensities(name: str) -> dict:
    "Every channel at partial sequences, masks among them, on three clock readings; and by time."
    model, x = (
        model_of(name),
        collate(
            [
                parse_prompt(p, VOCABULARY)
                for p in (["a", "<mask>", ..., "b", "<mask>"], ["c", "<mask>"], [], ["a", "d", "b"])
            ]
        ),
    )
    if METHODS[name][0] == "ar":
        x = collate([parse_prompt(p, VOCABULARY) for p in ([], ["a"], ["c", "d", "b"])])
    calls = {f"tau {tau}": dict(tau=torch.full((len(x.tokens),), tau)) for tau in (0.0, 0.3, 4.0)} | {
        "t 0.6": dict(t=torch.full((len(x.tokens),), 0.6))
    }
    out = {}
    for when, at in calls.items():
        for field, value in model.intensities(x, **at)._asdict().items():
            if value is None:
                continue
            keep = x.valid if value.ndim == 2 else x.valid[..., None].expand_as(value)
            out |= numbers(f"{when} {field}", value.masked_fill(~value.isfinite() | ~keep, 0.0))
    return out


def terms_of(name: str) -> dict:
    "The loss's terms and the states' log-probabilities at fixed states, with gradients of both."
    model, x1 = small(name), batch_for(name)
    kind, out = model.name, {}
    x1 = model.canvas(x1) if kind == "genmd4" else x1
    state, tau = states_of(x1, 7), torch.linspace(0.2, 3.0, len(x1.tokens))
    if kind == "ar":
        total, log_p = model.log_prob(x1), None
    elif kind == "flexmdm":
        total, log_p = model.match(x1, state, tau), None
    elif kind == "genmd4":
        total, log_p = model.match(x1, (state < 2) & x1.free, tau), model.state_log_prob(x1, (state < 2) & x1.free, tau)
    elif kind in ("lounmask", "loinsert"):
        x1 = model.align(x1)
        b = model.schedule(x1)
        state = model.path.sample(x1, tau.to(b.dtype), b, generator=seeded(7))
        total, log_p = model.match(x1, state, tau, b), model.path.log_prob(x1, state, tau, b)
        out |= numbers("b", b * x1.free)
    else:
        b = model.schedule(x1)
        total, log_p = model.match(x1, state, tau, *b), model.path.log_prob(x1, state, tau, *b)
        out |= numbers("b_in", b[0] * x1.free) | numbers("b_um", b[1] * x1.free)
    if isinstance(total, tuple):
        for field, value in total._asdict().items():
            out |= numbers(field, value)
        out |= numbers("paper", total.loss) | numbers("tight", total.tight)
        total = total.loss + total.tight
    else:
        out |= numbers("terms", total)
    if log_p is not None:
        out |= numbers("log_prob", log_p)
        total = total + log_p
    total.sum().backward()
    return out | gradients(model)


def pair(prefix: str, values) -> dict:
    return {
        k: v
        for part, value in zip(("0", "1"), values, strict=True)
        for k, v in numbers(f"{prefix} {part}", value).items()
    }


def first_weights(name: str) -> dict:
    "What a constructor draws, in single precision, and the names and shapes of all that is saved."
    state = construct(name).state_dict()
    out = dict(names=digest(sorted((k, list(v.shape)) for k, v in state.items())))
    return out | {f"norm of {part}": v for part, v in norms(state.items()).items()}


def trained(name: str, tmp: Path, **options) -> dict:
    "The losses of a few steps of training, the validation bounds, and the averaged weights."
    examples = examples_for(name)
    trainer = Trainer(
        small(name),
        examples,
        TrainConfig(steps=4, batch_size=3, warmup=2, log_every=1, valid_every=2, valid_samples=2, seed=1, **options),
        tmp,
        valid=examples[:3],
        progress=False,
    )
    model = trainer.fit()
    rows = trainer.log.rows()
    out = {
        f"step {r['step']} {k}": r[k]
        for r in rows
        for k in ("loss", "valid_nll", "grad_norm", "order_grad_norm")
        if r.get(k) is not None
    }
    return out | {f"average of {k}": v for k, v in norms(model.method.named_parameters()).items()}


# ---- the cases


def hook(logits, x, tau):
    "Makes the first ordinary token rarer and the last commoner as the clock goes on."
    shift = torch.zeros(logits.shape[-1])
    shift[3], shift[6] = -1.0, 1.0
    return logits + shift * (1 + tau[:, None, None]).log()


LEAPS, EVENTS = partial(TauLeaping, steps=16), partial(EventDriven, exact=True)
FROZEN = partial(EventDriven, exact=False)
SOON = partial(LEAPS, grid="clock")  # leaps with several masks to choose from
SHAPED = dict(temperature=dict(temperature=0.6), top_p=dict(top_p=0.6), hook=dict(logits_hook=hook))
POWERS = [c for c in CONFIDENCES if c not in ("entropy", "leftmost")]
SAMPLERS = {
    "events": EVENTS(),
    "events slack 1": EVENTS(slack=1.0),
    "events slack 3": EVENTS(slack=3.0),
    "frozen": FROZEN(),
    "frozen two per call": FROZEN(events_per_call=2),
    "leaps": LEAPS(),
    "two leaps": TauLeaping(steps=2),
    "leaps clock": LEAPS(grid="clock"),
    "leaps count": LEAPS(hold="count"),
    "leaps clock count": LEAPS(grid="clock", hold="count"),
    **{
        f"{word} {key}": make(**options)
        for word, make in dict(events=EVENTS, frozen=FROZEN, leaps=LEAPS).items()
        for key, options in SHAPED.items()
    },
    **{
        f"{word} {c}": make(confidence=c)
        for word, make in dict(events=EVENTS, frozen=FROZEN, leaps=SOON).items()
        for c in CONFIDENCES
    },
    **{f"leaps soft {c}": SOON(confidence=c, softness=0.5) for c in POWERS},
    "events soft": EVENTS(confidence="sampled", softness=1.0),
    "frozen soft two per call": FROZEN(confidence="rates", softness=2.0, events_per_call=2),
    "leaps window": SOON(confidence="top_prob", window=2),
    "events window": EVENTS(confidence="sampled", window=1),
}
STEPS = {
    "ancestral": Ancestral(steps=5),
    "ancestral one": Ancestral(steps=1),
    "ancestral cosine": Ancestral(steps=6, grid="cosine"),
    "ancestral sampled": Ancestral(steps=4, confidence="sampled", top_p=0.8),
}
PLANNERS = {
    "uniform": Planner(),
    "uniform three steps": Planner(steps=3),
    "greedy": Planner(confidence="sampled"),
    "greedy three steps": Planner(confidence="sampled", steps=3),
    "soft": Planner(confidence="sampled", softness=1.0),
    "soft three steps": Planner(confidence="sampled", softness=0.5, steps=3, temperature=0.8),
    "remask": Planner(remask=1.0),
    "remask three steps": Planner(remask=2.0, steps=3, temperature=0.9),
    "remask soft": Planner(remask=0.5, softness=1.0, steps=3),
    "window": Planner(confidence="sampled", window=2),
    "hook": Planner(confidence="sampled", logits_hook=hook),
    **{f"confidence {c}": Planner(confidence=c, steps=3) for c in CONFIDENCES},
}
NEXT = {
    "left to right": LeftToRight(),
    **{f"left to right {key}": LeftToRight(**options) for key, options in SHAPED.items()},
}
STAR = [list("63072871020603"), list("16942812601918"), list("52032150588453")]
MOLECULES = [["C", "C", ..., "O"], ["c", "1", ...], []]
PACKAGED = {"star-tiny": STAR, "star-tiny-fixed": STAR, "molecules": MOLECULES}


def packaged_batch(name: str):
    "Clean sequences of a packaged model's own alphabet, with prompts."
    model = load(stored(name))
    if name.startswith("star"):
        examples = [prefix_example(p, p[2:6], model.vocabulary) for p in STAR]
    else:
        examples = [
            filled_example(["C", ..., "O", ...], [list("CC(=O)N"), []], model.vocabulary),
            prefix_example("", list("Cc1ccccc1O"), model.vocabulary),
        ]
    return collate(examples)


def packaged_loss(name: str) -> dict:
    model, x1 = load(stored(name)).to(torch.get_default_dtype()).method.train(), packaged_batch(name)
    terms = model.loss(x1, seeded(3))
    terms.loss.backward()
    out = (
        dict(loss=float(terms.loss.detach()))
        | {f"metric {k}": float(v) for k, v in terms.metrics.items()}
        | dict(tau_max=float(model.tau_max))
    )
    return out | gradients(model) if torch.get_default_dtype() == torch.float64 else out


def canvas_sequences():
    return collate([*PREFIXES[:3], GAPS[1]])


def toy_bounds() -> dict:
    "The enumerated law of a small model on a toy law, and both bounds."
    with torch.no_grad():
        exact = path_bounds(LAW, oracle(LAW), None)
        return (
            numbers("paper", exact.paper)
            | numbers("tight", exact.tight)
            | numbers("law", final_law(LAW.space, oracle(LAW), 30.0, 1e-6).probs)
        )


TIES = [
    s for s in SAMPLERS if s.split()[-1] in CONFIDENCES and s.split()[-1] not in ("sampled", "leftmost")
]  # under the exact generator many masks are equally sure
CASES: dict[str, Callable[..., dict]] = {"toy bounds": toy_bounds}
for m in METHODS:
    CASES |= {
        f"first weights {m}": partial(first_weights, m),
        f"loss {m}": partial(lost, m),
        f"float32 loss {m}": partial(lost, m, False),
        f"bound {m}": partial(bounded, m),
        f"intensities {m}": partial(intensities, m),
        f"samples {m}": partial(sampled, m),
    }
    if METHODS[m][1].get("coupling") in GIVEN:
        del CASES[f"samples {m}"]
    if METHODS[m][0] not in ("mdm", "papl", "editflow"):
        CASES[f"terms {m}"] = partial(terms_of, m)
CASES |= {
    f"toy {s}": partial(toy_samples, sampler) for s, sampler in SAMPLERS.items() if s not in TIES and "hook" not in s
}
CASES |= {f"lo trainable {s}": partial(sampled, "lo trainable", sampler) for s, sampler in SAMPLERS.items()}
CASES |= {
    f"flexmdm cosine polynomial {s}": partial(sampled, "flexmdm cosine polynomial", SAMPLERS[s])
    for s in ("events", "frozen two per call", "leaps", "leaps count", "leaps top_rate")
}
CASES |= {
    f"{m} {s}": partial(sampled, m, SAMPLERS[s])
    for m in ("mdm", "genmd4")
    for s in ("events", "frozen", "frozen two per call", "leaps", "leaps sampled", "events window", "leaps hook")
}
CASES |= {
    f"genmd4 {s}": partial(sampled, "genmd4", sampler)
    for s, sampler in SAMPLERS.items()
    if sampler.confidence is not None and s not in ("leaps sampled", "events window")
}
CASES |= {
    f"{m} {s}": partial(sampled, m, sampler) for m in ("mdm cosine time", "genmd4") for s, sampler in STEPS.items()
}
CASES |= {f"planner {s}": partial(sampled, "mdm polynomial", sampler) for s, sampler in PLANNERS.items()}
CASES |= {
    f"planner genmd4 {s}": partial(sampled, "genmd4", PLANNERS[s])
    for s in ("uniform three steps", "greedy", "confidence rates", "remask")
}
CASES |= {s: partial(sampled, "ar", sampler) for s, sampler in NEXT.items()}
for m, s in (("lo trainable", EVENTS()), ("lo trainable", LEAPS()), ("lo fixed", FROZEN()), ("ar", None)):
    word = f"{m} {type(s).__name__}"
    CASES |= {
        f"lengths {word} at least 9": partial(sampled, m, s, min_length=9),
        f"lengths {word} at most 6": partial(sampled, m, s, max_length=6),
        f"lengths {word} exactly 8": partial(sampled, m, s, min_length=8, max_length=8),
        f"lengths {word} batches of 3": partial(sampled, m, s, n=1, batch_size=3),
    }
CASES |= {f"lengths {m} at most 8": partial(sampled, m, max_length=8) for m in ("mdm", "genmd4", "papl")}
CASES |= {
    f"{m} {s}": partial(edited, m, SAMPLERS[s])
    for m in ("edit uniform", "edit corrupted", "edit pairs shown")
    for s in ("events", "events slack 3", "events top_p", "frozen two per call", "leaps", "leaps clock")
}
for m in ("mdm", "mdm cosine time", "papl time"):
    for kind in ("network", "uniform"):
        CASES[f"discrete bound {m} {kind}"] = lambda m=m, kind=kind: pair(
            "bound", model_of(m).discrete_bound(canvas_sequences(), 5, 3, seeded(5), kind)
        )
CASES |= {
    f"greedy bound {s}": lambda s=s: pair(
        "bound", greedy_bound(model_of("mdm polynomial"), canvas_sequences(), PLANNERS[s])
    )
    for s in PLANNERS
    if s.split()[0] in ("greedy", "remask", "window", "confidence") and "soft" not in s
}
CASES |= {
    f"planner bound {s} {draws}": lambda s=s, draws=draws: pair(
        "bound", planner_bound(model_of("mdm polynomial"), canvas_sequences(), PLANNERS[s], 2, draws, seeded(5))
    )
    for s, draws in (("uniform", 1), ("soft", 1), ("soft", 3))
}
CASES |= {
    f"{word}training {m} {o}": partial(trained, m, optimiser=o)
    for word in ("", "float32 ")
    for m, o in (
        ("lo trainable", "adamw"),
        ("lo shared", "muon"),
        ("genmd4", "adamw"),
        ("lomdm learned", "adamw"),
        ("loinsert learned", "adamw"),
        ("flexmdm", "muon"),
        ("papl", "adamw"),
        ("ar", "adamw"),
        ("edit empty", "adamw"),
    )
}
for m, p in PACKAGED.items():
    CASES |= {
        f"loss {m}": partial(packaged_loss, m),
        f"float32 loss {m}": partial(packaged_loss, m),
        f"bound {m}": lambda m=m: bounded(m, packaged_batch(m)),
    }
    for word, s in (
        ("default", None),
        ("leaps", TauLeaping(steps=24)),
        ("frozen", FROZEN(events_per_call=2)),
        ("confident", TauLeaping(steps=16, confidence="top_prob", top_p=0.9)),
    ):
        CASES[f"float32 samples {m} {word}"] = partial(sampled, m, s, p, 2 if m.startswith("star") else 1)
    CASES[f"samples {m}"] = partial(sampled, m, None, p, 1)


def result(name: str, tmp: Path) -> dict:
    "What a case gives, in double precision unless its name says otherwise."
    case = partial(CASES[name], tmp=tmp) if "training" in name else CASES[name]
    if name.startswith(("float32", "first weights")):
        return case()
    with float64():
        return case()


# ---- the tests


@lru_cache
def golden() -> dict:
    return json.loads(FILE.read_text())


@lru_cache
def same_arithmetic() -> bool:
    return golden()["arithmetic"] == arithmetic()


@lru_cache
def same_muon() -> bool:
    return same_arithmetic() and golden()["muon_arithmetic"] == muon_arithmetic()


ROUNDING = 1e-15  # a sum that is 0 on one processor
NEAR_THE_END = 1e-5  # tolerance of bounds on another processor: last digits of a late time change more of the value
# digests of clock readings with nine digits, of which another processor may round the last differently
DIGESTS_OF_TIMES = ("frames", "inserted", "unmasked")


def needs_same_arithmetic(name: str) -> bool:
    "Results that depend on the last digits: of single precision, torch's normal draws and Muon."
    return name.startswith(("float32", "first weights")) or "training" in name


def tolerance(name: str, key: str) -> float:
    if name.startswith("float32") or "training" in name and key.startswith("step"):
        return 1e-5  # the log keeps six digits
    if not same_arithmetic():
        return NEAR_THE_END if name.startswith("bound") else 1e-9
    return 1e-10 if key.startswith("gradient") else 1e-12


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_nothing_has_changed(name, tmp_path):
    expected = golden()["cases"][name]
    if needs_same_arithmetic(name) and not (same_muon() if "muon" in name else same_arithmetic()):
        pytest.skip(
            "last digits: this machine's or this torch's arithmetic differs from that of tests/golden/golden.json"
        )
    found = result(name, tmp_path)
    assert found.keys() == expected.keys()
    wrong = {}
    for key, value in expected.items():
        if key in DIGESTS_OF_TIMES and not same_arithmetic(): continue
        exact = not isinstance(value, float)
        close = not exact and math.isclose(found[key], value, rel_tol=tolerance(name, key), abs_tol=ROUNDING)
        same = close or found[key] == value
        if not same:
            wrong[key] = (found[key], value)
    assert not wrong, f"{name} (found, golden): {wrong}"


def test_every_golden_case_is_tested():
    assert sorted(golden()["cases"]) == sorted(CASES)


# ---- writing


def write(prefixes: list[str]):
    import tempfile

    torch.set_num_threads(1)
    if prefixes and FILE.exists() and not (same_arithmetic() and same_muon()):
        sys.exit(f"{FILE} was written on another processor, whose last digits differ: write all cases, without names")
    cases = golden()["cases"] if prefixes and FILE.exists() else {}
    for name in CASES:
        if prefixes and not name.startswith(tuple(prefixes)):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            cases[name] = result(name, Path(tmp))
    meta = dict(
        torch=torch.__version__,
        platform=f"{platform.system()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        arithmetic=arithmetic(),
        muon_arithmetic=muon_arithmetic(),
    )
    FILE.write_text(json.dumps(meta | dict(cases={k: cases[k] for k in CASES if k in cases}), indent=0) + "\n")
    print(f"{FILE}: {len(cases)} cases")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    write(sys.argv[2:])
