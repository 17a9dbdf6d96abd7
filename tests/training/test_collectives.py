"What several processes tell each other, by threads in place of processes and a meeting in place of torch's."
import threading
from types import SimpleNamespace

import pytest
import torch
from small_runs import CPU, config, model

from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.support.random_numbers import Launch
from loflexmdm.training import distributed
from loflexmdm.training.distributed import Lost, OneProcess, SeveralProcesses, broadcast, flat, merged_metrics
from loflexmdm.training.distributed import processes_of, run_settings, setting_differences


class Meeting:
    "The collectives of torch.distributed that are used, for threads."
    ReduceOp, DistError = torch.distributed.ReduceOp, torch.distributed.DistError

    def __init__(self, world):
        self.world, self.own, self.barrier, self.box = world, threading.local(), threading.Barrier(world), {}

    def tell(self, value) -> list:
        "What every thread says, once all have said it."
        self.box[self.own.rank] = value
        self.barrier.wait(20)
        found = [self.box[rank] for rank in range(self.world)]
        self.barrier.wait(20)
        return found

    def is_initialized(self): return True
    def get_world_size(self): return self.world
    def all_gather_object(self, told, value): told[:] = self.tell(value)
    def broadcast_object_list(self, box, source): box[0] = self.tell(box[0])[source]
    def broadcast(self, tensor, source): tensor.copy_(self.tell(tensor.clone())[source])

    def all_reduce(self, tensor, op):
        assert op == torch.distributed.ReduceOp.MAX
        tensor.copy_(torch.stack(self.tell(tensor.clone())).amax(0))

    def all_gather(self, every, value):
        for own, other in zip(every, self.tell(value.clone()), strict=True): own.copy_(other)


@pytest.fixture
def together(monkeypatch):
    "Runs a function of the processes in a thread for each; returns what each returned or raised."
    def run(act, world=2):
        meeting, found = Meeting(world), [None] * world
        monkeypatch.setattr(distributed, "dist", meeting)

        def thread(rank):
            meeting.own.rank = rank
            try: found[rank] = act(SeveralProcesses(Launch(rank, world, rank)))
            except Exception as e: found[rank] = e
        threads = [threading.Thread(target=thread, args=(rank,)) for rank in range(world)]
        for one in threads: one.start()
        for one in threads: one.join()
        return found
    return run


def test_signals_and_values(together):
    assert together(lambda p: p.stop_signal([15] if p.launch.rank else []), 3) == [15] * 3
    assert together(lambda p: p.stop_signal([])) == [0, 0]
    assert together(lambda p: broadcast([p.launch.rank]), 3) == [[0]] * 3
    assert OneProcess().stop_signal([2, 15]) == 2 and OneProcess().stop_signal([]) == 0


def test_an_error_of_the_first_ends_all(together):
    ran = []

    def act(p):
        def work():
            ran.append(p.launch.rank)
            raise OSError("no room")
        p.on_first(work)
    first, other = together(act)
    assert ran == [0] and type(first) is OSError and type(other) is ValueError and str(first) == str(other) == "no room"
    assert together(lambda p: p.on_first(lambda: ran.append("fine"))) == [None, None] and ran == [0, "fine"]


def test_batches_are_as_wide_as_the_widest_and_errors_are_told(together):
    letters = Vocabulary("ab")
    batch = lambda n: collate([prefix_example("", "a" * n, letters)])
    found = together(lambda p: distributed._of_all(iter([batch(1 + 3 * p.launch.rank)])))
    assert [b.tokens.shape for b in found] == [(1, 5), (1, 5)] and [int(b.lengths) for b in found] == [2, 5]

    def broken(p):
        def read():
            if p.launch.rank: raise OSError("damaged row")
            yield batch(2)
        return distributed._of_all(read())
    first, other = together(broken)
    assert type(first) is ValueError and type(other) is OSError and str(first) == str(other) == "damaged row"


def test_rows_of_each_process(together):
    letters = Vocabulary("ab")
    data = [prefix_example("", "ab"[k % 2] * (1 + k % 3), letters) for k in range(8)]
    settings = config(batch_size=4, group_by_length=False)
    whole = next(OneProcess().batches(data, settings, 1, CPU))
    parts = together(lambda p: next(p.batches(data, settings, 1, CPU)))
    assert all(torch.equal(part.tokens, whole.tokens[rank::2]) for rank, part in enumerate(parts))
    draws = together(lambda p: torch.rand(1, generator=p.generator(1, "loss", device=CPU)).item())
    assert draws[0] == draws[1], "they draw the numbers of the whole batch"
    assert together(lambda p: (p.generator(1, device=CPU).rank, p.generator(1, device=CPU).world)) == [(0, 2), (1, 2)]


def test_metrics_are_merged(together):
    values = dict(loss=(1.0, 2.0), b_min=(2.0, 1.0), b_max=(5.0, 6.0))
    row = lambda p: {name: torch.tensor(both[p.launch.rank]) for name, both in values.items()}
    for found in together(lambda p: p.merge_metrics(row(p), dict(norm=torch.tensor(7.0)))):
        assert {k: v.item() for k, v in found.items()} == dict(loss=1.5, b_min=1.0, b_max=6.0, norm=7.0)
    assert merged_metrics(["x"], torch.tensor([[1.0], [4.0]])) == dict(x=torch.tensor(2.5))
    assert OneProcess().merge_metrics(dict(a=1), dict(b=2)) == dict(a=1, b=2)


