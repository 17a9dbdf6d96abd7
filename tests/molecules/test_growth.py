"Growing from left to right: where a fragment is cut, when a substituent is over, and what the packaged model makes."
import math
import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rdkit import Chem

from loflexmdm import load
from loflexmdm.molecules.growth import LINKERS, PLACES, WAYS, Growth, _canonical, _join, _sides, canonical_parts, grow
from loflexmdm.molecules.growth import Growths, growth_of, likely_prompts
from loflexmdm.molecules.growth import all_links, grows_rightwards, spellings, superstructure_points, within_branches
from loflexmdm.molecules.notation.fragments import contains_fragment
from loflexmdm.molecules.notation.notations import smiles_prompts, symbols
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.process.states import BOS, Example, Vocabulary, collate, prefix_example
from loflexmdm.support.saved_files import names

FRAGMENTS = {  # with a methyl group at the point
    "*c1ccncc1": "Cc1ccncc1", "*C(=O)Nc1ccc(Cl)cc1": "CC(=O)Nc1ccc(Cl)cc1", "*N1CCOCC1": "CN1CCOCC1", "*OCC": "COCC",
    "*=C1CCNCC1": "C=C1CCNCC1",
    "*n1c(C)ccc1C": "Cn1c(C)ccc1C",
    "*CC1CN(C)CC(Cc2ccccc2)C1=O": "CCC1CN(C)CC(Cc2ccccc2)C1=O",
    "*c1nonc1-c1ccc2c(c1)OCO2": "Cc1nonc1-c1ccc2c(c1)OCO2",
    "*[N+](C)(C)C": "C[N+](C)(C)C", "C1CC2CCC1N2*": "C1CC2CCC1N2C",
}
SEVERAL = {
    "*c1ccc(*)cc1": "Cc1ccc(C)cc1", "*n1cc(*)nc1*": "Cn1cc(C)nc1C", "*C(*)(*)O": "CC(C)(C)O", "*N(*)CC*": "CN(C)CCC",
    "*=C1CN(*)C1": "CN1CC(=C)C1", "*C*": "CCC", "*c1cc(*)c2c(*)cccc2c1": "Cc1cc(C)c2c(C)cccc2c1",
}
packaged = pytest.mark.skipif("molecules-moses-ar" not in names(), reason="the package holds no such model")


@pytest.mark.parametrize("fragment, whole", (FRAGMENTS | SEVERAL).items())
def test_substituents_between_the_parts_are_at_the_points(fragment, whole):
    parts = canonical_parts(fragment)
    assert len(parts) == fragment.count("*") + 1
    assert Chem.CanonSmiles("C".join(map("".join, parts))) == Chem.CanonSmiles(whole)
    assert all(part[0] == ")" for part in parts[1:-1]) and parts[-1][:1] in ([], [")"])


@pytest.mark.parametrize("fragment", ["c1ccccc1", "*CC.*CC", "x", "*"])
def test_what_is_not_a_fragment_with_points_is_refused(fragment):
    with pytest.raises(ValueError): canonical_parts(fragment)


@pytest.mark.parametrize("other, side, ways", [
    ("*C1CC1", "CN", {"NC(c1ccncc1)C1CC1", "c1cc(CNC2CC2)ccn1"}), ("*C", "C#N", set()),
    ("*=O", "CN", {"NC(=O)c1ccncc1", "O=NCc1ccncc1"}), ("*n1ccnc1", "C(F)F", {"FC(F)(c1ccncc1)n1ccnc1"}),
])
def test_another_fragment_hangs_on_what_was_grown(other, side, ways):
    parts = canonical_parts("*c1ccncc1")
    found = all_links(side.join(map("".join, parts)), parts, other)
    assert set(found) == set(map(Chem.CanonSmiles, ways))


def test_an_atom_that_gives_its_explicit_hydrogen_has_none_left():
    methylated = "Cc1c(C)[nH]cc1", "Cc1c[nH]cc1C", "Cc1cn(C)cc1", "Cc1c[nH]c(C)c1"
    assert all_links("Cc1c[nH]cc1", [["C"], []], "*C") == sorted(map(Chem.CanonSmiles, methylated))


