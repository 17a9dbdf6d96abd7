"""Does the order of unmasking matter? `python experiments/any_order_runs.py SEED...`, for FlexMDM on English words.

One network, sampled event by event with several rules that choose the next mask. The distribution of the words is
known, so samples are compared with it at each length, which insertion alone decides. Each run adds its figures to
experiments/results/any_order_runs.json, with its settings, seed and commit; a run that was interrupted goes
on where it stopped."""
import argparse
from collections import Counter

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.samplers import EventDriven
from loflexmdm.support.statistics import empirical_variation, variation_floor
from loflexmdm.tasks.base import task_from
from method_runs import TRAIN, tables
from runs import ROOT, bound, note, noted
from training_runs import trained
from words_task import WordsTask

RESULTS = ROOT / "experiments" / "results" / "any_order_runs.json"
RULES = dict(random=None, leftmost="leftmost", certain="top_prob", entropy="entropy", drawn="sampled")
STEPS, SAMPLES, LENGTHS = 6000, 8000, (2, 3, 4, 5)


def given_length(task: WordsTask, length: int) -> dict[str, float]:
    "The distribution of the words of one length."
    law = {word: p for word, p in task.law.items() if len(word) == length}
    total = sum(law.values())
    return {word: p / total for word, p in law.items()}


def at_lengths(task: WordsTask, words: list[str]) -> dict[str, list[float]]:
    "By length: how many samples have it, their total variation from the data's, and that of as many exact samples."
    found = {}
    for length in LENGTHS:
        own, law = [w for w in words if len(w) == length], given_length(task, length)
        tv, floor = empirical_variation(Counter(own), law), variation_floor(law, len(own))
        found[str(length)] = [len(own), round(tv, 4), round(floor, 4)]
    return found


def sampled(task: WordsTask, method: Method, rule: str | None) -> dict:
    "Figures of samples whose masks are chosen by a rule."
    sampler, generator = EventDriven(exact=True, confidence=rule), torch.Generator().manual_seed(0)
    samples = generate(method, n=SAMPLES, sampler=sampler, generator=generator)
    scores = {k: round(v, 4) for k, v in task.score("test", samples).items()}
    return dict(scores=scores, lengths=at_lengths(task, task.made_words(samples)))


def train(seed: int, steps: int):
    "Train once, sample with every rule, and note."
    settings = tables("words", "flexmdm", seed, steps, TRAIN["lr"])
    if noted(RESULTS, f"words {seed}", settings): return
    method, _, spent = trained(settings, f"any-order words {seed} {steps}")
    task = task_from(settings["task"])
    note(RESULTS, dict(name=f"words {seed}", seed=seed, steps=steps, cpu_seconds=spent, samples=SAMPLES, **settings,
                       bound=bound(task, method), rules={k: sampled(task, method, v) for k, v in RULES.items()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds: train(seed, args.steps)


if __name__ == "__main__": main()
