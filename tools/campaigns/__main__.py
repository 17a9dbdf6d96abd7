"""python -m campaigns [--seed 0] [--minutes 60] [--log FILE]: attacks in rounds until time is over, then the counts.

A round has a few attacks of every kind; each failure is in the log with what repeats it."""
import argparse
import contextlib
import itertools
import os
import random
import tempfile
import time
from pathlib import Path

import torch

from campaigns import calls, disks, files, flips, fuzz, links, parts, ranks, streams, tables
from campaigns.attacks import Tally, tell
from campaigns.jobs import jobs


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--log", type=Path, help="failures, a line each; the counts after each round in LOG.counts")
    parser.add_argument("--disks", type=int, default=4, help="operations of each job, in each round, for each of KINDS")
    parser.add_argument("--kinds", nargs="*", default=["kill", "kills", "full"], help="what happens at an operation")
    parser.add_argument("--flips", type=int, default=8, help="in each kind of directory, in each round")
    parser.add_argument("--links", type=int, default=4, help="runs of each job among files of others, in each round")
    parser.add_argument("--parts", type=int, default=200, help="attacks on methods and samplers in each round")
    parser.add_argument("--fuzz", type=int, default=400, help="inputs in each round")
    parser.add_argument("--files", type=int, default=80, help="rows read back in each round; a quarter as many bombs")
    parser.add_argument("--calls", type=int, default=60, help="calls of an app in each round")
    parser.add_argument("--runs", type=int, default=10, help="training runs in each round, of each kind")
    return parser.parse_args()


def one_round(made: dict, tally: Tally, args: argparse.Namespace, number: int):
    "Some attacks of every kind, in a directory of their own."
    rng = random.Random(f"{args.seed} {number}")
    with tempfile.TemporaryDirectory() as place, open(os.devnull, "w") as nothing:
        with contextlib.redirect_stderr(nothing), contextlib.redirect_stdout(nothing):
            inputs = range(number * args.fuzz, (number + 1) * args.fuzz)
            parts.campaign(tally, args.seed, range(number * args.parts, (number + 1) * args.parts))
            links.campaign(made, Path(place), tally, rng, args.links)
            fuzz.campaign(made, Path(place), tally, args.seed, inputs)
            disks.campaign(made, Path(place), tally, rng, args.disks, args.kinds)
            flips.campaign(made, Path(place), tally, rng, args.flips)
            tables.campaign(Path(place), tally, args.seed, inputs)
            files.campaign(Path(place), tally, args.seed, range(number * args.files, (number + 1) * args.files))
            calls.campaign(tally, args.seed, range(number * args.calls, (number + 1) * args.calls))
            runs = range(number * args.runs, (number + 1) * args.runs)
            streams.campaign(Path(place), tally, args.seed, runs)
            ranks.campaign(Path(place), tally, args.seed, runs)


def main():
    args, tally, started = arguments(), Tally(), time.monotonic()
    torch.set_num_threads(1)
    tally.log = args.log
    with tempfile.TemporaryDirectory() as place:
        made = jobs(Path(place) / "jobs")
        for number in itertools.count():
            one_round(made, tally, args, number)
            if args.log: args.log.with_name(args.log.name + ".counts").write_text(tally.table() + "\n")
            tell(f"round {number}: {tally.tried.total():,} attacks, {len(tally.failures)} failed")
            if time.monotonic() - started > 60 * args.minutes: break
    print(tally.table())
    raise SystemExit(bool(tally.failures))


if __name__ == "__main__": main()
