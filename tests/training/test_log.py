"What a run logs, and what it says of time."
import pytest
import torch
from small_runs import said, short_trainer

from loflexmdm.process.streams import UNLIMITED
from loflexmdm.training.batches import passes
from loflexmdm.training.log import JsonLines, Pace, plot_metrics, bar_metric
from loflexmdm.training.optimisers import TrainConfig


def test_log_rows(finished):
    rows = JsonLines(finished / "metrics.jsonl").rows()
    steps = [r for r in rows if "loss" in r]
    assert [r["step"] for r in steps] == [2, 4] and [r["step"] for r in rows if "valid_nll" in r] == [3, 4]
    assert {
        "token", "gap", "bound", "bound_tight", "regulariser", "advantage",
        "log_b_in", "log_b_in_std", "grad_norm", "lr", "evaluations",
    } <= steps[0].keys()
    assert steps[1]["evaluations"] == 8  # two a step


def test_the_bar_shows_the_bound_not_the_surrogate():
    assert bar_metric(dict(loss=torch.tensor(18142.0), bound_tight=torch.tensor(12.25))) == dict(bound="12.25")
    assert bar_metric(dict(loss=torch.tensor(18.0), bound=torch.tensor(2.5))) == dict(bound="2.5")
    assert bar_metric(dict(bound=torch.tensor(3.5), bound_tight=torch.tensor(2.5))) == dict(bound="2.5")
    assert bar_metric(dict(loss=torch.tensor(1.5))) == dict(loss="1.500")


def test_curves_show_the_bound_of_a_method_that_logs_no_tighter_one():
    rows = [dict(step=step, loss=-9.0, bound=1.0 / step) for step in (1, 2)]
    drawn = plot_metrics(rows).lines[0]
    assert list(drawn.get_ydata()) == [1.0, 0.5]


def test_passes_and_pace():
    c = TrainConfig(steps=500, batch_size=32, accumulate=2)
    assert passes(c, 320) == "500 steps of 64 sequences: 100 passes over 320 sequences"
    assert passes(c, UNLIMITED, 20).endswith("no sequence comes twice; 480 steps are left")
    pace = Pace()
    for seconds in [9.0, *[2.0] * 12, 50.0]: pace.step(seconds, 100)
    assert pace.step_seconds == 2.0 and pace.steps == 14  # the median of the first ten
    assert pace.tokens_per_second() == pytest.approx(1400 / 83) and pace.tokens_per_second() != pace.tokens_per_second()


def test_tokens_per_second_and_real_columns_by_hand(tmp_path, pico):
    """Six words of 2, 3, 4, 2, 3, 4 tokens (start token and prompt included): 18 real columns of 24 in every batch,
    and a step that takes half a second."""
    t = short_trainer(tmp_path, pico)
    said(t, 0.5)
    t.fit()
    rows = [r for r in t.log.rows() if "loss" in r]
    assert [r["tokens_per_second"] for r in rows] == [36.0, 36.0] and [r["real_columns"] for r in rows] == [0.75, 0.75]


def test_training_writes_to_a_log_file(tmp_path, pico, capsys):
    short_trainer(tmp_path, pico, progress=True).fit()
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 3 and err[0].startswith("14 steps")
    assert "steps that are left" in err[1] and "compile: no" in err[2]
