"""Gaps of unknown length at equal CPU seconds: `python experiments/gap_runs.py human_T_beta --seconds 60 --seeds 0`.

Entrants have networks of one size, learn the same sequences with the same gaps, and are judged by the exact
conditional distributions of the cases that `receptors.py` writes: KL in nats (for entrants with a bound an upper
bound), lengths, impossible fillings, seconds per filling. Rows go to experiments/results/gap_runs.json, with
settings, seed and commit; those that are there are left out, and an interrupted run goes on where it stopped. The
entrant `exact` is the law itself, on fewer cases: it checks cases and scores.

Equal time: seconds are those of the processor of the first rows, on which 60 were 1,067 steps of `fim`. The row `pace`
has the time of a step of each entrant, in steps of `fim`, measured in turn in one sitting; so the number of steps does
not depend on what else a machine does."""
import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import collate, filled_example
from loflexmdm.support.random_numbers import generator_for
from loflexmdm.tasks.known_law import Case, Fillings, MethodEntrant, filled_prompt, read_cases, score_cases, splits
from loflexmdm.training.recipes import recipe_from
from receptors import CASES, FEWER, FOLDER, RESIDUES, Olga, exact_lengths
from runs import FIXED, LEARNED, ROOT, note, noted, states_per_sequence
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "gap_runs.json"
KINDS = ("ends", "inner", "two", "end", "start")
ONE_GAP = tuple(kind for kind in KINDS if kind != "two")
INSERTION, MASKS = dict(method="ordered-insertion"), dict(method="ordered-masks")
FIM = dict(method="fim", cut=0.0)
FORWARD, LATE = INSERTION | dict(order="left_to_right", orders=1), dict(query_blocks=1)
ENTRANTS = dict(
    fim=FIM, fim_fast=FIM, insertion_forward=FORWARD, insertion_late=FORWARD | LATE,
    insertion_small=FORWARD | LATE, insertion_fast=FORWARD | LATE, insertion_equal=FORWARD | LATE,
    insertion_learned=INSERTION | dict(order="learned", orders=2),
    insertion_mixture=INSERTION | dict(order="mixture"),
    insertion_mixture_late=INSERTION | LATE | dict(order="mixture", orders=1),
    masks_learned=MASKS | dict(order="learned", unmask="learned", orders=2),
    flexmdm=dict(method="flexmdm"), loflexmdm=LEARNED, loflexmdm_fixed=FIXED,
    editflow=dict(method="editflow"), did=dict(method="did"),
    ilm=dict(method="ilm"), ilm_bound=dict(method="ilm", weight="bound"),
    masked=dict(method="mdm"), masked_length=dict(method="mdm"),
)
FLAT = dict(schedule="flat")
SMALL = FLAT | dict(batch_size=16)
FAST = SMALL | dict(lr=6e-3)
TRAINED = dict(  # settings of training, where they are not those of all
    fim_fast=FAST, insertion_late=FLAT, insertion_small=SMALL, insertion_fast=FAST, insertion_equal=FLAT,
    insertion_mixture_late=FLAT,
)
EQUAL_STEPS = "insertion_equal"  # as many steps as fim, which take longer
TRIED = (  # variants, by name only
    "fim_fast", "insertion_mixture_late", "insertion_forward", "insertion_small", "insertion_fast", EQUAL_STEPS,
)
FIXED_LENGTH = ("masked", "masked_length")  # one gap only
TRAIN = dict(optimiser="muon", lr=3e-3, warmup=50, ema=0.99, log_every=100, valid_size=64)
ROWS, LONGEST = 32, 25
STATES, DRAWN, CHECKED = 32, 20, 50  # states of a bound, fillings per case, sequences whose probability is computed
FEW = 8  # fillings per case of entrants that take many steps for one
STEPS_OF_FIM = 1067 / 60  # in a second
ROUNDS, MEASURED = 8, 4  # steps whose time is measured: in turn, and in a row
EXACT = 8  # cases of a kind for the law itself


class Judged(MethodEntrant):
    "An entrant that keeps the bounds and the fillings of its last cases."
    nats: Sequence[float] = ()
    drawn: Sequence[Fillings] = ()
    laws: dict[tuple, dict[int, float]] = {}  # exact distribution of lengths of each prompt

    def nll(self, cases: Sequence[Case], size: int = 256) -> Float[Tensor, " cases"]:
        self.nats = super().nll(cases, size)
        return self.nats

    def draw(self, prompts: Sequence[list], n: int, seed: int) -> list[Fillings]:
        self.drawn = super().draw(prompts, n, seed)
        return self.drawn


