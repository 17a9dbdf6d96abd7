import json
import shutil
import signal
from dataclasses import fields
from typing import get_args

import pytest
import torch

from loflexmdm.cli import main
from loflexmdm.methods.base import method_class
from loflexmdm.models.saved import load_method
from loflexmdm.process.channels import CHANNELS
from loflexmdm.reports.comparison import DESCRIBED, Comparison, compare, curve, describe, differences
from loflexmdm.reports.comparison import entrant_label, entrant_recipe, evaluations_per_loss, mean_order
from loflexmdm.reports.comparison import parse_entrant, plot_comparison, run_directory, samplers_for
from loflexmdm.reports.comparison import shared_model, spread, table, train_run
from loflexmdm.samplers import EventDriven, Samples, TauLeaping, Trajectory
from loflexmdm.support.registries import METHODS
from loflexmdm.support.stop_signals import Interrupted
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import override, read_tables, recipe_from

LEARNED, FIXED = "loflexmdm:order=learned+states=2", "loflexmdm:order=fixed"
SMALL = dict(
    steps=6, rows=4, calls=(2,), n=4, states=2, progress=False, warmup=2,
    valid_every=3, valid_size=4, valid_samples=2, log_every=2, save_every=2,
)

# other test files define methods, too
OURS = [name for name, cls in METHODS.all().items() if cls.__module__.startswith("loflexmdm.")]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    "Every method, one seed, hardly trained."
    directory = tmp_path_factory.mktemp("comparison")
    methods = [LEARNED if m == "loflexmdm" else m for m in OURS]
    return directory, methods, compare("brackets", methods, 1, directory, **SMALL)


@pytest.mark.slow
def test_every_method_takes_part(done):
    directory, methods, found = done
    assert list(dict.fromkeys(r["method"] for r in found.rows)) == methods and len(found.curves) == len(methods)
    assert len({(r["rows"], r["steps"]) for r in found.rows}) == 1 and found.rows[0]["rows"] == 24
    for m in methods:
        assert len({r["nll"] for r in found.rows if r["method"] == m}) == 1, "one bound per model, whatever the sampler"
        assert [r["nll_exact"] for r in found.rows if r["method"] == m][0] == (m in ("ar", "fim"))
    assert all(r["calls"] > 0 and set(r["scores"]) == set(found.rows[0]["scores"]) for r in found.rows)


def test_methods_with_two_states_see_half_the_sequences(done):
    rows = {r["method"]: r for r in done[2].rows}
    assert rows[LEARNED]["sequences"] == rows["genmd4"]["sequences"] == 12
    assert {rows[m]["sequences"] for m in ("flexmdm", "mdm", "papl", "ar")} == {24}


def test_runs_are_ordinary(done, capsys):
    path = run_directory(done[0], "mdm", 0)
    assert main(["info", str(path)]) == 0 and "trained: 6 steps" in capsys.readouterr().out
    assert main(["resume", str(path)]) == 0 and "nothing to do" in capsys.readouterr().err


def test_again_gives_the_same_and_trains_nothing(done):
    directory, methods, found = done
    before = {p: p.stat().st_mtime_ns for p in directory.rglob("*.safetensors")}
    assert compare("brackets", methods, 1, directory, **SMALL).rows == found.rows
    assert before == {p: p.stat().st_mtime_ns for p in directory.rglob("*.safetensors")}


def test_widening_keeps_what_is_there(done):
    directory, methods, found = done
    wider = compare("brackets", ["mdm"], [0, 1], directory, **SMALL)
    assert {r["seed"] for r in wider.rows} == {0, 1}
    assert [r for r in wider.rows if r["seed"] == 0] == [r for r in found.rows if r["method"] == "mdm"]
    more = compare("brackets", ["flexmdm"], 1, directory, **SMALL, samplers=[TauLeaping(steps=3)])
    assert len(more.rows) == len([r for r in found.rows if r["method"] == "flexmdm"]) + 1
    kept = Comparison.read(directory / "results.json")
    assert len(kept.rows) == len(found.rows) + len([r for r in wider.rows if r["seed"] == 1]) + 1


