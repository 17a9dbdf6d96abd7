"""Gaps of real data at equal CPU seconds: `python experiments/infill_runs.py phrases code molecules --seeds 0 1 2`.

Entrants, their settings and the race between them are those of `gap_runs.py`; sequences are cut by the rule of
`--infill`, with one or two gaps. `heavy` are human heavy chains, of which one exact probability takes two seconds, with
the gaps of the other receptors. There is no exact law here: held-out fillings are scored by their negative
log-likelihood in nats (for entrants with a bound an upper bound), drawn ones by validity (lines of code that parse,
molecules). Rows go to experiments/results/infill_runs.json, with settings, seed and commit; a race whose rows are there
is left out."""
import argparse
import random
import statistics
import time
from collections.abc import Sequence

import torch
from rdkit import Chem, RDLogger

from corpora import code, parses, text
from gap_runs import CHOSEN, ENTRANTS, row_of, settings_of
from gap_runs import tables as receptor_tables
from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import Example, collate
from loflexmdm.support.random_numbers import generator_for
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.tasks.sequences import prompt_of
from runs import ROOT, note, noted
from training_runs import race

RESULTS = ROOT / "experiments" / "results" / "infill_runs.json"
GAPS = dict(infill=1.0, infill_gaps=2)
SMILES = dict(kind="molecules", source="embedded", notation="smiles", reorder=False, prompt_share=0.0, max_length=40)
CORPORA = dict(phrases=text, code=code, molecules=lambda: SMILES, heavy=None)
HELD_OUT, STATES, DRAWN = 200, 32, 4  # held-out prompts, states of a bound, fillings


def tables(corpus: str, entrant: str, seed: int) -> dict:
    "Return the recipe of a run."
    if corpus != "heavy": return settings_of(entrant, CORPORA[corpus]() | GAPS, seed)
    found = receptor_tables("human_B_heavy", entrant, seed)
    return found | dict(task=found["task"] | dict(test_share=0.01))


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


def run(corpus: str, entrants: Sequence[str], seconds: int, seed: int):
    "Train entrants for some seconds, in turn, score them, and note."
    names = {entrant: f"{corpus} {entrant} {seconds} {seed}" for entrant in entrants}
    if all(noted(RESULTS, name, {}) for name in names.values()): return
    recipes = {entrant: tables(corpus, entrant, seed) for entrant in entrants}
    for entrant, racer in race(recipes, seconds).items():
        note(RESULTS, dict(name=names[entrant], corpus=corpus, entrant=entrant, seed=seed, seconds=seconds,
                           **row_of(racer), **recipes[entrant],
                           scores=scores(corpus, task_from(recipes[entrant]["task"]), racer.method)))


def main(argv: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="+", choices=CORPORA)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--entrants", nargs="+", default=CHOSEN, choices=ENTRANTS)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    RDLogger.DisableLog("rdApp.*")
    for seed in args.seeds:
        for corpus in args.corpora: run(corpus, args.entrants, args.seconds, seed)


if __name__ == "__main__": main()
