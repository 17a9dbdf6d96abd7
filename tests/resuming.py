"Training runs that are cut off and resumed, for tests."
import random

import pytest
import torch

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.process.states import Vocabulary
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary("abcdefgh")
WORDS = ["".join(random.Random(i).choices("abcdefgh", k=2 + i % 6)) for i in range(700)]


def trainer(data, directory, steps, **options):
    torch.manual_seed(0)
    method = LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order="fixed", size="pico", max_length=9, states=1))
    c = dict(steps=steps, batch_size=8, warmup=2, save_every=5, log_every=5, compile=False) | options
    return Trainer(method, data, TrainConfig(**c), directory, progress=False)


def cut_off(trainer, at):
    "Train until a step, at which the run dies."
    step = trainer.train_step
    def until(stream):
        if trainer.step == at: raise KeyboardInterrupt
        return step(stream)
    trainer.train_step = until
    with pytest.raises(KeyboardInterrupt): trainer.fit()


def check_resumed(build, tmp_path, workers):
    "A run that dies at step 7 of 10 and is resumed from the checkpoint of step 5 has the weights of one that does not."
    whole = build(tmp_path / "whole").fit().method.state_dict()
    dying = build(tmp_path / "parts", workers=workers)
    cut_off(dying, 7)
    assert [p.name for p in dying.checkpoints] == ["step_000005"]
    found = build(tmp_path / "parts").fit(resume=True).method.state_dict()
    assert all(torch.equal(found[key], value) for key, value in whole.items())


def whole_and_resumed(build, tmp_path, at: int) -> tuple[dict, dict]:
    "Weights of a run that is left alone, and of one that dies at a step and is resumed."
    whole = build(tmp_path / "a").fit().method.state_dict()
    cut_off(build(tmp_path / "b"), at)
    return whole, build(tmp_path / "b").fit(resume=True).method.state_dict()