def test_another_number_of_prompts_is_measured_anew(done):
    directory, _, found = done
    fewer = compare("brackets", ["ar"], 1, directory, **SMALL | dict(n=2))
    assert {r["n"] for r in fewer.rows} == {2} and "ar" in table(fewer.rows)
    assert {r["n"] for r in compare("brackets", ["ar"], 1, directory, **SMALL).rows} == {4}


@pytest.mark.parametrize("stop_at", [0, 2, 4])
def test_interrupted_run_continues_to_the_same_weights(done, tmp_path, stop_at):
    path = run_directory(done[0], FIXED, 0)
    recipe = entrant_recipe(
        read_tables("brackets"),
        FIXED,
        0,
        SMALL["rows"],
        SMALL["steps"],
        **{k: SMALL[k] for k in ("warmup", "valid_every", "valid_size", "valid_samples", "log_every", "save_every")},
    )
    whole = train_run(recipe, path, progress=False)
    cut = tmp_path / "cut"
    train_run(recipe, cut, progress=False)
    for p in checkpoints(cut):
        if int(p.name[5:]) > stop_at: shutil.rmtree(p)
    again = train_run(recipe, cut, progress=False)
    a, b = (load_method(p, weights="ema.safetensors").state_dict() for p in (whole, again))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_signal_leaves_a_run_that_continues(tmp_path, monkeypatch):
    from loflexmdm.training.trainer import Trainer
    after, directory = Trainer.after_step, tmp_path / "c"
    monkeypatch.setattr(
        Trainer,
        "after_step",
        lambda self, row, bar: (after(self, row, bar), self.step == 3 and signal.raise_signal(signal.SIGTERM)),
    )
    with pytest.raises(Interrupted): compare("brackets", [FIXED], 1, directory, **SMALL)
    monkeypatch.setattr(Trainer, "after_step", after)
    assert checkpoints(run_directory(directory, FIXED, 0)) and not (directory / "results.json").exists()
    assert compare("brackets", [FIXED], 1, directory, **SMALL).rows[0]["steps"] == 6


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(methods=["nobody"]), "choose one of"),
        (dict(methods=[]), "at least one"),
        (dict(seeds=0), "at least one"),
        (dict(n=0), "n=0"),
        (dict(states=1), "states=1"),
        (dict(calls=(1,)), "calls=1"),
        (dict(methods=["mdm", LEARNED], rows=5), "multiple of 2"),
        (dict(lr=-1.0), "lr"),
        (dict(speed=1), "speed"),
        (dict(batch_size=3), "batch_size"),
        (dict(methods=["mdm:schedule=quick"]), "quick"),
        (dict(methods=["mdm:order=fixed"]), "not an option of mdm"),
        (dict(methods=["mdm:time=maybe"]), "bool"),
        (dict(methods=["mdm:max_length=x"]), "int"),
        (dict(recipe="bracket"), "bracket"),
    ],
)
def test_bad_input_is_refused_before_training(tmp_path, change, message):
    arguments = dict(recipe="brackets", methods=["mdm"], seeds=1, directory=tmp_path / "c") | SMALL | change
    with pytest.raises(ValueError, match=message): compare(**arguments)
    assert not (tmp_path / "c").exists()


def test_runs_of_another_recipe_are_refused(done):
    with pytest.raises(ValueError, match="train.lr"): compare("brackets", ["mdm"], 1, done[0], **SMALL, lr=1e-5)
    with pytest.raises(ValueError, match="train.steps"):
        compare("brackets", ["mdm"], 1, done[0], **SMALL | dict(steps=7))


def test_damaged_results_are_refused(tmp_path):
    (tmp_path / "results.json").write_text('{"rows": [')
    with pytest.raises(ValueError, match="holds no comparison"): compare("brackets", [FIXED], 1, tmp_path, **SMALL)


def test_budget_and_share_of_the_order_model():
    tables = read_tables("star-tiny")
    for entrant in ("loflexmdm", "loflexmdm:order=fixed", "genmd4", "mdm", "ar", "loflexmdm:states=4"):
        r = entrant_recipe(tables, entrant, 3, steps=800)
        assert r.train.batch_size * evaluations_per_loss(r) == 64
        assert (r.train.steps, r.train.seed, r.train.order_start) == (800, 3, 200)
        assert r.model["size"] == "nano"
    assert entrant_recipe(tables, "loflexmdm", steps=800, order_start=7).train.order_start == 7


