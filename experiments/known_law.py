"""Sequences whose exact probabilities are known: gaps of unknown length, filled by any method and judged by the exact
conditional distribution instead of by one reference.

Scripts that import this module can train on the task, `kind = "known"`."""
import itertools
import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.process.states import MASK, SPECIAL_TOKENS, Example, Vocabulary, collate, filled_example, fillings_of
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.samplers import Samples
from loflexmdm.support.atomic_files import write_file
from loflexmdm.support.configs import text_type, config
from loflexmdm.support.random_numbers import generator_for
from loflexmdm.support.readers import read_jsonl
from loflexmdm.support.statistics import empirical_variation, variation_floor
from loflexmdm.tasks.base import Examples, check_split
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask, prompt_of

PATTERNS = dict(
    inner="1-12 ... 1-12", ends="4 ... 4", two="1-5 ... 1-4 ... 1-5", start="... 1-12", end="1-12 ...", whole="...",
)
_GIVEN = re.compile(r"(\d+)(?:-(\d+))?")


class Pattern(NamedTuple):
    "Given tokens and gaps of a sequence, from left to right."
    parts: tuple[tuple[int, int] | None, ...]  # least and most given tokens; None: a gap

    @staticmethod
    def of(text: str) -> "Pattern":
        "Read a pattern, or the name of one of PATTERNS. ValueError for anything else."
        words = PATTERNS.get(text.strip(), text).split()
        found = [None if word == "..." else _GIVEN.fullmatch(word) for word in words]
        parts = tuple(m and (int(m[1]), int(m[2] or m[1])) for m in found)
        wrong = any(m is None and word != "..." for m, word in zip(found, words)) or None not in parts
        if wrong or any(a and b and a[0] > a[1] for a, b in zip(parts, parts)):
            raise ValueError(f"gaps={text!r}: a name ({', '.join(PATTERNS)}), or numbers of given tokens and `...` "
                             "for gaps, such as 1-12 ... 1-12")
        return Pattern(parts)

    def draw(self, n: int, most: int, rng: random.Random) -> list[int] | None:
        "Draw the length of each part of a sequence of `n` tokens; None if they do not fit. Gaps: up to `most`."
        last = max(k for k, part in enumerate(self.parts) if part is None)
        drawn = [0 if k == last else rng.randint(*(part or (0, most))) for k, part in enumerate(self.parts)]
        drawn[last] = n - sum(drawn)
        return drawn if drawn[last] >= 0 else None

    def cut(self, tokens: Sequence[str], lengths: Sequence[int]) -> tuple[list, list[list[str]]]:
        "Cut a sequence into prompt and fillings."
        prompt, fillings, rest = [], [], iter(tokens)
        for part, n in zip(self.parts, lengths):
            piece = list(itertools.islice(rest, n))
            if part is None: fillings.append(piece)
            prompt += [...] if part is None else piece
        return prompt, fillings


def patterns_of(text: str) -> list[Pattern]:
    "Read patterns or their names, separated by commas."
    return [Pattern.of(part) for part in text.split(",")]


class Case(NamedTuple):
    "A prompt with gaps, fillings drawn from their exact distribution, and facts about it."
    kind: str  # name of its pattern
    prompt: list  # tokens, and `...` for gaps
    fillings: list[list[str]]  # of each gap
    log_p: float  # log-probability of the fillings, given the prompt
    lengths: dict[int, float]  # exact distribution of the number of tokens in all gaps

    def as_dict(self) -> dict:
        "Return the case as JSON holds it."
        prompt = ["..." if t is ... else t for t in self.prompt]
        return self._replace(prompt=prompt)._asdict()

    @staticmethod
    def of(row: Mapping) -> "Case":
        "Read a case. ValueError for other fields."
        try: case = Case(**row)
        except TypeError:
            raise ValueError(f"case: fields {', '.join(row)}; {', '.join(Case._fields)} expected") from None
        prompt = [... if t == "..." else t for t in case.prompt]
        lengths = {int(n): p for n, p in case.lengths.items()}
        return case._replace(prompt=prompt, lengths=lengths, log_p=float(case.log_p))


