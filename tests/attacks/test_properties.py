"""Properties of parsers, states, schedules, estimators and samplers on inputs that Hypothesis makes up: round trips,
invariants, and equality with the slow version."""
import csv
import io
import json
import re
from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import (
    WORDS, batches, batches_with_states, bracket_texts, clocks, examples, json_values, laws, positive, recipes, smiles,
    texts, tokens, vocabularies, words,
)

from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.sampling import generate
from loflexmdm.molecules.notation.bracket_safe import decode, from_bracket_safe, renumber, reorder
from loflexmdm.molecules.notation.bracket_safe import to_bracket_safe, tokenize
from loflexmdm.process.alignments import edit_distance
from loflexmdm.process.clocks import Kumaraswamy, clock_named
from loflexmdm.process.matching import advantages, leave_one_out, reinforce
from loflexmdm.process.schedules import state_log_probs
from loflexmdm.process.states import CLEAN, DROPPED, MASK, MASKED, contract, gap_sums, insert_masks
from loflexmdm.process.states import parse_prompt
from loflexmdm.samplers import EventDriven, TauLeaping
from loflexmdm.support.atomic_files import check_seal, add_digest
from loflexmdm.support.limits import clip, clipped_line, visible
from loflexmdm.support.notebook import cell, code_span
from loflexmdm.support.readers import checked_lines, parse_json, read_lines
from loflexmdm.support.records import table_rows
from loflexmdm.support.statistics import empirical_variation, variation_floor
from loflexmdm.tasks.base import fewest_edits
from loflexmdm.training.recipes import check_values, recipe_from


# ---- parsers

@given(json_values)
def test_json_comes_back(value): assert parse_json(json.dumps(value), "here") == value


@given(st.text(max_size=40) | st.binary(max_size=40))
def test_json_is_read_or_refused(text):
    try: parse_json(text, "here")
    except ValueError as e: assert str(e).startswith("here: not valid JSON") and "\n" not in str(e)


@given(st.dictionaries(texts, json_values, max_size=4), st.data())
def test_a_seal_notices_every_change(content, data):
    content.pop("digest", None)
    check_seal(closed := json.loads(json.dumps(add_digest(content))), "here")
    assume(content)
    key = data.draw(st.sampled_from(sorted(content)))
    with pytest.raises(ValueError, match="changed or damaged"): check_seal(closed | {key: [content[key]]}, "here")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=30))
def test_lines_end_at_newlines_only(tmp_path, text):
    (tmp_path / "t.txt").write_bytes(text.encode())
    expected = re.split("\r\n|\r|\n", text)
    assert list(read_lines(tmp_path / "t.txt")) == (expected if expected[-1] else expected[:-1])


@given(st.binary(max_size=60))
def test_bytes_are_text_or_refused(tmp_path, data):
    (tmp_path / "t.txt").write_bytes(data)
    try: list(checked_lines(tmp_path / "t.txt"))
    except ValueError as e: assert "t.txt" in str(e)


clean_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=8)
cells = st.lists(st.lists(clean_texts, min_size=2, max_size=2), min_size=1, max_size=5)


@given(cells)
def test_tables_come_back(tmp_path, rows):
    csv.writer(text := io.StringIO(), lineterminator="\n").writerows(rows)
    (tmp_path / "t.csv").write_bytes(text.getvalue().encode())
    assert [row for _, row in table_rows(tmp_path / "t.csv", ",")] == rows


@given(recipes)
def test_recipes_come_back(tables):
    made = recipe_from(check_values(tables))
    assert recipe_from(made.as_dict()) == made
    assert all(getattr(made.train, k) == v for k, v in tables.get("train", {}).items())


@given(st.text(max_size=400), st.integers(10, 60))
def test_text_is_shown_as_text(text, most):
    assert visible(text).replace("\n", "").replace("\t", "").isprintable()
    assert len(clip(text, most)) < 10 * most + 100 and len(clipped_line(text, most)) <= most + 10
    span, plain = code_span(text), cell(text)
    assert span.count("`") == 2 and "\n" not in span + plain and "<" not in plain
    for shown in (span, plain): assert not re.search(r"(?<!\\)\|", shown)


