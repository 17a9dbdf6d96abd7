"""Signal and noise of the order model's gradient: `python experiments/order_gradients.py TASK RUN [--batches N]`.

RUN is a directory of experiments/order_runs.py; its generator at several checkpoints is given a table of rates, one for
each kind of position, and the gradient in their logarithms is measured over many batches of 64 generator rows. What is
found goes to experiments/results/order_gradients.json with the commit."""
import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from loflexmdm.methods.lo_flexmdm import LoFlexMDM
from loflexmdm.models.pretrained import load
from loflexmdm.process.states import PartialSequences, collate
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.training.checkpoints import checkpoints
from order_runs import ROWS, TASKS
from runs import ROOT, note

RESULTS = ROOT / "experiments" / "results" / "order_gradients.json"
BEFORE = dict(readings="clock", states=2, bound="paper", unmask="frozen")
VARIANTS = {
    "clock readings": {}, "event readings": dict(readings="event"),
    "event readings, four states": dict(readings="event", states=4),
    "event readings, tight bound": dict(readings="event", bound="tight"),
    "clock readings, trainable unmasking": dict(unmask="trainable"),
    "event readings, trainable unmasking": dict(readings="event", unmask="trainable"),
}


KINDS = dict(  # of the free positions, in their order
    key=[0] + [1] * 10, key_adder=[0] + [1] * 10, key_blocks=[0] + [1, 2, 2] * 4, stars=list(range(10)),
)


class Table(LoFlexMDM):
    "A generator with a table of rates in place of an order model."
    def schedule(self, x1: PartialSequences) -> tuple[Tensor, Tensor]:
        kind = self.kinds[(x1.free.cumsum(-1) - 1).clamp_min(0)]
        b_in, b_um = (torch.where(x1.free, row[kind], 0.0).exp() for row in self.log_b)
        return b_in, b_um if self.config.unmask == "trainable" else torch.ones_like(b_in)


def table_model(model: LoFlexMDM, options: dict, kinds: list[int]) -> Table:
    "The model's generator with rates of 1 everywhere, trained as `options` say."
    config = replace(model.config, order="learned", order_size="nano", given="", regulariser=0.0, **options)
    out = Table(model.vocabulary, config, model.task)
    out.load_state_dict(model.state_dict(), strict=False)
    out.kinds, out.log_b = torch.tensor(kinds), torch.zeros(2, max(kinds) + 1, requires_grad=True)
    return out


def gradients(task: Task, model: Table, batches: int) -> Tensor:
    "Gradients in log b, those of unmasking behind those of insertion where they are trained: (batches, values)."
    data, size, rows = task.dataset("train"), ROWS // model.config.states, []
    for s in range(batches):
        x1 = collate([data[s * size + i] for i in range(size)])
        loss = model.loss(x1, torch.Generator().manual_seed(s)).loss
        grad, = torch.autograd.grad(loss, model.log_b)
        rows.append(grad if model.config.unmask == "trainable" else grad[:1])
    return torch.stack(rows).double()


def signal_to_noise(g: Tensor) -> float:
    "Norm of the mean gradient over the noise of one batch, with the mean's own noise taken out; 0 if nothing is left."
    noise = g.flatten(1).var(0).sum()
    signal = g.mean(0).square().sum() - noise / len(g)
    return float((signal.clamp_min(0) / noise).sqrt())


def measured(task: Task, model: Table, batches: int) -> dict:
    "Signal to noise of the gradient in all values and in those that centring leaves, and its mean."
    g = gradients(task, model, batches)
    return dict(plain=round(signal_to_noise(g), 3), centred=round(signal_to_noise(g - g.mean(-1, keepdim=True)), 3),
                mean=[round(v, 3) for v in g.mean(0)[0].tolist()],
                error=[round(v, 3) for v in (g.std(0) / len(g) ** 0.5)[0].tolist()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("run", type=Path)
    parser.add_argument("--batches", type=int, default=400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    task = task_from(TASKS[args.task]["task"])
    for path in checkpoints(args.run)[2:4]:
        found = {name: measured(task, table_model(load(path).method, BEFORE | options, KINDS[args.task]), args.batches)
                 for name, options in VARIANTS.items()}
        note(RESULTS, dict(name=f"{args.task} {path.name}", run=args.run.name, batches=args.batches, variants=found))
        print(json.dumps({k: (v["plain"], v["centred"]) for k, v in found.items()}), flush=True)


if __name__ == "__main__": main()