class Run(list):
    "A run as the collectives see it."
    digests, directory = dict(train=dict(rows=3)), "there"
    def __init__(self, *kept, **options): self[:], self.config, self.method = kept, config(**options), model()


def test_settings_that_must_agree(together):
    settings = flat(run_settings(Run(lr=.5)))
    assert settings["train.lr"] == .5 and settings["data.train.rows"] == 3 and settings["model.method"] == model().name
    assert not {"train.workers", "train.start_from"} & settings.keys()
    assert {"model.weights", "model.vocabulary"} <= settings.keys()
    assert settings == flat(run_settings(Run(lr=.5, workers=2))) != flat(run_settings(Run(lr=.4)))
    assert setting_differences([dict(a=1, b=2), dict(a=1, b=2),
        dict(a=1, b=3)]) == ["b (2 in process 0, 3 in process 2)"]
    assert setting_differences([dict(a=1), dict(b=1)]) == [
        "a (1 in process 0, None in process 1)", "b (None in process 0, 1 in process 1)"]
    assert flat(3, "x") == dict(x=3) and flat(dict(a=dict(b=1), c=2)) == {"a.b": 1, "c": 2}
    said = "the 2 processes were started differently: train.lr (0.1 in process 0, 0.2 in process 1)"
    assert [*map(str, together(lambda p: p.agree(Run(lr=.1 * (1 + p.launch.rank)))))] == [said] * 2
    assert together(lambda p: p.agree(Run())) == [None, None]


@pytest.mark.parametrize("kept, where", [
    ((), "there holds no checkpoint yet"), (("old", "new"), "the newest checkpoint is new"),
])
def test_a_lost_process_is_said_with_what_is_kept(together, kept, where):
    def act(p, message):
        p.engine = "wrapped"
        try:
            with p.run_context(Run(*kept)): raise RuntimeError(message)
        finally: assert p.engine is None
    lost, other = together(lambda p: act(p, "gloo: connection closed")), together(lambda p: act(p, "a shape is wrong"))
    assert all(type(e) is Lost and str(e) == f"a process died or does not answer; {where}" for e in lost)
    assert all(type(e) is RuntimeError for e in other)


def test_a_group_is_joined_and_left(monkeypatch):
    calls = []
    monkeypatch.setattr(distributed, "_meet", lambda launch, device: calls.append("meet"))
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: calls.append("leave"))
    with distributed.process_group(Launch(), CPU): pass
    assert not calls
    with distributed.process_group(Launch(1, 2, 1), CPU): calls.append("work")
    assert calls == ["meet", "work", "leave"]
    for message, kind in (("broken pipe", Lost), ("wrong shape", RuntimeError)):
        calls.clear()
        with pytest.raises(kind), distributed.process_group(Launch(1, 2, 1), CPU): raise RuntimeError(message)
        assert calls == ["meet"]

    def fails(launch, device): raise RuntimeError("port in use\nmore")
    monkeypatch.setattr(distributed, "_meet", fails)
    monkeypatch.setenv("MASTER_ADDR", "here")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(ValueError, match=r"2 processes: did not meet at here:\? \(port in use\)"):
        with distributed.process_group(Launch(0, 2, 0), CPU): pass


def test_one_process_needs_nobody():
    assert type(processes_of(Launch())) is OneProcess and processes_of(Launch(1, 3, 0)).world == 3
    ran = []
    OneProcess().on_first(lambda: ran.append(1))
    assert ran == [1] and OneProcess().first
    assert not processes_of(Launch(1, 3, 0)).first and processes_of(Launch(0, 3, 0)).first
    engine = SimpleNamespace(no_sync=lambda: "not yet")
    several = processes_of(Launch(0, 2, 0))
    several.engine = engine
    assert several.average_gradients(False) == "not yet" != several.average_gradients(True)


def test_state_of_the_first_is_received(together):
    class Toy:
        "A trainer's parts that are shared."
        device = CPU

        def __init__(self, rank):
            self.method, self.ema, self.optimisers = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), []
            for p in (*self.method.parameters(), *self.ema.parameters()): torch.nn.init.constant_(p, 1.0 + rank)
            self.checkpoints = SimpleNamespace(moments=lambda: {} if rank else dict(m=torch.tensor([3.0])))
            self.restored, self.rank = None, rank

        def counters(self): return dict(step=5 - self.rank)
        def restore_counters(self, counters): self.restored = counters
    seen = []
    distributed_set = distributed.set_moments
    try:
        distributed.set_moments = lambda method, optimisers, moments: seen.append(moments)
        def act(p):
            p._receive(toy := Toy(p.launch.rank))
            return toy
        toys = together(act)
    finally: distributed.set_moments = distributed_set
    assert [toy.restored for toy in toys] == [dict(step=5)] * 2 and seen == [dict(m=torch.tensor([3.0]))]
    assert all((p == 1).all() for toy in toys for p in (*toy.method.parameters(), *toy.ema.parameters()))