# ---- sequences and states

@given(vocabularies, st.data())
def test_tokens_come_back(vocabulary, data):
    sequence = data.draw(st.lists(st.sampled_from(vocabulary.tokens[3:]), max_size=9))
    assert vocabulary.decode(vocabulary.encode(sequence)) == sequence


@given(vocabularies, tokens)
def test_other_tokens_are_refused(vocabulary, token):
    assume(token not in vocabulary.index)
    with pytest.raises(ValueError, match="outside the vocabulary"): vocabulary.encode([token])


@given(st.lists(st.sampled_from([*"abcd", ..., "<mask>"]), max_size=8))
def test_prompts_keep_their_tokens(prompt):
    example = parse_prompt(prompt, WORDS)
    given_tokens = [t for t in prompt if t is not ...]
    assert WORDS.decode(example.tokens[1:]) == given_tokens
    assert [t == MASK for t in example.tokens] == [not f for f in example.fixed]
    open_gaps = sum(not c for c in example.closed)
    assert open_gaps <= sum(t is ... for t in prompt) + (... not in prompt and "<mask>" not in prompt)


@given(batches_with_states())
def test_contraction_is_what_is_written_out(drawn):
    x1, state = drawn
    x = contract(x1, state)
    for i, row in enumerate(x1.tokens.tolist()):
        kept = [(MASK if s == MASKED else t, o) for o, (t, s) in enumerate(zip(row, state[i].tolist()))
                if t and s != DROPPED]
        n = len(kept)
        assert x.tokens[i, :n].tolist() == [t for t, _ in kept] and not x.tokens[i, n:].any()
        assert x.origin[i, :n].tolist() == [o for _, o in kept]
    assert bool((contract(x1, torch.full_like(state, CLEAN)).tokens == x1.tokens).all())


@given(batches_with_states())
def test_gap_sums_count_what_is_dropped(drawn):
    x1, state = drawn
    sums = gap_sums(torch.ones(state.shape), x1, state, x1.tokens.shape[1])
    assert sums.sum(-1).tolist() == ((state == DROPPED) & x1.valid).sum(-1).tolist()


@given(batches, st.integers(0, 2**32))
def test_masks_are_inserted_where_asked(x, seed):
    counts = torch.randint(3, x.tokens.shape, generator=torch.Generator().manual_seed(seed))
    y = insert_masks(x, counts)
    assert y.lengths.tolist() == (x.lengths + torch.where(x.open, counts, 0).sum(-1)).tolist()
    for i in range(len(x.tokens)):
        old = y.origin[i] >= 0
        keep = old & y.valid[i]
        assert y.tokens[i][keep].tolist() == x.tokens[i][x.valid[i]].tolist()


@given(st.lists(st.tuples(examples(), examples()), min_size=1, max_size=3))
def test_edit_distance_is_the_slow_one(pairs):
    from loflexmdm.process.states import collate, prefix_example
    plain = [[prefix_example((), WORDS.decode(e.tokens[1:]), WORDS) for e in pair] for pair in pairs]
    found = edit_distance(*map(collate, zip(*plain)))[0].tolist()
    assert found == [fewest_edits(a.tokens, b.tokens) for a, b in plain]


@given(words, words, words)
def test_edit_distance_is_a_metric(a, b, c):
    assert fewest_edits(a, b) == fewest_edits(b, a) and (fewest_edits(a, b) == 0) == (a == b)
    assert fewest_edits(a, c) <= fewest_edits(a, b) + fewest_edits(b, c)


# ---- schedules, laws and estimators

@given(clocks, st.floats(0.01, 0.98))
def test_clocks_run_back(name, t):
    clock, t = clock_named(name), torch.tensor(t, dtype=torch.float64)
    tau = clock.tau(t)
    assume(1e-200 < float(tau) < 600)
    torch.testing.assert_close(clock.time(tau), t, rtol=1e-6, atol=1e-9)
    assert float(clock.shape(t)) > 0 and 0 <= float(clock.kappa(t)) <= 1


