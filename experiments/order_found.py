"""The order that a model has learned: `python experiments/order_found.py NAME DIR`, of the run in DIR.

Orders of test sequences are drawn from the order model. When tokens are inserted, from 0 for the first to 1 for the
last, goes to experiments/results/order_found.json: on average by place in the sequence, in tenths, and by token."""
import argparse
from collections import defaultdict
from pathlib import Path

import torch

from loflexmdm.methods.ordered_insertion import OrderedInsertion
from loflexmdm.models.pretrained import load
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from runs import ROOT, held_out, note

RESULTS = ROOT / "experiments" / "results" / "order_found.json"
SEQUENCES, ORDERS, PARTS = 256, 8, 10


@torch.no_grad()
def arrivals(method: OrderedInsertion, sequences) -> list[tuple[int, float, str]]:
    "Of every token in every drawn order: the tenth in which it lies, its relative arrival, and its text."
    drawn, found = method.draw(sequences, ORDERS, torch.Generator().manual_seed(0)), []
    rows = zip(drawn.order.tolist(), drawn.tokens.tolist(), drawn.count.tolist())
    for columns, tokens, count in rows:
        place = {column: k for k, column in enumerate(sorted(columns[:count]))}
        for k in range(count):
            tenth = PARTS * place[columns[k]] // count
            found.append((tenth, k / max(count - 1, 1), method.vocabulary.tokens[tokens[k]]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the row")
    parser.add_argument("directory", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    method = load(checkpoints(args.directory)[-1]).method
    found = arrivals(method, held_out(task_from(method.task), SEQUENCES))
    by_place, by_token = defaultdict(list), defaultdict(list)
    for place, arrival, token in found:
        by_place[place].append(arrival)
        by_token[token].append(arrival)
    average = lambda values: round(sum(values) / len(values), 3)
    note(RESULTS, dict(
        name=args.name, sequences=SEQUENCES, orders=ORDERS, by_place=[average(by_place[k]) for k in range(PARTS)],
        by_token={t: [average(v), len(v)] for t, v in sorted(by_token.items())},
    ))


if __name__ == "__main__": main()
