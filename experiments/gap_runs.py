"""Gaps of unknown length at equal CPU seconds: `python experiments/gap_runs.py human_T_beta --seconds 60 --seeds 0`.

Entrants have networks of one size, learn the same sequences with the same gaps, and are judged by the exact
conditional distributions of the cases that `receptors.py` writes: KL in nats (for entrants with a bound an upper
bound), lengths, impossible fillings, seconds per filling. The entrants of a law and seed are trained in turn, each step
being that of the one that has spent least CPU time (`race`), so that their seconds are equal whatever else the machine
does. Rows go to experiments/results/gap_runs.json, with settings, seed and commit; a race whose rows are there is left
out. The entrant `exact` is the law itself, on fewer cases: it checks cases and scores."""
import argparse
import math
import random
import time
from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import collate, filled_example
from loflexmdm.support.random_numbers import generator_for
from known_law import Case, Fillings, MethodEntrant, filled_prompt, read_cases, score_cases, splits
from receptors import CASES, FEWER, FOLDER, RESIDUES, Olga, exact_lengths
from runs import LEARNED, ROOT, note, noted, states_per_sequence
from training_runs import Racer, race

RESULTS = ROOT / "experiments" / "results" / "gap_runs.json"
KINDS = ("ends", "inner", "two", "end", "start")
ONE_GAP = tuple(kind for kind in KINDS if kind != "two")
INSERTION, MASKS = dict(method="ordered-insertion"), dict(method="ordered-masks")
FIM, LATE = dict(method="fim", cut=0.0), dict(orders=1, query_blocks=1)
ENTRANTS = dict(
    fim=FIM, fim_both=FIM | dict(network_config="prefix"),  # the prompt read from left to right, and both ways
    insertion=INSERTION | LATE | dict(order="left_to_right"), mixture=INSERTION | LATE | dict(order="mixture"),
    learned=INSERTION | dict(order="learned", orders=2, query_blocks=1),
    masks_learned=MASKS | dict(order="learned", unmask="learned", orders=2),
    flexmdm=dict(method="flexmdm"), loflexmdm=LEARNED, editflow=dict(method="editflow"), did=dict(method="did"),
    ilm=dict(method="ilm"), masked=dict(method="mdm"), masked_length=dict(method="mdm"),
)
CHOSEN = ("fim", "fim_both", "insertion", "mixture")
FIXED_LENGTH = ("masked", "masked_length")  # one gap only
TRAIN = dict(optimiser="muon", lr=6e-3, schedule="flat", warmup=50, ema=0.99, log_every=100, valid_size=64)
ROWS, LONGEST = 16, 25
STATES, DRAWN, CHECKED = 32, 20, 10  # states of a bound, fillings per case, sequences whose probability is computed
FEW = 8  # fillings per case of entrants that take many steps for one
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
    return DRAWN if entrant in (*CHOSEN, "learned", "masks_learned", "ilm") else FEW


def kinds_of(entrant: str) -> tuple[str, ...]: return ONE_GAP if entrant in FIXED_LENGTH else KINDS


def settings_of(entrant: str, task: dict, seed: int) -> dict:
    "Return the recipe of an entrant; how many steps it takes, a race decides."
    model = dict(size="nano") | ENTRANTS[entrant]
    train = TRAIN | dict(steps=10_000, seed=seed, batch_size=max(1, ROWS // states_per_sequence(model)))
    if model.get("order") == "learned": train |= dict(order_start=1, order_lr_scale=0.1)
    return dict(task=task, model=model, train=train)


def tables(law: str, entrant: str, seed: int) -> dict:
    "Return the recipe of a run."
    task = dict(kind="known", file=f"runs/receptors/{law}.csv", column="sequence", max_length=LONGEST,
                valid_share=0.01, test_share=0.0, gaps=", ".join(kinds_of(entrant)))
    if entrant == "masked_length": task |= dict(given_length=True)
    return settings_of(entrant, task, seed)


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


def run(law: str, entrants: Sequence[str], seconds: int, seed: int, n: int):
    "Train entrants for some seconds, in turn, score them, and note."
    names = {entrant: f"{law} {entrant} {seconds} {seed}" for entrant in entrants}
    if all(noted(RESULTS, name, dict(of_each_kind=n)) for name in names.values()): return
    recipes = {entrant: tables(law, entrant, seed) for entrant in entrants}
    for entrant, racer in race(recipes, seconds).items():
        begun, made = time.process_time(), racer.method
        note(RESULTS, dict(name=names[entrant], law=law, entrant=entrant, seed=seed, seconds=seconds, of_each_kind=n,
                           **row_of(racer), **recipes[entrant], scores=scores(law, entrant, made, n),
                           scoring_seconds=round(time.process_time() - begun)))


def row_of(racer: Racer) -> dict:
    "Return what a race has spent on a run, and what it chose."
    method = racer.method
    mixture = getattr(method, "mixture", None)
    shares = {} if mixture is None else mixture.shares()
    return dict(cpu_seconds=round(racer.spent, 1), steps=racer.trainer.step,
                parameters=sum(p.numel() for p in method.parameters()),
                shares={key: round(float(value), 4) for key, value in shares.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("laws", nargs="+")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--entrants", nargs="+", default=CHOSEN, choices=[*ENTRANTS, "exact"])
    parser.add_argument("--cases", type=int, default=60, help="of each kind of gap")
    args = parser.parse_args()
    torch.set_num_threads(1)
    entrants = [name for name in args.entrants if name != "exact"]
    for law in args.laws: note_lengths(law, args.cases)
    for law in args.laws:
        if "exact" in args.entrants: run_exact(law, args.cases)
    for seed in args.seeds:
        for law in args.laws:
            if entrants: run(law, entrants, args.seconds, seed, args.cases)


if __name__ == "__main__": main()
