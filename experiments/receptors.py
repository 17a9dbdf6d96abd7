"""Immune receptors with their exact law: `python experiments/receptors.py human_T_beta --cases 100`.

OLGA (Sethna et al., 2019; GPLv3) computes the probability of a CDR3 by summing over recombinations. It runs as a
program of its own, in an environment under runs/; nothing here imports it (`receptors_olga.py`). Written to
runs/receptors: LAW.csv with sequences for training, and LAW.json with commit, version and the entropy. To
experiments/receptors: LAW-KIND.jsonl with cases of every kind of gap, each with the exact log-probability of its
filling and the exact distribution of its length. Cases that are there already stay; a longer list continues, and
draws others than one run would, so the cases of the stored rows are in the repository. `--enumerate` writes
LAW-fillings.json instead: two prompts with the probability of every filling up to a length
(results/receptor_fillings.json)."""
import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from loflexmdm.support.atomic_files import write_file
from known_law import PATTERNS, Case, Pattern, filled_prompt, read_cases, write_cases
from runs import COMMIT, ROOT, write_results

FOLDER, CASES = ROOT / "runs" / "receptors", ROOT / "experiments" / "receptors"
LEAST, MOST = 8, 24  # residues
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
ENUMERATED = ("CSASLAVQ...IGANVLTF", 3), ("CASSLGQ...G...YNEQFF", 2)  # prompts, and the most residues in their gaps
FEWER = dict(two=3)  # kinds whose exact answers take longer have fewer cases, by this factor


def olga_python() -> Path:
    "Return the Python of the environment with OLGA, which is made if need be."
    place = ROOT / "runs" / "olga"
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "olga==1.3.0"], check=True)
        write_file(place / "ready", "")
    return python