@given(st.floats(1e-3, 1 - 1e-9), st.floats(0.01, 50), st.floats(0.01, 50))
def test_probabilities_of_states_sum_to_one(t, b_in, b_um):
    t, b_in, b_um = (torch.tensor(v, dtype=torch.float64) for v in (t, b_in, b_um))
    found = torch.stack(list(state_log_probs(t, b_in, b_um).unbind(-1)))
    assert bool((found <= 1e-12).all())
    torch.testing.assert_close(found.logsumexp(0), torch.zeros((), dtype=torch.float64), rtol=0, atol=1e-9)


@given(st.floats(0.2, 5), st.floats(1e-6, 1 - 1e-6), positive)
def test_quantiles_are_inverse(a, u, b):
    clock, u, b = Kumaraswamy(a), torch.tensor(u, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    t = clock.quantile(u, b)
    assume(0 < float(t) < 1 - 1e-6)
    torch.testing.assert_close(clock.cdf(t, b), u, rtol=1e-6, atol=1e-8)


@given(laws(), st.integers(1, 200))
def test_variation_and_its_floor(law, n):
    counts = Counter({k: round(p * n) for k, p in law.items()})
    assume(counts.total())
    assert 0 <= empirical_variation(counts, law) <= 1 and 0 <= variation_floor(law, n) <= 1
    assert empirical_variation(Counter({k: 1 for k in law}), {k: 1 / len(law) for k in law}) < 1e-12


@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_leave_one_out_is_what_is_written_out(k, batch, seed):
    rng = torch.Generator().manual_seed(seed)
    losses, log_probs = (torch.randn(k, batch, generator=rng, dtype=torch.float64) for _ in range(2))
    others = torch.stack([losses[[j for j in range(k) if j != i]].mean(0) for i in range(k)])
    torch.testing.assert_close(advantages(losses), losses - others)
    torch.testing.assert_close(leave_one_out(losses, log_probs), reinforce(losses, log_probs, others))


# ---- samplers

@pytest.fixture(scope="module")
def methods():
    "Untrained models: what they write is arbitrary."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = dict(size="nano", max_length=9)
        return FlexMDM(WORDS, FlexMDMConfig(**options)), MaskedDiffusion(WORDS, MaskedConfig(**options))


@pytest.mark.slow
@given(st.integers(0, 2**32), words.map(lambda w: w[:4]), st.sampled_from([EventDriven(), TauLeaping(steps=3)]))
def test_samples_keep_their_prompts(methods, seed, prompt, sampler):
    for method in methods:
        made = generate(method, [prompt], n=3, sampler=sampler, seed=seed)
        for sequence in made.sequences:
            assert WORDS.decode(sequence)[:len(prompt)] == prompt and len(sequence) < 9 and min(sequence, default=3) > 2
        again = generate(method, [prompt], n=3, sampler=sampler, seed=seed, batch_size=2)
        assert again.sequences == made.sequences


# ---- molecules

@given(bracket_texts)
def test_bracket_texts_are_read_or_refused(text):
    found = decode(text)
    assert (found.smiles is None) == bool(found.reason)
    assert decode(text, salvage=True).smiles is not None or found.smiles is None
    assert renumber(renumber(text)) == renumber(text)
    try: assert "".join(tokenize(text)) == text
    except ValueError as e: assert "no token covers" in str(e)


@given(smiles, st.integers(0, 2**32))
def test_molecules_come_back(text, seed):
    canonical = from_bracket_safe(to_bracket_safe(text))
    assert from_bracket_safe(to_bracket_safe(text, seed=seed)) == canonical
    assert from_bracket_safe(reorder(to_bracket_safe(text), seed)) == canonical
    assert "".join(tokenize(to_bracket_safe(text))) == to_bracket_safe(text)