def write_cases(path: str | Path, cases: Iterable[Case]):
    "Write cases as JSON lines."
    write_file(Path(path), "".join(json.dumps(case.as_dict()) + "\n" for case in cases))


def read_cases(path: str | Path) -> list[Case]:
    "Read cases. ValueError for other lines; FileNotFoundError."
    return [Case.of(value) for _, value in read_jsonl(path)]


Fillings = tuple[tuple[str, ...], ...]  # tokens of each gap


def splits(prompt: Sequence, tokens: Sequence[str]) -> list[Fillings]:
    "Return all ways to fill the prompt's gaps that give a sequence."
    if not prompt: return [] if tokens else [()]
    first, rest = prompt[0], prompt[1:]
    if first is not ...: return splits(rest, tokens[1:]) if len(tokens) and tokens[0] == first else []
    return [(tuple(tokens[:n]), *more) for n in range(len(tokens) + 1) for more in splits(rest, tokens[n:])]


class ListedLaw:
    "A distribution over listed sequences, which need not be normalised."
    def __init__(self, law: Mapping[str | tuple[str, ...], float]):
        total = math.fsum(law.values())
        self.law = {tuple(s): p / total for s, p in law.items() if p}

    def conditional(self, prompt: Sequence) -> dict[Fillings, float]:
        "Return the distribution of the fillings of a prompt, empty if no sequence fits."
        weights = {f: p for s, p in self.law.items() for f in splits(list(prompt), s)}
        total = math.fsum(weights.values())
        return {f: p / total for f, p in weights.items()}

    def cases(self, kind: str, n: int, seed: int = 0) -> list[Case]:
        "Draw `n` cases of a pattern, with exact answers. ValueError if the pattern fits no sequence."
        rng, pattern = random.Random(f"{kind} {seed}"), Pattern.of(kind)
        texts, most = list(self.law), max(map(len, self.law))
        drawn, cases = 0, []
        while len(cases) < n:
            if drawn > 1000 * (n + 1): raise ValueError(f"gaps={kind!r}: fits none of the sequences")
            drawn += 1
            [tokens] = rng.choices(texts, self.law.values())
            if lengths := pattern.draw(len(tokens), most, rng):
                cases.append(self.case(kind, *pattern.cut(tokens, lengths)))
        return cases

    def case(self, kind: str, prompt: list, fillings: list[list[str]]) -> Case:
        "Return a case with its exact answer."
        law, lengths = self.conditional(prompt), Counter()
        for f, p in law.items(): lengths[sum(map(len, f))] += p
        return Case(kind, prompt, fillings, math.log(law[tuple(map(tuple, fillings))]), dict(lengths))

    def possible(self, tokens: Sequence[str]) -> bool:
        "Return True if a sequence has a probability above 0."
        return tuple(tokens) in self.law


class Entrant(Protocol):
    "A model or an exact law that is scored."

    def nll(self, cases: Sequence[Case]) -> Float[Tensor, " cases"]:
        "Return -log q of the cases' fillings given their prompts, or upper bounds, in nats."

    def draw(self, prompts: Sequence[list], n: int, seed: int) -> list[Fillings]:
        "Draw `n` fillings of each prompt, those of a prompt in a row."


class MethodEntrant:
    "A method as an entrant; `settings` are those of `generate`."
    def __init__(self, method: Method, states: int = 32, **settings):
        self.method, self.states, self.settings = method, states, settings

    def nll(self, cases: Sequence[Case], size: int = 256) -> Float[Tensor, " cases"]:
        "Bound -log q of fillings, from `states` states each."
        vocabulary, generator = self.method.vocabulary, generator_for(0, "cases", device=self.method.device)
        examples = [filled_example(c.prompt, c.fillings, vocabulary) for c in cases]
        parts = [collate(examples[i:i + size]).to(self.method.device) for i in range(0, len(examples), size)]
        with torch.no_grad():
            return torch.cat([self.method.nll_bound(x1, self.states, generator)[0].double().cpu() for x1 in parts])

    def draw(self, prompts: Sequence[list], n: int, seed: int) -> list[Fillings]:
        "Draw fillings with the method's sampler."
        samples = generate(self.method, prompts, n, seed=seed, **self.settings)
        return drawn_fillings(samples, [p for p in prompts for _ in range(n)], self.method.vocabulary)


