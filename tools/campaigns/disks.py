"Processes that are killed at a file operation, and disks that are full from one on, with half of a write on them."
import errno
import os
import random
import shutil
import signal
from pathlib import Path

import kill
from kill import Killer, killed_at

from campaigns.attacks import Tally, isolated, what_went_wrong
from campaigns.jobs import Job


class Full(Killer):
    "From operation `at` on nothing can be written below `root`: the disk is full. Removing and renaming still work."
    def operation(self):
        self.seen += 1
        if self.seen >= self.at: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def audit(self, event: str, args: tuple):
        if event in ("open", "os.mkdir"): super().audit(event, args)


def on_a_full_disk(at: int, root: Path, run) -> dict:
    "`run()` in a child process, the disk below `root` being full from operation `at` on."
    def attacked():
        Full(root, at).install()
        return run()
    return isolated(attacked)


def ended(job: Job, d: Path, expected: dict) -> str:
    "What is wrong after the command has been given again in `d`; empty if all is as without an attack."
    after = isolated(lambda: job.again(d))
    if after["code"]: return f"again: {what_went_wrong(after) or after['said'].splitlines()[-1]}"
    found = job.found(d)
    other = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
    return f"other files: {', '.join(other[:5])}" if other else ""


def whole(job: Job, place: Path) -> tuple[int, dict]:
    "How many operations a job makes, and what it leaves."
    job.begin(d := place / f"{job.name}_whole")
    told = killed_at(0, d, lambda: job.run(d))
    assert told["code"] == 0, told
    return told["operations"], job.found(d)


def killed(job: Job, d: Path, at: int) -> str:
    "Kill the job at an operation; says if it was not killed."
    code = killed_at(at, d, lambda: job.run(d))["code"]
    return "" if code == -signal.SIGKILL else f"exit code {code} instead of a kill"


def attack(job: Job, place: Path, kind: str, at: int, expected: dict, then: int = 0) -> str:
    """Kill a job at an operation (`kill`), also what one does afterwards, at operation `then` (`kills`), or fill the
    disk (`full`); what is wrong in the end."""
    job.begin(d := place / f"{job.name}_{kind}_{at}")
    try:
        if kind == "full": wrong = what_went_wrong(on_a_full_disk(at, d, lambda: job.run(d)))
        else: wrong = killed(job, d, at)
        if kind == "kills": killed_at(then, d, lambda: job.again(d))  # to its end, if it makes fewer operations
        return wrong or ended(job, d, expected)
    finally: shutil.rmtree(d, ignore_errors=True)


def campaign(jobs: dict[str, Job], place: Path, tally: Tally, rng: random.Random, most: int, kinds=("kill", "full")):
    "Attack every job at `most` of its operations (all, if there are fewer)."
    for name, job in jobs.items():
        n, expected = whole(job, place)
        for kind in kinds:
            for at in sorted(rng.sample(range(1, n + 1), min(n, most))):
                then = rng.randint(1, n) if kind == "kills" else 0
                what = f"operation {at} of {n}" + f", then {then}" * bool(then)
                tally.note(f"{kind} {name}", what, attack(job, place, kind, at, expected, then))


assert kill.Torn  # half of every write is written before it fails
