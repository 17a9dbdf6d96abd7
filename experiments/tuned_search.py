"""A model of molecules that is moved towards a score during a search, and proposes molecules: way `tuned` of
`optimise_runs.py`.

The loss is half the variance of log p - log p0 - reward over generations from anywhere; its optimum is the first
model's distribution times exp(reward), normalised. Molecules that are replayed are spelled anew for each step, as in
Guo and Schwaller (2024). What a search does next depends on its settings and the calls of earlier rounds only."""
import copy
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from rdkit import Chem
from torch import Tensor

from loflexmdm.methods.base import Method
from loflexmdm.methods.sampling import generate
from loflexmdm.models.model import Model
from loflexmdm.molecules.optimise import Call, Genetic, best_calls, sound
from loflexmdm.molecules.task import MoleculesTask
from loflexmdm.process.conditions import ANY
from loflexmdm.process.states import PartialSequences, collate, prefix_example
from loflexmdm.support.random_numbers import seeded


def tilt_loss(
    log_p: Float[Tensor, " batch"],
    log_prior: Float[Tensor, " batch"],
    reward: Float[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Estimate half the variance of log p - log p0 - reward. Over a batch, in squared nats: unbiased, 0 at p = p0
    exp(reward) / Z. Of generations drawn from p, the gradient is on average that of KL(p || p0 exp(reward) / Z).
    ValueError for fewer than two."""
    if len(log_p) < 2: raise ValueError(f"log_p: {len(log_p)} generations; a variance needs at least 2")
    return 0.5 * (log_p - log_prior - reward).var()


class RewardTuner:
    """Trainer of a model towards its law times exp(reward). It takes a batch at a time; `prior` is a copy of the first
    model.

    ValueError for a method without likelihoods of its generations."""
    def __init__(self, method: Method, lr: float = 5e-4, clip: float = 1.0):
        if not hasattr(method, "generation_log_prob"):
            raise ValueError(f"method={method.name!r}: has no likelihood of whole generations; take ar, "
                             "ordered-insertion or ordered-masks")
        self.method, self.clip = method, clip
        self.prior = copy.deepcopy(method).requires_grad_(False).eval()
        self.optimiser = torch.optim.Adam(method.parameters(), lr)

    def step(
        self,
        x1: PartialSequences,
        reward: Float[Tensor, " batch"],
        generator: torch.Generator | None = None,
    ) -> float:
        """Take one step on sequences of any origin; return the loss. Rewards are in nats; the loss before the step is
        in squared nats: `tilt_loss`. ValueError for rewards that are not finite."""
        if not reward.isfinite().all(): raise ValueError(f"reward: {(~reward.isfinite()).sum()} are not finite")
        x1 = x1.to(self.method.device)
        with torch.no_grad():
            drawn = self.prior.draw_generation(x1, generator)
            log_prior = self.prior.generation_log_prob(x1, drawn)

        # the model makes the sequences in the same orders
        log_p = self.method.generation_log_prob(x1, drawn)
        loss = tilt_loss(log_p, log_prior, reward.to(log_p))
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.method.parameters(), self.clip)
        self.optimiser.step()
        return loss.item()


def sound_molecule(tokens: Sequence[str], task: MoleculesTask) -> str | None:
    "Decode tokens to canonical SMILES of a sound molecule, else None."
    found = task.notation.decode("".join(tokens)).smiles
    return None if found is None else sound(Chem.MolFromSmiles(found))


def respell(smiles: str, task: MoleculesTask, rng: random.Random) -> list[str] | None:
    "Tokenise a molecule in another spelling. None if the vocabulary cannot write it."
    try: text = task.notation.rewrite(task.notation.write(smiles), rng)
    except ValueError: return None
    return None if task.unusable(text) else task.tokens_of(text)


class TunedModel:
    """Copy of a model of molecules, tuned while it generates. The original model is unchanged.

    ValueError for a model of anything but molecules, or without likelihoods of its generations."""
    def __init__(self, model: Model, lr: float = 5e-4):
        if not isinstance(model.task, MoleculesTask): raise ValueError("model: must be one of molecules")
        self.tuner, self.vocabulary = RewardTuner(copy.deepcopy(model.method).eval(), lr), model.vocabulary
        self.method = self.tuner.method
        self.asked = [ANY] if self.vocabulary.conditions else []  # any class, for a conditional model

    def write(self, n: int, temperature: float, seed: int) -> list[list[str]]:
        "Sample `n` molecules as tokens."
        sampler = replace(self.method.default_sampler, temperature=temperature)
        samples = generate(self.method, [self.asked] * n, sampler=sampler, seed=seed)
        return [self.vocabulary.decode(s) for s in samples.completions()]

    def step(self, rows: Sequence[tuple[Sequence[str], float]], generator: torch.Generator):
        "Take one step on tokens with rewards in nats. Nothing for fewer than two rows."
        if len(rows) < 2: return
        examples = [prefix_example(self.asked, tokens, self.vocabulary) for tokens, _ in rows]
        reward = torch.tensor([reward for _, reward in rows], dtype=torch.float64)
        self.tuner.step(collate(examples), reward, generator)


@dataclass
class Tuned:
    """Genetic algorithm with molecules from a model tuned towards the score.

    The tuned copy depends only on the seed and the calls, so that a search can continue from its log. ValueError as
    for `TunedModel`."""
    source: Model  # model of molecules
    size: int = 32  # proposals per round
    share: float = 0.5  # fraction of proposals written by the model
    seed: int = 0  # seed of sampling and replay
    updates: int = 20  # steps for each `size` new calls
    replayed: int = 32  # earlier molecules per step, drawn from the `memory` best
    memory: int = 100  # number of replayed best molecules
    nats: float = 300.0  # reward in nats between the worst and the best score so far
    lr: float = 5e-4  # learning rate of Adam

    def __post_init__(self):
        self.model, self.task = TunedModel(self.source, self.lr), self.source.task
        self.learned, self.temperature = 0, 1.0  # rounds learned; sampling temperature
        self.texts: dict[int, list] = {}  # samples of a round

    def __call__(self, population: Sequence[Call], rng: random.Random) -> list[tuple[str, str]]:
        "Propose sound molecules of the model, then children of the population."
        found = [smiles for _, smiles in self.written()]
        children = Genetic(self.size - len(found), ranked=True)(population, rng)
        return [(s, "tuned") for s in found if s is not None] + children

    def learn(self, calls: Sequence[Call], number: int):
        "Learn the missing rounds before `number`, each from the calls up to it."
        while self.learned < number:
            learn_round(self, [c for c in calls if c.round <= self.learned])
            self.learned += 1

    def written(self) -> list[tuple[list[str], str | None]]:
        "Sample the molecules of the round to be learned next. Tokens and canonical SMILES; none in the first round."
        number = self.learned
        if number and number not in self.texts:
            seed = random.Random(f"{self.seed} write {number}").getrandbits(60)
            texts = self.model.write(round(self.share * self.size), self.temperature, seed)
            self.texts = {number: [(tokens, sound_molecule(tokens, self.task)) for tokens in texts]}
        return self.texts.get(number, [])


WARMING = 1.05  # temperature factor after a round with fewer than a quarter new


def learn_round(search: Tuned, calls: Sequence[Call]):
    "Train on the current round's samples and on the best calls so far."
    scores = {c.smiles: c.score for c in calls if c.score is not None}
    if not scores: return
    worst, spread = min(scores.values()), max(scores.values()) - min(scores.values())
    reward = lambda score: search.nats * (score - worst) / (spread or 1.0)
    own = [(tokens, reward(scores.get(smiles, worst))) for tokens, smiles in search.written()]

    # few new molecules give few steps, or a repetitive model would become more so
    new = sum(c.round == search.learned for c in calls)
    steps = math.ceil(search.updates * min(1.0, new / search.size))

    # a new spelling for each step, or the model would memorise the text
    rng, best = random.Random(f"{search.seed} replay {search.learned}"), best_calls(calls, search.memory)
    generator = seeded(rng.getrandbits(60))
    for k in range(steps):
        some = rng.sample(best, min(search.replayed, len(best)))
        again = [(respell(c.smiles, search.task, rng), reward(c.score)) for c in some]
        search.model.step([*own * (k == 0), *(row for row in again if row[0])], generator)

    # raise the temperature of a repetitive model until it finds new molecules
    own_new = sum(c.round == search.learned and c.by == "tuned" for c in calls)
    change = WARMING if own_new < search.share * search.size / 4 else 1 / WARMING
    search.temperature = max(1.0, search.temperature * change)
