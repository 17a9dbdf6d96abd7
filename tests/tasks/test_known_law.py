"Gaps with a known law: patterns, cases by enumeration, and the scoring of exact and wrong entrants."
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from loflexmdm.methods.fill_in_the_middle import FillInTheMiddle, FillInTheMiddleConfig
from loflexmdm.process.states import Vocabulary, collate, filled_example
from loflexmdm.samplers import Samples
from loflexmdm.tasks.base import check_prompts, task_from

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from known_law import (  # noqa: E402
    PATTERNS, Case, KnownLawConfig, KnownLawTask, LawEntrant, ListedLaw, MethodEntrant, Pattern, drawn_fillings,
    filled_prompt, read_cases, score_cases, splits, write_cases,
)

STRINGS = {"aab": 0.3, "ab": 0.2, "abb": 0.15, "abab": 0.15, "aabb": 0.1, "abbab": 0.1}
LAW = ListedLaw(STRINGS)
TEXTS = [s for s, p in STRINGS.items() for _ in range(round(20 * p))]
KINDS = ("1-2 ... 1", "1 ... 1 ...", "...")


@pytest.mark.parametrize("text", ["1-x ...", "4", "", "... ..x", "3-1 ...", "inner2"])
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(ValueError, match="gaps="): Pattern.of(text)
    with pytest.raises(ValueError, match="gaps="): KnownLawConfig(gaps=text or "4")


@pytest.mark.parametrize("text", [*PATTERNS, "1-3 ... 2 ... 0-1"])
def test_lengths_of_a_pattern_are_in_their_ranges(text):
    pattern, rng, drawn = Pattern.of(text), random.Random(0), []
    for n in range(8, 20):
        for _ in range(200):
            lengths = pattern.draw(n, 12, rng)
            if lengths is None: continue
            drawn.append(lengths)
            assert sum(lengths) == n and all(k >= 0 for k in lengths)
            assert all(part is None or part[0] <= k <= part[1] for part, k in zip(pattern.parts, lengths))
            tokens = [str(k) for k in range(n)]
            prompt, fillings = pattern.cut(tokens, lengths)
            assert filled_prompt(prompt, fillings) == tokens and prompt.count(...) == len(fillings)
    assert drawn


def test_prompts_are_tied_to_no_length():
    "Of all prompts a...b, each string that fits has its share: the sequence is drawn again as well."
    found = Counter()
    for case in LAW.cases("0-3 ... 1", 6000, seed=1):
        if case.prompt == ["a", ..., "b"]: found["".join(case.fillings[0])] += 1
    exact = {"".join(f[0]): p for f, p in LAW.conditional(["a", ..., "b"]).items()}
    total = found.total()
    assert set(found) == set(exact) and total > 1000
    for filling, p in exact.items(): assert abs(found[filling] - total * p) < 4.5 * (total * p * (1 - p)) ** 0.5


def test_cases_have_their_exact_probabilities():
    for case in LAW.cases("1 ... 1 ...", 30):
        law = LAW.conditional(case.prompt)
        assert sum(law.values()) == pytest.approx(1) == sum(case.lengths.values())
        assert case.log_p == pytest.approx(math.log(law[tuple(map(tuple, case.fillings))]))
        assert all(tuple(map(tuple, f)) in splits(case.prompt, filled_prompt(case.prompt, f)) for f in law)
    with pytest.raises(ValueError, match="fits none"): LAW.cases("9 ... 9", 2)


def test_the_exact_law_has_no_divergence_and_ideal_lengths():
    cases = [c for kind in KINDS for c in LAW.cases(kind, 100)]
    found = score_cases(LawEntrant(LAW), cases, 30, possible=LAW.possible)
    assert abs(found["kl"]) < 1e-12 and found["impossible"] == 0 and found["nll"] > 0.5
    assert found["length_tv"] < 2.5 * found["length_tv_floor"]
    assert abs(found["case_tv"] - found["case_tv_floor"]) < 0.1 * found["case_tv_floor"]


def test_a_wrong_law_has_the_divergence_of_enumeration():
    wrong = ListedLaw({s: p * len(s) ** 2 for s, p in STRINGS.items()} | {"aaab": 0.5})
    cases = [c for kind in KINDS for c in LAW.cases(kind, 300)]
    found = score_cases(LawEntrant(wrong), cases, 20, possible=LAW.possible)
    laws = [(LAW.conditional(c.prompt), wrong.conditional(c.prompt)) for c in cases]
    expected = sum(sum(p * math.log(p / q[f]) for f, p in law.items()) for law, q in laws) / len(cases)
    assert abs(found["kl"] - expected) < 4 * found["kl_se"] < expected
    assert found["length_tv"] > 3 * found["length_tv_floor"] and found["impossible"] > 0.01
    with pytest.raises(ValueError, match="at least one"): score_cases(LawEntrant(LAW), [])


