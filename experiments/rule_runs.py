"""Samples under rules, their distribution and cost: `python experiments/rule_runs.py receptors molecules logs`.

receptors: a small autoregressive model of `receptors.py human_T_beta`; for a letter and two motifs, the lengths of
samples under the rule against those of OLGA's sequences that satisfy it (runs/receptors/human_T_beta-law.csv, if it is
there, else the training data) and of the model's own free draws that do: total variation, beside what as many draws
from the law itself would have; and the same for masked samples. gap: the same for a range of a gap, which a model
fills in the middle. molecules: `valid` at temperature 1 against free draws: valid ones, CPU seconds, and Fréchet's
ChemNet distance of as many valid ones to molecules of a file of SMILES (--reference FILE.gz; needs the wheels molsets
and fcd_torch). logs: two rules that timeouts and slow requests of a small log satisfy, whose neighbouring letters tell
little of either: share of timeouts under the rule and among free draws that satisfy it.
Rows go to experiments/results/rule_runs.json."""
import argparse
import gzip
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from loflexmdm import load
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.base import Method
from loflexmdm.methods.fill_in_the_middle import FillInTheMiddle, FillInTheMiddleConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.process.rules import Regex, Requirement
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.support.atomic_files import write_file
from loflexmdm.support.random_numbers import seeded
from loflexmdm.support.statistics import variation_floor
from loflexmdm.training.recipes import recipe_from
from receptors import RESIDUES
from moses_figures import activations, frechet, gaussian
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "rule_runs.json"
DATA = ROOT / "runs" / "receptors" / "human_T_beta.csv"
STEPS, GAP_STEPS, BATCH, FREE = 250, 500, 32, 10_000
RULES = "contains:W", "contains:WGT", "contains:RGWT"

LOG_RULES = {
    "timeout, or at least 100 ms": r"\d\d:\d\d [A-Z]+ (db|web)-\d (timeout after \d\d s|took \d{3,} ms)",
    "the same from 12 on web-1": r"12:\d\d [A-Z]+ web-1 (timeout after \d\d s|took \d{3,} ms)",
}


def train(model: Method, texts: Sequence[str], steps: int = STEPS, seed: int = 0) -> Method:
    "Train a model of sequences."
    vocabulary, rng = model.vocabulary, random.Random(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps, pct_start=0.05)
    for _ in range(steps):
        batch = collate([prefix_example([], list(text), vocabulary) for text in rng.choices(texts, k=BATCH)])
        model.loss(batch, seeded(rng.getrandbits(60))).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    return model.eval()


def shares(texts: Sequence[str]) -> dict[int, float]:
    "Return the share of each length."
    return {n: count / len(texts) for n, count in Counter(map(len, texts)).items()}


def variation(texts: Sequence[str], law: dict[int, float]) -> float:
    "Return the total variation of lengths from a law."
    own = shares(texts)
    return sum(abs(own.get(n, 0.0) - law.get(n, 0.0)) for n in own.keys() | law.keys()) / 2


def as_texts(model: Method, samples) -> list[str]:
    "Write samples as texts."
    return ["".join(model.vocabulary.decode(s)) for s in samples.sequences]


def compared(texts: Sequence[str], satisfying: Sequence[str]) -> dict:
    "Compare lengths with those of sequences that satisfy the rule."
    law = shares(satisfying)
    mean = lambda some: round(sum(map(len, some)) / len(some), 2)
    return dict(law=len(satisfying), mean_length=[mean(texts), mean(satisfying)],
                variation=round(variation(texts, law), 3), by_chance=round(variation_floor(law, len(texts)), 3))


def sequences() -> tuple[list[str], list[str]]:
    "Return sequences for training, and those of the law: many, if they are there."
    read = lambda path: path.read_text().split()[1:]
    law = DATA.with_name("human_T_beta-law.csv")
    texts = read(DATA)
    return texts, read(law) if law.exists() else texts


def receptors(n: int, seed: int):
    "Draw receptors under rules."
    texts, of_law = sequences()
    begun = time.process_time()
    torch.manual_seed(0)
    model = train(Autoregressive(Vocabulary(RESIDUES), AutoregressiveConfig(size="nano", max_length=40)), texts)
    trained, begun = time.process_time() - begun, time.process_time()
    free = as_texts(model, generate(model, n=FREE, seed=1000 + seed))
    per_draw = (time.process_time() - begun) / FREE
    for rule in RULES:
        accepts = Requirement.of(rule, model.vocabulary).accepts
        those = lambda some, accepts=accepts: [t for t in some if accepts(model.vocabulary.encode(t))]
        satisfying, own = those(of_law), those(free)
        for kind in ("conditional", "masked"):
            begun = time.process_time()
            found = generate(model, n=n, rule=rule, law=kind, seed=seed)
            seconds, drawn = time.process_time() - begun, as_texts(model, found)
            p, error = found.rule.probability
            note(RESULTS, dict(
                name=f"receptors {rule} {kind} {seed}", draws=n, satisfied=len(those(drawn)), p=[p, error],
                p_law=len(satisfying) / len(of_law), from_law=compared(drawn, satisfying),
                from_own_draws=compared(drawn, own) if own else None, cpu_seconds=round(seconds, 1),
                rejection_seconds=round(per_draw * n / p, 1) if p else None,
                steps=STEPS, batch=BATCH, trained_seconds=round(trained, 1),
            ))


