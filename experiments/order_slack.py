"""Slack of the bound of an order, taken apart: `python experiments/order_slack.py --seconds 20 --seeds 0 1`.

Models of ordered insertion learn the commonest English words of up to six letters, in turn for equal CPU seconds. Then
every order of every word, up to 720, is summed: the bound minus the entropy of the words is the KL from the drawn order
to the posterior one, which is the slack, plus the KL from the words to the generator. Nothing is sampled. Rows go to
experiments/results/order_slack.json, with settings, seed and commit; a race whose rows are there is left out."""
import argparse
import math
from collections.abc import Mapping, Sequence
from itertools import groupby, permutations

import torch

import words_task  # noqa: F401 (its task has a name then)
from gap_runs import row_of
from loflexmdm.methods.ordered_insertion import OrderedInsertion
from loflexmdm.process.states import collate, prefix_example
from loflexmdm.tasks.base import task_from
from regret_runs import INSERTION, TRAIN
from runs import ROOT, note, noted
from training_runs import race

RESULTS = ROOT / "experiments" / "results" / "order_slack.json"
TASK = dict(kind="words", count=500, max_letters=6)
ENTRANTS = dict(
    left_to_right=INSERTION | dict(order="left_to_right"), uniform=INSERTION | dict(order="uniform", orders=1),
    learned=INSERTION | dict(order="learned"), learned_near=INSERTION | dict(order="learned", slope=1.0),
    mixture=INSERTION | dict(order="mixture", orders=1),
)
ROWS = 4096  # generations that are read at a time


def tables(entrant: str, seed: int) -> dict:
    "Return the recipe of a run, of 32 generations a step."
    learned = dict(batch_size=16, order_start=1, order_lr_scale=0.1) if entrant.startswith("learned") else {}
    train = TRAIN | dict(steps=10_000, seed=seed, batch_size=32) | learned
    return dict(task=TASK, model=ENTRANTS[entrant], train=train)


@torch.no_grad()
def all_costs(method: OrderedInsertion, words: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    "Return log q(order | word) and log p(order, word), (orders, words), of words of equal length in all orders."
    x1 = collate([prefix_example("", word, method.vocabulary) for word in words])
    orders = torch.tensor(list(permutations(range(1, len(words[0]) + 1))))
    scores, log_q, log_p = method.scores(x1), [], []
    for some in orders.split(max(1, ROWS // len(words))):
        drawn = some[:, None].expand(-1, len(words), -1)
        costs = method.costs_in_order(x1, scores, drawn)
        if method.config.certain: own = torch.where((drawn == orders[0]).all(-1), 0.0, -torch.inf)
        else: own = costs.log_q.sum(-1).view(len(some), -1)
        log_q.append(own.double())
        log_p.append(costs.log_p.double().view(len(some), -1))
    return torch.cat(log_q), torch.cat(log_p)


def slack(method: OrderedInsertion, law: Mapping[str, float]) -> dict[str, float]:
    """Return the means over a law of words, in nats.

    bound: E_q[log q - log p]; nll: -log of the sum over all orders of p; orders: KL from the drawn order to the
    posterior, computed by itself; generator: KL from the law to the generator; entropy: that of the law."""
    method, found = method.double(), dict.fromkeys(("bound", "nll", "orders", "generator", "entropy"), 0.0)
    by_length = groupby(sorted(law, key=len), key=len)
    for _, words in by_length:
        words = list(words)
        p = torch.tensor([law[word] for word in words], dtype=torch.float64)
        log_q, log_p = all_costs(method, words)
        expect = lambda value: torch.where(log_q > -torch.inf, log_q.exp() * value, 0.0).sum(0)
        total = log_p.logsumexp(0)
        assert (log_q.logsumexp(0).abs() < 1e-9).all(), "orders are not drawn with probability 1 together"
        values = dict(bound=expect(log_q - log_p), nll=-total, orders=expect(log_q - (log_p - total)),
                      generator=p.log() - total, entropy=-p.log())
        for key, value in values.items(): found[key] += float((p * value).sum())
    assert math.isclose(found["bound"], found["entropy"] + found["generator"] + found["orders"], abs_tol=1e-9)
    return {key: round(value, 4) for key, value in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--entrants", nargs="+", default=list(ENTRANTS), choices=ENTRANTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        recipes = {entrant: tables(entrant, seed) for entrant in args.entrants}
        names = {entrant: f"{entrant} {args.seconds} {seed}" for entrant in args.entrants}
        if all(noted(RESULTS, name, {}) for name in names.values()): continue
        law = task_from(TASK).law
        for entrant, racer in race(recipes, args.seconds).items():
            note(RESULTS, dict(name=names[entrant], entrant=entrant, seed=seed, seconds=args.seconds, **row_of(racer),
                               **recipes[entrant], **slack(racer.method, law)))


if __name__ == "__main__": main()
