"What would make a processor wait for its GPU, counted without one: reads of values, breaks of the graph, padding."
import contextlib
from dataclasses import fields

import pytest
import torch
from host_reads import HostReads
from small_runs import star_recipe

from loflexmdm.methods import base
from loflexmdm.methods.sampling import generate
from loflexmdm.networks.order_causal import Packing
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import collate
from loflexmdm.tasks.base import task_from

pytestmark = pytest.mark.usefixtures("pico")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    "All columns are kept, as on a GPU: a processor selects those that are there."
    monkeypatch.setattr(Packing, "column_numbers", staticmethod(lambda number, there: number.flatten()))


# of a training step: values read, selections whose size is read
STEPS = {
    "mdm": (2, 1), "flexmdm": (3, 1), "loflexmdm": (3, 1), "ordered-insertion": (5, 1), "ar": (2, 1),
}
# of a sampler's step
CALLS = {"mdm": (3, 1), "flexmdm": (4, 1), "loflexmdm": (4, 1), "ordered-insertion": (3, 0), "ar": (3, 0)}


@pytest.mark.parametrize("method", STEPS)
def test_reads_of_a_training_step(method, tmp_path):
    trainer = star_recipe(method).trainer(tmp_path)
    stream = trainer.processes.batches(trainer.data, trainer.config, 0, trainer.device)
    with contextlib.closing(stream):
        for _ in range(2): trainer.train_step(stream)
        with HostReads() as found: trainer.train_step(stream)
    print(f"{method}: a training step makes {dict(found.counts)}")
    assert all(n <= most for n, most in zip(found.counts.values(), STEPS[method], strict=True))


@pytest.mark.parametrize("method", CALLS)
def test_reads_of_a_sampling_call(method):
    torch.manual_seed(0)
    recipe = star_recipe(method)
    task, model = recipe.build()
    prompts = task.prompts("test", 4)
    sampler, seen = model.default_sampler, []
    step = type(sampler).step

    class Counted(type(sampler)):
        def step(self, intensity_fn, state):
            with HostReads() as found: out = step(self, intensity_fn, state)
            seen.append((found.counts["reads"], found.counts["selections"]))
            return out
    counted = Counted(**{f.name: getattr(sampler, f.name) for f in fields(sampler)})
    generate(model.eval(), prompts, seed=0, sampler=counted)
    print(f"{method}: calls make {sorted(set(seen))} reads and selections")
    assert seen and all(n <= most for call in seen for n, most in zip(call, CALLS[method], strict=True))


def test_reads_of_whole_samples():
    "What the loop around the steps reads is counted too: which rows have ended, and their results."
    task, model = star_recipe("loflexmdm").build()
    with HostReads() as found: samples = generate(model.eval(), task.prompts("test", 4), seed=0)
    reads = found.counts["reads"] / samples.network_calls
    print(f"loflexmdm: {reads:.1f} reads per call in all")
    assert reads <= 7


def test_what_is_counted():
    x = torch.arange(4)
    with HostReads() as found: x.tolist(), int(x.max()), bool((x > 1).any()), x.cpu(), float(x.sum()), x.sum().item()
    assert found.counts == dict(reads=6, selections=0)
    with HostReads() as found: x[x > 1], x.nonzero(), x.masked_select(x > 1), x[torch.tensor([0, 1])], x + 1
    assert found.counts == dict(reads=0, selections=3)


# of the loss as torch.compile would take it whole; what a run compiles are the blocks, which have none
@pytest.mark.parametrize("method, most", [("ar", 7), ("loflexmdm", 28)])
@pytest.mark.slow
def test_breaks_of_the_graph_of_a_loss(method, most):
    task, model = star_recipe(method).build()
    data = task.dataset("train")
    batch = collate([data[i] for i in range(8)])
    torch._dynamo.reset()
    found = torch._dynamo.explain(lambda x: model.loss(x, torch.Generator().manual_seed(0)).loss)(batch)
    torch._dynamo.reset()
    print(f"{method}: the loss has {found.graph_break_count} breaks")
    assert found.graph_break_count <= most


@pytest.mark.parametrize("groups, most", [(1, 0.30), (2, 0.21)])
def test_padding_of_a_batch(groups, most):
    "Of 128 sequences in one group, which is what a GPU gets, and in two."
    assert 128 // base.GPU_ROWS <= 1
    data = task_from(dict(kind="brackets")).dataset("train")
    x, computed = collate([data[i] for i in range(128)]), []

    def network(x, tau):
        computed.append(x.tokens.numel())
        return Intensities(unmask=torch.zeros(x.tokens.shape))
    base.by_length(network, x, tau=torch.zeros(128), groups=groups)
    padding = 1 - int(x.lengths.sum()) / sum(computed)
    print(f"{len(computed)} group(s) of 128 rows: {padding:.3f} of the columns are padding")
    assert padding <= most
