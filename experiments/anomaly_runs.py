"""Which lines of a log are odd: `python experiments/anomaly_runs.py --seeds 0 1 2 --seconds 60`.

200,000 usual lines are learned, and 10,000 later ones are scored, 500 of them odd in one of five ways
(`log_lines.planted`).
An autoregressive model scores a line by its nats, its worst token, or its excess: nats beyond what the model expects.
Beside it: the rarity of the template that Drain3 finds, and isolation forests, on counts of templates in windows of
twenty lines, and on the template and the values of a line. Rows, with recall at rates of false alarms and precision at
recall, go to experiments/results/anomaly_runs.json. Needs `pip install drain3`."""
import argparse
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, precision_recall_curve

from log_lines import ODD, lines, planted
from loflexmdm.models.model import Model
from loflexmdm.process.intensities import TokenLaws
from loflexmdm.process.states import collate, prefix_example
from runs import ROOT, note, noted
from training_runs import race, trained

RESULTS = ROOT / "experiments" / "results" / "anomaly_runs.json"
TRAINED, SCORED, EACH, WINDOW = 200_000, 10_000, 100, 20
MEASURED = 2  # CPU seconds of steps whose pace is taken
NUMBER = re.compile(r"\d+(\.\d+)?")
MODEL = dict(method="ar", size="nano")
TRAIN = dict(optimiser="muon", lr=3e-3, schedule="flat", warmup=50, ema=0.99, log_every=100, batch_size=16,
             valid_size=64)


def figures(scores: Sequence[float], kinds: Sequence[str]) -> dict:
    "Return average precision, precision at two recalls, and recall at two rates of false alarms, by kind as well."
    scores, odd = np.asarray(scores, float), np.array([bool(k) for k in kinds])
    finite = np.where(np.isinf(scores), scores[np.isfinite(scores)].max() + 1, scores)
    precision, recall, _ = precision_recall_curve(odd, finite)
    found = dict(average_precision=average_precision_score(odd, finite))
    for share in (0.5, 0.8): found[f"precision at recall {share}"] = precision[recall >= share].max()
    for rate in (0.001, 0.01):
        above = finite > np.quantile(finite[~odd], 1 - rate)
        found[f"recall at {rate}"] = above[odd].mean()
        for kind in ODD: found[f"{kind} at {rate}"] = above[np.array(kinds) == kind].mean()
    return {key: round(float(value), 3) for key, value in found.items()}


@torch.no_grad()
def token_surprises(model: Model, texts: Sequence[str], batch_size: int = 64) -> list[tuple[np.ndarray, np.ndarray]]:
    "Return -log p of each token of each text, the end included, and what the model expects it to be, its entropy."
    found = []
    for i in range(0, len(texts), batch_size):
        part = texts[i:i + batch_size]
        x1 = collate([prefix_example([], model.task.sequence(text), model.vocabulary) for text in part])
        log_p, counted = model.method.log_probs(x1)
        law = torch.log_softmax(TokenLaws.of(model.method.intensities(x1).logits).at(counted), -1)
        expected = torch.zeros_like(log_p)
        expected[counted] = -(law.exp() * law.masked_fill(law == -math.inf, 0)).sum(-1)
        found += [(-p[c].numpy(), e[c].numpy()) for p, e, c in zip(log_p, expected, counted)]
    return found