def gap(n: int, seed: int):
    "Fill a gap of 3 to 6 residues in receptors."
    texts, of_law = sequences()
    torch.manual_seed(0)
    begun = time.process_time()
    model = FillInTheMiddle(Vocabulary(RESIDUES), FillInTheMiddleConfig(size="nano", max_length=40))
    train(model, texts, GAP_STEPS)
    trained, begun = time.process_time() - begun, time.process_time()
    matches = lambda some: [t for t in some if re.fullmatch("CASS.{3,6}YF", t)]
    free = as_texts(model, generate(model, [[*"CASS", ..., *"YF"]], n=FREE, seed=1000 + seed))
    per_draw, own = (time.process_time() - begun) / FREE, matches(free)
    satisfying, begun = matches(of_law), time.process_time()
    found = generate(model, [[*"CASS", "...{3,6}", *"YF"]], n=n, seed=seed)
    seconds, drawn = time.process_time() - begun, as_texts(model, found)
    p, error = found.rule.probability
    prompted = [t for t in of_law if re.fullmatch("CASS.*YF", t)]
    note(RESULTS, dict(
        name=f"receptors CASS...{{3,6}}YF conditional {seed}", draws=n, satisfied=len(matches(drawn)), p=[p, error],
        p_law=len(satisfying) / len(prompted), from_law=compared(drawn, satisfying),
        from_own_draws=compared(drawn, own),
        cpu_seconds=round(seconds, 1), rejection_seconds=round(per_draw * n / p, 1), steps=GAP_STEPS, batch=BATCH,
        trained_seconds=round(trained, 1), method="fim",
    ))


def log_line(rng: random.Random) -> str:
    "Write a time, a level, a host and a message."
    when, host = f"{rng.randrange(24):02}:{rng.randrange(60):02}", f"{rng.choice(['db', 'web'])}-{rng.randrange(1, 5)}"
    if rng.random() < 0.2: return f"{when} ERROR {host} timeout after {rng.choice([10, 30, 60])} s"
    return f"{when} {rng.choice(['INFO', 'INFO', 'WARN'])} {host} took {int(rng.lognormvariate(3, 1))} ms"


def logs(n: int, seed: int):
    "Draw lines of a log under rules."
    rng, folder = random.Random(0), ROOT / "runs" / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "log.txt", "\n".join(log_line(rng) for _ in range(5000)))
    task = dict(kind="text", unit="characters", format="lines", file=str(folder / "log.txt"))
    train = dict(steps=STEPS, batch_size=16, optimiser="muon", lr=3e-3, warmup=20, ema=0.98, valid_every=STEPS)
    recipe = recipe_from(dict(task=task, model=dict(method="ar", size="nano"), train=train))
    with tempfile.TemporaryDirectory() as place: model = recipe.trainer(place, progress=False).fit()
    free = model.sample(n=FREE, seed=1000 + seed).texts
    for name, pattern in LOG_RULES.items():
        those = [t for t in free if re.fullmatch(pattern, t)]
        timeouts = lambda texts: round(sum("timeout" in t for t in texts) / max(len(texts), 1), 3)
        for kind in ("conditional", "masked"):
            begun = time.process_time()
            found = model.sample(n=n, rule=Regex(pattern), law=kind, seed=seed)
            note(RESULTS, dict(
                name=f"logs {name} {kind} {seed}", rule=name, kind=kind, draws=n,
                satisfied=sum(bool(re.fullmatch(pattern, t)) for t in found.texts), p=found.rule.probability,
                p_free=len(those) / FREE, timeouts=timeouts(found.texts), timeouts_free=timeouts(those),
                disagrees=found.rule.disagrees, cpu_seconds=round(time.process_time() - begun, 1), steps=STEPS,
            ))


def molecules(name: str, n: int, seed: int, reference: Path | None):
    "Draw valid molecules, and as many freely."
    model = load(name)
    model.sample(n=32, seed=99)
    timed = {}
    for kind, settings in dict(free={}, valid=dict(rule="valid")).items():
        begun = time.process_time()
        found = model.sample(n=n, seed=seed, **settings)
        timed[kind] = list(found), time.process_time() - begun
    good = {kind: [j.smiles for j in judge(texts) if j.smiles] for kind, (texts, _) in timed.items()}
    row = dict(name=f"molecules {name} {seed}", draws=n, free_valid=len(good["free"]), valid=len(good["valid"]),
               cpu_seconds=[round(timed[k][1], 1) for k in ("free", "valid")],
               ratio=round(timed["valid"][1] / timed["free"][1], 3))
    if reference is not None:
        lines, fewest = gzip.open(reference, "rt").read().split(), min(map(len, good.values()))
        known = [j.smiles for j in judge(random.Random(0).sample(lines, fewest)) if j.smiles]
        law = {kind: gaussian(activations(some[:fewest])) for kind, some in dict(known=known, **good).items()}
        row |= dict(compared=fewest) | {
            f"distance_{kind}": round(frechet(*law[kind], *law["known"]), 3) for kind in good}
    note(RESULTS, row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=("receptors", "gap", "molecules", "logs"))
    parser.add_argument("-n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=["molecules-leads", "molecules-chembl"])
    parser.add_argument("--reference", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if "receptors" in args.what: receptors(args.n, args.seed)
    if "gap" in args.what: gap(args.n, args.seed)
    if "logs" in args.what: logs(args.n, args.seed)
    if "molecules" in args.what:
        for name in args.models: molecules(name, args.n, args.seed, args.reference)


if __name__ == "__main__": main()
