"""Gaps of real data at equal CPU seconds: `python experiments/infill_runs.py phrases code molecules --seeds 0 1 2`.

Entrants have networks of one size and learn the same sequences, cut by the rule of `--infill`, with one or two gaps.
There is no exact law here: held-out fillings are scored by their negative log-likelihood in nats (for entrants with a
bound an upper bound), drawn ones by validity (lines of code that parse, molecules). Rows go to
experiments/results/infill_runs.json, with settings, seed and commit; those that are there are left out."""
import argparse
import random
import statistics
import time
from collections.abc import Sequence

import torch
from rdkit import Chem, RDLogger

from corpora import code, parses, text
from gap_runs import ENTRANTS, TRAIN, TRAINED, paces
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import Example, collate
from loflexmdm.support.random_numbers import generator_for
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.tasks.sequences import prompt_of
from runs import ROOT, note, noted, states_per_sequence
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "infill_runs.json"
GAPS = dict(infill=1.0, infill_gaps=2)
SMILES = dict(kind="molecules", source="embedded", notation="smiles", reorder=False, prompt_share=0.0, max_length=40)
CORPORA = dict(phrases=text, code=code, molecules=lambda: SMILES)
CHOSEN = ("fim", "insertion_late", "insertion_mixture", "flexmdm")
ROWS, HELD_OUT, STATES, DRAWN = 32, 200, 32, 4  # sequences per step, held-out prompts, states of a bound, fillings


def tables(corpus: str, entrant: str, seed: int, steps: int) -> dict:
    "Return the recipe of a run."
    model = dict(size="nano") | ENTRANTS[entrant]
    train = TRAIN | dict(steps=steps, seed=seed, save_every=max(1, steps // 4), valid_every=steps,
                         batch_size=max(1, ROWS // states_per_sequence(model))) | TRAINED.get(entrant, {})
    if model.get("order") == "learned": train |= dict(order_start=max(1, steps // 4), order_lr_scale=0.1)
    return dict(task=CORPORA[corpus]() | GAPS, model=model, train=train)


def held_out(task: Task) -> list[Example]:
    "Return test sequences with gaps."
    if task.kind != "molecules": return [task.dataset("test")[i] for i in range(HELD_OUT)]
    return [task.with_gap(s, random.Random(i)) for i, s in enumerate(task.texts("test")[:HELD_OUT])]


def is_valid(corpus: str, sequence: str) -> bool:
    "Tell if a line of code parses, or a molecule is valid; phrases are."
    if corpus == "code": return parses(sequence)
    return corpus != "molecules" or bool(sequence) and Chem.MolFromSmiles(sequence) is not None


def scores(corpus: str, task: Task, method: Method) -> dict:
    "Score held-out fillings and drawn ones."
    examples = held_out(task)
    with torch.no_grad():
        nats = method.nll_bound(collate(examples), STATES, generator_for(0, "held out"))[0].tolist()
    begun = time.process_time()
    drawn = generate(method, [prompt_of(e, task.vocabulary) for e in examples], DRAWN, seed=0)
    seconds = (time.process_time() - begun) / len(drawn)
    made = ["".join(task.vocabulary.decode(s)) for s in drawn.sequences]
    lengths = lambda masks: statistics.fmean(sum(not fixed for fixed in mask) for mask in masks)
    return dict(
        nll=round(statistics.fmean(nats), 4), nll_se=round(statistics.stdev(nats) / len(nats) ** 0.5, 4),
        case_nll=[round(v, 3) for v in nats], valid=sum(is_valid(corpus, s) for s in made) / len(made),
        seconds=round(seconds, 5), missing=lengths(e.fixed for e in examples),
        filled=statistics.fmean(sum(free) for free in drawn.free), cases=len(examples),
    )


def paces_on(corpus: str, entrants: Sequence[str]) -> dict:
    "Return the row of paces on a corpus."
    return paces(RESULTS, f"{corpus} pace", lambda entrant: tables(corpus, entrant, 0, 10_000), entrants)


def steps_of(corpus: str, entrant: str, seconds: int) -> int:
    "Return the number of steps in some seconds, from times of steps that were measured in turn."
    row = paces_on(corpus, [entrant])
    return round(seconds / row["fim_seconds"] / row["paces"][entrant])


def run(corpus: str, entrant: str, seconds: int, seed: int, commit: str):
    "Train an entrant for some seconds, score it, and note."
    name = f"{corpus} {entrant} {seconds} {seed}"
    if noted(RESULTS, name, dict(model=tables(corpus, entrant, seed, 1)["model"])): return
    settings = tables(corpus, entrant, seed, steps_of(corpus, entrant, seconds))
    made, _, spent = trained(settings, f"infill {name}")
    made = getattr(made, "method", made)
    parameters = sum(p.numel() for p in made.parameters())
    note(RESULTS, dict(name=name, corpus=corpus, entrant=entrant, seed=seed, seconds=seconds, cpu_seconds=spent,
                       parameters=parameters, **settings, scores=scores(corpus, task_from(settings["task"]), made))
         | (dict(trained_at=commit) if commit else {}))


def main(argv: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="+", choices=CORPORA)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--entrants", nargs="+", default=CHOSEN, choices=ENTRANTS)
    parser.add_argument("--commit", default="", help="commit of the code, where the folder does not tell it")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    RDLogger.DisableLog("rdApp.*")
    for corpus in args.corpora: paces_on(corpus, args.entrants)
    for seed in args.seeds:
        for corpus in args.corpora:
            for entrant in args.entrants: run(corpus, entrant, args.seconds, seed, args.commit)


if __name__ == "__main__": main()
