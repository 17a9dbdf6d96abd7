"Every method is trained, cut off and resumed, and used at the command line, whatever it is: each registered one."
import dataclasses

import pytest
import torch
from brief_runs import at_the_command_line
from registered import CASES, FIRST, VOCABULARY, build, can_sample, clean, data_for, of_package, registered
from resuming import whole_and_resumed

from loflexmdm.process.states import Pair, Pairs, prefix_example
from loflexmdm.support.registries import METHODS
from loflexmdm.tasks.base import Examples
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

TEXTS = "bc", "b", "dabc", "cc", "", "dd"


@pytest.fixture(autouse=True)
def plug_ins(monkeypatch): registered(monkeypatch)


def examples(method) -> Examples:
    "Return six texts, or for a method that edits alone each with another text as its source."
    target = lambda i: prefix_example("a", TEXTS[i], VOCABULARY)
    pairs = isinstance(data_for(method, clean("a|bc")), Pairs)
    return Examples(len(TEXTS), lambda i: Pair(target(5 - i), target(i)) if pairs else target(i))


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST)
def test_a_resumed_run_has_the_weights_of_one_that_was_not_cut_off(case, tmp_path):
    def trainer(directory):
        method = build(case).train()
        config = TrainConfig(steps=6, batch_size=4, warmup=2, save_every=3, log_every=2, compile=False)
        return Trainer(method, examples(method), config, directory, progress=False)
    start = {key: value.clone() for key, value in build(case).state_dict().items()}
    whole, found = whole_and_resumed(trainer, tmp_path, 4)
    assert all(torch.equal(found[key], value) for key, value in whole.items())
    assert any(not torch.equal(start[key], value) for key, value in whole.items())


def settings(name: str) -> dict:
    "Return the settings of a method's first model that are not its defaults, as a recipe has them."
    config = CASES[name][1]
    changed = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)
               if f.name != "max_length" and getattr(config, f.name) != f.default}
    return dict(method=name) | changed


SAMPLING = [name for name in FIRST if name in of_package(METHODS.all()) and can_sample(build(name))]


@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.slow
def test_at_the_command_line(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at_the_command_line(tmp_path, settings(name), capsys)