def test_a_method_is_scored_by_its_own_likelihood():
    torch.manual_seed(0)
    model = FillInTheMiddle(Vocabulary("ab"), FillInTheMiddleConfig(size="nano", max_length=12, gaps=2)).eval()
    cases = LAW.cases("1 ... 1 ...", 6)
    found = score_cases(MethodEntrant(model), cases, 4)
    own = [-model.log_prob(collated(c)).item() for c in cases]
    assert found["nll"] == pytest.approx(sum(own) / 6, abs=1e-5)
    assert found["kl"] == pytest.approx(sum(n + c.log_p for n, c in zip(own, cases)) / 6, abs=1e-5)


def collated(case):
    return collate([filled_example(case.prompt, case.fillings, Vocabulary("ab"))])


def test_fillings_are_read_from_samples():
    vocabulary = Vocabulary("ab")
    for fillings in (["ab", "b"], ["", ""], ["b", ""]):
        example = filled_example(["a", ..., "b", ...], fillings, vocabulary)
        samples = Samples([example.tokens[1:]], [[not f for f in example.fixed[1:]]])
        assert drawn_fillings(samples, [["a", ..., "b", ...]], vocabulary) == [tuple(map(tuple, fillings))]


def test_cases_are_written_and_read(tmp_path):
    cases, path = LAW.cases("1 ... 1", 3), tmp_path / "cases.jsonl"
    write_cases(path, cases)
    assert read_cases(path) == cases
    path.write_text("no json\n")
    with pytest.raises(ValueError, match="line 1: not valid JSON"): read_cases(path)
    with pytest.raises(ValueError, match="expected"): Case.of(dict(kind="x"))


def test_a_task_with_cases_is_judged_by_them(tmp_path):
    cases, path = LAW.cases("1 ... 1", 200), tmp_path / "cases.jsonl"
    write_cases(path, cases)
    config = KnownLawConfig(gaps="1 ... 1", cases=str(path), valid_share=0.0, test_share=0.0)
    task = KnownLawTask(config, TEXTS)
    check_prompts(task)
    check_prompts(task, "train")
    drawn = LawEntrant(LAW).draw([c.prompt for c in cases], 1, 0)
    examples = [filled_example(c.prompt, f, task.vocabulary) for c, f in zip(cases, drawn)]
    samples = Samples([e.tokens[1:] for e in examples], [[not f for f in e.fixed[1:]] for e in examples])
    scores = task.score("test", samples)
    assert scores["gap_tv"] < 3 * scores["gap_tv_floor"] and "restored" not in scores


def test_a_saved_models_task_reads_cases_only_when_it_may(tmp_path):
    path, data = tmp_path / "cases.jsonl", tmp_path / "data.csv"
    write_cases(path, LAW.cases("1 ... 1", 2))
    data.write_text("sequence,log_p\n" + "\n".join(f"{s},0" for s in TEXTS))
    values = dict(kind="known", file=str(data), column="sequence", cases=str(path), gaps="1 ... 1")
    assert KnownLawTask.paths(values) == ["file", "cases"]
    task = task_from(values, Vocabulary("ab"), data=False)
    with pytest.raises(ValueError, match="task-data"): task.dataset("test")
    assert len(task.with_data().cases) == 2 and len(task.dataset("test")) == 2


def test_a_pattern_that_fits_nothing_leaves_the_sequence_whole():
    task = KnownLawTask(KnownLawConfig(gaps="50 ...", valid_share=0.0, test_share=0.0), ["ab", "ba"])
    assert task.dataset("train")[0].fixed == [True, False, False]


def test_given_lengths_are_masks():
    config = KnownLawConfig(gaps="1 ... 1 ...", given_length=True, valid_share=0.0, test_share=0.0)
    task = KnownLawTask(config, TEXTS)
    data, prompts = task.dataset("train"), task.prompts("train", 20)
    assert all(all(data[i].closed) for i in range(20)) and all(... not in p for p in prompts)
    assert [p.count("<mask>") for p in prompts] == [data[i].fixed.count(False) for i in range(20)]


def test_seconds_of_an_entrant_are_those_of_its_draws():
    case = Case("a", [..., "b"], [[]], 0.0, {0: 1.0})
    entrant = SimpleNamespace(
        nll=lambda cases: torch.zeros(len(cases), dtype=torch.float64), draw=lambda prompts, n, seed: [[[]], [[]]]
    )
    before = time.process_time()
    found = score_cases(entrant, [case, case], n=1)
    assert 0 <= 2 * found["seconds"] <= time.process_time() - before
