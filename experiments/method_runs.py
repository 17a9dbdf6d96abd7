"""Every method on the same real data: `python experiments/method_runs.py CORPUS SEED... [--methods NAME...]`.

Methods have the same network and as many rows per step. Each run adds bound, scores, calls and seconds to
experiments/results/method_runs.json, with its settings, seed and commit; a run that was interrupted goes on
where it stopped."""
import argparse
import random
import time
from collections import Counter
from functools import partial
from math import log

import torch

import digits_task  # noqa: F401 (its task has a name then)
import words_task  # noqa: F401
from corpora import code, known_share, pair_variation, parses, peptide_task, text
from loflexmdm.cli.common import add_device, device_name, pick_device
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import Example
from loflexmdm.samplers import Sampler, Samples
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.tasks.sequences import prompt_of
from runs import FIXED, LEARNED, LEARNED_BOTH, ROOT, bound, held_out, note, noted, states_per_sequence
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "method_runs.json"
QM9 = dict(kind="molecules", source="qm9", notation="smiles", reorder=False, prompt_share=0.0)
GAPS = dict(infill=0.5, infill_by="ends")
WITH_GAPS = ("masked", "papl", "flexmdm", "fixed", "learned")
CORPORA = dict(  # settings of the task, and the budget, fixed before the seeds that count
    words=dict(task=dict(kind="words"), steps=1500),
    digits=dict(task=dict(kind="digits"), steps=1500),
    qm9=dict(task=QM9 | dict(max_length=24), steps=1500),  # no molecule of QM9 is longer
    text=dict(task=text, steps=1500), peptides=dict(task=peptide_task, steps=1500),
    code=dict(task=code, steps=1500, methods=("autoregressive", "masked", "edits", "edits_localized")),
    gaps=dict(task=partial(text, **GAPS, max_length=40), steps=3000, methods=WITH_GAPS),  # with room in every gap
    molecule_gaps=dict(task=QM9 | GAPS | dict(max_length=32), steps=3000, methods=WITH_GAPS),
)
INSERTION, MASKS = dict(method="ordered-insertion"), dict(method="ordered-masks")
METHODS = dict(
    autoregressive=dict(method="ar"), masked=dict(method="mdm"), genmd4=dict(method="genmd4", states=2),
    papl=dict(method="papl"), flexmdm=dict(method="flexmdm"),
    fixed=FIXED, learned=LEARNED, learned_both=LEARNED_BOTH,
    edits=dict(method="editflow"), edits_localized=dict(method="editflow", spread=5.0),
    # one token per event, without masks and without a clock; `from_left` learns from a start near left to right
    insertion_uniform=INSERTION | dict(order="uniform", orders=1),
    insertion_forward=INSERTION | dict(order="left_to_right", orders=1),
    insertion_learned=INSERTION | dict(order="learned", orders=2),
    insertion_from_left=INSERTION | dict(order="learned", orders=2, slope=1.0),
    # relatives, one partial sequence per step: ILM as published and as a bound; IP, with two of each sequence;
    # DID, and its process in `loinsert`
    ilm=dict(method="ilm"), ilm_bound=dict(method="ilm", weight="bound"), ip=dict(method="ip", orders=2),
    ip_from_left=dict(method="ip", orders=2, slope=1.0), did=dict(method="did"),
    inserted_fixed=dict(method="loinsert", order="fixed", states=1),
    # the same network and training with a mask before each token
    masks_forward=MASKS | dict(order="left_to_right", unmask="at_once", orders=1),
    masks_uniform=MASKS | dict(order="uniform", unmask="uniform", orders=1),
    masks_learned=MASKS | dict(order="learned", unmask="learned", orders=2),
)
# a recipe of one's own text starts near left to right unless it says otherwise
OWN_TEXT, START_UNIFORM = ("text", "code", "peptides"), dict(slope=0.0)
# the order's network at the full learning rate, which fails in about one seed of three
FULL_RATE = dict(learned_full_rate=LEARNED, learned_both_full_rate=LEARNED_BOTH)
# rows of an earlier version: those, and two states of as many sequences as the others have, 128 evaluations per step
FORMER = FULL_RATE | dict(genmd4_twice=dict(method="genmd4"))
TRAIN = dict(lr=2e-3, warmup=100, ema=0.99, optimiser="muon", valid_size=256)
ROWS, SAMPLES, HELD_OUT, STATES = 64, 2000, 500, 64