class GivenLength(Judged):
    "Masked diffusion that is told the length, drawn from the exact distribution: an upper reference."
    def nll(self, cases: Sequence[Case], size: int = 256) -> Float[Tensor, " cases"]:
        "Bound -log q of fillings given their lengths, and add -log p of the lengths."
        examples = [filled_example(c.prompt, c.fillings, self.method.vocabulary) for c in cases]
        x1 = collate([e._replace(closed=[True] * len(e.closed)) for e in examples])
        generator = generator_for(0, "cases", device=self.method.device)
        of_length = [c.lengths[sum(map(len, c.fillings))] for c in cases]
        with torch.no_grad(): nats = self.method.nll_bound(x1, self.states, generator)[0].double()
        self.nats = nats - torch.tensor(of_length, dtype=torch.float64).log()
        return self.nats

    def draw(self, prompts: Sequence[list], n: int, seed: int) -> list[Fillings]:
        "Fill as many masks as the exact distribution says."
        rng, masked = random.Random(seed), []
        for prompt in prompts:
            law = self.laws[tuple(prompt)]
            for length in rng.choices(list(law), list(law.values()), k=n):
                masked.append([t for p in prompt for t in (["<mask>"] * length if p is ... else [p])])
        asked = [p for p in masked if "<mask>" in p]
        filled = iter(generate(self.method, asked, 1, seed=seed, **self.settings).completions())
        decode = lambda ids: tuple(self.method.vocabulary.decode(ids))
        self.drawn = [(decode(next(filled)) if "<mask>" in p else (),) for p in masked]
        return self.drawn


class LawItself:
    "A law as an entrant: probabilities residue by residue, and fillings of sequences that its sampler drew."
    def __init__(self, law: str):
        self.olga = Olga(law, 0)
        self.sequences = (FOLDER / f"{law}.csv").read_text().split()[1:]

    def nll(self, cases: Sequence[Case]) -> Float[Tensor, " cases"]:
        "Compute -log p of the lengths, and of each residue given those before it."
        return -torch.tensor([self.log_p(c.prompt, c.fillings) for c in cases], dtype=torch.float64)

    def log_p(self, prompt: list, fillings: Sequence[Sequence[str]]) -> float:
        "Return log p of fillings. Probabilities of a residue are divided by their sum over residues."
        write = lambda flat: "".join(filled_prompt(prompt, cut(flat, fillings)))
        flat = [t for f in fillings for t in f]
        total = math.fsum(exact_lengths(self.olga, prompt).values())
        found = math.log(self.olga.p(write(["X"] * len(flat)))[0] / total)
        for k, residue in enumerate(flat):
            rest = ["X"] * (len(flat) - k - 1)
            able = "C" if k == 0 and prompt[0] is ... else RESIDUES  # productive sequences begin with C
            p = self.olga.p(*(write([*flat[:k], r, *rest]) for r in able))
            found += math.log(p[able.index(residue)] / math.fsum(p))
        return found

    def fitting(self, prompt: list) -> list[Fillings]:
        "Return the fillings of all sequences that fit."
        ends = [0, *(i for i, t in enumerate(prompt) if t is ...), len(prompt)]
        first, last = "".join(prompt[:ends[1]]), "".join(prompt[ends[-2] + 1:])
        near = [s for s in self.sequences if s.startswith(first) and s.endswith(last)]
        return [f for s in near for f in splits(prompt, s)]

    def draw(self, prompts: Sequence[list], n: int, seed: int) -> list[Fillings]:
        "Draw from the fillings of sequences that fit."
        rng = random.Random(seed)
        self.drawn = [f for p in prompts for f in rng.sample(self.fitting(p), n)]
        return self.drawn


def cut(flat: Sequence[str], fillings: Sequence[Sequence[str]]) -> list[list[str]]:
    "Cut residues into parts as long as the fillings."
    rest = iter(flat)
    return [[next(rest) for _ in filling] for filling in fillings]


