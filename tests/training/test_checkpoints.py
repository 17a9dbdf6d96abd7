"Files that are whole, locks, and which run continues from which checkpoint."
import json
import math
import os
import shutil
import signal
from types import SimpleNamespace

import pytest
import torch
from kill import stop_after
from safetensors.torch import load_file, save_file
from small_runs import config, model, same, trainer

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.saved import load_method, save_method
from loflexmdm.process.states import Vocabulary
from loflexmdm.support import atomic_files as files
from loflexmdm.support.atomic_files import write_sealed
from loflexmdm.support.readers import read_json
from loflexmdm.training.checkpoints import set_moments
from loflexmdm.training.checkpoints import _check_state, checkpoints, last_step, remove_run, run_lock, sweep, tidy
from loflexmdm.training.optimisers import FREE_KEYS

WEIGHTS = ["config.json", "ema.safetensors", "model.safetensors", "optimizer.safetensors", "state.json"]


@pytest.mark.parametrize("options", [{}, dict(ema=0.0, accumulate=2)])
@pytest.mark.parametrize("order", ["learned", "fixed"])
def test_weight_files_have_the_same_names(tmp_path, options, order):
    trainer(tmp_path, method=model(order=order), **options | dict(steps=2)).fit()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000002"]
    assert sorted(p.name for p in checkpoints(tmp_path)[0].iterdir()) == WEIGHTS


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    trainer(tmp_path, save_every=1, keep=3).fit()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000006", "step_000007", "step_000008"]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step_000006", "step_000007", "step_000008"]


def test_the_room_of_a_run_is_that_of_its_checkpoints(tmp_path, monkeypatch):
    "One more than are kept, with weights, their average and two moments in four bytes each; and the best weights."
    t = trainer(tmp_path, keep=2)
    needed = (3 * 16 + 4) * sum(p.numel() for p in t.method.parameters())
    disk = SimpleNamespace(free=files.RESERVE + needed)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: disk)
    t.checkpoints.check_room()
    disk.free -= 1
    with pytest.raises(OSError, match="needed for 3 checkpoints.*a smaller `keep`"): t.checkpoints.check_room()


def test_the_last_good_checkpoint_is_whole_and_finite(tmp_path):
    t = trainer(tmp_path, save_every=2, keep=4)
    assert t.checkpoints.last_good() == "there is no checkpoint before it"
    t.fit()
    first, second, third, last = t.checkpoints
    assert t.checkpoints.last_good() == f"the newest good checkpoint is {last}"
    (last / "ema.safetensors").unlink()
    (third / "model.safetensors").write_bytes(b"damaged")
    assert t.checkpoints.last_good() == f"the newest good checkpoint is {second}"
    tensors = load_file(second / "ema.safetensors")
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name] * math.nan}, second / "ema.safetensors")
    assert t.checkpoints.last_good() == f"the newest good checkpoint is {first}"


def test_steps_sort_as_numbers(tmp_path):
    for name in ("step_1000000", "step_999999"): put(tmp_path / "checkpoints" / name / "state.json", "{}")
    assert checkpoints(tmp_path)[-1].name == "step_1000000"


def test_a_directory_with_a_run_is_refused(finished):
    with pytest.raises(ValueError, match="already holds a run"): trainer(finished).fit()


def test_two_runs_in_one_directory_are_refused(tmp_path):
    t, seen = trainer(tmp_path), []
    after = t.after_step
    def meanwhile(row, bar):
        with pytest.raises(ValueError, match="another run is writing here"): trainer(tmp_path).fit(resume=True)
        seen.append(t.step)
        after(row, bar)
    t.after_step = meanwhile
    t.fit()
    assert len(seen) == 8