VOCABULARY = Vocabulary(["c", "C", "=", "1", "(", ")"])
LAW = {"C": 0.3, "=": 0.1, "1": 0.2, ")": 0.3, "end": 0.1}


def law_after(written: str, *behind: str, prompt: str = "c1ccc(") -> dict[str, float]:
    "What may come after a prompt and some tokens, where the model's own law is LAW."
    outcomes = [*VOCABULARY.tokens, "end"]
    logits = torch.full((1, 1, len(outcomes)), -torch.inf, dtype=torch.float64)
    for k, p in LAW.items(): logits[..., outcomes.index(k)] = math.log(p)
    tokens, n = [BOS, *VOCABULARY.encode([*prompt, *written])], len(prompt)
    x = collate([Example(tokens, [i <= n for i in range(len(tokens))], [i < n for i in range(len(tokens))])])
    found = within_branches(VOCABULARY, *behind)(logits, x, None).softmax(-1)[0, 0].tolist()
    return {k: round(p, 9) for k, p in zip(outcomes, found) if p}


@pytest.mark.parametrize("written, behind, law", [
    ("", "", {"C": 1.0}), ("C", "", {"C": 0.375, "=": 0.125, "end": 0.5}),
    ("C(C", "", {"C": 0.375, "=": 0.125, ")": 0.375, "end": 0.125}),
    ("C(C)", "", {"C": 0.375, "=": 0.125, "end": 0.5}), ("", ")cc1", {"C": 1.0}),
    ("C", ")cc1", {"C": 0.375, "=": 0.125, ")": 0.5}),
    ("C)", ")cc1", {"c": 1.0}), ("C)c", ")cc1", {"c": 1.0}), ("C)cc", ")cc1", {"1": 1.0}),
    ("C)cc1", ")cc1", {"end": 1.0}),
    ("C)C(C)", ")C(C)c1", {"c": 1.0}),
])
def test_the_end_and_a_closing_parenthesis_are_one_event(written, behind, law): assert law_after(written, behind) == law


EITHER = {"C": 0.375, "=": 0.125, ")": 0.5}


@pytest.mark.parametrize("written, law", {
    "": {"C": 1.0}, "C": EITHER, "C)": {"c": 1.0}, "C)cc": {"(": 1.0}, "C)cc(": {"C": 1.0}, "C(C)CC)cc(C": EITHER,
    "C)cc(C(C": {"C": 0.375, "=": 0.125, ")": 0.375, "end": 0.125}, "C)cc(C)": {"c": 1.0}, "C)cc(C)c": {"1": 1.0},
    "C)cc(C)c1": {"end": 1.0},
}.items())
def test_parts_and_substituents_come_in_turn(written, law):
    assert law_after(written, ")cc(", ")c1", prompt="c1cc(") == law


def test_a_ring_that_a_part_opens_stays_open_and_one_that_it_closes_does_not():
    law = {"C": 0.3, "=": 0.1, "1": 0.2, "end": 0.4}
    assert law_after("C)1CCC1(C", ")1CCC1(", "", prompt="C(") == law
    assert law_after("C)1CCC(C", ")1CCC(", ")1", prompt="C(") == EITHER


def test_a_substituent_closes_its_own_rings_before_it_ends():
    open_ring, closed = (law_after(text, ")", prompt="C(") for text in ("C1", "C1C1"))
    assert open_ring == {"C": 0.5, "=": round(0.1 / 0.6, 9), "1": round(0.2 / 0.6, 9)}
    assert closed == {"C": 0.3, "=": 0.1, "1": 0.2, ")": 0.4}


def test_rows_of_a_batch_that_are_at_different_places():
    texts = ["C", "C)cc(", "C)cc(C", "C)cc(C)c1"]
    tokens = [[BOS, *VOCABULARY.encode([*"c1cc(", *text])] for text in texts]
    x = collate([Example(t, [i <= 5 for i in range(len(t))], [i < 5 for i in range(len(t))]) for t in tokens])
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(texts), 1, len(VOCABULARY) + 1, dtype=torch.float64, generator=generator)
    hook = within_branches(VOCABULARY, ")cc(", ")c1")
    alone = [hook(logits[i:i + 1], x.rows(torch.tensor([i])), None) for i in range(len(texts))]
    torch.testing.assert_close(hook(logits, x, None), torch.cat(alone))


