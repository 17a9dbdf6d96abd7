"""Ordered insertion on a GPU: `python experiments/ordered_gpu_runs.py --out FILE` adds a row of JSON per measurement.

Steps of whole generations of 512 columns, 128 rows at once, beside GPT-2 of Hugging Face of the same width and depth,
autoregression and LoFlexMDM of the package, as written and compiled; the share of the GPU's peak in bfloat16 counts the
products that torch counts. `flex` replaces the attention by `flex_attention`. `--stars SECONDS` then trains star-hard at
the paper's size. `--device cpu --size nano --rows 2 --columns 32` tries that it runs."""
import argparse
import json
import statistics
import tempfile
import time
import traceback
from pathlib import Path

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

from bench import gpt2, stepping, their_step
from gpu_runs import Bench, bandwidth
from loflexmdm.networks import order_causal
from loflexmdm.networks.order_causal import RankBlock
from loflexmdm.networks.transformer import SIZES
from loflexmdm.training.compiling import fast_products
from loflexmdm.training.recipes import recipe
from ordered_length_runs import FORWARD, LATE, LEARNED, MASKS, WORDS, model

PEAK = 989e12  # products in bfloat16 of a Hopper card, without sparsity, per second
LO = dict(method="loflexmdm", order="learned", states=2)
# method, rows of the batch relative to --rows, compiled, recomputed, attention
CASES = (
    ("gpt2", None, 1, False, False, ""), ("ar", dict(method="ar"), 1, False, False, ""),
    ("forward", FORWARD, 1, False, False, ""), ("forward late", FORWARD | LATE, 1, False, False, ""),
    ("learned late", LEARNED | LATE, 0.5, False, False, ""), ("loflexmdm", LO, 0.5, False, False, ""),
    ("masks late", MASKS | LATE, 0.25, False, False, ""),
    ("forward late", FORWARD | LATE, 1, False, False, "flex"), ("forward", FORWARD, 1, False, False, "flex"),
    ("gpt2", None, 1, True, False, ""), ("ar", dict(method="ar"), 1, True, False, ""),
    ("forward late", FORWARD | LATE, 1, True, False, ""), ("loflexmdm", LO, 0.5, True, False, ""),
    ("learned late", LEARNED | LATE, 0.5, False, False, "flex"),
)
PLAIN = RankBlock.forward
MASKS_OF = {}  # of blocks, by shape


