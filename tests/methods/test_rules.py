"Draws under a rule: every registered method keeps it or says why not, and the weights are unbiased."
import importlib
from dataclasses import replace

import pytest
import torch
from registered import ALL_METHODS, VOCABULARY, build, can_edit, can_sample, draw, registered, rewrite

from loflexmdm.methods.fill_in_the_middle import FillInTheMiddle
from loflexmdm.methods.rules import POWERS, TRIALS, RuledDraw
from loflexmdm.methods.sampling import encode_prompts, generate
from loflexmdm.process.rules import Requirement
from loflexmdm.samplers import Limits, Samples
from loflexmdm.samplers.particles import PROPOSALS, Chosen, proposal_of
from loflexmdm.samplers.simulate import RuleResult
from loflexmdm.support.random_numbers import seed_of_try

RULE = "excludes:aa & contains:b"


@pytest.fixture(autouse=True)
def parts(monkeypatch): registered(monkeypatch)


def accepted(sequences) -> bool:
    requirement = Requirement.of(RULE, VOCABULARY)
    return all(map(requirement.accepts, sequences))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL_METHODS))
def test_every_method_keeps_a_rule_or_refuses(name):
    method = build(name)
    if can_sample(method): call = lambda **more: draw(method, [["c"]], 4, rule=RULE, seed=1, **more)
    else: call = lambda **more: rewrite(method, [list("cad")], n=4, rule=RULE, seed=1, **more)
    try: found = call()
    except ValueError as e:
        assert str(e).startswith("rule: ") and "draws" in str(e)
        return
    assert len(found) == 4 and accepted(found.sequences) and found.rule is not None
    assert call(batch_size=3).sequences == found.sequences


@pytest.mark.parametrize("name", sorted(ALL_METHODS))
def test_every_method_refuses_what_nothing_satisfies(name):
    method = build(name)
    if not can_sample(method): return
    with pytest.raises(ValueError, match="rule: "): draw(method, [["c"]], 2, rule="contains:a & excludes:a", seed=1)


def test_edits_keep_a_rule():
    editing = [name for name in sorted(ALL_METHODS) if can_edit(build(name))]
    for name in editing[:2]:
        try: found = rewrite(build(name), [list("cab")], n=4, rule="contains:c", seed=1)
        except ValueError as e: assert "draws" in str(e)
        else: assert all(VOCABULARY.index["c"] in s for s in found.sequences)


def test_samplers_with_proposals_have_no_choice_that_they_ignore():
    for sampler in PROPOSALS:
        channels = sampler.channels or ("unmask",)
        assert proposal_of(sampler(), channels) is not None
        assert proposal_of(sampler(temperature=.5), channels) is not None
        keep = lambda self, first, *rest: first
        hook = type("Hook", (), dict(__call__=keep, gaps=keep, tokens=keep))()
        assert proposal_of(sampler(logits_hook=hook), channels) is None


def find_nothing(monkeypatch, note):
    "Let particles find nothing; `note` is called with the seeds of each draw."
    def nothing_found(network, rows, proposal, seeds, particles, record=False):
        note(seeds)
        return Chosen([None] * len(seeds), [0.0] * len(seeds), [1.0] * len(seeds), 1, 1)
    monkeypatch.setattr(importlib.import_module("loflexmdm.methods.rules"), "draw_particles", nothing_found)


def test_no_row_draws_again_what_another_row_drew(monkeypatch):
    "Neither free draws nor particles of rows whose seeds follow each other, as those of a loop do, share a seed."
    used, method = [], build("ar")
    rows = method.begin(encode_prompts(None, 3, VOCABULARY, 8), 8, [0, 1, 2])

    def free(rows, seeds):
        used.extend(seeds)
        return Samples([[]] * len(seeds), [[]] * len(seeds), 1, 1)

    find_nothing(monkeypatch, used.extend)
    limits = Limits(method.tau_max, 8, 0, method.channels, 8)
    rare = Requirement.of("contains:b", VOCABULARY)
    ruled = RuledDraw(method, method, method.default_sampler, limits, rare, free)
    for attempt in (ruled.draw, lambda rows, seeds: ruled.draw_with_particles(rows, seeds, 8)):
        used.clear()
        with pytest.raises(ValueError, match="particles each"): attempt(rows, [0, 1, 2])
        assert {0, 1, 2} < set(used) and len(used) > 30
        repeated = {seed for seed in used if used.count(seed) > 1}
        assert len(repeated) <= TRIALS, "only the trials of all powers share their seeds"


