"What a rule still allows in gaps and at masks, against all ways to complete a row; rules of gaps, and readers."
import itertools
import re
from types import SimpleNamespace

import pytest
import torch

from loflexmdm.process.automata import Automaton, Completions, Writing
from loflexmdm.process.rules import Prefixes, Requirement, Template, gap_ranges, read_range, split_ranges, with_ranges
from loflexmdm.process.states import BOS, MASK, PartialSequences, Vocabulary

VOCABULARY = Vocabulary("ab")
A, B = VOCABULARY.encode("ab")
RULES = "contains:ab", "count:a=1", "regex:a*b?a", "length:2-3", "excludes:bb"
ROWS = [  # ids, and the columns after which gaps are open
    ([A], {0, 1}), ([B, A], {1}), ([A, B], {0, 2}), ([A, A, B], {0, 1, 2, 3}), ([B], set()),
    ([MASK], {0, 1}), ([MASK, A, MASK], {1}),
]


def of_row(ids, open_at) -> PartialSequences:
    closed = torch.tensor([[k not in open_at for k in range(len(ids) + 1)]])
    return PartialSequences(torch.tensor([[BOS, *ids]]), torch.ones_like(closed), closed)


def completions(automaton: Automaton, ids, open_at, room: int, blanks: bool = False) -> list[tuple[dict, tuple]]:
    "Every way to an accepted text: what each open gap takes, `room` tokens at most, and what each token is."
    texts = [t for n in range(room + 1) for t in itertools.product((A, B), repeat=n)]
    written = [((A, B, None) if blanks else (A, B)) if i == MASK else (i,) for i in ids]
    found = []
    for gaps in itertools.product(texts, repeat=len(open_at)):
        if sum(map(len, gaps)) > room: continue
        taken = dict(zip(sorted(open_at), gaps))
        for own in itertools.product(*written):
            text = [*taken.get(0, ()),
                *(i for k, t in enumerate(own, 1) for i in (t, *taken.get(k, ())) if i is not None)]
            if automaton.accepts(text): found.append((taken, own))
    return found


@pytest.mark.parametrize("ids, open_at", ROWS)
@pytest.mark.parametrize("rule", RULES)
def test_what_gaps_may_take(rule, ids, open_at):
    automaton, columns = Requirement.of(rule, VOCABULARY).automaton, torch.arange(len(ids) + 1)
    everywhere = lambda: Completions(automaton, of_row(ids, open_at))
    for limit in range(3):
        ways, room = completions(automaton, ids, open_at, limit), torch.tensor([limit])
        assert everywhere().gaps(room)[0].tolist() == [any(way.get(c) for way, _ in ways) for c in columns.tolist()]
        for c in open_at:
            at = torch.tensor([c])
            tokens = everywhere().tokens(at, room)[0].tolist()
            assert tokens == [any(i in way[c] for way, _ in ways) for i in range(len(tokens))]
            assert everywhere().ends(at, room)[0] == any(not way[c] for way, _ in ways)
    fewest = min((sum(map(len, way.values())) for way, _ in completions(automaton, ids, open_at, 4)), default=torch.inf)
    assert everywhere().fewest()[0] == fewest
    if MASK not in ids: assert everywhere().accepted[0] == automaton.accepts(ids)


@pytest.mark.parametrize("ids, open_at", ROWS)
def test_what_gaps_may_take_at_their_ends(ids, open_at):
    "Where tokens come at the end of the first open gap, what it has is to its left."
    for rule in RULES:
        automaton = Requirement.of(rule, VOCABULARY).automaton
        if not open_at or MASK in ids: continue
        first = min(open_at)
        found = Completions(automaton, of_row(ids, open_at), rightwards=True)
        for limit in range(3):
            ways, room = completions(automaton, ids, open_at, limit), torch.tensor([limit])
            tokens = found.tokens(torch.tensor([first]), room)[0].tolist()
            assert tokens == [any(way[first][:1] == (i,) for way, _ in ways) for i in range(len(tokens))]
            assert found.ends(torch.tensor([first]), room)[0] == any(not way[first] for way, _ in ways)


