"""Nats per line after some CPU seconds of training, beside a plain GPT of the same size.

    python experiments/plain_gpt.py FILE [--seconds 40] [--seeds 0 1 2] [--entrants ar plain] [--rows 16] [--out OUT]

FILE has one sequence per line, cut into characters: `code_lines.py` and `log_lines.py` write two, and
`regret_runs.names` the names. Rows of experiments/results/plain_gpt.jsonl say what their file is (`--about`). Runs
whose rows are in OUT are left out. All train on the same lines, as many a step, for the same seconds of one
core, with rates that fall to their last value when the time is over; the bound is that of the same held-out lines, and
exact. The plain GPT is torch's own layers: learned positions, LayerNorm, AdamW, cross-entropy."""
import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from loflexmdm.networks.transformer import SIZES
from loflexmdm.process.states import PAD, PartialSequences, collate
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.training.log import JsonLines
from loflexmdm.training.recipes import recipe_from
from runs import COMMIT, bound, processor

ROWS, POOL = 16, 50  # lines of a step if not given, and steps whose lines are sorted together
RATE, WARMUP = 3e-3, 50
ENTRANTS = {
    "plain": False,
    "plain, sorted": True,
    "ar": dict(method="ar"),
    "left to right": dict(method="ordered-insertion", order="left_to_right"),
    "masks": dict(method="loflexmdm", order="fixed", states=1),
}


class PlainGPT(nn.Module):
    "A GPT of a size's width, depth and heads, of lines of at most `longest` columns."
    def __init__(self, vocabulary: int, longest: int, size: str = "nano"):
        super().__init__()
        width, depth, heads, _ = SIZES[size]
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(longest, width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        "Return nats of what follows each column: the next token, and the end (PAD) after the last."
        length = tokens.shape[1]
        h = self.token(tokens) + self.place.weight[:length]
        h = self.blocks(h, nn.Transformer.generate_square_subsequent_mask(length), is_causal=True)
        following = F.pad(tokens[:, 1:], (0, 1), value=PAD)
        nats = F.cross_entropy(self.out(h).mT, following, reduction="none")
        return nats.masked_fill(tokens == PAD, 0.0)


def lines(task: Task, seed: int, grouped: bool, size: int) -> Iterator[Tensor]:
    "Yield batches of `size` of the task's lines, at random or of similar length."
    data, draw = task.dataset("train"), torch.Generator().manual_seed(seed)
    while True:
        rows = torch.randint(len(data), (POOL * size,), generator=draw).tolist()
        made = [data[i] for i in rows]
        if grouped: made.sort(key=lambda e: len(e.tokens))
        for k in torch.randperm(POOL, generator=draw).tolist(): yield collate(made[k * size:(k + 1) * size]).tokens


def trained_gpt(task: Task, seed: int, seconds: float, size: int, grouped: bool) -> tuple[list[float], int, int]:
    "Train the plain GPT; return nats per line with their error, steps and tokens."
    torch.manual_seed(seed)
    model, stream = PlainGPT(len(task.vocabulary), task.max_length), lines(task, seed, grouped, size)
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), fused=True)
    steps = tokens = 0
    began = time.process_time()
    while (share := (time.process_time() - began) / seconds) < 1:
        rate = RATE * min((steps + 1) / WARMUP, 0.1 + 0.45 * (1 + math.cos(math.pi * share)))
        for group in optimiser.param_groups: group["lr"] = rate
        batch = next(stream)
        (model(batch).sum() / size).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimiser.step()
        optimiser.zero_grad()
        steps, tokens = steps + 1, tokens + int((batch != PAD).sum())
    with torch.no_grad(): nats = model(held(task).tokens).sum(1)
    return [round(float(nats.mean()), 2), round(float(nats.std() / len(nats) ** 0.5), 2)], steps, tokens


def held(task: Task, n: int = 512) -> PartialSequences:
    data = task.dataset("test")
    return collate([data[i] for i in range(min(n, len(data)))])


def trained(task: dict, model: dict, seed: int, seconds: float, size: int) -> tuple[list[float], int, int]:
    "Train a model of ours with the settings of a first run; the same figures."
    settings = dict(task=task, model=model, train=dict(seed=seed, batch_size=size, steps=10**6, compile=False))
    recipe = recipe_from(settings)
    with tempfile.TemporaryDirectory() as directory:
        trainer = recipe.trainer(directory, "cpu", progress=False)
        stream, tokens = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device), 0
        began = time.process_time()
        while (spent := time.process_time() - began) < seconds:
            if trainer.step > 20:  # the rate falls as if this were the number of steps
                ahead = math.ceil(trainer.step * seconds / spent)
                trainer.config = replace(trainer.config, steps=max(ahead, trainer.step + 1))
            trainer.train_step(watched := Counted(stream))
            tokens += watched.tokens
        return bound(task_from(task), trainer.ema.module.eval()), trainer.step, tokens


class Counted:
    "Batches that count their tokens."
    def __init__(self, batches: Iterator): self.batches, self.tokens = batches, 0
    def __next__(self) -> PartialSequences:
        batch = next(self.batches)
        self.tokens += int(batch.valid.sum())
        return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--entrants", nargs="+", default=["plain", "plain, sorted", "ar"], choices=list(ENTRANTS))
    parser.add_argument("--rows", type=int, default=ROWS, help=f"lines of a step [{ROWS}]")
    parser.add_argument("--about", help="what the file is and where it comes from")
    parser.add_argument("--out", type=Path, help="a file to which rows are added, as JSON lines")
    args = parser.parse_args()
    torch.set_num_threads(1)
    task = dict(kind="text", file=str(args.file.absolute()), unit="characters")
    made = task_from(task)
    there = JsonLines(args.out).rows() if args.out else []
    for seed in args.seeds:
        for name in args.entrants:
            row = dict(name=name, file=args.file.name, seed=seed, seconds=args.seconds, rows=args.rows)
            if any(row.items() <= (dict(rows=ROWS) | other).items() for other in there): continue
            how = ENTRANTS[name]
            if isinstance(how, bool): nats, steps, tokens = trained_gpt(made, seed, args.seconds, args.rows, how)
            else: nats, steps, tokens = trained(task, how, seed, args.seconds, args.rows)
            row |= dict(nats=nats, steps=steps, tokens_per_second=round(tokens / args.seconds), about=args.about,
                        commit=COMMIT, processor=processor())
            print(json.dumps(row), flush=True)
            if args.out: JsonLines(args.out).write(row)


if __name__ == "__main__": main()
