"Orders of the insertion of masks and of their tokens: by hand, by enumeration and by draws."
import itertools
import math

import torch

from loflexmdm.process.mask_orders import decisions_of, draw_events, event_log_probs, event_numbers, masks_of
from loflexmdm.support.random_numbers import seeded

# codes: 2 i inserts the mask of column i, 2 i + 1 decides its token
SCORES = torch.tensor([[0.3, -0.5], [9.0, 9.0], [1.1, 0.2]], dtype=torch.float64)
FREE = torch.tensor([[True, False, True]])
ORDERS = [o for o in itertools.permutations((0, 1, 4, 5)) if o.index(0) < o.index(1) and o.index(4) < o.index(5)]


def step_chance(order: tuple, k: int) -> dict[int, float]:
    "Chance of every event after the first k of an order: those that are left race, a token after its mask alone."
    left = [e for e in (0, 1, 4, 5) if e not in order[:k] and (e % 2 == 0 or e - 1 in order[:k])]
    rate = {e: math.exp(SCORES[e // 2, e % 2]) for e in left}
    return {e: rate[e] / sum(rate.values()) for e in left}


def test_places_of_events():
    order = torch.tensor([[4, 0, 1, 5], [2, 3, 6, 6]])
    number = event_numbers(order, 3)
    assert number.tolist() == [[1, 2, 4, 4, 0, 3, 4, 4], [4, 4, 0, 1, 4, 4, 4, 4]]
    assert masks_of(order, number).tolist() == [[0, 1, 1, 0], [0, 0, 4, 4]]
    assert decisions_of(order, number).tolist() == [[3, 2, 2, 3], [1, 1, 4, 4]]


def test_chances_of_every_step_of_every_order():
    orders = torch.tensor(ORDERS)
    scores = SCORES.expand(len(orders), -1, -1)
    table = event_log_probs(scores, orders, event_numbers(orders, 3)).exp()
    for i, order in enumerate(ORDERS):
        for k in range(4):
            chance = step_chance(order, k)
            torch.testing.assert_close(table[i, k],
                torch.tensor([chance.get(e, 0.0) for e in order], dtype=torch.float64))
    torch.testing.assert_close(table.diagonal(dim1=1, dim2=2).prod(-1).sum(), torch.tensor(1.0, dtype=torch.float64))


def test_beyond_the_last_event_of_a_row_nothing_is_uncertain():
    order = torch.tensor([[0, 1, 6, 6]])
    table = event_log_probs(SCORES[None], order, event_numbers(order, 3)).exp()
    torch.testing.assert_close(table[0], torch.eye(4, dtype=torch.float64))


def test_drawn_orders_have_these_chances():
    n = 20_000
    drawn = draw_events(SCORES.expand(n, -1, -1), FREE.expand(n, -1), seeded(0))
    found = {order: int((drawn == torch.tensor(order)).all(-1).sum()) for order in ORDERS}
    assert drawn.shape == (n, 4) and sum(found.values()) == n
    for order, count in found.items():
        p = math.prod(step_chance(order, k)[e] for k, e in enumerate(order))
        assert abs(count - n * p) < 4 * math.sqrt(n * p * (1 - p)), order
    both = draw_events(SCORES.expand(2, -1, -1), torch.tensor([[False, True, False], [True, True, True]]), seeded(0))
    assert both[0].tolist() == [2, 3, 6, 6, 6, 6] and sorted(both[1].tolist()) == [0, 1, 2, 3, 4, 5]