class LawEntrant:
    "A listed law as an entrant: KL 0, but for rounding."
    def __init__(self, law: ListedLaw): self.law = law

    def nll(self, cases: Sequence[Case]) -> Float[Tensor, " cases"]:
        "Compute -log p of fillings, infinite for impossible ones."
        p = [self.law.conditional(c.prompt).get(tuple(map(tuple, c.fillings)), 0.0) for c in cases]
        return -torch.tensor(p, dtype=torch.float64).log()

    def draw(self, prompts: Sequence[list], n: int, seed: int) -> list[Fillings]:
        "Draw fillings from the exact distribution."
        rng = random.Random(seed)
        laws = [self.law.conditional(p) for p in prompts]
        return [f for law in laws for f in rng.choices(list(law), list(law.values()), k=n)]


def drawn_fillings(samples: Samples, prompts: Sequence[list], vocabulary: Vocabulary) -> list[Fillings]:
    "Return the tokens of each gap of samples. Each has its prompt."
    rows = zip(prompts, samples.sequences, samples.free, strict=True)
    return [tuple(map(tuple, fillings_of(p, vocabulary.decode(ids), free, vocabulary))) for p, ids, free in rows]


def filled_prompt(prompt: Sequence, fillings: Fillings) -> list[str]:
    "Return the sequence of a filled prompt."
    rest = iter(fillings)
    return [t for piece in prompt for t in (next(rest) if piece is ... else [piece])]


def score_cases(
    entrant: Entrant, cases: Sequence[Case], n: int = 50, seed: int = 0,
    possible: Callable[[Sequence[str]], bool] | None = None,
) -> dict[str, float]:
    """Score an entrant on cases: KL, held-out likelihood, lengths, impossible fillings, seconds.

    kl, kl_se: mean of log p - log q and its standard error, in nats; nll: mean of -log q; length_tv: total variation
    between pooled lengths of `n` drawn fillings per case and the exact ones, length_tv_floor that of ideal samples;
    case_tv and case_tv_floor: the same for each case by itself, averaged; seconds: CPU time per drawn filling;
    impossible: share of drawn sequences for which `possible` is false. ValueError without cases."""
    if not cases: raise ValueError("cases=[]: at least one is needed")
    nll = entrant.nll(cases)
    excess = nll + torch.tensor([c.log_p for c in cases], dtype=torch.float64)
    begun = time.process_time()
    drawn = entrant.draw([c.prompt for c in cases], n, seed)
    seconds = (time.process_time() - begun) / len(drawn)
    found = dict(kl=excess.mean().item(), kl_se=(excess.std() / len(cases) ** 0.5).item(), nll=nll.mean().item())
    found |= score_lengths(cases, drawn, n) | dict(seconds=seconds)
    if possible is None: return found
    prompts = [c.prompt for c in cases for _ in range(n)]
    wrong = sum(not possible(filled_prompt(p, f)) for p, f in zip(prompts, drawn, strict=True))
    return found | dict(impossible=wrong / len(drawn))


def score_lengths(cases: Sequence[Case], drawn: Sequence[Fillings], n: int) -> dict[str, float]:
    "Compare lengths of drawn fillings, `n` per case in a row, with the exact distributions."
    lengths = [sum(map(len, f)) for f in drawn]
    pooled = Counter()
    for case in cases:
        for length, p in case.lengths.items(): pooled[length] += p / len(cases)
    mean = lambda values: math.fsum(values) / len(cases)
    own = [Counter(lengths[k * n:(k + 1) * n]) for k in range(len(cases))]
    return dict(
        length_tv=empirical_variation(Counter(lengths), pooled),
        length_tv_floor=variation_floor(pooled, len(lengths)),
        case_tv=mean(empirical_variation(c, case.lengths) for c, case in zip(own, cases)),
        case_tv_floor=mean(variation_floor(case.lengths, n) for case in cases),
    )


