"Gaps that are filled in turn: which is the first, what the network reads, and when each ends."
import pytest
import torch

from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import MASK, Vocabulary, collate, parse_prompt
from loflexmdm.samplers import Limits, simulate
from loflexmdm.samplers.gap_by_gap import Fill, Gap, GapByGap, begin_layout, lay_out

VOCABULARY = Vocabulary("abcd")
FIRST = VOCABULARY.encode("a")[0]
MARK = {MASK: "_", 0: "", 2: "^"}


def prompts(*texts: str):
    "Prompts in which . is a gap."
    return collate([parse_prompt([... if c == "." else c for c in text], VOCABULARY) for text in texts])


def written(tokens) -> list[str]:
    return ["".join(MARK.get(i) if i in MARK else VOCABULARY.tokens[i] for i in row) for row in tokens.tolist()]


def test_the_first_open_gap():
    x = prompts("a.b.", ".b", "ab.")
    gap = Gap.first(x)
    assert gap.start.tolist() == gap.last.tolist() == [1, 0, 2]
    assert gap.columns(x).long().argmax(-1).tolist() == [1, 0, 2] and gap.columns(x).sum(-1).tolist() == [1, 1, 1]
    assert Fill().legal(x).nonzero().tolist() == [[0, 1], [1, 0], [2, 2]]


def test_a_gap_ends_before_the_next_given_token():
    x = prompts("a.b.")
    filled = x._replace(tokens=torch.tensor([[2, 3, 5, 6, 4]]), fixed=torch.tensor([[True, True, False, False, True]]),
                        closed=torch.tensor([[True, False, False, False, False]]))
    gap = Gap.first(filled)
    assert (gap.start.tolist(), gap.last.tolist()) == ([1], [3])
    assert gap.columns(filled).tolist() == [[False, True, True, True, False]]
    assert Fill().legal(filled).tolist() == [[False, False, False, True, False]]
    laid = lay_out(filled)
    assert written(laid.tokens) == ["^a_b__cd_"] and laid.fixed.long().argmin(-1).tolist() == [5]
    assert laid.closed.tolist() == [[True] * 5 + [False] * 4]
    assert not Fill().legal(filled._replace(closed=torch.ones_like(filled.closed))).any()


def test_what_the_network_reads_first():
    laid = begin_layout(prompts("a.b.", ".b", "ab."))
    assert written(laid.x.tokens) == ["^a_b__", "^_b_", "^ab__"]
    assert laid.x.closed.tolist() == [[True] * 5 + [False], [True] * 3 + [False, True, True],
        [True] * 4 + [False, True]]
    longer = laid.with_column(torch.tensor([5, 6, 3]))
    assert written(longer.x.tokens) == ["^a_b__c", "^_b_d", "^ab__a"]
    last = laid.x.lengths[:, None]
    assert not longer.x.closed.gather(1, last).any() and not longer.x.fixed.gather(1, last).any()
    assert written(longer.rows(torch.tensor([1]), 1).x.tokens) == ["^_b_d"]
    masks = collate([parse_prompt(["a", "<mask>"], VOCABULARY)])
    with pytest.raises(ValueError, match="<mask> stands for exactly one token"): begin_layout(masks)


class Script:
    "A network that writes known tokens, - being the end of a gap; it notes what it reads."
    def __init__(self, *texts: str): self.texts, self.seen = texts, []

    def __call__(self, x, tau):
        self.seen.append(written(x.tokens))
        given = x.fixed.sum(-1)
        logits = torch.full((len(given), 1, len(VOCABULARY) + 1), -1e9)
        for row, n in enumerate((x.lengths - given - 1).tolist()):
            text = self.texts[0] if len(self.texts) == 1 else self.texts[row]
            logits[row, 0, -1 if text[n] == "-" else FIRST + "abcd".index(text[n])] = 0.0
        return Intensities(logits=logits)


def drawn(script: Script, prompt: str, most: int = 9, least: int = 0):
    found = simulate(script, prompts(prompt), GapByGap(), [0], Limits(20.0, most, least, ("fill",)), record=True)
    return "".join(VOCABULARY.decode(found.sequences[0])), found


def test_gaps_are_written_in_turn():
    script = Script("cd--")
    text, found = drawn(script, "a.b.")
    assert text == "acdb" and found.network_calls == 4 and found.free[0] == [False, True, True, False]
    assert script.seen == [["^a_b__"], ["^a_b__c"], ["^a_b__cd"], ["^a_b__cd_"]]
    assert found.trajectories[0].inserted_at == [0, 1, 2, 0]
    assert drawn(Script("-dd-"), "a.b.")[0] == "abdd" and drawn(Script("c-"), "a.b")[0] == "acb"


def test_full_sequences_end_and_short_ones_do_not():
    text, found = drawn(Script("cccccc"), "a.b.", most=5)
    assert text == "accb" and (found.overflow, found.overflowing, found.forced) == (1, 1, 0)
    text, found = drawn(Script("cc--"), "a.b.", most=5)
    assert text == "accb" and (found.overflow, found.overflowing, found.forced) == (0, 0, 0)
    text, found = drawn(Script("cd-"), "a.", least=4)
    assert text == "acd" and found.forced == 0
    text, found = drawn(Script("--"), "a.b", least=0)
    assert text == "ab" and (found.overflow, found.forced) == (0, 0)
    text, found = drawn(Script("c------"), "a.b.", most=9, least=5)
    assert len(text) >= 4 and text.startswith("acb") and found.forced == 1, "the last gap alone is forced"