@packaged
@pytest.mark.slow
def test_the_packaged_model_grows_fragments_of_which_prompts_at_the_end_make_little():
    model = load("molecules-moses-ar")
    fragment = "*C(=O)Nc1ccc(Cl)cc1"
    tokens = ["c", "1", "c", "c", "(", "Cl", ")", "c", "c", "c", "1", *"NC(=O)"]
    found = grow(model, [fragment] * 40)
    assert sum(contains_fragment(s, fragment) for s in found if s) >= 28
    assert sum(s is not None for s in model.sample([[*tokens, ...]] * 40, seed=0).smiles) < 10
    assert grow(model, [fragment, "*[Si](C)(C)C", "CC", "x", "*C*.*C", "*" + "C" * 80])[1:] == [None] * 5
    pairs = grow(model, ["*[Si](C)(C)C.*c1ccccc1", "*c1ccccc1.*[Si](C)(C)C"] * 10)  # the other side grows
    assert pairs.count(None) < 5 and all("[Si]" in text for text in pairs if text)
    assert not grows_rightwards(load("molecules").method) and grow(model, []) == []


@packaged
@pytest.mark.parametrize("fragment", [f"*c1ccc({'C' * 46}*)cc1", f"*{'C' * 56}"])
def test_what_is_cut_off_at_the_largest_length_is_no_molecule(fragment):
    model = load("molecules-moses-ar")
    found = grow(model, [fragment] * 40, tried=False)
    whole = [text for text in found if text]
    assert 0 < len(whole) < 40 and max(len(symbols(text)) for text in whole) < model.config.max_length - 1
    assert all(contains_fragment(j.smiles, fragment) for j in judge(whole) if j.smiles)


@packaged
@pytest.mark.parametrize("fragment", ["*c1ccc(*)cc1", "*c1ccncc1.*C1CC1", "*c1cc(*)cc(*)c1"])
@pytest.mark.slow
def test_the_packaged_model_grows_all_points_and_links(fragment):
    model = load("molecules-moses-ar")
    found = grow(model, [fragment, "*CC"] * 30)
    assert sum(contains_fragment(s, fragment) for s in found[::2] if s) > 15 and len(set(found[::2])) > 20
    assert grow(model, [fragment, "*CC"] * 4, batch_size=3) == grow(model, [fragment, "*CC"] * 4)
    assert sum(contains_fragment(s, fragment) for s in grow(model, [fragment] * 30, temperature=3.0) if s) < 10


@pytest.mark.slow
@packaged
def test_a_prompt_with_several_points_is_grown_by_sample():
    fragment = "*c1ccc(*)cc1"
    found = load("molecules-moses-ar").sample(fragment, n=30, seed=0).smiles
    assert sum(contains_fragment(s, fragment) for s in found if s) > 15


@packaged
def test_either_side_of_a_pair_grows_and_the_other_hangs_anywhere_on_what_has_grown():
    model, pair, draws = load("molecules-moses-ar"), "*c1ccncc1.*C1CC1", [random.Random(seed) for seed in range(30)]
    others = [_sides(pair, rng, partial(_canonical, model.method))[1] for rng in draws]
    assert {Chem.CanonSmiles(other) for other in others} == {"*C1CC1", "*c1ccncc1"} and 5 < others.count(others[0]) < 25
    parts = canonical_parts("*c1ccncc1")
    text = "CNCO".join(map("".join, parts))
    assert {_join(text, parts, "*C1CC1", rng) for rng in draws} == set(all_links(text, parts, "*C1CC1"))


@pytest.mark.slow
def test_several_texts_are_each_grown_at_their_points():
    model, texts = load("molecules-moses-ar"), ["*c1ccc(Cl)cc1", "*c1ccncc1", "*N1CCOCC1"]
    together, generator = model.sample(texts, n=10, seed=4, unique=False), torch.Generator().manual_seed(4)
    alone = [model.sample(text, n=10, generator=generator, unique=False) for text in texts]
    assert together.sequences == [ids for part in alone for ids in part.sequences]
    for text, part in zip(texts, alone):
        valid = [s for s in part.smiles if s]
        assert len(valid) >= 6 and all(contains_fragment(s, text) for s in valid)
    tokens = list(model.task.prompt(texts[1]))
    mixed = model.sample([tokens, texts[0]], n=2, seed=4)
    assert len(mixed) == 4 and mixed.sequences[:2] == model.sample([tokens], n=2, seed=4).sequences