def exact_scores(law: str, n: int) -> dict:
    "Score a law by itself, on cases that enough sequences fit."
    found, entrant = {}, LawItself(law)
    for kind in KINDS:
        cases = [c for c in cases_of(law, kind, n) if len(entrant.fitting(c.prompt)) >= DRAWN][:EXACT]
        row = score_cases(entrant, cases, DRAWN) | dict(cases=len(cases))
        found[kind] = {k: round(v, 12 if k.startswith("kl") else 5) for k, v in row.items() if k != "seconds"}
        found[kind] |= dict(impossible=impossible(entrant.olga, cases, entrant.drawn))
    entrant.olga.close()
    return found


def run_exact(law: str, n: int):
    "Note the scores of a law by itself."
    name = f"{law} exact"
    if noted(RESULTS, name, dict(of_each_kind=n)): return
    note(RESULTS, dict(name=name, law=law, entrant="exact", of_each_kind=n, scores=exact_scores(law, n)))


def note_lengths(law: str, n: int):
    "Note the exact distribution of the number of residues in the gaps of each kind, pooled over cases."
    name = f"{law} lengths"
    if noted(RESULTS, name, dict(of_each_kind=n)): return
    found = {}
    for kind in KINDS:
        cases, pooled = cases_of(law, kind, n), Counter()
        for case in cases:
            for length, p in case.lengths.items(): pooled[length] += p / len(cases)
        found[kind] = {k: round(p, 6) for k, p in sorted(pooled.items())}
    note(RESULTS, dict(name=name, law=law, of_each_kind=n, lengths=found))


def drawn_of(entrant: str) -> int:
    "Return the number of fillings that an entrant draws for a case."
    return DRAWN if entrant.startswith(("fim", "insertion", "masks", "ilm")) else FEW


def kinds_of(entrant: str) -> tuple[str, ...]: return ONE_GAP if entrant in FIXED_LENGTH else KINDS