TRIED = 1000  # draws of a sequence and numbers, before a pattern is left out


@config
class KnownLawConfig(SequencesConfig):
    "Source of sequences, patterns of their gaps, and exact answers."
    unit: str = "characters"  # words | characters
    gaps: text_type(patterns_of) = "inner, ends, two, start, end, whole"  # patterns, or names of them
    cases: str = ""  # JSON lines of cases with exact answers, for testing
    given_length: bool = False  # one mask per missing token, in place of gaps


def masked_prompt(example: Example, vocabulary: Vocabulary) -> list[str]:
    "Return the prompt of an example with a mask for each free token."
    tokens = vocabulary.decode(example.tokens)
    return [t if fixed else SPECIAL_TOKENS[MASK] for t, fixed in zip(tokens, example.fixed)][1:]


class KnownLawTask(SequencesTask):
    "Sequences with gaps of unknown length, and exact answers where their law is known."
    kind, Config = "known", KnownLawConfig

    @classmethod
    def paths(cls, values: Mapping) -> list[str]:
        return [*super().paths(values), *(["cases"] if values.get("cases") else [])]

    @cached_property
    def cases(self) -> list[Case]:
        "Cases of the file, empty without one."
        if not self.config.cases: return []
        self.access.check(f"cases={self.config.cases!r}")
        return read_cases(self.config.cases)

    def dataset(self, split: str = "train") -> Examples:
        "Return sequences with gaps. Those for testing are the cases, if there are any."
        rows = self.splits[check_split(split)]
        if split == "test" and self.cases:
            return Examples(len(self.cases), lambda i: self.encode_filled(self.cases[i].prompt, self.cases[i].fillings))
        if not rows: raise ValueError(f"the {split} split is empty: more sequences are needed")
        patterns = patterns_of(self.config.gaps)
        name, digests = Path(self.config.file).name or "sequences", self.data.digests
        identity = dict(rows=len(rows), digest=digests[split])
        source = dict(name=name, rows=sum(map(len, self.splits.values())), digest=digests[""])
        make = lambda i: self.example(rows, patterns[i % len(patterns)], random.Random(f"gaps {split} {i}"))
        return Examples(UNLIMITED if split == "train" else len(rows), make, identity, source)

    def example(self, rows: Sequence, pattern: Pattern, rng: random.Random) -> Example:
        "Draw a sequence that fits a pattern; one without a prompt if none of TRIED does."
        for _ in range(TRIED):
            tokens = rows[rng.randrange(len(rows))]
            lengths = pattern.draw(len(tokens), self.longest, rng)
            if lengths: return self.encode_filled(*pattern.cut(tokens, lengths))
        return self.encode_filled([...], [tokens])

    def encode_filled(self, prompt: Sequence, fillings: Sequence[Sequence[str]]) -> Example:
        "Encode a filled prompt; `given_length` closes all gaps."
        example = filled_example(prompt, fillings, self.vocabulary)
        return example._replace(closed=[True] * len(example.closed)) if self.config.given_length else example

    def prompts(self, split: str = "test", n: int = 8) -> list[list]:
        "Return the prompts of a split's first `n` examples."
        data = self.dataset(split)
        read = masked_prompt if self.config.given_length else prompt_of
        return [read(data[i], self.vocabulary) for i in range(min(n, len(data)))]

    def score(self, split: str, samples: Samples) -> dict[str, float]:
        "Score samples: as sequences, and with cases the lengths of their fillings (gap_tv, and that of ideal samples)."
        found = super().score(split, samples)
        if split != "test" or not self.cases or self.access.unread or self.config.given_length: return found
        cases = self.cases[:len(samples)]
        drawn = drawn_fillings(samples, [c.prompt for c in cases], self.vocabulary)
        lengths = score_lengths(cases, drawn, 1)
        return found | dict(gap_tv=lengths["length_tv"], gap_tv_floor=lengths["length_tv_floor"])

    def _restored_share(self, split: str, made: Sequence) -> dict[str, float]:
        "Return nothing: many fillings are right."
        return {}
