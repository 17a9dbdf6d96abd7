"""Which order at equal time: `python experiments/regret_runs.py phrases words smiles --seconds 15 --seeds 0 1`.

Each corpus is learned in single orders and by mixtures of them, with the network, late queries and flat learning rate
of all. The entrants of a corpus and seed are trained in turn, each step being that of the one that has spent least CPU
time (`race`), so that their seconds are equal. The regret of an entrant is its bound minus that of the best single
order of the seed. Rows go to experiments/results/regret_runs.json, with settings, CPU seconds, seed and commit; a race
whose rows are there is left out. `--costs` notes instead, in experiments/results/trial_costs.json, what generations of
each component cost while a mixture is tried, after some numbers of steps.

`middle_out` is a planted order: the letter in the middle is drawn, and each further one, on both sides, is a table's
entry for the two letters nearest to it towards the middle, with noise. `names` are the family names of the US census of
1990 (package names), `qm9` needs qm9pack; `pip install --no-deps names qm9pack`."""
import argparse
import importlib.util
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import words_task  # noqa: F401 (its task has a name then)
from corpora import corpus, text
from gap_runs import row_of
from loflexmdm.process.orders_by_hand import free_ranks, given_order
from loflexmdm.process.states import PartialSequences
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe, recipe_from
from runs import ROOT, bound, note, noted
from training_runs import race

RESULTS = ROOT / "experiments" / "results" / "regret_runs.json"
COSTS = ROOT / "experiments" / "results" / "trial_costs.json"
HELD_OUT, STATES = 256, 8
WATCHED = 25, 50, 100, 200  # steps of a trial after which costs are noted
SMILES = dict(kind="molecules", source="embedded", notation="smiles", reorder=False, prompt_share=0.0, max_length=40)
QM9 = SMILES | dict(source="qm9", max_length=24)
LETTERS, LINES, NOISE = "abcdefghijklmnop", 20_000, 0.05  # of the planted order


@given_order("middle_out")
def middle_out(x1: PartialSequences) -> torch.Tensor:
    "Order tokens by their distance from the middle, the left one of two first."
    rank, count = free_ranks(x1)
    return torch.exp(-8 * (rank - (count - 1) / 2 - 0.1).abs()).clamp_min(1e-30)


def planted_table() -> dict[tuple[str, str, str], str]:
    "Return the letter that follows two others, towards the left and towards the right."
    rng = random.Random(0)
    return {(side, a, b): rng.choice(LETTERS) for side in "lr" for a in LETTERS for b in LETTERS}


def planted_line(table: Mapping[tuple[str, str, str], str], rng: random.Random) -> str:
    "Draw a sequence of 7 to 15 letters, made from the middle outwards."
    letters = [rng.choice(LETTERS)]
    for _ in range(rng.randint(3, 7)):
        for side in "lr":
            near = letters[:2] if side == "l" else letters[:-3:-1]
            made = rng.choice(LETTERS) if rng.random() < NOISE else table[side, near[0], near[-1]]
            letters = [made, *letters] if side == "l" else [*letters, made]
    return "".join(letters)


def planted() -> dict:
    "Write sequences of the planted order."
    table, rng = planted_table(), random.Random(1)
    return corpus("middle_out", [planted_line(table, rng) for _ in range(LINES)])


def names() -> dict:
    "Write family names, each once, in lower case."
    found = importlib.util.find_spec("names")
    if found is None: raise ValueError("names is not installed; pip install --no-deps names")
    lines = Path(found.submodule_search_locations[0], "dist.all.last").read_text().splitlines()
    rows = [line.split()[0].lower() for line in lines if line]
    return corpus("names", random.Random(0).sample(rows, len(rows)))


def stars(level: str) -> dict: return dict(recipe(f"star-{level}").task) | dict(train_size=0)