def tables(corpus: str, method: str, seed: int, steps: int, lr: float) -> dict:
    "The recipe of a run."
    model, every = dict(size="nano") | (METHODS | FORMER)[method], -(-steps // 5)
    train = dict(steps=steps, lr=lr, seed=seed, batch_size=ROWS // states_per_sequence(model), save_every=every,
                 valid_every=every)
    if corpus in OWN_TEXT and method == "insertion_learned": model |= START_UNIFORM
    if model.get("order") == "learned" or model.get("method") == "ip":
        train |= dict(order_start=steps // 4, order_lr_scale=1.0 if method in FULL_RATE else 0.1)
    task = CORPORA[corpus]["task"]
    return dict(task=task() if callable(task) else task, model=model, train=TRAIN | train)


def sampled(task: Task, method: Method, n: int = SAMPLES, sampler: Sampler | None = None) -> dict:
    "Scores of samples, calls of the network for all of them, and CPU seconds per sequence."
    examples = gaps_of(task, n)
    asked = task.prompts("test", n) or [prompt_of(e, task.vocabulary) for e in examples]
    start, generator = time.process_time(), torch.Generator().manual_seed(0)
    samples = generate(method, asked or None, n=None if asked else n, sampler=sampler, generator=generator)
    seconds = (time.process_time() - start) / n
    scores = {k: round(v, 4) for k, v in task.score("test", samples).items()} | text_scores(task, samples)
    scores |= token_entropy(samples.completions()) | gap_scores(examples, samples)
    return dict(calls=samples.network_calls, seconds=round(seconds, 5), scores=scores)


def gaps_of(task: Task, n: int) -> list[Example]:
    "Test molecules with a gap each, if the task trains on gaps of molecules."
    if task.kind != "molecules" or not task.config.infill: return []
    return [task.with_gap(text, random.Random(i)) for i, text in enumerate(task.texts("test")[:n])]


def gap_scores(examples: list[Example], samples: Samples) -> dict[str, float]:
    "The share of the gaps that are filled as in the example; nothing without examples."
    if not examples: return {}
    right = [s == e.tokens[1:] for s, e in zip(samples.sequences, examples, strict=True)]
    return dict(restored=round(sum(right) / len(right), 4))


def token_entropy(sequences: list[list[int]]) -> dict[str, float]:
    "Entropy of the frequencies of the tokens in all sequences together (nats)."
    counts = Counter(t for s in sequences for t in s)
    return dict(token_entropy=round(-sum(n / counts.total() * log(n / counts.total()) for n in counts.values()), 4))


def mean_tokens(task: Task) -> float:
    "Tokens that are generated per test sequence, of those whose bound is computed."
    return round(float(held_out(task, HELD_OUT).free.sum(-1).double().mean()), 3)


def text_scores(task: Task, samples: Samples) -> dict[str, float]:
    "Of texts without prompts: how far pairs of neighbours are from the data's, and the share of known words."
    if task.kind != "text" or task.config.infill: return {}
    made = task.sequences(samples)
    words = [w for s in made for w in task.text(s).split()]
    scores = dict(pairs_tv=pair_variation(made, task.splits["test"]),
                  known_words=known_share(task, words))
    if task.config.file.endswith("/code.txt"): scores["parses"] = sum(parses(task.text(s)) for s in made) / len(made)
    return {name: round(value, 4) for name, value in scores.items()}


def note_real(corpus: str, task: Task):
    "Of texts the scores of as many training sequences, drawn at random: what a perfect model would get."
    if task.kind != "text" or task.config.infill: return
    train = task.splits["train"]
    chosen = random.Random(0).sample(train, min(SAMPLES, len(train)))
    real = Samples([task.vocabulary.encode(s) for s in chosen], [[True] * len(s) for s in chosen])
    scores = text_scores(task, real) | {k: round(v, 4) for k, v in task.score("test", real).items()}
    note(RESULTS, dict(name=f"{corpus} real", corpus=corpus, method="real", scores=scores))


def train(corpus: str, method: str, seed: int, steps: int, lr: float, n: int, device: torch.device):
    "Train a method on a corpus, measure, and note."
    settings = tables(corpus, method, seed, steps, lr)
    name = f"{corpus} {method} {seed}" + (f" lr {lr:g}" if lr != TRAIN["lr"] else "")
    if noted(RESULTS, name, settings): return
    model, _, spent = trained(settings, f"{name} {steps}", device)
    task = task_from(settings["task"])
    known = dict(entropy=round(task.entropy, 4)) if hasattr(task, "entropy") else {}
    note(RESULTS, dict(name=name, corpus=corpus, method=method, seed=seed, steps=steps, cpu_seconds=spent, **settings,
                       device=device_name(device), bound=bound(task, model, HELD_OUT, STATES),
                       tokens=mean_tokens(task), samples=n, **sampled(task, model, n), **known))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", choices=METHODS | FORMER)
    parser.add_argument("--steps", type=int, help="instead of the budget of the corpus")
    parser.add_argument("--lr", type=float, default=TRAIN["lr"], help="learning rate")
    parser.add_argument("-n", type=int, default=SAMPLES, help="samples of each run")
    add_device(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = pick_device(args.device)
    task = CORPORA[args.corpus]["task"]
    note_real(args.corpus, task_from(task() if callable(task) else task))
    for seed in args.seeds:
        for method in args.methods or CORPORA[args.corpus].get("methods", METHODS):
            train(args.corpus, method, seed, args.steps or CORPORA[args.corpus]["steps"], args.lr, args.n, device)


if __name__ == "__main__": main()