def test_differences_ignore_what_leaves_the_weights_alone():
    r = recipe_from(read_tables("brackets"))
    assert not differences(recipe_from(override(r.as_dict(), log_every=7)), r.as_dict())
    assert differences(recipe_from(override(r.as_dict(), lr=1.0, kinds=1)), r.as_dict()) == ["task.kinds", "train.lr"]

TEXTS = ("micro", "cosine", "forward", "corrupted", "shuffled:0.5", "time", "interpolate", "bert", "gpt2",
         "hugging_face", "uniform,left_to_right", "at_once,uniform")  # of settings that are texts
TOGETHER = (  # settings that need each other
    dict(network="hugging_face", network_config="bert"), dict(network="hugging_face", network_config="gpt2"),
    dict(order_network="hugging_face", order_network_config="bert"), dict(order="given", given="forward"),
)

REFUSED = [("ordered-masks", "merge"), ("ordered-edits", "merge")]  # inherited, and no other value is accepted


def other_values(field):
    "Return values of a setting that differ from its default, of which a method accepts some."
    if choices := [value for value in get_args(field.type) if isinstance(value, str)]:
        return [value for value in choices if value != field.default]
    if isinstance(field.default, bool): return [not field.default]
    if isinstance(field.default, int): return [field.default + 1, 2 * field.default, 1]
    if isinstance(field.default, float): return [v for v in (field.default / 2, 0.25, 2.0) if v != field.default]
    return [text for text in TEXTS if text != field.default]


def ways_to_set(cls, key):
    "Return settings of a configuration with another value of `key` than the default, alone or with one that it needs."
    every = {f.name: f for f in fields(cls)}
    chosen = [{name: v} for name, f in every.items() for v in other_values(f) if get_args(f.type) or v is True]
    alone = [{key: value} for value in other_values(every[key])]
    return alone + [o | way for o in chosen for way in alone if key not in o] + [t for t in TOGETHER if key in t]


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_every_setting_of_a_method_is_in_the_saved_model(name, tmp_path):
    cls, budget = method_class(name).Config, dict(rows=8, steps=1, warmup=1, valid_every=9)
    for key in (f.name for f in fields(cls) if (name, f.name) not in REFUSED):
        size = {} if key == "size" or name == "published" else dict(size="nano")
        for way in (size | way for way in ways_to_set(cls, key)):
            entrant = f"{name}:" + "+".join(f"{k}={v}" for k, v in way.items())
            try: recipe = entrant_recipe(read_tables("brackets"), entrant, **budget)
            except ValueError: continue
            break
        else: pytest.fail(f"no other value of {key} is accepted")
        saved = load_method(train_run(recipe, tmp_path / key, progress=False)).config
        read = {k: recipe.model[k] if k in DESCRIBED else getattr(saved, k) for k in way}
        assert read == way and getattr(saved, key) != getattr(cls(), key)
        assert entrant_label(entrant, saved) == entrant


@pytest.mark.parametrize("name", OURS)
def test_samplers_fit_their_method(name):
    _, method = entrant_recipe(read_tables("star-tiny"), name).build()
    found = samplers_for(method, (4, 8))
    assert describe(found[0]) == describe(method.default_sampler) and len({describe(s) for s in found}) == len(found)
    timed = all(CHANNELS[channel].clocked for channel in method.channels)
    assert all(s.fits(method.channels) for s in found) and (len(found) > 1) == timed


def test_describe_can_be_evaluated():
    for s in (EventDriven(), EventDriven(exact=False, confidence="top_prob"), TauLeaping(steps=8, top_p=0.9)):
        assert eval(describe(s)) == s


def test_entrants():
    assert parse_entrant("mdm:schedule=polynomial:2+size=nano") == ("mdm", dict(schedule="polynomial:2", size="nano"))
    assert parse_entrant("mdm:time=true") == ("mdm", dict(time=True))
    assert parse_entrant("loflexmdm:a=2") == ("loflexmdm", dict(a=2.0))


