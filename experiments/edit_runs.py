"""Training runs behind the figures on edits: `python experiments/edit_runs.py WHAT SEED... [--steps N]`.

Each run adds its figures to experiments/results/edit_runs.json, with its settings, seed and commit. One
thread; a run takes minutes."""
import argparse
import ast
import contextlib
import hashlib
import json
import random
import re
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import edit_sequences
from loflexmdm.models.model import Model
from loflexmdm.models.pretrained import load
from loflexmdm.molecules.data.exchanged_pairs import exchange, exchange_rules
from loflexmdm.molecules.data.matched_pairs import Matching, fitting_cuts
from loflexmdm.molecules.edit_task import edit_figures, judge_edits
from loflexmdm.molecules.notation.bracket_safe import decode
from loflexmdm.molecules.notation.fragments import fragment_prompt, prompt_tokens
from loflexmdm.process.states import Vocabulary
from loflexmdm.support.atomic_files import write_file
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import Recipe, recipe_from
from runs import ROOT, bound, note, noted

RESULTS = ROOT / "experiments" / "results" / "edit_runs.json"
BRACKETS = dict(kind="repair", inner="brackets", settings="kinds = 2, max_pairs = 4", errors=2)
MOLECULES = dict(kind="molecule-edits", source="moses", limit=40_000, gain=0.05)
LEARNS = dict(order_start=500, order_lr_scale=0.1)  # training of an order of edits
BEFORE: dict = {}  # what an earlier training of the same weights took
TRAIN = dict(batch_size=64, lr=1e-2, warmup=100, ema=0.99, optimiser="muon", save_every=500, valid_every=500)


def trained(
    task: dict, model: dict, steps: int, seed: int, directory: str | None = None, **train
) -> tuple[Task, Method, dict]:
    """The task and the trained model, and what the training took. `train.seed` decides weights and states; `train` has
    other settings.

    Of a training that starts from the weights of another, what that one took is told beside."""
    recipe: Recipe = recipe_from(dict(task=task, model=dict(method="editflow", coupling="pairs") | model,
                                      train=TRAIN | dict(steps=steps, seed=seed) | train))
    trainer = recipe.trainer(directory or tempfile.mkdtemp(), progress=False)
    trainer.clock = time.process_time  # checkpoints hold what has passed on it
    method = trainer.fit(resume=bool(checkpoints(trainer.directory))).method
    took = dict(steps=steps, cpu_seconds=round(trainer.seconds), seed=seed)
    if TRAIN.get("start_from"): took |= dict(lr=TRAIN["lr"], started_from=BEFORE)
    return task_from(recipe.task), method, took


def edited(task: Task, method: Method, n: int, seed: int, split: str = "test", **options) -> dict:
    "Figures of n edited sequences of a split, and what sampling took."
    sources, keep = task.sources(split, n)
    samples = edit_sequences(method, sources, keep, generator=torch.Generator().manual_seed(seed), **options)
    return dict(n=n, network_calls=samples.network_calls) | task.score(split, samples)


def brackets(seed: int, steps: int):
    "Bracket repair with the source hidden and shown."
    for source in ("shown", "hidden"):
        task, method, took = trained(BRACKETS, dict(source=source, size="nano"), steps, seed)
        note(RESULTS, dict(name=f"brackets {source} {seed}", task=BRACKETS, source=source) | took
             | edited(task, method, 500, seed))


ORDERED = dict(method="ordered-edits", size="nano", order_size="nano")
ENTRANTS = {  # of one task and one network size; a row of the network is a state of a pair, or a whole edit path
    "hidden": dict(size="nano"), "shown": dict(source="shown", size="nano"),
    "left to right": ORDERED | dict(order="left_to_right", orders=1),
    "uniform": ORDERED | dict(order="uniform", orders=1), "learned": ORDERED | dict(order="learned", orders=2),
}


def orders(seed: int, steps: int):
    "Bracket repair by edits on a clock and by edits in an order, with as many rows per step: bounds, figures, seconds."
    for name, model in ENTRANTS.items():
        if noted(RESULTS, f"orders {name} {seed}", dict(steps=steps, model=model)): continue
        rows = dict(batch_size=64 // model.get("orders", 1)) | (LEARNS if name == "learned" else {})
        task, method, took = trained(BRACKETS, model, steps, seed, **rows)
        start = time.process_time()
        found = edited(task, method, 500, seed)
        took["seconds_per_edit"] = round((time.process_time() - start) / 500, 5)
        row = dict(name=f"orders {name} {seed}", task=BRACKETS, model=model, bound=bound(task, method))
        note(RESULTS, row | took | found)


def library_files() -> list[Path]:
    "The modules of Python's standard library, without tests."
    found = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    return [file for file in found if not {"site-packages", "test", "tests"} & set(file.parts)]


def library_phrases(words: int = 1000) -> list[str]:
    """Phrases of three words or more, 12 to 32 letters, from docstrings and comments of Python's library, each once, of
    its most frequent words."""
    found = dict()
    for file in library_files():
        for text in docstrings(file) + [comments(file)]:
            clauses = re.split(r"(?<=[.!?:;,])\s|\n\s*\n|[()]", text)
            found |= dict.fromkeys(phrase for c in clauses for phrase in packed(c.lower().strip(" '-.,:;\n").split()))
    fits = lambda p: len(p) >= 12 and len(p.split()) >= 3 and "--" not in p and re.fullmatch("[a-z' -]+", p)
    phrases = sorted(filter(fits, found))
    common = {w for w, _ in Counter(w for p in phrases for w in p.split()).most_common(words)}
    return [p for p in phrases if common.issuperset(p.split())]


def packed(words: list[str], longest: int = 32) -> list[str]:
    "Consecutive phrases, each with as many words as make at most `longest` letters."
    phrases = [""]
    for word in words:
        if len(longer := f"{phrases[-1]} {word}".strip()) <= longest: phrases[-1] = longer
        elif len(word) <= longest: phrases.append(word)
    return phrases


def docstrings(file: Path) -> list[str]:
    "Those of a Python file; none of one that cannot be parsed."
    try: tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError): return []
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    return [text for node in ast.walk(tree) if isinstance(node, kinds) and (text := ast.get_docstring(node))]


