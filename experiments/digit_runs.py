"""The training behind the page on digits: `python experiments/digit_runs.py SEED... [--steps N]`.

Each run adds its figures and pictures (levels 0 to 16) to experiments/results/digit_runs.json, with its
settings, seed and commit. One thread, some minutes."""
import argparse
import tempfile
import time

import torch

from digits_task import CLASSES, SIDE, DigitsTask, bits_per_dimension
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import ANY, collate
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe_from
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "digit_runs.json"
TRAIN = dict(batch_size=32, optimiser="muon", lr=6e-3, warmup=50, ema=0.99, save_every=100_000, valid_every=100_000)
MODEL = dict(method="mdm", size="nano", max_length=DigitsTask.max_length)
GUIDANCE, EACH, KEPT, STATES = (0.0, 2.0), 8, 4, 8  # samples per class, of which pictures kept; states per bound


def bound_figures(method: Method, task: DigitsTask, seed: int) -> dict:
    "The bound of test images in bits per pixel, by class and without it, with standard errors over images."
    data, figures = task.dataset("test"), {}
    batch = collate([data[i] for i in range(len(data))])
    unknown = batch._replace(tokens=batch.tokens.clone())
    unknown.tokens[:, 1] = task.vocabulary.index[ANY]
    for name, rows in (("by_class", batch), ("any", unknown)):
        nats = method.nll_bound(rows, STATES, torch.Generator().manual_seed(seed))[0]
        bits = [bits_per_dimension(float(v)) for v in (nats.mean(), nats.std() / len(nats) ** 0.5)]
        figures[f"bits_{name}"], figures[f"bits_{name}_se"] = (round(v, 4) for v in bits)
    return figures


def guided_samples(method: Method, task: DigitsTask, seed: int) -> tuple[dict, dict]:
    "Share of samples of the class asked for, by guidance, and the levels of some of them."
    figures, pictures = {}, {}
    prompts = [task.prompt(str(c)) for c in range(CLASSES)]
    for w in GUIDANCE:
        made = generate(method, prompts, EACH, seed=seed, guidance=w)
        figures[f"guidance {w:g}"] = {k: round(v, 4) for k, v in task.score("test", made).items()}
        images = [task.image_of(s) for s in made.sequences]
        pictures[f"guidance {w:g}"] = [
            [images[c * EACH + i].tolist() for i in range(KEPT) if images[c * EACH + i] is not None]
            for c in range(CLASSES)
        ]
    return figures, pictures


def filled_in(method: Method, task: DigitsTask, seed: int, n: int = 10) -> tuple[dict, list]:
    "Lower halves drawn below given upper ones of test images, the class unknown: error of levels, and pictures."
    rows = task.split["test"][:n]
    images, half = task.images.levels[rows], SIDE**2 // 2
    prompts = [[ANY, *map(str, image[:half].tolist()), *["<mask>"] * half] for image in images]
    found = [task.image_of(s) for s in generate(method, prompts, 2, seed=seed).sequences]
    if any(image is None for image in found): return dict(incomplete=sum(image is None for image in found)), []
    made = torch.stack(found).view(n, 2, -1)
    assert bool((made[..., :half] == images[:, None, :half]).all()), "what was given has changed"
    error = (made[..., half:] - images[:, None, half:]).abs().double().mean()
    shuffled = (images.roll(1, 0)[:, half:] - images[:, half:]).abs().double().mean()
    figures = dict(level_error=round(float(error), 3), level_error_of_another_image=round(float(shuffled), 3))
    return figures, [[image.tolist(), *pair.tolist()] for image, pair in zip(images, made, strict=True)]


def run(seed: int, steps: int):
    "Train, measure, note."
    recipe = recipe_from(dict(task=dict(kind="digits"), model=MODEL, train=TRAIN | dict(seed=seed, steps=steps)))
    start = time.process_time()
    method = recipe.trainer(tempfile.mkdtemp(), progress=False).fit().method
    took, task = round(time.process_time() - start), task_from(recipe.task)
    row = dict(name=f"mdm {seed}", seed=seed, steps=steps, cpu_seconds=took, model=MODEL, train=TRAIN)
    row |= bound_figures(method, task, seed)
    samples, pictures = guided_samples(method, task, seed)
    filled, pairs = filled_in(method, task, seed)
    note(RESULTS, row | dict(samples=samples, filled_in=filled, pictures=pictures, pairs=pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds: run(seed, args.steps)


if __name__ == "__main__": main()
