"""Training runs behind the figures on orders:
`python experiments/order_runs.py TASK SEED... [--entrants NAME...] [--lr LR] [--steps N]`.

Every entrant but `unmask_wide` has the same network and as many generator rows per step. Each run adds its curve to
experiments/results/order_runs.json,
with its settings, seed and commit; a run that was interrupted goes on where it stopped. `unmask_after`, with
`--steps 8000`, begins with the weights that the run of `fixed` with the same seed had 8,000 steps before its end; so
does `found_after`."""
import argparse

import torch

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.models.pretrained import load
from loflexmdm.samplers import EventDriven
from loflexmdm.tasks.base import Task, task_from
from loflexmdm.tasks.star_graphs import star_correlations
from runs import FIXED, LEARNED, LEARNED_BOTH, ROOT, bound, held_out, logged, note, states_per_sequence
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "order_runs.json"
TASKS = dict(  # settings of the task, its order by hand, and the budget, fixed before the seeds that count
    key=dict(task=dict(kind="key", n=10, q=4), given="slots:10,0.1", steps=2400, lr=dict(fixed=1e-3)),
    key_blocks=dict(task=dict(kind="key", n=2, q=3, blocks=4), given="levels:3,10,1,0.1", steps=3200,
                    lr=dict(fixed=1e-3, given=4e-3)),
    stars=dict(task=dict(kind="star", degree=3, arm_min=2, arm_max=5, nodes=13), given="to-junction:10,0.1",
               steps=16_000, lr={}),
    key_adder=dict(task=dict(kind="key", n=10, q=4), given="slots:10,0.1", steps=600, lr={}, other_lr=6e-3,
                   model=dict(network="adder", order_network="adder"), train=dict(optimiser="adamw", warmup=50)),
)
LR = 2e-3  # unless another was better for an entrant on a seed that is not reported
ENTRANTS = dict(
    fixed=FIXED, given=FIXED | dict(order="given"), learned=LEARNED,
    given_both=FIXED | dict(order="given", unmask="trainable"),  # decisions in that order too
    found=LEARNED_BOTH | dict(given="backward"),  # learned from the order that a mixture of ordered insertion finds here
    found_after=LEARNED_BOTH | dict(given="backward"),  # the same, after as many steps with a fixed order
    fixed_clock=FIXED | dict(readings="clock"),
    published=LEARNED | dict(readings="clock", centre=False, regulariser=10.0),
    # the learned order with one thing changed
    clock=LEARNED | dict(readings="clock"), uncentred=LEARNED | dict(centre=False),
    regularised_1=LEARNED | dict(regulariser=1.0), regularised_10=LEARNED | dict(regulariser=10.0),
    tight=LEARNED | dict(bound="tight"), shared=LEARNED | dict(backbone="shared"),
    unmask=LEARNED_BOTH, unmask_slow=LEARNED_BOTH, unmask_late=LEARNED_BOTH, unmask_wide=LEARNED_BOTH,
    unmask_after=LEARNED_BOTH,  # from the weights of the run with a fixed order, as many steps before its end
    larger=LEARNED | dict(order_size="tiny"),
    four_states=LEARNED | dict(states=4), plain=LEARNED | dict(plain=0.25), slow=LEARNED, early=LEARNED,
    # Kumaraswamy exponents other than 1, which the regulariser sees
    a_half=LEARNED | dict(a=0.5, regulariser=1.0), a_two=LEARNED | dict(a=2.0, regulariser=1.0),
    autoregressive=dict(method="ar"), masked=dict(method="mdm"),
    # one token per event without masks and a clock; relatives with one partial sequence per step, IP with two
    insertion=dict(method="ordered-insertion", order="learned", orders=2),
    ilm=dict(method="ilm"), ip=dict(method="ip", orders=2), did=dict(method="did"),
)
ALL_PLACES, WITHOUT_RATES = ("autoregressive", "masked"), ("insertion", "ilm", "ip", "did")
ROWS = 64  # of the generator per step, for every entrant but one
SCHEDULE = dict(slow=dict(order_lr_scale=0.3), unmask_slow=dict(order_lr_scale=0.1), found=dict(order_lr_scale=0.1),
                unmask_late=dict(order_lr_scale=0.1, order_start=8000),  # when half of the steps are over
                unmask_wide=dict(order_lr_scale=0.1, batch_size=ROWS),  # as many sequences as the fixed order, twice
                unmask_after=dict(order_lr_scale=0.1, order_start=500),
                found_after=dict(order_lr_scale=0.1, order_start=500),
                insertion=dict(order_lr_scale=0.1), ip=dict(order_lr_scale=0.1),
                published=dict(order_lr_scale=0.3), early=dict(order_start=0))
TRAIN = dict(warmup=100, ema=0.99, optimiser="muon", keep=100, valid_size=256)
PLANNERS = ("top_prob", "prob_diff", "entropy")  # rules of position for a model with a fixed order


