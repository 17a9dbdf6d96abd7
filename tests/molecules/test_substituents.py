"Substituents: an atom comes at each point of a prompt, whatever the model would rather do."
import pytest
import torch

from loflexmdm.methods.ordered_insertion import OrderedInsertion, OrderedInsertionConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.molecules.notation.fragments import contains_fragment
from loflexmdm.molecules.notation.notations import is_atom
from loflexmdm.molecules.substituents import GapReader, Substituents, empty_points, substituents_of
from loflexmdm.process.states import Example, Vocabulary, collate, parse_prompt
from loflexmdm.samplers import EventByEvent
from loflexmdm.samplers.edits_event_by_event import EventByEventEdits
from loflexmdm.samplers.masks_event_by_event import EventByEventMasks

VOCABULARY = Vocabulary(["C", "N", "O", "=", "1", "(", ")"])
PROMPT = ["C", "(", ..., ")", "C", "(", ..., ")", "N", ...]


def untrained(order: str) -> OrderedInsertion:
    torch.manual_seed(0)
    return OrderedInsertion(VOCABULARY, OrderedInsertionConfig(order=order, size="nano", max_length=24))


@pytest.mark.parametrize("order", ["left_to_right", "uniform"])
def test_every_point_begins_with_an_atom(order):
    "Of a model with random weights, which would leave most of the points empty."
    method = untrained(order)
    hook = substituents_of(method)
    assert hook.in_order == (order == "left_to_right")

    def lost(sampler):
        made = generate(method, [PROMPT], n=200, seed=0, sampler=sampler)
        rows = [at_points(*row) for row in zip(made.sequences, made.free) if len(row[0]) < method.config.max_length - 1]
        return sum(any(not part or not is_atom(part[0]) for part in parts) for parts in rows), len(rows)

    bad, n = lost(EventByEvent(logits_hook=hook))
    assert bad == 0 < n
    assert lost(EventByEvent())[0] > 50


def at_points(ids: list[int], free: list[bool]) -> list[list[str]]:
    "What was inserted at each point: behind the second, fifth and seventh token of the prompt."
    parts = {2: [], 5: [], 7: []}
    given = 0
    for token, is_free in zip(VOCABULARY.decode(ids), free):
        given += not is_free
        if is_free: parts[given].append(token)
    return list(parts.values())


def test_texts_with_the_same_hook_are_one_batch(monkeypatch):
    model = load("molecules-leads")
    asked = ["*c1ccncc1", "*N1CCOCC1"]
    hook = Substituents(tuple(model.vocabulary.tokens))
    assert substituents_of(model.method) == hook
    batches = []
    step = EventByEvent.step

    def counted(self, network, state):
        batches.append((len(state.row), self.logits_hook))
        return step(self, network, state)

    monkeypatch.setattr(EventByEvent, "step", counted)
    made = model.sample(asked, n=3, seed=0)
    assert max(n for n, _ in batches[-20:]) <= 6 and all(h == hook for _, h in batches)
    kept = [contains_fragment(s, asked[i // 3]) for i, s in enumerate(made.smiles)]
    assert len(kept) == 6 and sum(kept) >= 4


def test_who_has_the_hook():
    assert substituents_of(load("molecules-moses-ar").method) is None
    assert substituents_of(load("molecules-leads").method).in_order


def test_an_empty_point_is_one_of_the_prompt():
    "Not in a gap that is closed; a prompt that ends is open there."
    for prompt, columns in ((PROMPT, [2, 5, 7]), (["C", "N"], [2]), (["C", ..., "N"], [1])):
        x = collate([parse_prompt(prompt, VOCABULARY)])
        assert empty_points(x)[0].nonzero()[:, 0].tolist() == columns


@pytest.mark.parametrize("in_order, allowed", [(True, [2]), (False, [2, 5, 7])])
def test_a_model_from_left_to_right_does_not_pass_an_empty_point(in_order, allowed):
    "Of three empty points the later ones wait; and no sequence ends, whatever the order."
    x = collate([parse_prompt(PROMPT, VOCABULARY)])
    columns = x.tokens.shape[1]
    scores = torch.cat([torch.where(x.open, 0.0, -torch.inf), torch.zeros(1, 1)], 1)
    found = Substituents(tuple(VOCABULARY.tokens), in_order).gaps(scores, x, torch.arange(columns)[None])
    assert found[0].isfinite().nonzero()[:, 0].tolist() == allowed


def test_hooks_that_do_not_fit_are_refused():
    "A function, as other samplers take, has no word on gaps; masks and edits have other outcomes."
    with pytest.raises(ValueError, match="must have the methods gaps and tokens"):
        EventByEvent(logits_hook=lambda logits, x, tau: logits)
    for kind in (EventByEventMasks, EventByEventEdits):
        with pytest.raises(ValueError, match=f"logits_hook: {kind.__name__} takes none"): kind(logits_hook=Recorded())
    assert EventByEvent(logits_hook=Recorded()).logits_hook is not None


class Recorded:
    "A hook that changes nothing."
    def gaps(self, scores, x, column): return scores
    def tokens(self, logits, x, column): return logits


class Alphabet:
    "A reader of texts of C and 1, at most three tokens long, that end after C."
    start = ""
    def after(self, state, piece): return state + piece if len(state) < 3 and piece in "C1" else None
    def may_follow(self, state, pieces): return [len(state) < 3 and piece in "C1" for piece in pieces]
    def ends(self, state): return state.endswith("C")


def test_a_gap_takes_what_its_reader_allows():
    vocabulary = Vocabulary(["C", "N", "1", "("])
    reader = GapReader(Alphabet(), vocabulary)
    c, n, one, branch = vocabulary.encode(["C", "N", "1", "("])
    x = collate([Example([2, c, *own, n], [True, True, *[False] * len(own), True],
        [True, False, *[False] * len(own), True])
                 for own in ([], [c], [one], [c, c, c])])
    allowed, ends = reader.next(x, x.free, x.fixed)
    assert allowed[:, [c, n, one, branch]].tolist() == [[True, False, True, False]] * 3 + [[False] * 4]
    assert ends.tolist() == [False, True, False, True] and not allowed[:, :c].any()
    opened = x._replace(tokens=torch.where(x.tokens == n, one, x.tokens))
    assert reader.next(opened, x.free, x.fixed)[0][:,
        one].tolist() == [False] * 4, "a ring that the prompt opens stays open"

    hook = Substituents(tuple(vocabulary.tokens), reader=reader)
    found, may_end, last = hook.in_gap(x)
    assert found.equal(allowed) and may_end.equal(ends) and last[:, 0].tolist() == [1, 2, 2, 4]
    scores = hook.gaps(torch.zeros(4, 3), x, torch.tensor([[1, 2], [1, 2], [1, 2], [1, 4]]))
    assert scores.isfinite().tolist() == [[True, False, False], [False, True, True], [False, True, False],
        [False, False, True]]
    logits = hook.tokens(torch.zeros(4, len(vocabulary)), x, torch.tensor([1, 2, 2, 4]))
    finite = [[True, False, False], [True, False, True], [True, False, True], [True] * 3]
    assert logits[:, [c, n, one]].isfinite().tolist() == finite