class Preset:
    "Draws that are known: for each row, the texts that its tries find; particles find 'ab', and say which rows asked."
    def __init__(self, *texts: str): self.texts, self.tries, self.asked = texts, [0] * len(texts), []

    def free(self, rows, seeds) -> Samples:
        found = []
        for row, seed in zip(rows.tokens[:, 1].tolist(), seeds, strict=True):
            k = VOCABULARY.encode("abcd").index(row)
            assert seed == seed_of_try(10 + k, self.tries[k])
            found.append(VOCABULARY.encode(self.texts[k][self.tries[k]]))
            self.tries[k] += 1
        return Samples(found, [[True]] * len(found), 1, len(found))

    def particles(self, rows, seeds, particles) -> Samples:
        self.asked = rows.tokens[:, 1].tolist(), seeds, particles
        found = [VOCABULARY.encode("ab")] * len(seeds)
        return Samples(found, [[True, True]] * len(found), 1, 1,
            rule=RuleResult(0, 0, [.5] * len(seeds), [2.0] * len(seeds)))

    def draw(self, monkeypatch, rule, law="conditional", method="ar") -> Samples:
        m = build(method)
        rows = encode_prompts([[c] for c in "abcd"[:len(self.texts)]], 1, VOCABULARY, 8)
        limits = Limits(m.tau_max, 8, 0, m.channels, 8)
        ruled = RuledDraw(m, m, m.default_sampler, limits, Requirement.of(rule, VOCABULARY), self.free, law,
            particles=3)
        monkeypatch.setattr(RuledDraw, "draw_with_particles", lambda _, *args: self.particles(*args))
        return ruled.draw(rows, [10, 11, 12, 13][:len(self.texts)])


def texts_of(found: Samples) -> list[str]: return ["".join(VOCABULARY.decode(s)) for s in found.sequences]


def test_rows_draw_freely_until_they_keep_the_rule_and_then_by_particles(monkeypatch):
    "At most as often as there are particles; every try is counted, with its reason, and rows keep their places."
    known = Preset("aab", "b", "ccc", "ab")
    found = known.draw(monkeypatch, "contains:b")
    assert texts_of(found) == ["b", "b", "ab", "b"]
    assert known.tries == [3, 1, 3, 2] and found.network_calls == 4
    assert known.asked == (VOCABULARY.encode("c"), [seed_of_try(12, 3)], 3)
    assert (found.rule.tries, found.rule.accepted, found.rule.estimates, found.rule.effective) == (9, 3, [.5], [2.0])


def test_rows_that_all_keep_the_rule_ask_for_no_particles(monkeypatch):
    known = Preset("b", "ab")
    found = known.draw(monkeypatch, "contains:b")
    assert texts_of(found) == ["b", "b"] and not known.asked and (found.rule.tries, found.rule.accepted) == (3, 2)
    assert found.network_calls == 2


def test_masked_draws_have_one_particle_and_no_free_draw(monkeypatch):
    known = Preset("b", "b")
    assert texts_of(known.draw(monkeypatch, "contains:b", "masked")) == ["ab", "ab"]
    assert known.tries == [0, 0] and known.asked == (VOCABULARY.encode("ab"), [10, 11], 1)


@pytest.mark.parametrize("method, rule", [("ar", lambda text: text == "b"), ("mdm", "contains:b")])
def test_without_a_lookahead_there_are_a_hundred_free_draws(monkeypatch, method, rule):
    known = Preset("a" * 99 + "b", "b")
    found = known.draw(monkeypatch, rule, method=method)
    assert texts_of(found) == ["b", "b"] and known.tries == [100, 1] and not known.asked
    assert (found.rule.tries, found.rule.accepted) == (101, 2)
    known = Preset("b", "a" * 100)
    if method == "mdm": assert texts_of(known.draw(monkeypatch, rule, method=method)) == ["b", "ab"]
    else:
        with pytest.raises(ValueError, match="rule: 1 sequences broke it in each of 100 draws; 1 of 101 draws"):
            known.draw(monkeypatch, rule, method=method)


SETTINGS = dict(temperature=.5, min_length=4), dict(top_p=.8, max_length=4)
RULES = RULE, "contains:b", "excludes:a", "count:c=1", "count:d=-1", "regex:.*(a|c)"


def share_of(rule, samples) -> float:
    requirement = Requirement.of(rule, VOCABULARY)
    return sum(map(requirement.accepts, samples.sequences)) / len(samples)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", ["ar", "fim", "ordered-insertion", "mdm"])
