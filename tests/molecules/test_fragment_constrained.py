"Sampling from fragment prompts with a real method, and the figures of the table."
import math

import pytest
import torch

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.model import Model
from loflexmdm.molecules.notation.bracket_safe import label, tokenize, vocabulary_of
from loflexmdm.molecules.notation.fragments import FragmentCase, demo_cases
from loflexmdm.molecules.scores.fragment_constrained import fragment_row, fragment_table
from loflexmdm.molecules.scores.fragment_constrained import grow_fragments, judge_fragments
from loflexmdm.molecules.scores.fragment_constrained import sample_fragments, usable_cases
from loflexmdm.samplers import TauLeaping

CASES = [FragmentCase("a", "motif_extension", "*c1ccccc1", "Cc1ccccc1"), FragmentCase("b", "linker_design", "*CO.*CN")]


def untrained(max_length=24):
    vocabulary = vocabulary_of(["CON=().c1", *map(label, range(1, 4))])
    torch.manual_seed(0)
    return Model(LoFlexMDM(vocabulary, LoFlexMDMConfig(size="nano", max_length=max_length)))


def test_any_method():
    method, options = untrained(), dict(sampler=TauLeaping(steps=8))
    first, second = (
        sample_fragments(method, CASES, 3, generator=torch.Generator().manual_seed(1), batch_size=b, **options)
        for b in (512, 2)
    )
    assert [r.texts for r in first] == [r.texts for r in second]
    for case, result in zip(CASES, first, strict=True):
        assert result.case is case and len(result.texts) == 3 and all(t.startswith(case.prompt()) for t in result.texts)
    table = fragment_table(first)
    assert [r["n"] for r in table.rows] == [3, 3]
    assert [m["task"] for m in table.means] == ["linker_design", "motif_extension"]
    assert "linker design | a" not in table._repr_markdown_() and "motif extension | a" in table._repr_markdown_()


def test_refusals():
    method = untrained()
    with pytest.raises(ValueError, match="c, motif_extension: .*lacks Br"):
        sample_fragments(method, [FragmentCase("c", "motif_extension", "*CBr")])
    with pytest.raises(ValueError, match="cases"): sample_fragments(method, [])
    with pytest.raises(ValueError, match="results"): fragment_table([])
    with pytest.raises(ValueError, match="does not begin"): judge_fragments(CASES[0], CASES[0].prompt(), ["CC"])
    usable, refused = usable_cases(untrained(max_length=len(tokenize(CASES[0].prompt())) + 1), CASES)
    assert usable == CASES[1:] and "no room: max_length" in refused[0][1]
    assert len(usable_cases(method, demo_cases())[1]) > 10


def test_figures_by_hand():
    prompt = CASES[0].prompt()
    row = fragment_row(
        judge_fragments(CASES[0], prompt, [prompt + s for s in ("C<1>", "C<1>", "CC<1>", "C<1>.C", "C", "CO<1>")])
    )
    assert row["decodable"] == 5 / 6 and row["kept"] == 1 and row["validity"] == 4 / 6 and row["uniqueness"] == 3 / 4
    assert 0 < row["distance"] < 1 and 0 < row["diversity"] < 1  # toluene itself is one of the three
    lost = fragment_row(judge_fragments(FragmentCase("e", "motif_extension", "*CO"), "OC<1>.", ["OC<1>.C=<1>"] * 2))
    assert lost["decodable"] == 1
    assert lost["kept"] == lost["validity"] == 0
    assert math.isnan(lost["uniqueness"])
    assert math.isnan(lost["distance"])


def test_means_leave_out_what_is_undefined():
    good, bad = (
        judge_fragments(CASES[0], "c1ccc<1>cc1.", ["c1ccc<1>cc1.C<1>"]),
        judge_fragments(CASES[0], "c1ccc<1>cc1.", ["c1ccc<1>cc1."]),
    )
    mean = fragment_table([good, bad]).means[0]
    assert mean["drugs"] == 2 and mean["validity"] == 0.5 and mean["uniqueness"] == 1 and math.isnan(mean["diversity"])


def test_every_case_is_grown_as_often_as_asked(monkeypatch):
    asked = []
    def grow(method, fragments, seed, **options):
        asked.append((method, fragments, seed, options))
        return ["Cc1ccccc1", None, "COCCN", "C1"]
    monkeypatch.setattr("loflexmdm.molecules.scores.fragment_constrained.grow", grow)
    found = grow_fragments("model", CASES, n=2, seed=3, tried=False)
    assert asked == [("model", [CASES[0].fragment] * 2 + [CASES[1].fragment] * 2, 3, dict(tried=False))]
    assert [one.case for one in found] == CASES
    with pytest.raises(ValueError, match="at least one is needed"): grow_fragments("model", [])