@pytest.mark.parametrize("name", ["model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named(finished, tmp_path, name):
    shutil.copytree(finished, tmp_path / "run")
    path = checkpoints(tmp_path / "run")[-1] / name
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=f"{name}: damaged"): trainer(tmp_path / "run", steps=4).fit(resume=True)


WRONG = dict(
    format=(0, True, "1", None), step=(-1, 2.0, True, None), evaluations=(-1, 2.0, None), config=([], None),
    averaged=(-1, 3.0, None), seconds=(-1e-9, math.inf, math.nan, "1", True, None), best=(math.inf, "1", False),
    compiled=(1, "true"), stepped=("w", [1], {}), files=([], {}, {"model.safetensors": "x"}),
)


@pytest.mark.parametrize("key, value", [(key, value) for key, values in WRONG.items() for value in values])
def test_a_state_that_no_run_can_have_is_refused_by_its_key(finished, tmp_path, key, value):
    "Also where its seal fits: another program may have written it."
    meta = json.loads((checkpoints(finished)[-1] / "state.json").read_text())
    meta.pop("digest")
    write_sealed(tmp_path / "state.json", meta | {key: value})
    path = tmp_path / "state.json"
    with pytest.raises(ValueError, match=rf"state.json: damaged \({key}="): _check_state(read_json(path), path)
    write_sealed(path, meta | dict(seconds=0, best=None, compiled=None, stepped=None, files=None))
    _check_state(read_json(path), path)


def test_a_checkpoint_of_another_run_is_refused(finished):
    with pytest.raises(ValueError, match="lr=0.5: the run in"): trainer(finished, steps=4, lr=0.5).fit(resume=True)
    with pytest.raises(ValueError, match="weights of another model"):
        trainer(finished, steps=4, method=model(vocabulary=Vocabulary("abcd"))).fit(resume=True)
    with pytest.raises(ValueError, match="vocabulary"):
        trainer(finished, steps=4, method=model(vocabulary=Vocabulary("abd"))).fit(resume=True)


def test_what_may_change_on_resuming(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    numbers = {key: getattr(config(), key) + 1 for key in FREE_KEYS if key not in ("compile", "recompute", "log")}
    trainer(tmp_path / "run", steps=4, **numbers, compile=False, recompute=True).fit(resume=True)


def test_leftovers_of_a_kill_are_swept(tmp_path):
    stop_after(trainer(tmp_path), 4)
    (tmp_path / "checkpoints/.step_000006.abcd_123").mkdir()
    (tmp_path / "best/.config.json.new").write_text("half")
    with open(tmp_path / "metrics.jsonl", "a") as f: f.write('{"step": 4, "lo')
    trainer(tmp_path).fit(resume=True)
    assert not (tmp_path / "checkpoints/.step_000006.abcd_123").exists()
    assert not (tmp_path / "best/.config.json.new").exists()
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_the_best_validation_is_remembered(finished):
    t = trainer(finished, steps=4)
    t.fit(resume=True)
    assert t.best == pytest.approx(min(r["valid_nll"] for r in t.log.rows() if "valid_nll" in r), rel=1e-5)


def test_weights_to_start_from(tmp_path):
    """Those whose names and shapes agree are taken, average included;
    a resumed run keeps its own; another vocabulary, or no common weight, is refused."""
    first = trainer(tmp_path / "fixed", method=model(order="fixed", states=1), steps=2)
    first.fit()
    second = trainer(
        tmp_path / "learned", method=model(), steps=1, lr=1e-60,
        weight_decay=0.0, start_from=str(tmp_path / "fixed" / "best"),
    )
    second.fit()
    taken, own = load_method(tmp_path / "fixed" / "best").state_dict(), second.method.state_dict()
    assert taken.keys() < own.keys() and all(torch.equal(taken[k], own[k]) for k in taken)
    assert same(second.ema.module, second.method)
    shutil.rmtree(tmp_path / "fixed")
    trainer(
        tmp_path / "learned", method=model(), steps=1, lr=1e-60,
        weight_decay=0.0, start_from=str(tmp_path / "fixed" / "best"),
    ).fit(resume=True)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        trainer(tmp_path / "a", steps=1, start_from=str(tmp_path / "nowhere")).fit()
    other = save_method(LoFlexMDM(Vocabulary("xyz"), LoFlexMDMConfig(size="nano", order_size="nano", max_length=8)), 
        tmp_path / "other"
    )
    with pytest.raises(ValueError, match="vocabulary"): trainer(tmp_path / "b", steps=1, start_from=str(other)).fit()


def test_the_best_model_may_be_read_by_those_who_may_read_its_config(tmp_path):
    t = trainer(tmp_path, steps=9)
    t.fit()
    assert sum("valid_nll" in r for r in t.log.rows()) > 1
    assert (tmp_path / "best" / "model.safetensors").stat().st_mode == (
        tmp_path / "best" / "config.json"
    ).stat().st_mode


def test_an_interrupt_while_the_lock_is_given_back_does_not_keep_it(tmp_path, monkeypatch):
    "In a notebook the process lives on, and with it a lock that was not given back."
    class Interrupted(files.FileLock):
        def release(self, *args, **options):
            os.kill(os.getpid(), signal.SIGINT)
            super().release(*args, **options)
    try:
        with monkeypatch.context() as m:
            m.setattr(files, "FileLock", Interrupted)
            trainer(tmp_path, steps=2).fit()
    except KeyboardInterrupt as e: kept = e  # with the frames that hold the lock, as a notebook keeps them
    else: kept = None
    with run_lock(tmp_path): assert kept is None


@pytest.mark.parametrize("what", ["weight", "average", "moment"])
def test_what_is_not_finite_is_not_saved(tmp_path, what):
    t = trainer(tmp_path, steps=3)
    t.fit()
    kept = t.checkpoints
    tensors = dict(weight=kept.method.state_dict(), average=kept.average.state_dict(), moment=kept.moments())[what]
    name, tensor = next((name, tensor) for name, tensor in tensors.items() if tensor.dim())
    tensor.flatten()[-1] = torch.inf
    with pytest.raises(FloatingPointError, match=f"after step 4 not finite: .*{name}; .* good checkpoint is .*_000003"):
        kept.save(dict(step=4))
    assert [p.name for p in kept] == ["step_000003"]


# files of others

def put(path, text="mine"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_only_files_that_a_run_wrote_are_swept(tmp_path):
    "A user's hidden files, a model's own files with them, and all that lies behind a link stay."
    run, away = tmp_path / "run", tmp_path / "away"
    checkpoints_of = run / "checkpoints"
    mine = [put(run / "best/.git/HEAD"), put(checkpoints_of / ".cache/x"), put(run / ".bestiary"),
            put(away / ".step_000001/x"), put(checkpoints_of / ".step_000002.k3j9_x2a/notes.txt"),
            put(checkpoints_of / ".step_000004"), put(run / ".best.k3j9_x2b")]
    ours = [put(run / "best/.config.json.new"), put(checkpoints_of / ".step_000001/state.json"),
            put(run / "metrics.partial"), put(run / ".best.k3j9_x2a/model.safetensors")]
    (run / "checkpoints/.step_000003").symlink_to(away, target_is_directory=True)
    sweep(run)
    assert all(p.read_text() == "mine" for p in mine) and not any(p.exists() for p in ours)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "checkpoints").symlink_to(away, target_is_directory=True)
    sweep(linked)
    assert mine[3].read_text() == "mine"


@pytest.mark.parametrize("what", ["file", "folder", "link", "link to a file"])
def test_what_only_has_the_name_of_a_checkpoint_is_refused_and_nothing_is_lost(tmp_path, what):
    "It would be the newest, so that the run's own were too old to be kept."
    stop_after(trainer(tmp_path / "run", keep=1), 4)
    own, other = tmp_path / "run/checkpoints/step_000003", tmp_path / "run/checkpoints/step_000009"
    mine = put(tmp_path / "away/thesis.tex" if "link" in what else other if what == "file" else other / "thesis.tex")
    if "link" in what: other.symlink_to(mine if what == "link to a file" else mine.parent)
    assert checkpoints(tmp_path / "run") == [own] and last_step(tmp_path / "run") == 3
    with pytest.raises(ValueError, match="step_000009: is not a checkpoint, but has the name of one; move it"):
        trainer(tmp_path / "run", keep=1).fit(resume=True)
    assert (own / "state.json").exists() and mine.read_text() == "mine"


def test_a_copy_under_another_step_is_refused_and_nothing_is_lost(tmp_path):
    stop_after(trainer(tmp_path, keep=1), 4)
    own = tmp_path / "checkpoints/step_000003"
    shutil.copytree(own, tmp_path / "checkpoints/step_000009")
    with pytest.raises(ValueError, match="step_000009: holds step 3, not that of its name; move it elsewhere"):
        trainer(tmp_path, keep=1).fit(resume=True)
    assert own.exists()


def test_older_checkpoints_stay_until_the_newest_is_known_to_be_good(tmp_path):
    stop_after(trainer(tmp_path, keep=1), 4)
    own = tmp_path / "checkpoints/step_000003"
    put(tmp_path / "checkpoints/step_000009/state.json", "mine")
    with pytest.raises(ValueError, match="step_000009/state.json: damaged"): trainer(tmp_path, keep=1).fit(resume=True)
    assert own.exists()


def test_a_checkpoint_is_not_written_over_what_somebody_else_has_put_there(tmp_path):
    t = trainer(tmp_path, steps=3, keep=1)
    mine = put(tmp_path / "checkpoints/step_000003/thesis.tex")
    counters = t.counters() | dict(step=3)
    with pytest.raises(ValueError, match="step_000003: holds other files"): t.checkpoints.save(counters)
    assert mine.read_text() == "mine"


def test_a_checkpoint_with_other_files_is_not_removed(tmp_path):
    for step in (1, 2, 3): put(tmp_path / f"checkpoints/step_00000{step}/state.json", "{}")
    notes = put(tmp_path / "checkpoints/step_000001/notes.txt")
    tidy(tmp_path, keep=1)
    assert notes.read_text() == "mine" and [p.name for p in checkpoints(tmp_path)] == ["step_000001", "step_000003"]


def test_a_run_is_removed_and_nothing_else(tmp_path):
    run = tmp_path / "learned"
    put(run / "metrics.jsonl"), put(run / "best/model.safetensors"), put(run / "checkpoints/step_000001/state.json")
    thesis = put(run / "thesis.tex")
    with pytest.raises(ValueError, match="holds other files .thesis.tex.; choose another directory"): remove_run(run)
    assert thesis.read_text() == "mine" and (run / "best/model.safetensors").exists()
    thesis.unlink()
    remove_run(run)
    assert not run.exists()


@pytest.mark.parametrize("group, moved", [({}, False), (dict(fused=True), True), (dict(capturable=True), True)])
def test_steps_of_unfused_optimisers_stay_on_the_cpu(group, moved):
    "On the device without numbers, in place of a GPU."
    p = torch.zeros(2)
    method = SimpleNamespace(device=torch.device("meta"), named_parameters=lambda: [("p", p)])
    optimiser = SimpleNamespace(param_groups=[dict(params=[p]) | group], state={p: {}})
    set_moments(method, [optimiser], {"p.step": torch.tensor(3.0), "p.exp_avg": torch.ones(2)})
    assert optimiser.state[p]["step"].is_meta is moved and optimiser.state[p]["exp_avg"].is_meta
