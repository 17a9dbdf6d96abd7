"""Files as the authors of LoFlexMDM write them, with random weights, and what their network gives for them: written
once more in numpy, row by row without padding, from the names and shapes in the files alone."""
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file

TOKENS, WIDTH, HIDDEN, COND, LENGTH, HEADS, DEPTH = 63, 64, 80, 12, 20, 4, 2


class Kind(NamedTuple):
    "What a file does not say."
    pad: int
    mask: int
    bos: int
    eos: int
    link: str


KINDS = dict(flexmdm=Kind(3, 4, 1, 2, "softplus"), star=Kind(0, 2, 4, 3, "softplus"), shared=Kind(3, 4, 1, 2, "exp"))


# Files

def shapes(turned: int, heads: tuple[str, ...], logits: bool, below: str = "", trunk: bool = True) -> dict[str, tuple]:
    "Names and shapes of the tensors of a file; `below` stands before those of a network that is shared."
    linear = lambda name, n, m: {f"{name}.weight": (n, m), f"{name}.bias": (n,)}
    modulation = lambda name, n: linear(f"{name}.modulation", n * WIDTH, COND)
    found = {"embed_tokens.weight": (TOKENS, WIDTH)}
    found |= linear("sigma_map.mlp.0", COND, 256) | linear("sigma_map.mlp.2", COND, COND)
    found |= {"encoder.0.rotary_emb.inv_freq": (turned // 2,)}  # one table for all blocks
    for i in range(DEPTH):
        block = f"encoder.{i}"
        found |= modulation(f"{block}.ada_ln_modulations", 6)
        found |= linear(f"{block}.mlp.0", HIDDEN, WIDTH) | linear(f"{block}.mlp.2", WIDTH, HIDDEN)
        found |= {f"{block}.attn_qkv.weight": (3 * WIDTH, WIDTH), f"{block}.o_proj.weight": (WIDTH, WIDTH)}
        found |= {f"{block}.norm{k}.norm": (WIDTH,) for k in (1, 2)}
    found = {below + name: shape for name, shape in (found | {"sigma_map.freqs": (128,)}).items()} if trunk else {}
    for head in heads:
        found |= modulation(f"{head}.adaLN_modulation", 2) | {f"{head}.norm.norm": (WIDTH,)}
        found |= linear(f"{head}.proj1", WIDTH, WIDTH) | linear(f"{head}.proj2", 1, WIDTH)
    if not logits: return found
    found |= modulation("output_layer.adaLN_modulation", 2) | {"output_layer.norm_final.norm": (WIDTH,)}
    return found | {"output_layer.linear.weight": (TOKENS, WIDTH)}


def weights(pad: int, seed: int, **options) -> dict[str, np.ndarray]:
    "Random tensors of these shapes, those of constants by their formulas, and a row of zeros for the padding."
    draw, found = np.random.default_rng(seed), {}
    for name, shape in shapes(**options).items():
        n = shape[0]
        if name.endswith(("freqs", "inv_freq")): found[name] = 1e4 ** (-np.arange(n) / n)
        elif name.endswith(".norm"): found[name] = 1 + 0.2 * draw.standard_normal(shape)
        else: found[name] = draw.standard_normal(shape) * 0.5 / math.sqrt(shape[-1])
        if name.endswith("proj2.bias"): found[name] -= 3  # so that a softplus, times 100, is a few
        if name.endswith("embed_tokens.weight"): found[name][pad] = 0
    return {name: value.astype(np.float32) for name, value in found.items()}


# The network, once more

def silu(x: np.ndarray) -> np.ndarray: return x / (1 + np.exp(-x))
def gelu(x: np.ndarray) -> np.ndarray: return x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x)


def normal(h: np.ndarray, gain: np.ndarray) -> np.ndarray:
    "Every row with mean 0 and variance 1, times the gain."
    centred = h - h.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain


def turned(x: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    "Features j and j + n of every column (length, features), turned by its position's angle as a complex number."
    n = len(frequencies)
    angle = np.arange(len(x))[:, None] * frequencies
    pair = (x[:, :n] + 1j * x[:, n:2 * n]) * np.exp(1j * angle)
    return np.concatenate([pair.real, pair.imag, x[:, 2 * n:]], -1)


def attention(y: np.ndarray, frequencies: np.ndarray, part) -> np.ndarray:
    "Every column looks at all of its row, head by head."
    size, out = WIDTH // HEADS, []
    joined = part("attn_qkv.weight") @ y.T
    for head in range(HEADS):
        q, k, v = (joined[i * WIDTH + head * size:i * WIDTH + (head + 1) * size].T for i in range(3))
        q, k = (turned(x, frequencies) for x in (q, k))
        score = np.exp(q @ k.T / math.sqrt(size))
        out.append(score / score.sum(-1, keepdims=True) @ v)
    return np.concatenate(out, -1) @ part("o_proj.weight").T


def block(h: np.ndarray, cond: np.ndarray, frequencies: np.ndarray, part) -> np.ndarray:
    "Attention, whose residual is its input after the modulation, then the MLP."
    six = part("ada_ln_modulations.modulation.weight") @ cond + part("ada_ln_modulations.modulation.bias")
    shift, scale, gate, shift2, scale2, gate2 = np.split(six, 6)
    y = normal(h, part("norm1.norm")) * (1 + scale) + shift
    h = y + gate * attention(y, frequencies, part)
    z = normal(h, part("norm2.norm")) * (1 + scale2) + shift2
    inner = np.maximum(z @ part("mlp.0.weight").T + part("mlp.0.bias"), 0)
    return h + gate2 * (inner @ part("mlp.2.weight").T + part("mlp.2.bias"))


def read_by_head(h: np.ndarray, cond: np.ndarray, part, norm: str) -> np.ndarray:
    "The input of a head's linear maps."
    modulation = "adaLN_modulation.modulation"
    shift, scale = np.split(part(f"{modulation}.weight") @ cond + part(f"{modulation}.bias"), 2)
    return normal(h, part(norm)) * (1 + scale) + shift


def scalars(h: np.ndarray, cond: np.ndarray, part) -> np.ndarray:
    "A rate head's raw scalar of every column."
    inner = gelu(read_by_head(h, cond, part, "norm.norm") @ part("proj1.weight").T + part("proj1.bias"))
    return (inner @ part("proj2.weight").T + part("proj2.bias"))[:, 0]


def rates(raw: np.ndarray, link: str, least: float) -> np.ndarray:
    "The exponent b of raw scalars."
    if link == "exp": return least + np.exp(raw)
    return least + (100 - least) * np.log1p(np.exp(raw))


def row_outputs(w: dict, ids: np.ndarray, t: float, link: str, least: float, below: str = "") -> dict[str, np.ndarray]:
    "What the network gives for one row of ids without padding, by the names of the authors' outputs."
    trunk = lambda name: w[below + name].astype(float)
    angle = t * 1e4 ** (-np.arange(128) / 128)
    features = np.concatenate([np.cos(angle), np.sin(angle)])
    hidden = silu(trunk("sigma_map.mlp.0.weight") @ features + trunk("sigma_map.mlp.0.bias"))
    cond = silu(trunk("sigma_map.mlp.2.weight") @ hidden + trunk("sigma_map.mlp.2.bias"))
    found = dict(cond=cond)

    h, frequencies = trunk("embed_tokens.weight")[ids], trunk("encoder.0.rotary_emb.inv_freq")
    for i in range(DEPTH):
        h = block(h, cond, frequencies, lambda name, i=i: trunk(f"encoder.{i}.{name}"))
        found[f"hidden_{i}"] = h

    of = lambda prefix: lambda name: w[prefix + name].astype(float)
    ours = dict(b_ins=("b_ins_theta_head.", "lambda_ins_phi_head."))
    ours |= dict(b_unmask_head=("b_unmask_theta_head.", "lambda_unmask_phi_head."))
    for name, prefixes in ours.items():
        for prefix in prefixes:
            if prefix + "norm.norm" in w: found[name] = rates(scalars(h, cond, of(prefix)), link, least)
    if "len_pred.norm.norm" in w: found["gap"] = 260 * np.log1p(np.exp(scalars(h, cond, of("len_pred."))))
    if "output_layer.linear.weight" in w:
        read = read_by_head(h, cond, of("output_layer."), "norm_final.norm")
        found["vocab_logits"] = read @ w["output_layer.linear.weight"].astype(float).T
    return found


def outputs(w: dict, ids: torch.Tensor, t: torch.Tensor, pad: int, link: str, least: float) -> dict[str, np.ndarray]:
    "What the network gives for rows that are padded on the right, 0 where padding is; and the hazards."
    below = "backbone." * any(name.startswith("backbone.") for name in w)
    found = {}
    for i, (row, time) in enumerate(zip(ids.numpy(), t.tolist(), strict=True)):
        n = int((row != pad).sum())
        for name, value in row_outputs(w, row[:n], time, link, least, below).items():
            whole = value.shape if name == "cond" else (LENGTH, *value.shape[1:])
            place = found.setdefault(name, np.zeros((len(ids), *whole)))
            place[i, :len(value)] = value
    single = t.numpy()[:, None]  # near 1 the shape of the clock is what single precision makes of it
    if "b_ins" not in found: return found
    for a in (1, 2): found[f"hazard_ins_a{a}"] = found["b_ins"] * (a * single ** (a - 1) / (1 - single**a))
    return found


# All files

def write_all(place: Path):
    """Files of a generator and an order model with networks of their own, of two that share one, and of FlexMDM, and
    their in- and outputs."""
    ours, theirs = ("b_ins_theta_head", "b_unmask_theta_head"), ("lambda_ins_phi_head", "lambda_unmask_phi_head")
    files = dict(
        star_generator=dict(turned=16, heads=ours, logits=True),
        star_aux=dict(turned=8, heads=theirs, logits=False),
        shared_generator=dict(turned=16, heads=ours, logits=True, below="backbone."),
        shared_aux_heads=dict(turned=16, heads=theirs, logits=False, trunk=False),
        flexmdm_generator=dict(turned=16, heads=("len_pred",), logits=True),
    )
    made = {}
    for seed, (name, options) in enumerate(files.items()):
        made[name] = weights(KINDS[name.split("_")[0]].pad, seed, **options)
        tensors = {key: torch.from_numpy(value) for key, value in made[name].items()}
        save_file(tensors, place / f"{name}.weights.safetensors")
    trunk = {key: value for key, value in made["shared_generator"].items() if key.startswith("backbone.")}
    made["shared_aux"] = trunk | made.pop("shared_aux_heads")
    for name, w in made.items(): write_outputs(place, name, w)


def write_outputs(place: Path, name: str, w: dict):
    "Rows of several lengths, one full, and what the network gives for them."
    kind, draw = KINDS[name.split("_")[0]], np.random.default_rng(len(name))
    ids = np.full((4, LENGTH), kind.pad)
    for row, n in zip(ids, (LENGTH, 13, 7, 2), strict=True):
        row[:n] = draw.integers(7, TOKENS, n)
        if "generator" in name: row[:n:3] = kind.mask
        row[n - 1] = kind.eos
    t = torch.tensor([0.62, 0.137, 0.0, 0.985])
    ids = torch.from_numpy(ids)
    found = outputs(w, ids, t, kind.pad, kind.link, 1.01 if name.endswith("aux") else 0.0)
    io = dict(input_ids=ids, t=t, attention_mask=ids != kind.pad)
    io |= {key: torch.from_numpy(value.astype(np.float32)) for key, value in found.items()}
    save_file(io, place / f"{name}.io.safetensors")


def write_tokenizer(path: Path):
    "A tokenizer file of 1,880 tokens, as that of bracket SAFE has them: five special ones, then others."
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "#", *(f"C{i}" for i in range(1874))]
    path.write_text(json.dumps(dict(model=dict(vocab={name: i for i, name in enumerate(names)}))))


def from_authors(place: Path, name: str) -> dict[str, np.ndarray]:
    "The tensors behind the authors' outputs of that name."
    read = lambda file: load_file(place / f"{file}.weights.safetensors")
    tensors = read("shared_generator") | read("shared_aux_heads") if name == "shared_aux" else read(name)
    if name == "shared_aux": tensors = {k: v for k, v in tensors.items() if k.startswith(("backbone.", "lambda_"))}
    return {key: value.numpy() for key, value in tensors.items()}
