"""PAPL in fine-tuning a masked model, by temperature: `python experiments/papl_fine_tune_runs.py CORPUS SEED...`.

The plain network of experiments/papl_curve_runs.py is trained on for a quarter of its steps, with the planner's weights
(alpha = 1 or 5) and without them (alpha = 0), and sampled at several temperatures in the ways of that script. Each
network adds its scores to experiments/results/papl_fine_tune_runs.json, with settings, seed and commit."""
import time

from loflexmdm.methods.base import Method
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import recipe_from
from loflexmdm.training.trainer import Trainer
from method_runs import CORPORA, HELD_OUT, STATES, TRAIN, tables
from papl_curve_runs import ALPHAS, HEATED, SAMPLES, by_sampler, curve_tables
from papl_runs import train_all
from runs import ROOT, bound, note, noted
from training_runs import trained

RESULTS = ROOT / "experiments" / "results" / "papl_fine_tune_runs.json"


def tuned_tables(corpus: str, alpha: float, seed: int) -> dict:
    "The recipe of the training that follows."
    settings = tables(corpus, "papl", seed, CORPORA[corpus]["steps"] // 4, TRAIN["lr"])
    settings["model"] |= dict(alpha=alpha)
    return settings


def tuned(settings: dict, start: Method, name: str) -> tuple[Method, int]:
    "The model trained on from the weights of another, and the CPU seconds of that."
    recipe, directory = recipe_from(settings), ROOT / "runs" / name.replace(" ", "-")
    task, method = recipe.build()
    method.load_state_dict(start.state_dict())
    trainer = Trainer(method, task.dataset("train"), recipe.train, directory, task.dataset("valid"), progress=False)
    trainer.clock = time.process_time
    return trainer.fit(resume=bool(checkpoints(directory))).method, round(trainer.seconds)


def train(corpus: str, alpha: float, seed: int):
    "Fine-tune with one weight of the planner, sample at each temperature, and note."
    settings, name = tuned_tables(corpus, alpha, seed), f"{corpus} {alpha:g} {seed}"
    if noted(RESULTS, name, settings): return
    plain, _, before = trained(curve_tables(corpus, 0.0, seed), f"papl curve {corpus} 0 {seed}")
    model, spent = tuned(settings, plain, f"papl fine tune {name}")
    task = task_from(settings["task"])
    note(RESULTS, dict(name=name, corpus=corpus, alpha=alpha, seed=seed, cpu_seconds=spent, plain_cpu_seconds=before,
                       **settings, samples=SAMPLES, bound=bound(task, model, HELD_OUT, STATES),
                       heats=by_sampler(task, model, HEATED)))


def main(): train_all(__doc__, train, [(alpha,) for alpha in ALPHAS])


if __name__ == "__main__": main()
