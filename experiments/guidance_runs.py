"""Runs behind the figures on guidance: `python experiments/guidance_runs.py WHAT SEED... [--method NAME] [--steps N]`.

Each run adds its figures to experiments/results/guidance_runs.json, with its settings, seed and commit. One
thread, some minutes."""
import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.process.states import ANY
from loflexmdm.samplers import Samples
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.tasks.brackets import balanced_strings, depth
from loflexmdm.training.recipes import recipe_from
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "guidance_runs.json"
BRACKETS = dict(kind="brackets", max_pairs=5, condition="depth")
MOLECULES = dict(kind="molecules")
TRAIN = dict(batch_size=64, lr=3e-3, warmup=100, ema=0.99, save_every=100_000, valid_every=100_000)
MUON = TRAIN | dict(optimiser="muon", lr=6e-3)
EACH = 200  # samples per condition
WEIGHTS = dict(brackets=[("naive", 0), ("naive", 1), ("naive", 2), ("naive", 4), ("fixed", 2), ("weighted", 2)],
               molecules=[("naive", 0), ("naive", 1), ("naive", 2)])  # guidance
OPTIONS = dict(loflexmdm=dict(order="fixed"))  # of the methods


def trained(task: dict, model: dict, train: dict, seed: int) -> tuple[Task, Method, dict]:
    "The task and the trained model, and what the training took. `train.seed` decides weights and states."
    recipe = recipe_from(dict(task=task, model=model, train=train | dict(seed=seed)))
    start = time.process_time()
    method = recipe.trainer(tempfile.mkdtemp(), progress=False).fit().method
    took = dict(steps=recipe.train.steps, cpu_seconds=round(time.process_time() - start), seed=seed)
    return task_from(recipe.task), method, took | dict(parameters=sum(p.numel() for p in method.parameters()))


def drawn(method: Method, tokens: Sequence[str], n: int, seed: int, guidance: float = 0.0, scheme: str = "naive",
          **options) -> dict[str, Samples]:
    "`n` samples under each condition; the counters are those of all."
    made = generate(method, [[token] for token in tokens], n, sampler=replace(method.default_sampler, **options),
                    generator=torch.Generator().manual_seed(seed), guidance=guidance, guidance_scheme=scheme)
    part = lambda k: replace(made, sequences=made.sequences[k * n:(k + 1) * n], free=made.free[k * n:(k + 1) * n])
    return {token: part(k) for k, token in enumerate(tokens)}


def share(values) -> float: return round(sum(values) / len(values), 4) if values else float("nan")


def exact_distinct(strings: list[str], probs: list[float], n: int) -> float:
    "Expected share of distinct strings among `n` that are drawn from the law."
    p = torch.tensor(probs, dtype=torch.float64)
    return round(float((1 - (1 - p / p.sum()) ** n).sum() / n), 4)


def bracket_figures(task: Task, samples: Samples, token: str) -> dict:
    "Shares of samples that are balanced, balanced and as asked for, and different from each other."
    strings = task.strings(samples)
    good = [s for s in strings if task.correct([token], list(s))]
    return dict(valid=share([task.config.probability(s) > 0 for s in strings]), asked=len(good) / len(strings),
                distinct=len(set(good)) / len(strings), length=share([len(s) for s in strings]),
                violations=samples.violations, network_calls=samples.network_calls)


def brackets(seed: int, steps: int, method: str):
    "Brackets by depth: every depth asked for as often as the others."
    model = dict(method=method, size="nano") | OPTIONS.get(method, {})
    task, model, took = trained(BRACKETS, model, TRAIN | dict(steps=steps), seed)
    law = {s: task.config.probability(s) for s in balanced_strings(BRACKETS["max_pairs"], task.config.kinds)}
    free = Counter(depth(s) if law.get(s) else 0 for s in task.strings(drawn(model, [ANY], 1000, seed)[ANY]))
    found = dict(unconditional={k: n / 1000 for k, n in sorted(free.items())}, exact={}, guided={})
    for k in range(1, len(task.vocabulary.conditions) + 1):
        own = {s: p for s, p in law.items() if depth(s) == k}
        found["exact"][k] = dict(share=round(sum(own.values()), 4), distinct=exact_distinct(*zip(*own.items()), EACH),
                                 length=round(sum(len(s) * p for s, p in own.items()) / sum(own.values()), 3))
    for scheme, w in WEIGHTS["brackets"]:
        made = drawn(model, task.vocabulary.conditions, EACH, seed, w, scheme)
        found["guided"][f"{scheme} {w}"] = {token: bracket_figures(task, part, token) for token, part in made.items()}
    note(RESULTS, dict(name=f"brackets {method} {seed}", task=BRACKETS, method=method, each=EACH) | took | found)


def molecule_figures(task: Task, samples: Samples) -> dict:
    "Shares of all samples: valid molecules, in each class, and different ones."
    found = [judge([d.smiles])[0].smiles if d.smiles else None for d in task.decode_samples(samples)]
    valid = [s for s in found if s]
    classes, n = Counter(task.classes_of(valid)), len(found)
    return dict(valid=len(valid) / n, distinct=len(set(valid)) / n, network_calls=samples.network_calls,
                classes={token: classes[token] / n for token in task.vocabulary.conditions},
                mean=round(sum(task.property_of(valid)) / max(len(valid), 1), 4))


def molecules(seed: int, steps: int, method: str, condition: str = "qed"):
    "Molecules by class of QED."
    model = dict(method=method, size="nano") | OPTIONS.get(method, {})
    task, model, took = trained(MOLECULES | dict(condition=condition), model, MUON | dict(steps=steps), seed)
    options = task.sampling if "unmask" in model.channels else dict(top_p=task.sampling["top_p"])
    figures = lambda tokens, w: {token: molecule_figures(task, part) for token, part in
                                 drawn(model, tokens, EACH, seed, w, **options).items()}
    found = dict(bounds=task.bounds_text, unconditional=figures([ANY], 0)[ANY],
                 data={t: share([a == [t] for a in task.class_prompts("test")]) for t in task.vocabulary.conditions},
                 guided={f"{scheme} {w}": figures(task.vocabulary.conditions, w) for scheme, w in WEIGHTS["molecules"]})
    row = dict(name=f"molecules {condition} {method} {seed}", task=MOLECULES | dict(condition=condition), method=method)
    note(RESULTS, row | dict(each=EACH, sampling=options) | took | found)


def rings(seed: int, steps: int, method: str):
    "Molecules by number of rings."
    molecules(seed, steps, method, "rings")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("brackets", "molecules", "rings"))
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--method", default="loflexmdm")
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds: globals()[args.what](seed, args.steps, args.method)


if __name__ == "__main__": main()