@pytest.mark.parametrize("blanks", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_what_masks_may_become(rule, blanks):
    automaton = Requirement.of(rule, VOCABULARY).automaton
    for ids, open_at in [([MASK], {0, 1}), ([MASK, A, MASK], {1}), ([MASK, MASK], set()), ([B, MASK], {1, 2})]:
        column = torch.tensor([k for k, i in enumerate(ids, 1) if i == MASK])
        for limit in range(3):
            found = Completions(automaton, of_row(ids, open_at), blanks=blanks).unmask_choices(
                torch.zeros_like(column), column, torch.tensor([limit]), blanks)
            ways = completions(automaton, ids, open_at, limit, blanks)
            for c, allowed in zip(column.tolist(), found.tolist()):
                assert allowed == [any(own[c - 1] == (None if blanks and i == len(allowed) - 1 else i) for _,
                    own in ways)
                                   for i in range(len(allowed))]


def texts_up_to(n: int) -> list[str]: return ["".join(t) for k in range(n + 1) for t in itertools.product("ab",
    repeat=k)]


@pytest.mark.parametrize("prompt, pattern", [
    (["...{2}", "a"], "[ab]{2}a"), (["a", "...{1,2}", "b"], "a[ab]{1,2}b"), (["...{,1}", "b", ...], "[ab]{,1}b[ab]*"),
    (["...{2,}"], "[ab]{2,}"), (["a", "<mask>", "...{1}"], "a[ab]{2}"), (["...{1,2}", "...{1}"], "[ab]{2,3}"),
    (["...{0,0}"], ""),
    (["<gap>{1}", "b"], "[ab]b"),
])
def test_a_range_of_a_gap_is_a_rule(prompt, pattern):
    requirement = Requirement.of(gap_ranges(prompt, VOCABULARY), VOCABULARY)
    accepted = [text for text in texts_up_to(5) if requirement.accepts(VOCABULARY.encode(text))]
    assert accepted == [text for text in texts_up_to(5) if re.fullmatch(pattern, text)]


def test_prompts_without_ranges_have_no_rule_and_conditions_no_place():
    assert gap_ranges(["a", ..., "b"], VOCABULARY) is None
    conditions = Vocabulary(["a", "<c:low>", "<any>"])
    assert gap_ranges(["<c:low>", "a", "...{1,2}", ...], conditions) == Template(("a", (1, 2), (0, None)))


@pytest.mark.parametrize("mark", ["...{}", "...{,}", "...{3,2}"])
def test_ranges_that_are_none(mark):
    with pytest.raises(ValueError, match="gap"): gap_ranges([mark], VOCABULARY)


def test_ranges_leave_a_text_and_come_back():
    text, gaps = split_ranges("ab...{3,6}c...d<gap>{2}")
    assert text == "ab...c...d<gap>" and gaps == ["...{3,6}", ..., "<gap>{2}"]
    assert with_ranges(["a", ..., "c", ..., ...], gaps) == ["a", "...{3,6}", "c", ..., "<gap>{2}"]
    with pytest.raises(ValueError, match=r"gap '...\{3,6\}'"): with_ranges(["a", ...], [..., "...{3,6}"])


class Alternating:
    "A reader of texts without equal neighbours, that end in b; it counts what it reads."
    start, read = "", 0

    def after(self, state, piece):
        self.read += 1
        return None if state[-1:] == piece else state + piece

    def may_follow(self, state, pieces): return [state[-1:] != piece for piece in pieces]
    def ends(self, state): return state[-1:] == "b"


def test_prefixes_are_read_once():
    reader = Alternating()
    prefixes = Prefixes(reader, VOCABULARY, Writing.of(VOCABULARY))
    assert prefixes.state((A, B, A)) == "aba" and reader.read == 3
    assert prefixes.state((A, B)) == "ab" and prefixes.state((A, B, B)) is None and reader.read == 4
    assert prefixes.state((A, B, B, A)) is None and prefixes.state((A, B, A, B)) == "abab" and reader.read == 5
    assert prefixes.may_follow((A, B)) == [True, False] and prefixes.may_follow(()) == [True, True]
    assert prefixes.may_follow((A, A)) == [False, False]
    assert prefixes.ends((A, B)) and not prefixes.ends((A,)) and not prefixes.ends((A, A)) and not prefixes.ends(())
    masks = prefixes.masks([(A,), (A, A)], 6)
    assert masks[:, [A, B]].tolist() == [[False, True], [False, False]]


def test_texts_of_pieces_differ_at_the_start():
    "The first token of a sequence is written without the space that others have before them."
    words = Vocabulary(["on", "off"])
    reader = SimpleNamespace(start="", after=lambda state, piece: state + piece)
    on, off = words.encode(["on", "off"])
    assert Prefixes(reader, words, Writing.of(words)).state((on, off, on)) == "on off on"


@pytest.mark.parametrize("text, smallest, found", [
    ("3-6", 0, (3, 6)), ("3-", 0, (3, None)), ("-6", 0, (0, 6)), ("-6", 1, (1, 6)), ("4", 0, (4, 4)),
    ("3-3", 0, (3, 3)), ("0", 0, (0, 0)),
    ("5-3", 0, None), ("0", 1, None), ("0-3", 1, None), ("-", 0, None), ("", 0, None), ("x", 0, None), ("3-x", 0, None),
])
def test_ranges_of_whole_numbers(text, smallest, found):
    if found: assert read_range(text, "count", smallest) == found
    else:
        with pytest.raises(ValueError, match="count .*: not a range of whole numbers"): read_range(text, "count",
            smallest)
