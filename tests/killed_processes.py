"""python tests/killed_processes.py [--kills 50] [--seed 0]: kills one of two training processes at random moments.

The run is resumed after each kill, by two processes again, and begun anew once it is complete. The other process may
not wait longer than PATIENCE, no checkpoint may be lost, and a complete run has the weights of an undisturbed one."""
import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import torch
from share import difference, start, together, train, wait

from loflexmdm.training.checkpoints import checkpoints

PATIENCE = 60  # seconds within which the others must end
PROCESSES = 2


def resume(directory: Path, work: dict) -> list[int]:
    "Processes that go on with a run; their ids."
    return start(PROCESSES, train, str(directory), json.dumps(work | dict(resume=bool(checkpoints(directory)))))


def last_step(directory: Path) -> int: return int(checkpoints(directory)[-1].name[5:]) if checkpoints(directory) else 0


def kill_one(ids: list[int], victim: int, seconds: float) -> float:
    "Kill one process after some seconds; returns how long the others lived on. AssertionError if that is too long."
    time.sleep(seconds)
    os.kill(ids[victim], signal.SIGKILL)
    began = time.monotonic()
    codes = wait(ids)
    lived = time.monotonic() - began
    assert lived < PATIENCE, f"{lived:.0f} s after process {victim} was killed: {codes}"
    assert codes.pop(victim) in (0, -signal.SIGKILL) and set(codes) <= {0, 2}, codes  # 0: had ended before
    return lived


def attacked(directory: Path, whole: Path, kills: int, rng: random.Random, work: dict, longest: float) -> dict:
    "What came of as many kills: how many met a run without a checkpoint, and what was seen at worst."
    seen = dict(kills=0, before_first_checkpoint=0, complete_runs=0, longest_wait=0.0, difference=0.0)
    while seen["kills"] < kills or last_step(directory) < work["steps"]:
        if last_step(directory) == work["steps"]: shutil.rmtree(directory)
        before = last_step(directory)
        ids = resume(directory, work)
        if seen["kills"] < kills:
            lived = kill_one(ids, rng.randrange(PROCESSES), rng.uniform(0, longest))
            seen["kills"] += 1
            seen["longest_wait"] = max(seen["longest_wait"], round(lived, 2))
            seen["before_first_checkpoint"] += not last_step(directory)
        else: assert wait(ids) == [0] * PROCESSES
        assert last_step(directory) >= before, "a checkpoint was lost"
        if last_step(directory) < work["steps"]: continue
        seen["complete_runs"] += 1
        seen["difference"] = max(seen["difference"], difference(whole, directory))
    return seen


def campaign(place: Path, kills: int, rng: random.Random, **work) -> dict:
    "Kills of a run with the settings `work`, beside one that is left alone."
    work, began = dict(steps=40, save_every=2, keep=2) | work, time.monotonic()
    together(PROCESSES, train, str(place / "whole"), json.dumps(work))
    return attacked(place / "run", place / "whole", kills, rng, work, time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        print(campaign(Path(place), args.kills, random.Random(args.seed)))


if __name__ == "__main__": main()