class Olga:
    "A running program with one of OLGA's laws."
    def __init__(self, law: str, seed: int):
        script = Path(__file__).with_name("receptors_olga.py")
        self.process = subprocess.Popen(
            [str(olga_python()), str(script), law, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def ask(self, *question):
        "Return the answer to a question."
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def draw(self, n: int) -> list[str]: return self.ask("draw", n, LEAST, MOST)
    def p(self, *templates: str) -> list[float]: return self.ask("p", *templates)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def gap_lengths(prompt: list) -> Iterator[tuple[int, ...]]:
    "Yield the lengths that the gaps of a prompt may have together."
    given = sum(t is not ... for t in prompt)
    gaps = len(prompt) - given
    for lengths in itertools.product(range(MOST - given + 1), repeat=gaps):
        if LEAST <= given + sum(lengths) <= MOST: yield lengths


def exact_lengths(olga: Olga, prompt: list) -> dict[int, float]:
    "Return the probability of the prompt with each number of residues in its gaps. Not normalised."
    found, lengths = Counter(), list(gap_lengths(prompt))
    templates = ["".join(filled_prompt(prompt, ["X" * n for n in ns])) for ns in lengths]
    for ns, p in zip(lengths, olga.p(*templates)): found[sum(ns)] += p
    return {n: p for n, p in found.items() if p}


def cases_of(olga: Olga, kind: str, n: int, first: int, rng: random.Random) -> Iterator[Case]:
    "Draw cases number `first` to `n` with exact answers."
    pattern, weights = Pattern.of(kind), cache(lambda prompt: exact_lengths(olga, list(prompt)))
    while first < n:
        [text] = olga.draw(1)
        lengths = pattern.draw(len(text), MOST, rng)
        if lengths is None: continue
        prompt, fillings = pattern.cut(text, lengths)
        law = weights(tuple(prompt))
        total = math.fsum(law.values())
        log_p = math.log(olga.p(text)[0] / total)
        yield Case(kind, prompt, fillings, log_p, {k: p / total for k, p in law.items()})
        first += 1


def add_cases(law: str, kind: str, n: int):
    "Extend the cases of a kind to `n`."
    path = CASES / f"{law}-{kind}.jsonl"
    there = read_cases(path) if path.exists() else []
    if len(there) >= n: return
    olga = Olga(law, 10_000 + len(there) + 100_000 * list(PATTERNS).index(kind))
    begun = time.time()
    for case in cases_of(olga, kind, n, len(there), random.Random(f"{law} {kind} {len(there)}")):
        there.append(case)
        if len(there) % 10 == 0 or len(there) == n: write_cases(path, there)
    olga.close()
    print(f"{law} {kind}: {len(there)} cases, {time.time() - begun:.0f} s", flush=True)


def add_sequences(law: str, n: int, exact: bool):
    "Write sequences for training and, if `exact`, facts about the law."
    path, facts = FOLDER / f"{law}.csv", FOLDER / f"{law}.json"
    if path.exists() and (facts.exists() or not exact): return
    olga = Olga(law, 1)
    texts = [text for _ in range(0, n, 1000) for text in olga.draw(1000)]
    write_file(path, "\n".join(["sequence", *texts]) + "\n")
    if not exact: return olga.close()
    fresh = olga.draw(200)
    total = math.fsum(olga.p(*("X" * k for k in range(LEAST, MOST + 1))))
    nats = [math.log(total / p) for p in olga.p(*fresh)]
    olga.close()
    error = statistics.stdev(nats) / len(nats) ** 0.5
    write_file(facts, json.dumps(dict(
        law=law, residues=[LEAST, MOST], sequences=n, productive=total, olga="1.3.0", commit=COMMIT,
        entropy=[round(statistics.fmean(nats), 3), round(error, 3)],
        lengths=dict(sorted(Counter(map(len, texts)).items())),
    ), indent=1) + "\n")


def all_fillings(gaps: int, most: int) -> Iterator[tuple[str, ...]]:
    "Yield the fillings of gaps with up to `most` residues together, in alphabetical order for each lengths."
    for lengths in itertools.product(range(most + 1), repeat=gaps):
        if sum(lengths) > most: continue
        yield from itertools.product(*(map("".join, itertools.product(RESIDUES, repeat=n)) for n in lengths))


def enumerated(olga: Olga, text: str, most: int) -> dict:
    "Return log10 of the probabilities of all fillings of a prompt, and of numbers of residues, computed apart."
    prompt = [piece for part in text.split("...") for piece in (*part, ...)][:-1]
    gaps = prompt.count(...)
    log10 = lambda p: round(math.log10(p), 5) if p else None
    whole = ["".join(filled_prompt(prompt, f)) for f in all_fillings(gaps, most)]
    lengths = [ns for ns in itertools.product(range(most + 1), repeat=gaps) if sum(ns) <= most]
    wild = olga.p(*("".join(filled_prompt(prompt, ["X" * n for n in ns])) for ns in lengths))
    return dict(prompt=text, most=most, residues=RESIDUES, log10_p=[log10(p) for p in olga.p(*whole)],
                log10_lengths=[[list(ns), log10(p)] for ns, p in zip(lengths, wild)])


def write_enumerated(law: str):
    "Write every filling of two prompts with its probability."
    olga = Olga(law, 0)
    found = [enumerated(olga, *prompt) for prompt in ENUMERATED]
    olga.close()
    write_results(FOLDER / f"{law}-fillings.json", dict(law=law, olga="1.3.0", prompts=found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("laws", nargs="+", help="human_T_beta, mouse_T_alpha, human_B_heavy, ...")
    parser.add_argument("--sequences", type=int, default=30_000)
    parser.add_argument("--cases", type=int, default=100, help="of each kind of gap; 0: only sequences")
    parser.add_argument("--kinds", nargs="+", default=["ends", "inner", "two", "end", "start"])
    parser.add_argument("--enumerate", action="store_true", help="all fillings of two prompts instead")
    args = parser.parse_args()
    for folder in (FOLDER, CASES): folder.mkdir(parents=True, exist_ok=True)
    if args.enumerate: return [write_enumerated(law) for law in args.laws]
    for law in args.laws: add_sequences(law, args.sequences, args.cases > 0)
    for law in args.laws:
        for kind in args.kinds: add_cases(law, kind, args.cases // FEWER.get(kind, 1))


if __name__ == "__main__": main()