CORPORA = dict(
    words=lambda: dict(kind="words"), phrases=text, names=names, smiles=lambda: SMILES, qm9=lambda: QM9,
    key=lambda: dict(kind="key", n=10, q=4), middle_out=planted,
    star_mixed=lambda: stars("mixed"), star_easy=lambda: stars("easy"), star_medium=lambda: stars("medium"),
)
INSERTION = dict(method="ordered-insertion", size="nano", order_size="nano", query_blocks=1)
SINGLE = ("left_to_right", "right_to_left", "middle_out", "learned")
ALL = "uniform,left_to_right,right_to_left"
ENTRANTS = dict(
    ar=dict(method="ar", size="nano"), left_to_right=INSERTION | dict(order="left_to_right"),
    right_to_left=INSERTION | dict(order="right_to_left"),
    middle_out=INSERTION | dict(order="given", given="middle_out"),
    learned=INSERTION | dict(order="learned", slope=1.0), mixture=INSERTION | dict(order="mixture", orders=1),
    mixture_network=INSERTION | dict(order="mixture", components=f"{ALL},network"),
)
LEFT_OUT = dict(key=("ar", "middle_out"), middle_out=())  # `ar` cannot fill gaps, which keys have
TRAIN = dict(optimiser="muon", lr=4e-3, schedule="flat", warmup=50, ema=0.99, log_every=100, valid_size=64)


def tables(name: str, entrant: str, seed: int) -> dict:
    "Return the recipe of a run, of 32 generations a step."
    model = ENTRANTS[entrant]
    if name == "middle_out" and entrant == "mixture": model = model | dict(components=f"{ALL},middle_out")
    train = TRAIN | dict(steps=10_000, seed=seed, batch_size=32)
    if entrant in ("learned", "mixture_network"): train |= dict(batch_size=16, order_start=1, order_lr_scale=0.1)
    if entrant == "middle_out": model = model | dict(orders=1)
    return dict(task=CORPORA[name](), model=model, train=train)


def entrants_of(name: str) -> list[str]:
    "Return the entrants that can learn a corpus."
    return [entrant for entrant in ENTRANTS if entrant not in LEFT_OUT.get(name, ("middle_out",))]


def run(name: str, entrants: Sequence[str], seconds: int, seed: int):
    "Train entrants for some seconds, in turn, measure, and note."
    rows = {entrant: f"{name} {entrant} {seconds} {seed}" for entrant in entrants}
    if all(noted(RESULTS, row, {}) for row in rows.values()): return
    recipes = {entrant: tables(name, entrant, seed) for entrant in entrants}
    for entrant, racer in race(recipes, seconds).items():
        task = task_from(recipes[entrant]["task"])
        note(RESULTS, dict(name=rows[entrant], corpus=name, entrant=entrant, seed=seed, seconds=seconds,
                           **row_of(racer), **recipes[entrant], bound=bound(task, racer.method, HELD_OUT, STATES)))


def watch(name: str, seed: int):
    "Note the costs of a mixture's components, in nats per sequence, in a trial of WATCHED steps."
    settings = tables(name, "mixture", seed)
    settings["model"] |= dict(trial=WATCHED[-1])
    row, found = dict(name=f"{name} {seed}", corpus=name, seed=seed), {}
    if noted(COSTS, row["name"], row): return
    with tempfile.TemporaryDirectory() as directory:
        trainer = recipe_from(settings).trainer(directory, progress=False)
        stream, mixture = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device), trainer.method.mixture
        for step in range(1, WATCHED[-1] + 1):
            trainer.train_step(stream)
            if step in WATCHED: found[step] = dict(zip(mixture.names, [round(v, 2) for v in mixture.cost.tolist()]))
        stream.close()
    note(COSTS, row | dict(costs=found, **settings))


def main(argv: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="+", choices=CORPORA)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--entrants", nargs="+", default=list(ENTRANTS), choices=ENTRANTS)
    parser.add_argument("--costs", action="store_true", help="note costs in a trial, not bounds")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    for seed in args.seeds:
        for name in args.corpora:
            if args.costs: watch(name, seed)
            else: run(name, [entrant for entrant in args.entrants if entrant in entrants_of(name)], args.seconds, seed)


if __name__ == "__main__": main()