def tables(law: str, entrant: str, seed: int, steps: int) -> dict:
    "Return the recipe of a run."
    model = dict(size="nano") | ENTRANTS[entrant]
    task = dict(kind="known", file=f"runs/receptors/{law}.csv", column="sequence", max_length=LONGEST,
                valid_share=0.01, test_share=0.0, gaps=", ".join(kinds_of(entrant)))
    if entrant == "masked_length": task |= dict(given_length=True)
    train = TRAIN | dict(steps=steps, seed=seed, save_every=max(1, steps // 4), valid_every=steps,
                         batch_size=max(1, ROWS // states_per_sequence(model))) | TRAINED.get(entrant, {})
    if model.get("order") == "learned": train |= dict(order_start=max(1, steps // 4), order_lr_scale=0.1)
    return dict(task=task, model=model, train=train)


def cases_of(law: str, kind: str, n: int) -> list[Case]:
    "Return the first `n` cases of a kind, of slow kinds fewer. ValueError if there are not as many yet."
    n, path = n // FEWER.get(kind, 1), CASES / f"{law}-{kind}.jsonl"
    found = read_cases(path) if path.exists() else []
    if len(found) < n: raise ValueError(f"{path}: {len(found)} cases, {n} needed; receptors.py {law} --cases {n}")
    return found[:n]


def impossible(olga: Olga, cases: Sequence[Case], drawn: Sequence[Fillings]) -> float:
    "Return the share of drawn sequences that the law cannot make, from some of them."
    n = len(drawn) // len(cases)
    texts = ["".join(filled_prompt(c.prompt, f)) for k, c in enumerate(cases) for f in drawn[k * n:(k + 1) * n]]
    some = random.Random(0).sample(texts, min(CHECKED, len(texts)))
    return sum(not p for p in olga.p(*[t for t in some if t])) / len(some)


def details(cases: Sequence[Case], judged: Judged) -> dict:
    "Return the excess nats of each case, and how many fillings had each length."
    excess = [round(float(v) + c.log_p, 3) for v, c in zip(judged.nats, cases)]
    return dict(case_kl=excess, lengths=dict(sorted(Counter(sum(map(len, f)) for f in judged.drawn).items())))


def scores(law: str, entrant: str, method: Method, n: int) -> dict:
    "Score a trained entrant on every kind of gap."
    found, olga = {}, Olga(law, 0)
    cls = GivenLength if entrant == "masked_length" else Judged
    for kind in kinds_of(entrant):
        cases, judged = cases_of(law, kind, n), cls(method, STATES)
        judged.laws = {tuple(c.prompt): c.lengths for c in cases}
        row = score_cases(judged, cases, drawn_of(entrant)) | dict(cases=len(cases), drawn=drawn_of(entrant))
        row |= dict(impossible=impossible(olga, cases, judged.drawn))
        found[kind] = {k: round(v, 5) for k, v in row.items()} | details(cases, judged)
    olga.close()
    return found


class Pace:
    "Training by a recipe whose steps are measured."
    def __init__(self, settings: dict, directory: str):
        trainer = recipe_from(settings).trainer(directory, progress=False)
        self.trainer, self.times = trainer, []
        self.stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)

    def steps(self, n: int):
        "Train for `n` steps and keep their times."
        for _ in range(n):
            begun = time.process_time()
            self.trainer.train_step(self.stream)
            self.times.append(time.process_time() - begun)

    @property
    def seconds(self) -> float:
        "Median of the times after the first steps."
        return statistics.median(self.times[MEASURED:])


def measured_seconds(recipes: Mapping[str, dict]) -> dict[str, float]:
    "Measure the seconds of a step of some recipes, in turn."
    with tempfile.TemporaryDirectory() as directory:
        found = {name: Pace(settings, f"{directory}/{name}") for name, settings in recipes.items()}
        for _ in range(ROUNDS):
            for pace in found.values(): pace.steps(MEASURED)
        for pace in found.values(): pace.stream.close()
    return {name: pace.seconds for name, pace in found.items()}


def paces(results: Path, name: str, tables_of: Callable[[str], dict], entrants: Sequence[str]) -> dict:
    """Return the row of paces, in steps of `fim`, and its seconds.

    If one is not stored, those of all are measured again, in turn in one sitting, and noted."""
    rows = json.loads(results.read_text()) if results.exists() else []
    row = next((row for row in rows if row["name"] == name), dict(name=name, paces={}))
    missing = [entrant for entrant in entrants if entrant not in row["paces"]]
    if not missing: return row
    every = dict.fromkeys(["fim", *row["paces"], *missing])
    seconds = measured_seconds({entrant: tables_of(entrant) for entrant in every})
    found = {entrant: round(s / seconds["fim"], 3) for entrant, s in seconds.items()}
    row = row | dict(fim_seconds=round(seconds["fim"], 5), paces=found)
    note(results, row)
    return row


def steps_of(law: str, entrant: str, seconds: int) -> int:
    "Return the number of steps in some seconds of the first rows' processor."
    row = paces(RESULTS, "pace", lambda entrant: tables(law, entrant, 0, 10_000), [entrant])
    pace = 1.0 if entrant == EQUAL_STEPS else row["paces"][entrant]
    return round(STEPS_OF_FIM * seconds / pace)


def run(law: str, entrant: str, seconds: int, seed: int, n: int, commit: str):
    "Train an entrant for some seconds, score it, and note."
    name = f"{law} {entrant} {seconds} {seed}"
    if noted(RESULTS, name, dict(model=tables(law, entrant, seed, 1)["model"], of_each_kind=n)): return
    settings = tables(law, entrant, seed, steps_of(law, entrant, seconds))
    made, _, spent = trained(settings, f"gaps {name}")
    begun = time.process_time()
    made = getattr(made, "method", made)
    parameters = sum(p.numel() for p in made.parameters())
    note(RESULTS, dict(name=name, law=law, entrant=entrant, seed=seed, seconds=seconds, cpu_seconds=spent,
                       parameters=parameters, of_each_kind=n, **settings, scores=scores(law, entrant, made, n),
                       scoring_seconds=round(time.process_time() - begun))
         | (dict(trained_at=commit) if commit else {}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("laws", nargs="+")
    parser.add_argument("--seconds", type=int, nargs="+", default=[60])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    usual = [entrant for entrant in ENTRANTS if entrant not in TRIED]
    parser.add_argument("--entrants", nargs="+", default=usual, choices=[*ENTRANTS, "exact"])
    parser.add_argument("--cases", type=int, default=60, help="of each kind of gap")
    parser.add_argument("--commit", default="", help="commit of the code, where the folder does not tell it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    entrants = [name for name in args.entrants if name != "exact"]
    paces(RESULTS, "pace", lambda entrant: tables(args.laws[0], entrant, 0, 10_000), entrants)
    for law in args.laws: note_lengths(law, args.cases)
    for seed in args.seeds:
        for law in args.laws:
            for seconds in args.seconds:
                for entrant in args.entrants:
                    if entrant == "exact": run_exact(law, args.cases)
                    else: run(law, entrant, seconds, seed, args.cases, args.commit)


if __name__ == "__main__": main()