def run_model(train: list[str], test: list[str], kinds: list[str], seconds: int, seed: int):
    "Train a model for some seconds, score, and note."
    file = ROOT / "runs" / f"anomaly-{seed}.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(train) + "\n", encoding="utf-8")
    task = dict(kind="text", file=str(file), unit="subwords", subword_count=1000)
    settings = dict(task=task, model=MODEL, train=TRAIN | dict(seed=seed))
    pace = race(dict(ar=settings | dict(train=settings["train"] | dict(steps=10_000))), MEASURED)["ar"]
    steps = round(seconds * pace.trainer.step / pace.spent)
    settings["train"] |= dict(steps=steps, save_every=steps // 2, valid_every=steps)
    made, _, spent = trained(settings, f"anomaly {seed} {seconds}")
    model, begun = Model(made), time.process_time()
    tokens = token_surprises(model, test)
    scored = round(time.process_time() - begun, 1)
    task["file"] = file.name
    scores = dict(nats=[p.sum() for p, _ in tokens], worst=[p.max() for p, _ in tokens],
                  excess=[(p - e).sum() for p, e in tokens])
    for score, values in scores.items():
        note(RESULTS, dict(name=f"ar {score} {seconds} {seed}", entrant="ar", score=score, seed=seed, seconds=seconds,
                           cpu_seconds=spent, scoring_seconds=scored, lines=TRAINED, scored=len(test), **settings,
                           **figures(values, kinds)))


def run_templates(train: list[str], test: list[str], kinds: list[str], seed: int):
    "Mine templates, score by their rarity and by isolation forests, and note."
    from drain3 import TemplateMiner
    logging.getLogger("drain3").setLevel(logging.WARNING)
    begun, miner = time.process_time(), TemplateMiner()
    without_time = lambda line: NUMBER.sub("<*>", line.split(" ", 1)[1])
    of_train = [miner.add_log_message(without_time(line))["cluster_id"] for line in train]
    found = [miner.match(without_time(line)) for line in test]
    of_test = [c.cluster_id if c else 0 for c in found]
    counts, spent = Counter(of_train), round(time.process_time() - begun, 1)
    rarity = [-math.log(counts[c] / len(train)) if c else math.inf for c in of_test]
    rest = dict(seed=seed, lines=len(train), scored=len(test), templates=len(counts))
    note(RESULTS, dict(name=f"drain3 {seed}", entrant="drain3", score="rarity of the template", cpu_seconds=spent,
                       **rest, **figures(rarity, kinds)))
    columns = {c: i + 1 for i, (c, _) in enumerate(counts.most_common(100))}
    for name, score in dict(windows=of_windows, values=of_values).items():
        begun = time.process_time()
        values = score(train, of_train, test, of_test, columns, seed)
        note(RESULTS, dict(name=f"forest {name} {seed}", entrant="forest", score=name,
                           cpu_seconds=round(spent + time.process_time() - begun, 1), **rest, **figures(values, kinds)))


def forest_scores(seen: np.ndarray, new: np.ndarray, seed: int) -> np.ndarray:
    return -IsolationForest(random_state=seed).fit(seen).score_samples(new)


def of_windows(train, of_train, test, of_test, columns, seed) -> np.ndarray:
    "Score a line by the counts of templates in its window."
    def counts(ids):
        one = np.zeros((len(ids), len(columns) + 1), np.float32)
        one[np.arange(len(ids)), [columns.get(c, 0) for c in ids]] = 1
        return one.reshape(-1, WINDOW, one.shape[1]).sum(1)
    return np.repeat(forest_scores(counts(of_train), counts(of_test), seed), WINDOW)


def of_values(train, of_train, test, of_test, columns, seed) -> np.ndarray:
    "Score a line by its template, its length and the logarithms of its last five numbers."
    def features(texts, ids):
        rows = np.zeros((len(ids), len(columns) + 7), np.float32)
        rows[np.arange(len(ids)), [columns.get(c, 0) for c in ids]] = 1
        for row, text in zip(rows, texts):
            numbers = [float(m[0]) for m in NUMBER.finditer(text.split("] ", 1)[-1])][-5:]
            row[-6:-6 + len(numbers)], row[-1] = np.log1p(numbers), len(text)
        return rows
    return forest_scores(features(train[::4], of_train[::4]), features(test, of_test), seed)


def main(argv: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds of training")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    for seed in args.seeds:
        train, (test, kinds) = lines(TRAINED, seed), planted(SCORED, EACH, 100 + seed)
        if not noted(RESULTS, f"forest values {seed}", dict(seed=seed)): run_templates(train, test, kinds, seed)
        if not noted(RESULTS, f"ar excess {args.seconds} {seed}", dict(seed=seed)):
            run_model(train, test, kinds, args.seconds, seed)


if __name__ == "__main__": main()
