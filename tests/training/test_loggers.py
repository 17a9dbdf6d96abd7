"Loggers: what they get, trackers in files of this machine, and runs that do not depend on them."
import sys

import pytest
from commands import call
from kill import stop_after
from small_runs import same, trainer

from loflexmdm.training import loggers
from loflexmdm.training.log import JsonLines
from loflexmdm.training.recipes import recipe


class Kept(list):
    def log(self, values, step): self.append((step, values))


class Broken:
    def log(self, values, step): raise OSError("disk full")


def rows_of(kept): return [dict(step=step) | values for step, values in kept if "samples" not in values]


@pytest.mark.slow
def test_a_logger_gets_every_row_of_the_file_and_samples_at_validations(tmp_path):
    t = trainer(tmp_path, steps=6)
    t.log.loggers.append(kept := Kept())
    t.fit()
    whole = [{key: value for key, value in row.items() if value is not None} for row in t.log.rows()]
    assert rows_of(kept) == whole and len(whole) == 5
    assert [step for step, values in kept if "samples" in values] == [3, 6]


@pytest.mark.slow
def test_a_logger_changes_no_weight(tmp_path):
    small = recipe("star-tiny", steps=3, batch_size=4, valid_every=2, valid_size=4, valid_samples=2, size="nano")
    run = lambda name, logger: small.trainer(tmp_path / name, progress=False, logger=logger).fit()
    plain, logged = run("plain", None), run("logged", Kept())
    assert same(plain.method, logged.method)


SAMPLED = {"loflexmdm": {}, "mdm": {}, "editflow": {}, "ar": {}, "ordered-insertion": dict(order="mixture")}


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_of_a_task_as_text_and_weights_of_orders(name, tmp_path):
    quick = dict(steps=1, batch_size=4, valid_size=4, valid_samples=2, size="nano")
    small = recipe("brackets", method=name, **quick, **SAMPLED[name])
    small.trainer(tmp_path, progress=False, logger=(kept := Kept())).fit()
    [shown] = [values for _, values in kept if "samples" in values]
    assert not shown["samples"].startswith("no samples") and shown["samples"].count("\n") == 3
    weights = [value for key, value in shown.items() if key.startswith("order/")]
    assert sum(weights) == pytest.approx(1.0 if SAMPLED[name] else 0.0)


def test_a_logger_that_fails_costs_a_warning_not_the_run(tmp_path):
    t = trainer(tmp_path, steps=4)
    t.log.loggers += [Broken(), kept := Kept()]
    with pytest.warns(UserWarning, match=r"Broken: failed at step 2 \(OSError: disk full\)") as caught: t.fit()
    assert len(caught) == 1 and t.step == 4 and rows_of(kept)[-1]["step"] == 4


def test_an_object_that_is_no_logger_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"logger='tensorboard': .*log\(values, step\)"):
        recipe("star-tiny").trainer(tmp_path, progress=False, logger="tensorboard")


def test_an_unknown_tracker_is_refused():
    with pytest.raises(ValueError, match="log='tensorbord'.*none, tensorboard"): recipe("star-tiny", log="tensorbord")


def test_a_missing_package_is_one_line_at_the_shell_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    code, _, err = call("train star-tiny --log tensorboard --out", tmp_path / "run")
    assert code == 2 and "pip install tensorboard" in err.splitlines()[-1] and not (tmp_path / "run").exists()


def test_nothing_is_opened_by_default(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "TensorBoard", lambda *a: pytest.fail("a tracker was opened"))
    assert trainer(tmp_path, steps=2).fit() is not None
    assert {p.name for p in tmp_path.iterdir()} <= {"best", "checkpoints", "metrics.jsonl", ".lock"}


def scalars(directory):
    "Steps of each scalar in TensorBoard's files."
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    return {tag: [e.step for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}, events


@pytest.mark.slow
def test_tensorboard_has_the_curves_samples_and_settings(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    trainer(tmp_path, steps=6, log="tensorboard").fit()
    steps, events = scalars(tmp_path)
    assert steps["loss"] == [2, 4, 6] and steps["valid_nll"] == [3, 6]
    texts = {tag for tag in events.Tags()["tensors"]}
    assert {"samples/text_summary", "settings/text_summary"} <= texts
    assert events.Scalars("loss")[-1].value == pytest.approx(t_loss(tmp_path), rel=1e-5)


def t_loss(directory): return [r["loss"] for r in JsonLines(directory / "metrics.jsonl").rows() if "loss" in r][-1]


@pytest.mark.slow
def test_tensorboard_of_a_resumed_run_has_every_step_once(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    stop_after(trainer(tmp_path, log="tensorboard", log_every=1), 5)
    trainer(tmp_path, log="tensorboard", log_every=1).fit(resume=True)
    assert scalars(tmp_path)[0]["loss"] == list(range(1, 9))
