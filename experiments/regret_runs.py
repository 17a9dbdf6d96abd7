"""Which order at equal time: `python experiments/regret_runs.py phrases words smiles --seconds 30 --seeds 0 1`.

Each corpus is learned in single orders and by a mixture of them, with the network, late queries and flat learning rate
of all. Steps of the entrants are measured in turn, so that the seconds of all are the same. The regret of an entrant is
its bound minus that of the best single order of the seed. Rows go to experiments/results/regret_runs.json, with
settings, CPU seconds, seed and commit; those that are there are left out."""
import argparse
import json
from collections.abc import Sequence

import torch

from corpora import code, text
from gap_runs import measured_seconds
from loflexmdm.tasks.base import task_from
from runs import ROOT, bound, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "regret_runs.json"
HELD_OUT, STATES = 256, 16
SMILES = dict(kind="molecules", source="embedded", notation="smiles", reorder=False, prompt_share=0.0, max_length=40)
CORPORA = dict(phrases=text, code=code, words=lambda: dict(kind="words"), smiles=lambda: SMILES)
INSERTION = dict(method="ordered-insertion", size="nano", order_size="nano", query_blocks=1)
SINGLE = ("left_to_right", "right_to_left", "uniform")  # orders that are written down
ENTRANTS = dict(
    ar=dict(method="ar", size="nano"), **{order: INSERTION | dict(order=order) for order in SINGLE},
    learned=INSERTION | dict(order="learned"), learned_near=INSERTION | dict(order="learned", slope=1.0),
    mixture=INSERTION | dict(order="mixture", orders=1),
)
PACE = dict(learned_near="learned")  # entrants whose steps are those of another
MEASURED = [entrant for entrant in ENTRANTS if entrant not in PACE]
TRAIN = dict(optimiser="muon", lr=3e-3, schedule="flat", warmup=50, ema=0.99, log_every=100, valid_size=64)


def tables(corpus: str, entrant: str, seed: int, steps: int) -> dict:
    "Return the recipe of a run, of 32 generations a step."
    model = ENTRANTS[entrant]
    rare = dict(steps=steps, seed=seed, save_every=max(1, steps // 4), valid_every=steps, batch_size=32)
    if entrant.startswith("learned"): rare |= dict(batch_size=16, order_start=max(1, steps // 4), order_lr_scale=0.1)
    if entrant == "uniform": model = model | dict(orders=1)
    return dict(task=CORPORA[corpus](), model=model, train=TRAIN | rare)


def paces(corpus: str) -> dict[str, float]:
    "Return the seconds of a step of every entrant, measured in turn and noted."
    name = f"{corpus} pace"
    if not noted(RESULTS, name, {}):
        seconds = measured_seconds({entrant: tables(corpus, entrant, 0, 10_000) for entrant in MEASURED})
        note(RESULTS, dict(name=name, corpus=corpus, paces={entrant: round(s, 5) for entrant, s in seconds.items()}))
    return next(row["paces"] for row in json.loads(RESULTS.read_text()) if row["name"] == name)


def run(corpus: str, entrant: str, seconds: int, seed: int):
    "Train an entrant for some seconds, measure, and note."
    name = f"{corpus} {entrant} {seconds} {seed}"
    if noted(RESULTS, name, dict(seed=seed)): return
    settings = tables(corpus, entrant, seed, round(seconds / paces(corpus)[PACE.get(entrant, entrant)]))
    made, _, spent = trained(settings, f"regret {name}")
    made = getattr(made, "method", made)
    shares = made.mixture.shares() if getattr(made, "mixture", None) is not None else {}
    note(RESULTS, dict(name=name, corpus=corpus, entrant=entrant, seed=seed, seconds=seconds, cpu_seconds=spent,
                       **settings, bound=bound(task_from(settings["task"]), made, HELD_OUT, STATES),
                       shares={key: round(float(value), 4) for key, value in shares.items()}))


def main(argv: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="+", choices=CORPORA)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--entrants", nargs="+", default=list(ENTRANTS), choices=ENTRANTS)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    for seed in args.seeds:
        for corpus in args.corpora:
            for entrant in args.entrants: run(corpus, entrant, args.seconds, seed)


if __name__ == "__main__": main()