def comments(file: Path) -> str:
    "Comment lines of a Python file, those of one block one after another, blocks apart."
    lines = (line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
    return "\n".join(line[2:] if line.startswith("# ") else "\n" for line in lines)


def is_held_out(word: str) -> bool:
    "Whether a word is kept out of training: a tenth of those of five letters or more."
    return len(word) >= 5 and hashlib.sha256(word.encode()).digest()[0] < 26


def write_phrases() -> dict[str, int]:
    "Write phrases.txt, and new_words.txt with those that contain a held-out word; how many each has."
    phrases = library_phrases()
    new = [p for p in phrases if any(map(is_held_out, p.split()))]
    files = {"phrases.txt": sorted(set(phrases) - set(new)), "new_words.txt": new}
    for name, lines in files.items(): write_file(Path(name), "\n".join(lines) + "\n")
    return {name: len(lines) for name, lines in files.items()}


TEXT = dict(kind="repair", inner="text", settings="file = 'phrases.txt', unit = 'characters'", errors=3)
CAREFUL = dict(top_p=0.7)  # beside plain sampling


def text(seed: int, steps: int, model: dict | None = None, label: str = "text"):
    "Typos in phrases of Python's standard library: in new phrases, new words, and more of them than in training."
    (folder := ROOT / "runs" / "text").mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):  # so that no path of this machine is saved with the model
        sizes, model = write_phrases(), model or dict(size="micro")
        directory = f"{label}-{seed}".replace(" ", "-") + "-more" * bool(BEFORE)
        task, method, took = trained(TEXT, model, steps, seed, directory)
        base = task.as_dict() | dict(seed=1000)
        words = base | dict(settings="file = 'new_words.txt', unit = 'characters', test_share = 0.98, valid_share = 0")
        several = {f"{k} errors": (base | dict(least=k, errors=k), "test") for k in range(1, 6)}
        others = {"training phrases": (base, "train"), "new phrases": (base, "test"), "new words": (words, "test")}
        found = dict()
        for name, (config, split) in (others | several).items():
            there = task_from(config)
            found[name] = edited(there, method, 500, seed, split)
            careful = replace(method.default_sampler, **CAREFUL)
            found[f"{name}, top_p .7"] = edited(there, method, 500, seed, split, sampler=careful)
    ran = dict(name=f"{label} {seed}", run=f"text/{directory}", task=TEXT, phrases=sizes, model=model)
    note(RESULTS, ran | took | found)


def ordered_text(seed: int, steps: int):
    "The same by edits in the order of the text."
    text(seed, steps, ORDERED | dict(size="micro", order="left_to_right", orders=1), "ordered text")


LEADS, ATTEMPTS = 300, 8  # that are judged, and attempts at each


def reached(edited: list[list], gain: float) -> dict:
    """Share of leads with a valid product of at least that gain in QED, by least similarity: mean over attempts, and
    best of all attempts; an inner list has the attempts at one lead."""
    good = lambda e, least: bool(e.smiles) and e.similarity >= least and e.qed_gain >= gain
    hits = {least: [[good(e, least) for e in tries] for tries in edited] for least in (0.4, 0.6, 0.8)}
    mean = lambda values: round(sum(values) / len(values), 4)
    return {str(least): dict(one=mean([mean(h) for h in rows]), best=mean([float(any(h)) for h in rows]))
            for least, rows in hits.items()}


def judged(task: Task, leads: list[str], products: list) -> dict:
    "Figures of ATTEMPTS products per lead, one lead after the other."
    known = {task.found.smiles[i] for m in task.matched["train"] for i in m[:2]}
    found = judge_edits([s for s in leads for _ in range(ATTEMPTS)], products)
    rows = [found[i:i + ATTEMPTS] for i in range(0, len(found), ATTEMPTS)]
    return edit_figures(found, task.config.gain, known) | dict(
        reached={str(gain): reached(rows, gain) for gain in (task.config.gain, 0.1)})


