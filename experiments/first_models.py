"""Which model text of one's own is trained with first: `python experiments/first_models.py [--seeds 0 1 2] [NAME...]`.

Roman numerals below 1,000, as in the tutorial on one's own data: CPU seconds of training and of 1,000 samples, shares
of numerals among samples and among completed prompts, bounds on held-out lines. Rows go to
experiments/results/first_models.json."""
import argparse
import tempfile
import time
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.tasks.base import Task
from loflexmdm.training.recipes import Recipe, recipe_from
from runs import ROOT, bound, note

RESULTS = ROOT / "experiments" / "results" / "first_models.json"
SAMPLES, COMPLETED = 1000, 300
SIGNS = (
    (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
    (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)
PROMPTS = {"...IX": [..., "I", "X"], "C...I": ["C", ..., "I"]}

# settings of the model, sequences a step, learning rate, steps
ORDERED = dict(method="ordered-insertion", size="nano")
SLOPED = ORDERED | dict(order="learned", slope=1.0, orders=2, order_size="nano")
ENTRANTS = {
    "fixed order, masks": (dict(method="loflexmdm", order="fixed", states=1, size="nano"), 64, 6e-3, 300),
    "fixed order, masks, 600 steps": (dict(method="loflexmdm", order="fixed", states=1, size="nano"), 64, 6e-3, 600),
    "autoregressive": (dict(method="ar", size="nano"), 64, 6e-3, 300),
    "uniform order": (ORDERED | dict(order="uniform", orders=1), 64, 4e-3, 300),
    "left to right": (ORDERED | dict(order="left_to_right", orders=1), 64, 4e-3, 300),
    "mixture": (ORDERED | dict(order="mixture", orders=1), 64, 4e-3, 300),
    "learned from uniform": (SLOPED | dict(slope=0.0), 32, 4e-3, 300),
    "learned from a slope": (SLOPED, 32, 4e-3, 300),
}


def roman(n: int) -> str:
    "A number as a Roman numeral."
    text = ""
    for value, sign in SIGNS:
        while n >= value: n, text = n - value, text + sign
    return text


NUMERALS = [roman(n) for n in range(1, 1000)]


def recipe_of(name: str, seed: int, infill: float, folder: Path) -> Recipe:
    "The recipe of an entrant, with the file of numerals in `folder`."
    model, rows, lr, steps = ENTRANTS[name]
    file = folder / "numerals.txt"
    file.write_text("\n".join(NUMERALS))
    train = dict(steps=steps, batch_size=rows, lr=lr, optimiser="muon", warmup=20, ema=0.99, seed=seed)
    train |= dict(valid_every=50, valid_samples=4, log_every=10, compile=False)
    if model.get("order") == "learned" and "slope" in model: train |= dict(order_start=75, order_lr_scale=0.1)
    task = dict(kind="text", file=str(file), unit="characters", infill=infill)
    return recipe_from(dict(task=task, model=model, train=train))


def written(method: Method, sequences: list) -> list[str]:
    "Sequences as text."
    return ["".join(method.vocabulary.decode(s)) for s in sequences]


def share(texts: list[str]) -> float: return round(sum(t in NUMERALS for t in texts) / len(texts), 3)


def completions(method: Method) -> dict[str, float]:
    "Share of numerals among completions of each prompt."
    drawn = {text: generate(method, [prompt], n=COMPLETED, seed=1) for text, prompt in PROMPTS.items()}
    return {text: share(written(method, samples.sequences)) for text, samples in drawn.items()}


def figures(task: Task, method: Method) -> dict:
    "Samples, their CPU seconds, and the bound on held-out lines."
    started = time.process_time()
    samples = generate(method, n=SAMPLES, seed=0)
    seconds = time.process_time() - started
    return dict(
        numerals=share(written(method, samples.sequences)), sample_seconds=round(seconds, 2),
        bound=bound(task, method, states=32),
    )


def run(name: str, seed: int, infill: float):
    "Train one entrant and note its row."
    with tempfile.TemporaryDirectory() as folder:
        recipe = recipe_of(name, seed, infill, Path(folder))
        task, _ = recipe.build()
        started = time.process_time()
        method = recipe.trainer(f"{folder}/run", progress=False).fit().method
        row = dict(name=f"{name}, infill {infill}, seed {seed}", entrant=name, seed=seed, infill=infill)
        row["cpu_seconds"] = round(time.process_time() - started, 1)

        # with `infill` the test split has prompts, so its bound is of something else
        plain, _ = recipe_of(name, seed, 0.0, Path(folder)).build()
        row |= figures(plain, method)
        if method.name != "ar": row |= completions(method)
    note(RESULTS, row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entrants", nargs="*", metavar="NAME", help=f"of {', '.join(ENTRANTS)} [all]")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--infill", nargs="+", type=float, default=[0.0])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for infill in args.infill:
            for name in args.entrants or ENTRANTS: run(name, seed, infill)


if __name__ == "__main__": main()