def share_kept(found, fragment: str) -> float:
    "The share of SMILES, None among them, that contain the fragment."
    return sum(contains_fragment(s, fragment) for s in found if s) / len(found)


@packaged
@pytest.mark.parametrize("fragment", ["*c1ccc(N2CCOCC2)cc1", "*N1CCN(c2ccccc2)CC1", "*c1nonc1C", "*c1cccc2nonc12"])
@pytest.mark.slow
def test_a_fragment_grows_from_a_spelling_that_the_model_continues_well(fragment):
    model = load("molecules-moses-ar")
    assert share_kept(grow(model, [fragment] * 50, seed=3), fragment) >= 0.8
    assert share_kept(model.sample(fragment, n=50, seed=3).smiles, fragment) >= 0.8


@packaged
def test_the_prompt_of_a_text_is_continued_as_the_text_is():
    model, text = load("molecules-moses-ar"), "*N1CCN(C)CC1"
    prompt = model.task.prompt(text)
    wanted = model.sample(text, n=20, seed=1).sequences
    assert model.sample([prompt], n=20, seed=1).sequences == model.sample([model.prompt(text)], n=20, seed=1).sequences
    assert model.sample([prompt], n=20, seed=1).sequences == wanted

    # tokens that somebody has changed are tokens
    assert model.sample([list(prompt)], n=20, seed=1).sequences != wanted
    prompt[-1:] = ["C", ...]
    changed = model.sample([prompt], n=4, seed=1)
    assert all(model.vocabulary.decode(s)[:len(prompt) - 1] == prompt[:-1] for s in changed.sequences)


@pytest.mark.parametrize("fragment, whole", (FRAGMENTS | SEVERAL).items())
def test_each_spelling_says_the_same_fragment(fragment, whole):
    ways = spellings(fragment)
    texts = {Chem.CanonSmiles("C".join(map("".join, parts))) for parts in ways}
    assert texts == {Chem.CanonSmiles(whole)} and ways[0] == canonical_parts(fragment)
    assert len({str(parts) for parts in ways}) == len(ways) > 1 or fragment == "*C*"


@packaged
@pytest.mark.parametrize("text, least", [
    ("*N1CCOCC1.*c1ccc2c(c1)OCCO2", 24), ("*c1ccc(*)cc1", 20), ("c1ccc2[nH]ccc2c1", 20),
])
@pytest.mark.slow
def test_one_text_links_decorates_or_makes_a_superstructure(text, least):
    model = load("molecules-moses-ar")
    samples = model.sample(text, n=30, seed=2, unique=False)
    assert len(samples) == 30 and sum(contains_fragment(s, text) for s in samples.smiles if s) >= least
    assert not any(s and not contains_fragment(s, text) for s in samples.smiles)
    again = [s for part in model.sample_batches(text, n=30, seed=2, batch_size=7, unique=False) for s in part.sequences]
    assert again == samples.sequences
    assert [r["state"] for r in model.task.describe(samples, text)].count("valid") >= least


@packaged
def test_a_prompt_that_is_accepted_does_not_fail_later():
    model = load("molecules-moses-ar")
    for text, message in {
        "CC...CC": "can only be at the end", "CC.CC": "has no attachment point", "*CC.*C*": "each has one point",
        "*[Si](C)(C)C": "lacks", "*" + "C" * 80: "has 80 atoms", "*CC.*CC.*CC": "2 fragments",
        "C(F)(F)(F)F": "no hydrogen",
    }.items():
        with pytest.raises(ValueError, match=message): model.sample(text, n=2)
        with pytest.raises(ValueError, match=message): model.task.prompts_for(text, model.method, 2)
    assert len(model.sample("CC...", n=2, seed=0)) == 2


