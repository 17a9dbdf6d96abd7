"The paper's tables on orders of molecules: generation times by kind of token, and whether structure comes first."
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from loflexmdm.molecules.notation.bracket_safe import decode
from loflexmdm.molecules.orders import CATEGORIES, TimeSummary, categories, normalised_times, summarise
from loflexmdm.process.states import Vocabulary
from loflexmdm.samplers import Samples
from loflexmdm.samplers.generation_order import generation_times, normalised_order


def sample_categories(samples: Samples, vocabulary: Vocabulary) -> list[list[str]]:
    "Classify every generated token. Prompts are left out but parsed, since a label may begin there."
    rows = [categories(vocabulary.decode(s)) for s in samples.sequences]
    return [[k for k, free in zip(row, mask) if free] for row, mask in zip(rows, samples.free)]


def category_times(
    samples: Samples, vocabulary: Vocabulary, event: str = "unmasked", scale: str = "time", slowest: float = 1.0
) -> dict[str, list[list[float]]]:
    """Group normalised generation times by kind of token. One list per molecule that has the kind: {kind: [[time, ...],
    ...]}, and "all tokens" together.

    `event` as in `generation_times`, `scale` and `slowest` as in `normalised_times` (for a model with a learned
    order, `float(method.slowest)`). ValueError without trajectories, for tokens that are not of bracket SAFE, and
    for unknown choices."""
    times = [normalised_times(row, scale, slowest) for row in generation_times(samples, event)]
    found = {k: [] for k in (*CATEGORIES, "all tokens")}
    for row, kinds in zip(times, sample_categories(samples, vocabulary), strict=True):
        for kind in set(kinds): found[kind].append([t for t, k in zip(row, kinds) if k == kind])
        if row: found["all tokens"].append(row)
    return {k: v for k, v in found.items() if v}


PAPER_TIMES = {  # Table 9: mean and standard deviation over tokens, FlexMDM then LoFlexMDM
    "ring closure": (0.71, 0.26, 0.48, 0.28),
    "fragment separator": (0.67, 0.27, 0.55, 0.18),
    "aromatic atom": (0.65, 0.26, 0.55, 0.24),
    "attachment bracket": (0.63, 0.27, 0.61, 0.19),
    "attachment label": (0.68, 0.27, 0.80, 0.24),
    "aliphatic atom": (0.68, 0.27, 0.80, 0.16),
    "bond or branch": (0.70, 0.26, 0.84, 0.15),
}


@dataclass(frozen=True)
class OrderTable:
    """Generation times by kind of token, on the paper's scale and as ranks. `ranks` do not depend on a clock (1/2
    without a preference)."""
    event: str  # inserted | unmasked
    times: dict[str, TimeSummary]  # by kind, 0 first to 1 last
    ranks: dict[str, TimeSummary]  # mean rank within molecules by kind, 0 first to 1 last

    def _repr_markdown_(self) -> str:
        head = (
            f"| kind | tokens | {self.event}: time | spread | rank | paper: FlexMDM | paper: LoFlexMDM |\n"
            "|---|---|---|---|---|---|---|\n"
        )
        row = lambda k, t, r: (
            f"| {k} | {t.tokens:,} | {t.mean:.3f} ± {t.error:.3f} | {t.deviation:.2f} | {r.mean:.3f} "
            f"± {r.error:.3f} | {paper_text(k, 0)} | {paper_text(k, 2)} |"
        )
        return head + "\n".join(row(k, self.times[k], self.ranks[k]) for k in self.times)


def paper_text(kind: str, column: int) -> str:
    "Format the paper's numbers; those of an attachment point are its bracket's and its label's."
    rows = ("attachment bracket", "attachment label") if kind == "attachment point" else (kind,)
    return ", ".join("{:.2f} ± {:.2f}".format(*PAPER_TIMES[k][column:column + 2]) for k in rows if k in PAPER_TIMES)


def order_table(samples: Samples, vocabulary: Vocabulary, event: str = "unmasked", slowest: float = 1.0) -> OrderTable:
    """Tabulate normalised time and rank by kind, beside the paper's Table 9. The paper uses `unmasked`.

    The arguments are those of `category_times`."""
    of = lambda scale: {k: summarise(v) for k, v in category_times(samples, vocabulary, event, scale, slowest).items()}
    return OrderTable(event, of("time"), of("rank"))


STRUCTURE = ("ring closure", "fragment separator")
CHEMISTRY = ("aliphatic atom", "attachment label", "bond or branch")


def structure_lead(
    samples: Samples, vocabulary: Vocabulary, event: str = "unmasked",
    early: Sequence[str] = STRUCTURE, late: Sequence[str] = CHEMISTRY,
) -> TimeSummary:
    """Compute the mean rank difference of `late` and `early` kinds, per molecule. Positive if structure comes first, 0
    without a preference.

    Molecules that lack either are ignored. ValueError for unknown kinds, or if no molecule has both."""
    if unknown := sorted(set((*early, *late)) - set(CATEGORIES)):
        raise ValueError(f"kind {unknown[0]!r}: choose from {', '.join(CATEGORIES)}")
    leads = []
    for times, kinds in zip(generation_times(samples, event), sample_categories(samples, vocabulary), strict=True):
        first, last = ([o for o, k in zip(normalised_order(times), kinds) if k in group] for group in (early, late))
        if first and last: leads.append([float(np.mean(last) - np.mean(first))])
    return summarise(leads)


def keep(samples: Samples, which: Iterable[bool]) -> Samples:
    """Select samples with their trajectories. Counters remain those of the complete run.

    ValueError if numbers differ."""
    which = [bool(w) for w in which]
    if len(which) != len(samples): raise ValueError(f"which: {len(which)} for {len(samples)} samples")
    pick = lambda rows: rows if rows is None else [r for r, w in zip(rows, which) if w]
    return Samples(
        pick(samples.sequences), pick(samples.free), samples.network_calls, samples.row_evaluations,
        samples.overflow, samples.overflowing, samples.violations, samples.forced,
        trajectories=pick(samples.trajectories),
    )


def decodable(samples: Samples, vocabulary: Vocabulary) -> list[bool]:
    """Return the mask of samples that decode strictly to one molecule. Every attachment is paired and every valence
    correct."""
    smiles = [decode("".join(vocabulary.decode(s))).smiles for s in samples.sequences]
    return [s is not None and s != "" and "." not in s for s in smiles]
