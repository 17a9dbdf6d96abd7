"""Hypothesis strategies of what the package works on: vocabularies, sequences, batches, states, schedules, laws,
recipes, bracket SAFE texts.

LOFLEXMDM_FUZZ is the number of examples of each property (`make fuzz`); without it there are few, always the same."""
import os

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from loflexmdm.process.states import CLEAN, DROPPED, MASKED, SPECIAL_TOKENS, Example, Vocabulary
from loflexmdm.process.states import collate, prefix_example

EXAMPLES = int(os.environ.get("LOFLEXMDM_FUZZ", "0"))
slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("quick", max_examples=25, derandomize=True, deadline=None, database=None,
                          suppress_health_check=slow)
settings.register_profile("fuzz", max_examples=max(EXAMPLES, 1), deadline=None, suppress_health_check=slow)
settings.load_profile("fuzz" if EXAMPLES else "quick")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tokens = texts.filter(lambda t: t not in SPECIAL_TOKENS and t != "<any>")
vocabularies = st.lists(tokens, min_size=1, max_size=6, unique=True).map(Vocabulary)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12,
)
WORDS = Vocabulary("abcd")
words = st.lists(st.sampled_from("abcd"), max_size=7)


@st.composite
def examples(draw) -> Example:
    "A clean sequence after a prefix that is given."
    return prefix_example(draw(st.lists(st.sampled_from("abcd"), max_size=3)), draw(words), WORDS)


batches = st.lists(examples(), min_size=1, max_size=5).map(collate)


@st.composite
def batches_with_states(draw):
    "Clean sequences, and for each column whether it is dropped, masked or clean; given columns are clean."
    x1 = draw(batches)
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    state = torch.tensor([DROPPED, MASKED, CLEAN])[torch.randint(3, x1.tokens.shape, generator=rng)]
    return x1, torch.where(x1.fixed, CLEAN, state)


positive = st.floats(1e-3, 1e3)
clocks = st.sampled_from(["linear", "cosine", "geometric"]) | st.builds(
    "{}:{}".format, st.sampled_from(["polynomial", "power"]), st.floats(0.05, 20)
) | st.builds("shifted:{}".format, st.floats(1e-6, 0.4))


@st.composite
def laws(draw) -> dict:
    "A distribution over a few outcomes."
    weights = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    return {i: w / sum(weights) for i, w in enumerate(weights)}


recipes = st.fixed_dictionaries(
    dict(task=st.fixed_dictionaries(dict(kind=st.just("brackets")), optional=dict(max_pairs=st.integers(1, 64),
                                                                                kinds=st.integers(1, 3)))),
    optional=dict(
        model=st.fixed_dictionaries({}, optional=dict(method=st.sampled_from(["flexmdm", "mdm", "loflexmdm"]),
                                                      size=st.sampled_from(["nano", "tiny"]))),
        train=st.fixed_dictionaries({}, optional=dict(steps=st.integers(1, 10**9), lr=st.floats(1e-9, 1e6),
                                                      seed=st.integers(0, 2**63), clip=positive)),
    ),
)

PARTS = ["C", "c1ccccc1", "N", "O", "(", ")", "=", "#", ".", "<1>", "<2>", "<%10>", "<%100>", "1", "%12", "[C@@H]", "*",
         "[nH]", "Cl", "/", "\\", "<", ">", "%(123)", "F"]
bracket_texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | texts
GROUPS = ["C", "CC", "N", "O", "C(C)", "C(=O)N", "c1ccccc1", "C(F)", "C1CCCC1", "S(=O)(=O)", "[C@@H](N)", "C=C"]
smiles = st.lists(st.sampled_from(GROUPS), min_size=1, max_size=7).map("".join)