def test_places_of_a_superstructure():
    assert superstructure_points("c1ccccc1") == ["*c1ccccc1"]
    found = superstructure_points("Cc1ccc2[nH]ccc2c1O")
    assert len(set(found)) == PLACES and found == superstructure_points("Cc1ccc2[nH]ccc2c1O")
    assert all(Chem.CanonSmiles(f.replace("*", "[H]")) == Chem.CanonSmiles("Cc1ccc2[nH]ccc2c1O") for f in found)


@pytest.mark.slow
@packaged
def test_a_growth_of_two_fragments_never_gives_one_of_them_alone():
    growth = growth_of(load("molecules-moses-ar").method, "*N1CCOCC1.*c1ccccc1")
    assert growth.other in ("*N1CCOCC1", "*c1ccccc1") and f"then linked to {growth.other}" in growth.description


class Expects(torch.nn.Module):
    "Expects parts between ends where the text begins with a letter: -log p is the place of the letter among some."
    vocabulary = Vocabulary("CNOcn1()=")
    config = SimpleNamespace(max_length=40)

    def __init__(self, letters: str):
        super().__init__()
        self.letters, self.weight, self.rows = letters, torch.nn.Parameter(torch.zeros(1)), 0

    def nll_bound(self, x, states, generator):
        self.rows += len(x.tokens)
        texts = [self.vocabulary.decode(row.tolist()) for row in x.tokens]
        first = [next(t for t in text if t in self.letters) for text in texts]
        return torch.tensor([float(self.letters.index(letter)) for letter in first]), None


@pytest.mark.parametrize("letters", ["cOC", "COc", "Occ"])
def test_a_model_that_inserts_gets_the_prompt_in_which_it_expects_common_parts(letters):
    "The most likely come first; a condition, here N, is not of the molecule."
    ways = [["N", *prompt] for prompt in smiles_prompts("*Cc1ccccn1.*CO")]
    method = Expects("".join(dict.fromkeys(letters + "cOCn")))
    found = likely_prompts(method, ways, LINKERS, 3)
    starts = [prompt[1] for prompt in found]
    assert len(found) == 3 and starts == sorted(starts, key=method.letters.index)
    assert starts[0] == next(letter for letter in method.letters if any(way[1] == letter for way in ways))
    known = [part for part in LINKERS if {*symbols(part)} <= {*method.vocabulary.tokens}]
    assert method.rows == min(len(ways), WAYS) * len(known)


def test_a_prompt_without_room_for_a_part_comes_last():
    method = Expects("CO")
    method.config = SimpleNamespace(max_length=7)
    assert likely_prompts(method, [["C", "C", "C", "C", "C", ...], ["O", ...]], ["C", "CC"]) == [["O", ...]]


@pytest.mark.parametrize("channels, task, grows", [
    (("append",), dict(notation="smiles"), True), (("append",), dict(notation="bracket-safe"), False),
    (("append",), None, False), (("insert",), dict(notation="smiles"), False),
])
def test_who_grows_rightwards(channels, task, grows):
    assert grows_rightwards(SimpleNamespace(channels=channels, task=task)) == grows


def test_a_growth_is_shown_without_the_weights_of_its_model():
    grown = Growth("the weights", (("C", "C"), ("O",)))
    assert "weights" not in repr(grown) and "('C', 'C')" in repr(grown) and grown.prompt == ["C", "C", ...]


def test_a_growth_sees_the_rows_of_its_own_prompt():
    "Not those of a longer prompt that begins alike, or of a shorter one that goes on like it."
    letters, seen = Vocabulary("CNO"), []

    class Grown:
        method, parts = SimpleNamespace(vocabulary=SimpleNamespace(encode=letters.encode)), ("CN",)

        def __call__(self, logits, x, tau):
            seen.append(x.tokens.tolist())
            return logits + 1

    rows = [("CN", "O"), ("CNO", ""), ("C", "NO"), ("CO", "N"), ("CN", "C")]
    x = collate([prefix_example(prompt, rest, letters) for prompt, rest in rows])
    out = Growths([Grown()])(torch.zeros(5, 4), x, None)
    assert out[:, 0].tolist() == [1, 0, 0, 0, 1] and seen == [x.tokens[[0, 4]].tolist()]
