"A model as lm-eval calls it; `simple_evaluate` itself where the package is installed."
import json
from types import SimpleNamespace

import pytest
import torch

from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.models.language_model import Likelihoods, harness_model
from loflexmdm.models.model import Model
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask

ROWS = [dict(start="ab", end="c"), dict(start="bc", end="a"), dict(start="ca", end="b")]


@pytest.fixture(scope="module")
def model():
    "An untrained model of three letters, with weights that prefer some."
    task = SequencesTask(SequencesConfig(unit="characters"), sequences=["abc", "bca", "cab", "ab"] * 8)
    torch.manual_seed(4)
    method = Autoregressive(task.vocabulary, AutoregressiveConfig(size="nano", max_length=9), task.as_dict()).eval()
    for p in method.token.parameters(): torch.nn.init.normal_(p, std=0.5)
    return Model(method, task)


def test_pairs_do_not_depend_on_the_batch(model):
    pairs = [("a", "bc"), ("", "abc"), ("abcabc", "a"), ("b", "")]
    one = [Likelihoods(model).loglikelihood([pair])[0] for pair in pairs]
    for (a, greedy), (b, other) in zip(one, Likelihoods(model, batch_size=2).loglikelihood(pairs), strict=True):
        assert a == pytest.approx(b, abs=1e-4) and greedy == other
    assert one[3] == (0, True)


def test_a_long_context_is_cut_on_the_left(model):
    found = Likelihoods(model).loglikelihood([("abc" * 5, "a"), (("abc" * 5)[-7:], "a")])
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-5)


def test_continuations_are_cut_and_repeat(model):
    ours = Likelihoods(model)
    assert ours.continuation("a", max_gen_toks=4) == "caca"
    assert ours.generate_until([("a", dict(until=["b", "a"], max_gen_toks=4))]) == ["c"]
    drawn = [ours.continuation("a", do_sample=True, temperature=2.0) for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_lm_eval_calls_it(model, tmp_path):
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    shared = dict(dataset_path="json", dataset_kwargs=dict(data_files=dict(test=str(tmp_path / "rows.jsonl"))),
                  test_split="test", doc_to_text="{{start}}", doc_to_target="{{end}}", target_delimiter="")
    scored = dict(task="scored", output_type="loglikelihood",
                  metric_list=[dict(metric="perplexity"), dict(metric="acc")], **shared)
    rolled = dict(shared, task="rolled", output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{start}}",
                  metric_list=[dict(metric="byte_perplexity")])
    written = dict(task="written", output_type="generate_until", generation_kwargs=dict(until=["\n"], max_gen_toks=1),
                   metric_list=[dict(metric="exact_match")], **shared)
    found = lm_eval.simple_evaluate(model=harness_model(model), tasks=[scored, rolled, written], bootstrap_iters=0)
    pairs = [(row["start"], row["end"]) for row in ROWS]
    mean = sum(value for value, _ in Likelihoods(model).loglikelihood(pairs)) / len(pairs)
    results = found["results"]
    assert results["scored"]["perplexity,none"] == pytest.approx(torch.tensor(-mean).exp().item(), rel=1e-4)
    right = sum(Likelihoods(model).continuation(start, max_gen_toks=1) == end for start, end in pairs)
    assert results["written"]["exact_match,none"] == pytest.approx(right / 3)
    assert results["rolled"]["byte_perplexity,none"] > 1


def test_what_the_numbers_mean(model):
    ours = Likelihoods(model, states=9)
    assert ours.meaning == "log-likelihoods of continuations, without their end"
    ours.forward = False
    assert ours.meaning == "log-likelihoods of continuations with their end; none counts as greedy"
    other = Likelihoods(SimpleNamespace(task=model.task, method=SimpleNamespace(exact=False)), states=9)
    assert other.meaning == "lower bounds from 9 states of continuations with their end; none counts as greedy"
    assert other.prompted and not other.forward


@pytest.mark.parametrize("options, greedy", [
    ({}, True), (dict(do_sample=True, temperature=0), True), (dict(do_sample=True), False),
    (dict(do_sample=True, temperature=.5, top_p=.9), False), (dict(temperature=.5), True),
])
def test_continuations_are_greedy_unless_they_are_to_be_drawn(model, monkeypatch, options, greedy):
    ours, asked = Likelihoods(model), []
    monkeypatch.setattr(ours, "greedy", lambda tokens, most: asked.append((tokens, most)) or ["a"])
    monkeypatch.setattr(ours, "draw_tokens", lambda tokens, most, law: asked.append((tokens, most, law)) or ["b", "c"])
    assert ours.continuation("abcabcabc", max_gen_toks=1, until="c", **options) == ("a" if greedy else "b")
    law = dict(temperature=options.get("temperature", 1.0), top_p=options.get("top_p", 1.0))
    assert asked == [(list("cabcabc"), 8, *([] if greedy else [law]))]
    with pytest.raises(ValueError, match="beams=3: is not an option here"): ours.continuation("a", beams=3)