def samples(*times):
    return Samples(
        [[3] * len(t) for t in times],
        [[True] * len(t) for t in times],
        trajectories=[Trajectory([], [0.0] * len(t), list(t)) for t in times],
    )


def test_mean_order():
    assert mean_order(samples([5, 4, 3, 2])) == [1, 0.6667, 0.3333, 0]
    assert mean_order(samples([1, 2], [2, 1]), 3) == [0.5] * 3
    assert mean_order(samples([1, 1, 1])) == [0.5] * 4 and mean_order(samples([], [1])) is None


def test_spread():
    assert spread([1, 3], 1) == "2.0 ± 1.4" and spread([2.0]) == "2.000" and spread([]) == spread([float("nan")]) == "–"


def test_table_and_picture(done):
    _, methods, found = done
    assert table(found.rows).count("\n") == 1 + len(methods)
    assert table(found.rows, "all").count("\n") == 1 + len(found.rows)
    assert f"| {LEARNED} | `EventDriven()` |" in found._repr_markdown_() and len(found.plot()) == 2
    with pytest.raises(ValueError, match="none to show"): table([])
    with pytest.raises(ValueError, match="first or all"): table(found.rows, "best")
    assert len(plot_comparison(found.rows, score="unique")) == 2


def test_a_training_too_short_to_be_timed_shows_a_dash(done):
    _, _, found = done
    row = table([found.rows[0] | dict(step_ms=0.0)]).splitlines()[-1]
    assert row.split(" | ")[-3] == "–"


def test_entrants_share_what_their_configs_have():
    model = dict(method="mdm", network="gru", network_config="2", size="nano", max_length=9, schedule="cosine")
    assert shared_model(model, "mdm") == model
    shared = dict(network="gru", network_config="2", size="nano", max_length=9)
    assert shared_model(model, "ar") == dict(method="ar") | shared
    assert shared_model(dict(method="mdm", max_length=9), "ar") == dict(method="ar", max_length=9)


def test_curves_count_rows(done):
    directory, methods, found = done
    assert all([p[0] for p in c["points"]] == [12, 24] for c in found.curves)
    assert curve(run_directory(directory, "mdm", 0), 4) == next(
        c["points"] for c in found.curves if c["method"] == "mdm"
    )


@pytest.mark.slow
def test_command(tmp_path, capsys):
    out = tmp_path / "c"
    options = (
        "--seeds 1 --steps 4 --rows 4 --calls 2 -n 4 --nll 2 --valid-size 4 --valid-samples 2 --warmup 1 --log-every 2"
    )
    assert main(["compare", "brackets", "--methods", f"{FIXED},ar", "--out", str(out), *options.split()]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("| method |") and "results.json" in captured.err
    assert {p.name for p in out.iterdir() if p.is_file()} == {
        "results.json", "comparison.md", "comparison.png", "comparison.svg", "comparison.pdf",
    }
    assert len(json.loads((out / "results.json").read_text())["curves"]) == 2


@pytest.mark.parametrize(
    "options",
    [
        "--methods mdn", "--methods mdm --seeds x", "--methods mdm --calls 4,x", "--methods mdm --rows 0",
        "--methods mdm -n 0", "--seeds 1", "--methods mdm --batch-size 4", "--methods ,",
    ],
)
def test_command_refuses_in_one_line(tmp_path, capsys, options):
    assert main(["compare", "brackets", "--out", str(tmp_path / "c"), *options.split()]) == 2
    err = [
        line
        for line in capsys.readouterr().err.splitlines()
        if not line.startswith(("loflexmdm 0", "device:", "command:"))
    ]
    assert len(err) == 1 and err[0].startswith("loflexmdm: ") and not (tmp_path / "c").exists()


def test_no_seeds_is_told_apart_from_seed_0(tmp_path, capsys):
    assert main(["compare", "brackets", "--methods", "mdm", "--seeds", "0", "--out", str(tmp_path / "c")]) == 2
    assert capsys.readouterr().err == (
        "loflexmdm: --seeds 0: must be at least 1, the number of seeds; --seeds 1 takes seed 0 only\n"
    )