def edited_leads(task: Task, method: Method, leads: list[str], seed: int, top_p: float) -> dict:
    "Figures of ATTEMPTS edits per lead, and the calls that they took; each attempt spells the lead anew."
    tokens = [task.edits.source(s, k) for s in leads for k in range(ATTEMPTS)]
    samples = edit_sequences(method, tokens, generator=torch.Generator().manual_seed(seed),
                             sampler=replace(method.default_sampler, top_p=top_p))
    return judged(task, leads, task.products(samples)) | dict(network_calls=samples.network_calls)


def molecules(seed: int, steps: int, notation: str = "smiles"):
    "Edits of leads that are held out; the model is kept in runs/."
    config = MOLECULES | dict(notation=notation)
    directory = ROOT / "runs" / f"molecules-{notation}-{seed}"
    task, method, took = trained(config, dict(source="shown", size="micro"), steps, seed, directory)
    leads = task.leads("test")[:LEADS]
    name = dict(name=f"molecules {notation} {seed}", task=config, leads=len(leads), attempts=ATTEMPTS)
    ways = {"plain": 1.0, "top_p .7": 0.7}
    found = {way: edited_leads(task, method, leads, seed, top_p) for way, top_p in ways.items()}
    note(RESULTS, name | took | dict(pairs=task.sizes()) | found)


def resampled(seed: int, steps: int):
    "The leads edited anew, by the packaged model with another seed of sampling."
    method = load(ROOT / "experiments/models/molecule-edits").method
    task = task_from(method.task)
    leads = task.leads("test")[:LEADS]
    note(RESULTS, {"name": f"molecules resampled {seed}", "task": MOLECULES, "leads": len(leads), "attempts": ATTEMPTS,
                   "seed": seed, "top_p .7": edited_leads(task, method, leads, seed, 0.7)})


def exchanged(smiles: str, rules: Mapping[str, Counter], rng: random.Random) -> str | None:
    "Exchange a random substituent by a random rule; None if no rule fits."
    found = exchange(smiles, rules, rng, Matching())
    return None if found is None else found.text


def regrown(model: Model, smiles: Sequence[str], rng: random.Random, **sampling) -> list[str | None]:
    """Cut off a random substituent and regrow it with a bracket SAFE model. None if nothing can be cut off, or the
    result is invalid. `sampling` are settings of `Model.sample`."""
    cuts = [fitting_cuts(s, Matching()) for s in smiles]
    cores = [rng.choice(some)[0] if some else None for some in cuts]
    prompts = [None if core is None else prompt_of(core, model.vocabulary) for core in cores]

    # one batch for all; molecules without prompt keep their places
    samples = model.sample([p for p in prompts if p], **sampling)
    texts = iter(["".join(model.vocabulary.decode(s)) for s in samples.sequences])
    return [decode(next(texts)).smiles if p else None for p in prompts]


def prompt_of(core: str, vocabulary: Vocabulary) -> list | None:
    try: return prompt_tokens(fragment_prompt(core), vocabulary)
    except ValueError: return None


def baselines(seed: int, steps: int):
    "What the leads become without this model: left alone, exchanged by a rule, regrown by the packaged generator."
    task, rng = task_from(MOLECULES), random.Random(seed)
    leads, rules = task.leads("test")[:LEADS], exchange_rules(task.matched["train"])
    many = [s for s in leads for _ in range(ATTEMPTS)]
    grown = load("molecules")
    options = dict(top_p=0.7, confidence="top_prob")
    sampler = replace(grown.method.default_sampler, **options)
    generator = torch.Generator().manual_seed(seed)
    made = dict(
        copied=many, exchanged=[exchanged(s, rules, rng) for s in many],
        regrown=regrown(grown, many, rng, sampler=sampler, generator=generator, max_length=72),
    )
    for name, products in made.items():
        note(RESULTS, dict(name=f"molecules {name} {seed}", task=MOLECULES, leads=len(leads), attempts=ATTEMPTS,
                  seed=seed) | judged(task, leads, products))


def selfies(seed: int, steps: int):
    "The same in SELFIES."
    molecules(seed, steps, "selfies")


def start_from(name: str):
    "Take the weights that a noted run ended with, and remember what it took."
    row = next(r for r in json.loads(RESULTS.read_text()) if r["name"] == name)
    BEFORE.update({k: row[k] for k in ("steps", "cpu_seconds", "commit")})
    TRAIN["start_from"] = str(checkpoints(ROOT / "runs" / row["run"])[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = "brackets", "orders", "text", "ordered_text", "molecules", "resampled", "selfies", "baselines"
    parser.add_argument("what", choices=kinds)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--start-from", metavar="NAME", help="noted run whose last weights to start from")
    args = parser.parse_args()
    if args.lr: TRAIN["lr"] = args.lr
    if args.start_from: start_from(args.start_from)
    torch.set_num_threads(1)
    for seed in args.seeds: globals()[args.what](seed, args.steps)


if __name__ == "__main__": main()