def test_weights_are_unbiased_for_every_choice(name, settings):
    "The estimate by particles agrees with the share of free draws that satisfy a rule which about a third satisfy."
    method = build(name)
    if "min_length" in settings and name == "mdm": return  # it inserts nothing
    choices = {k: v for k, v in settings.items() if k in ("temperature", "top_p")}
    sampler, lengths = method.sampler(None, **choices), {k: v for k, v in settings.items() if k not in choices}
    free = [generate(method, n=n, seed=seed, sampler=sampler, **lengths) for seed, n in ((1, 100), (2, 500))]
    rule = min(RULES, key=lambda r: abs(share_of(r, free[0]) - .3))
    share = share_of(rule, free[1])
    assert .01 < share < .99, "a rule that tells nothing"
    limit = settings.get("max_length", method.config.max_length)
    limits = Limits(method.tau_max, method.most_columns(limit), settings.get("min_length", 0), method.channels, limit)
    rows = method.begin(encode_prompts(None, 40, VOCABULARY, limit), limit, list(range(40)))
    requirement = Requirement.of(rule, VOCABULARY)
    ruled = RuledDraw(method, method, sampler, limits, requirement, None)
    for power in POWERS if ruled.proposal.lookahead else [1.0]:
        with torch.inference_mode(): chosen = ruled.draw_valid(rows, list(range(40)), 8, power)
        found = ruled.samples(chosen)
        assert all(map(requirement.accepts, found.sequences))
        mean, error = found.rule.of_particles
        seen = rule, power, mean, error, share
        assert abs(mean - share) < 4 * (error ** 2 + share * (1 - share) / len(free[1])) ** .5, seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ar", "fim", "ordered-insertion"])
def test_a_grammar_is_kept_or_refused_by_name(name):
    pytest.importorskip("llguidance")
    try: found = generate(build(name), n=4, rule='grammar:start: "a" start? "b"', seed=1)
    except ValueError as e:
        assert name == "ordered-insertion" and f"left to right, and {name} writes in another order" in str(e)
        return
    texts = ["".join(VOCABULARY.decode(s)) for s in found.sequences]
    assert all(t and t == "a" * (len(t) // 2) + "b" * (len(t) // 2) for t in texts)


def test_a_prompt_that_a_grammar_cannot_continue_is_refused():
    pytest.importorskip("llguidance")
    with pytest.raises(ValueError, match="no sequence satisfies it with this prompt"):
        generate(build("fim"), [["b", ...]], n=2, rule='grammar:start: "a" start? "b"', seed=1)


def test_why_a_rule_has_no_particles():
    "The reason names what to change: the rule, the hook, or the method."
    hook = lambda logits, x, tau: logits
    cases = {
        ("ordered-insertion", 'grammar:start: "a" start? "b"', None): "ordered-insertion writes in another order",
        ("ar", lambda text: True, None): "the rule looks at finished texts",
        ("ar", RULE, hook): "the sampler has a logits_hook",
        ("loinsert", RULE, None): "does not write one event at a time for loinsert",
    }
    for (name, rule, logits_hook), reason in cases.items():
        if "grammar" in str(rule): pytest.importorskip("llguidance")
        method = build(name)
        sampler = method.default_sampler if logits_hook is None else replace(method.default_sampler,
            logits_hook=logits_hook)
        with pytest.raises(ValueError, match=f"law='masked'.*{reason}"):
            generate(method, n=2, rule=rule, law="masked", sampler=sampler, seed=0)


def test_a_trajectory_ends_in_its_sample():
    found = generate(build("ar"), n=4, rule="regex:b(c|d)*a", seed=2, record=True)
    assert [path.frames[-1][1] for path in found.trajectories] == found.sequences


def test_a_range_of_a_gap_is_kept_with_other_gaps():
    method = build("fim")
    assert isinstance(method, FillInTheMiddle)
    found = generate(method, [["a", "...{2}", "b", ...], ["c", "...{,1}"]], n=3, seed=0)
    texts = ["".join(VOCABULARY.decode(s)) for s in found.sequences]
    assert all(t[0] == "a" and t[3] == "b" for t in texts[:3]) and all(len(t) < 3 for t in texts[3:])


@pytest.mark.parametrize("particles, draws", [(1, 100), (7, 15), (25, 4), (40, 4)])
def test_rows_without_a_particle_are_drawn_again_up_to_a_limit(monkeypatch, particles, draws):
    "A hundred particles in all, but at least four times."
    method, asked = build("ar"), []

    find_nothing(monkeypatch, asked.append)
    limits = Limits(method.tau_max, 8, 0, method.channels, 8)
    requirement = Requirement.of("contains:b", VOCABULARY)
    ruled = RuledDraw(method, method, method.default_sampler, limits, requirement, None)
    with pytest.raises(ValueError, match=f"1 sequences broke it with {draws * particles} particles each"):
        ruled.draw_valid(method.begin(encode_prompts(None, 1, VOCABULARY, 8), 8, [5]), [5], particles, 0.0)
    assert asked == [[seed_of_try(5, k)] for k in range(draws)]
