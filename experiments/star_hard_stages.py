"""Train star-hard in four stages: `python experiments/star_hard_stages.py DIR [--seed N]`. About an hour of one core.

On the graphs of star-hard the network finds out late how to look up the edge that leaves a node, since few steps of a
generation ask for it. On smaller graphs with as many names it takes two minutes: first from left to right, which asks
for it alone, then in an order in which every step can be read off the prompt. Then the same order on star-hard, and
last an order that is learned from there. `experiments/ordered_runs.py star-hard DIR/learned` measures the result."""
import argparse
import subprocess
import sys
from pathlib import Path

SMALL = dict(degree=3, arm_min=4, arm_max=6, min_plan=2, batch_size=160, lr=2e-3)
GIVEN = dict(order="given", given="junction-last:1e15,1e-15", orders=1)
STAGES = {
    "small-forward": SMALL | dict(order="left_to_right", orders=1, steps=1000),
    "small-given": SMALL | GIVEN | dict(steps=500),
    "given": GIVEN | dict(batch_size=48, lr=1.5e-3, steps=2000),
    "learned": dict(given=GIVEN["given"], order_start=100, batch_size=32, lr=1e-3, steps=2500),
}


def options(values: dict) -> list[str]:
    "Values as options of the command line."
    return [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    before = None
    for name, values in STAGES.items():
        out = args.directory / name
        values = values | dict(seed=args.seed, compile="false")
        if before is not None: values["start_from"] = before / "best"
        train = [sys.executable, "-m", "loflexmdm", "train", "star-hard-ordered", "--out", str(out), *options(values)]
        resume = [sys.executable, "-m", "loflexmdm", "resume", str(out)]
        subprocess.run(resume if (out / "run.json").exists() else train, check=True)
        before = out


if __name__ == "__main__": main()