def flex_forward(self, h, past, distance, sees, content, chunks=()):
    "A block with `flex_attention` where whole generations are read."
    if past is None or h.shape[1] < content: return PLAIN(self, h, past, distance, sees, content)
    q, k, v = self.qkv(self.norm(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
    q = self.q_norm(q)
    k, v = order_causal._joined(past, self.k_norm(k[:, :, :content]), v[:, :, :content])
    by_class = ((q + self.any).transpose(0, 1).flatten(1, 2) @ self.distance.mT / q.shape[-1] ** 0.5)
    by_class = by_class.unflatten(1, (len(q), -1)).transpose(0, 1).contiguous()
    seen = flexible(q, k.to(q.dtype), v.to(q.dtype), by_class, distance.contiguous(), sees.contiguous(), content)
    h = h + self.out(seen.transpose(1, 2).flatten(2))
    return h + self.mlp(self.mlp_norm(h)), (k, v)


def flexible(q, k, v, by_class, distance, sees, content):
    "Attention whose scores have a term by the class of the distance."
    def term(score, b, head, i, j):
        return torch.where(sees[b, i, j], score + by_class[b, head, i, distance[b, i, j].int()], -float("inf"))
    shape = q.shape[2], k.shape[2]
    if shape not in MASKS_OF:
        prompt = k.shape[2] - content
        earlier = lambda b, head, i, j: j <= prompt + i % content
        MASKS_OF[shape] = create_block_mask(earlier, None, None, *shape, device=q.device)
    return ATTEND(q.contiguous(), k.contiguous(), v.contiguous(), score_mod=term, block_mask=MASKS_OF[shape])


ATTEND = flex_attention


def close_to_plain(bench: Bench, settings: dict):
    "Note how far loss and gradient with `flex_attention` are from those without, on a small batch in float32."
    found = []
    made = model(settings, 48, "nano").to(bench.device)
    with torch.no_grad():
        for p in made.parameters(): p += 0.1 * torch.randn_like(p) / max(p.shape[-1], 1) ** 0.5
    from loflexmdm.process.states import collate, prefix_example
    texts = [[made.vocabulary.tokens[3 + (7 * i + i * k) % WORDS] for k in range(20 + i)] for i in range(8)]
    batch = collate([prefix_example((), text, made.vocabulary) for text in texts]).to(bench.device)
    for forward in (PLAIN, flex_forward):
        RankBlock.forward = forward
        made.zero_grad()
        loss = made.loss(batch, torch.Generator(bench.device).manual_seed(0)).loss
        loss.backward()
        found.append(torch.cat([loss.detach()[None], *(p.grad.flatten() for p in made.parameters() if p.grad is not None)]))
    RankBlock.forward = PLAIN
    bench.note(part="flex", far=float((found[0] - found[1]).abs().max()), largest=float(found[0].abs().max()))


def products(step) -> float:
    "Count the floating-point operations of the products of a step."
    with FlopCounterMode(display=False) as counter: step()
    return float(counter.get_total_flops())


def step_case(bench: Bench, case: tuple, known: dict):
    "Note seconds, memory and the share of the peak of a training step."
    name, settings, share, compiled, again, attention = case
    args = bench.args
    rows = max(1, round(args.rows * share))
    bench.fresh()
    MASKS_OF.clear()
    RankBlock.forward = flex_forward if attention else PLAIN
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory, fast_products(bench.device):
        if settings is None:
            made = gpt2(SIZES[args.size], args.columns).to(bench.device)
            ids = torch.randint(4, 60, (rows, args.columns), device=bench.device)
            if compiled: made.compile(dynamic=False)
            step = their_step(made, lambda: dict(input_ids=ids, labels=ids),
                              torch.autocast(bench.device.type, torch.bfloat16))
        else:
            more = dict(order_size=args.size) if "order_size" in settings or name == "loflexmdm" else {}
            made = model(settings | more, args.columns, args.size).to(bench.device)
            step = stepping(made, rows, directory, compile=compiled, precision="bfloat16", recompute=again,
                            log_every=10**6)
        for _ in range(3): step()
        bench.wait()
        compiling = time.perf_counter() - begun
        if name not in known and not attention and not compiled: known[name] = products(step)
        times = bench.seconds(step, args.rounds)
    RankBlock.forward = PLAIN
    seconds = statistics.median(times)
    bench.note(part="step", method=name, size=args.size, rows=rows, columns=args.columns, compile=compiled,
               recompute=again, attention=attention or "plain", seconds=seconds, least=times[0], most=times[-1],
               tokens_per_second=rows * args.columns / seconds, gigabytes=bench.gigabytes(), first=round(compiling, 1),
               products=known.get(name), peak_share=known.get(name, 0) / seconds / PEAK,
               weights=sum(p.numel() for p in made.parameters()))


def stars(bench: Bench, seconds: float, out: Path):
    "Train star-hard by ordered insertion at the paper's size for some seconds, as far as that goes; its log comes back."
    RankBlock.forward = PLAIN
    size = bench.args.size
    options = dict(size=size, order_size=size, query_blocks=1, batch_size=128 if bench.gpu else 2, steps=100_000, lr=5e-4,
                   warmup=300, order_start=10**5, precision="bfloat16", compile=False, valid_every=10**6,
                   save_every=10**6, log_every=20, workers=1 if bench.gpu else 0)
    trainer = recipe("star-hard-ordered", **options).trainer(out / "stars", device=bench.device, progress=False)
    stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
    begun, curve = time.perf_counter(), []
    while time.perf_counter() - begun < seconds:
        row = trainer.train_step(stream)
        if trainer.step % 20 == 0: curve.append([trainer.step, round(time.perf_counter() - begun, 1),
                                                 round(float(row["bound"]), 3)])
    stream.close()
    bench.note(part="stars", curve=curve, steps=trainer.step, batch=options["batch_size"], gigabytes=bench.gigabytes())


def attempt(bench: Bench, what, *args):
    "Run a part; what fails is noted, and the others go on."
    try: what(bench, *args)
    except Exception: bench.note(part=what.__name__, failed=traceback.format_exc()[:300] + " ... " + traceback.format_exc()[-900:], about=str(args)[:200])


def main():
    global ATTEND
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file to which rows are added")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="medium_paper")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no case begins")
    parser.add_argument("--stars", type=float, default=0, help="seconds of training star-hard")
    args = parser.parse_args()
    bench = Bench(args)
    begun, known = time.perf_counter(), {}
    if bench.gpu: ATTEND = torch.compile(flex_attention, dynamic=False)
    attempt(bench, bandwidth)
    for settings in (FORWARD, FORWARD | LATE): attempt(bench, close_to_plain, settings)
    for case in CASES:
        if time.perf_counter() - begun > args.until: break
        if case[3] and not bench.gpu: continue
        attempt(bench, step_case, case, known)
        bench.note(part="took", case=str(case[0]), seconds=round(time.perf_counter() - begun, 1))
    if args.stars: attempt(bench, stars, args.stars, Path(args.out).parent)


if __name__ == "__main__": main()
