"""Quality over training time: `python experiments/hours_runs.py NAME DIR`, of the run in DIR of a model of molecules.

Every checkpoint that the run has kept is sampled; its figures, with the seconds it was trained for, are noted in
experiments/results/hours_runs.json. MOSES' molecules are compared with its test set, others with the test
split of their task."""
import argparse
from pathlib import Path

import torch

from loflexmdm.models.pretrained import load
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from moses_figures import Reference
from moses_runs import drawn, judged, reference_of
from runs import ROOT, bound, logged, note

RESULTS = ROOT / "experiments" / "results" / "hours_runs.json"


def figures(path: Path, known: set[str], reference: Reference, n: int) -> dict:
    "Bound and metrics of one checkpoint, drawn by its default sampler."
    method = load(path).method
    task = task_from(method.task)
    smiles, how = drawn(task, method, n, method.default_sampler)
    return dict(bound=bound(task, method)) | how | judged(smiles, known, reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the row")
    parser.add_argument("directory", type=Path)
    parser.add_argument("-n", type=int, default=2000, help="samples per checkpoint")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kept, seconds = checkpoints(args.directory), logged(args.directory, "seconds")
    first = load(kept[0]).method
    task = task_from(first.task)
    known, reference = set(task.smiles("train")), reference_of(task)
    points = []
    for path in kept:
        step = int(path.name.removeprefix("step_"))
        points.append(dict(step=step, trained=seconds[step]) | figures(path, known, reference, args.n))
        print(points[-1], flush=True)
    note(RESULTS, dict(name=args.name, method=first.name, task=first.task, samples=args.n, points=points,
                       parameters=sum(p.numel() for p in first.parameters())))


if __name__ == "__main__": main()