def tables(name: str, entrant: str, seed: int, steps: int, lr: float) -> dict:
    "The recipe of a run."
    task, model = TASKS[name]["task"], dict(size="nano") | TASKS[name].get("model", {}) | ENTRANTS[entrant]
    if model.get("order") == "given": model = dict(given=TASKS[name]["given"]) | model
    if entrant == "autoregressive" and task["kind"] == "key": task = task | dict(layout="prefix")
    train = TRAIN | TASKS[name].get("train", {}) | dict(order_lr_scale=1.0, order_start=steps // 4) | dict(
        steps=steps, lr=lr, seed=seed, batch_size=ROWS // states_per_sequence(model), save_every=steps // 8,
        valid_every=steps // 8) | SCHEDULE.get(entrant, {})
    if entrant in ("unmask_after", "found_after"): train["start_from"] = fixed_before(name, seed, steps)
    return dict(task=task, model=model, train=train)


def fixed_before(name: str, seed: int, steps: int) -> str:
    "The checkpoint of the run with a fixed order when `steps` steps of its budget are left, from the root."
    budget = TASKS[name]["steps"]
    return f"runs/{name}-fixed-{seed}-{budget}/checkpoints/step_{budget - steps:06}"


def judged(task: Task, method: Method, n: int = 250, **options) -> dict[str, float]:
    "Scores of answers to the first n test prompts."
    prompts, noise = task.prompts("test", n), torch.Generator().manual_seed(0)
    sampler = EventDriven(exact=True, **options) if options else None
    samples = generate(method, prompts, sampler=sampler, generator=noise)
    return {k: round(v, 4) for k, v in task.score("test", samples).items()} | dict(calls=samples.network_calls)


def rates(task: Task, method: Method) -> dict[str, list[float]]:
    "Geometric mean and spread of log of the insertion rate, by position in the longest answers among 500."
    x1 = held_out(task, 500)
    with torch.no_grad(): b = method.schedule(x1.to(method.device))[0].cpu()
    longest = (count := x1.free.sum(-1)) == count.max()
    log_b = b[longest][x1.free[longest]].view(int(longest.sum()), -1).log()
    return dict(mean=[round(v, 3) for v in log_b.mean(0).exp().tolist()],
                spread=[round(v, 3) for v in log_b.std(0).tolist()])


def correlations(task: Task, method: Method, n: int = 500) -> dict[str, list[float]]:
    "Correlation of order with distance from the junction, of exact and of all answers, each with its error."
    samples = generate(method, task.prompts("test", n), generator=torch.Generator().manual_seed(1), record=True)
    found = star_correlations(task, "test", samples)
    return {k: [round(float(c.mean), 3), round(float(c.error), 3)] for k, c in found.items()}


def last_figures(task: Task, method: Method, entrant: str) -> dict:
    "What is measured of a run's last weights alone."
    out = dict(last=judged(task, method, 1000), bound=bound(task, method, 1000, 64))
    if entrant in ALL_PLACES: return out
    if entrant in ("fixed", "fixed_clock"):
        out["planners"] = {rule: judged(task, method, 500, confidence=rule) for rule in PLANNERS}
    if task.kind == "star": out["correlations"] = correlations(task, method)
    return out if entrant in WITHOUT_RATES else out | dict(rates=rates(task, method))


def train(name: str, entrant: str, seed: int, steps: int, lr: float | None):
    "Train an entrant on a task, judge eight checkpoints on the way, and note its curve."
    own = TASKS[name]["lr"].get(entrant, TASKS[name].get("other_lr", LR))
    label, lr = f"{name} {entrant} {seed}" + (f" lr {lr:g}" if lr and lr != own else ""), lr or own
    if steps != TASKS[name]["steps"]: label += f" of {steps} steps"
    settings = tables(name, entrant, seed, steps, lr)
    method, kept, spent = trained(settings, f"{label} {steps}")
    task, directory, curve = task_from(settings["task"]), kept[-1].parents[1], []
    valid, spread = logged(directory, "valid_nll"), logged(directory, "log_b_in_std")
    for path in kept:
        step = int(path.name.split("_")[1])
        curve.append(dict(step=step, valid_nll=valid.get(step), spread=spread.get(step)) | judged(task, load(path).method))
    rows = settings["train"]["batch_size"] * states_per_sequence(settings["model"])
    note(RESULTS, dict(name=label, steps=steps, seed=seed, rows=rows, cpu_seconds=spent, curve=curve, **settings)
         | last_figures(task, method, entrant))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, help="instead of the budget of the task")
    parser.add_argument("--lr", type=float, help="instead of the entrant's own learning rate")
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=["fixed", "given", "learned", "published"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for entrant in args.entrants:
            train(args.task, entrant, seed, args.steps or TASKS[args.task]["steps"], args.lr)


if __name__ == "__main__": main()
