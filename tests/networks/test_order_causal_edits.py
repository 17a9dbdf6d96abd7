"Edits one event at a time against one pass over all of them: a deletion's place, and those of what follows."
import pytest
import torch

from loflexmdm.networks.order_causal_edits import OrderCausalEdits, places_with_edits
from loflexmdm.networks.transformer import Size
from loflexmdm.process.states import PAD, Vocabulary, collate, prefix_example

VOCABULARY = Vocabulary("abcd")
A, B, C, D = VOCABULARY.encode("abcd")
# the source abcd lies in columns 1, 2, 4 and 5; columns 3 and 6 are free for insertions
GIVEN, COLUMNS = [0, 1, 2, 4, 5], 7
DELETE_A, DELETE_B, DELETE_C, DELETE_D = (1, A, True, A), (2, B, True, B), (4, C, True, C), (5, D, True, D)
REPLACE_A, REPLACE_D, INSERT, APPEND = (1, A, False, D), (5, D, False, A), (3, PAD, False, C), (6, PAD, False, B)
EVENTS = [  # each a column, what is there, whether it is deleted, what is written (or deleted)
    [DELETE_B, REPLACE_D, INSERT], [DELETE_A, DELETE_D, APPEND], [INSERT, DELETE_C, REPLACE_A, DELETE_B],
    [DELETE_D, DELETE_C, DELETE_B, DELETE_A, INSERT], [DELETE_A],
]


@pytest.fixture(scope="module")
def net():
    "In float64, with random weights everywhere."
    torch.manual_seed(0)
    made = OrderCausalEdits(len(VOCABULARY), Size(16, 2, 2, 16)).double()
    with torch.no_grad():
        for p in made.parameters(): p += 0.3 * torch.randn_like(p) / max(p.shape[-1], 1) ** 0.5
    return made


@torch.no_grad()
@pytest.mark.parametrize("events", EVENTS)
def test_scores_after_a_deletion_are_those_of_one_pass(net, events):
    order, old, deletes, written = (torch.tensor([field]) for field in zip(*events))
    source = collate([prefix_example("", "abcd", VOCABULARY)])
    where = places_with_edits(torch.tensor([GIVEN]), order, old, deletes, COLUMNS)
    laws, items = net.laws(net.read(source), written, where), where.rank.shape[2]
    memory, given = net.read(source), len(GIVEN)
    for k in range(len(events) + 1):
        known = [kind * items + i for kind in range(3) for i in range(given + k)]
        found = net.gap_scores(memory).log_softmax(-1)[0]
        torch.testing.assert_close(found, laws.gap[0, k, [*known, 3 * items]], atol=1e-12, rtol=0)
        if k == len(events): break
        kind, item = divmod(int(where.outcome[0, k, k]), items)
        event = torch.tensor([item + kind * (given + k)])
        if not deletes[0, k]: torch.testing.assert_close(net.token_features(memory, event)[0], laws.token[0, k])
        memory = net.insert(memory, event, written[:, k])
