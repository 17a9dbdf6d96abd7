"Automata of rules: what they read of a sequence, and work that is bounded."
import time

import pytest
import torch

from loflexmdm.process.automata import Completions, Writing, from_regex
from loflexmdm.process.rules import RULES, All, Predicate, Requirement, parse_rule
from loflexmdm.process.states import BOS, PartialSequences, Vocabulary

VOCABULARY = Vocabulary("ab")


def row(*ids, open_at=()):
    tokens = torch.tensor([[BOS, *ids]])
    closed = torch.ones_like(tokens).bool()
    closed[0, list(open_at)] = False
    return PartialSequences(tokens, torch.ones_like(closed), closed)


def test_only_what_follows_the_last_start_token_is_read():
    b, a = VOCABULARY.index["b"], VOCABULARY.index["a"]
    contains = from_regex(".*b.*", VOCABULARY)
    assert not Completions(contains, row(b, BOS, a)).accepted[0]
    assert Completions(contains, row(a, BOS, b)).accepted[0]


def test_large_expressions_stop_at_once():
    begun = time.process_time()
    for pattern in ("(a|b)*a(a|b){14}", "((a{99}){99}){99}", "(a?){5000}"):
        with pytest.raises(ValueError, match="states of a rule"): from_regex(pattern, VOCABULARY)
    assert time.process_time() - begun < 20


def test_a_thousand_states_are_allowed():
    assert len(from_regex("a{999}", VOCABULARY)) == 1001  # with the one from which nothing is accepted
    with pytest.raises(ValueError, match="states of a rule"): from_regex("a{1000}", VOCABULARY)


def test_every_rule_reads_its_name_from_a_text():
    arguments = dict(regex="a*", contains="a", excludes="a", words="a|b", length="1-3", count="a=1", valid="",
                     smarts="C", ring="6", sound="", linker="*c1ccncc1.*N1CCOCC1 atoms=3-8")
    for name in sorted({*RULES.names()} - {"grammar", "json"}):  # those read a file, and combine as rules on texts
        rule = parse_rule(f"{name}:{arguments[name]}" if arguments[name] else name)
        assert rule.name == name
        both = parse_rule(f"{name}:{arguments[name]} & length:-4" if arguments[name] else f"{name} & length:-4")
        assert [part.name for part in both.parts] == [name, "length"]


def test_rules_that_are_joined_already_can_be_joined_again():
    "As the rule of a request and that of a fragment's ring are."
    both = Requirement.of(All((parse_rule("contains:a & length:-3"), Predicate(lambda text: "b" in text))), VOCABULARY)
    texts = "ab", "aab", "aa", "aaab"
    assert [both.accepts(VOCABULARY.encode(text)) for text in texts] == [True, True, False, False]


def test_tokens_that_change_the_text_before_them_are_refused():
    with pytest.raises(ValueError, match="changes the text"):
        Writing.of(VOCABULARY, lambda tokens: "".join(tokens)[::-1] if len(tokens) > 1 else "zz")


def test_conditions_and_blanks_leave_the_state():
    conditions = Vocabulary(["a", "<c:low>", "<any>"])
    requirement = Requirement.of("length:1-1", conditions)
    ids = [conditions.index[t] for t in conditions.tokens[4:]]
    assert requirement.automaton.accepts([*ids, 3, len(conditions)])
