"Models and checkpoints that were damaged, mixed, emptied or not finite: nothing of it goes wrong silently."
import json
import math
import os
import random
import shutil
import signal
import sys
import warnings
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import loflexmdm
from loflexmdm.cli import main
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.saved import load_method, load_weights, save_method
from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.support.atomic_files import file_digest, read_digests, add_digest
from loflexmdm.support.registries import METHODS, TASKS
from loflexmdm.support.saved_files import models_directory, names, read_config, resolve
from loflexmdm.training.checkpoints import checkpoints, keep_best
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary("abc")
WORDS = [prefix_example("a", word, VOCABULARY) for word in "abc aab abca ba bac ab cab abab cbba aa bcc c".split()]
FLIPS = 24  # of single bits, in each kind of directory


def model(value=None, **options):
    "A small model, whose output bias tells which it is."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LoFlexMDMConfig(**dict(order="fixed", states=1, size="nano", max_length=8) | options)
        method = LoFlexMDM(VOCABULARY, config, {"kind": "words"})
    if value is not None: torch.nn.init.constant_(method.token.out.bias, value)
    return method


def told(where): return loflexmdm.load(where).method.token.out.bias[0].item()


def trainer(directory, method=None, **options):
    config = dict(steps=6, batch_size=4, warmup=2, valid_every=2, valid_size=4, valid_samples=2, save_every=2)
    method = method or model(order="learned", states=2, order_size="nano")
    return Trainer(method, WORDS, TrainConfig(**config | options), directory, valid=WORDS, progress=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    trainer(path).fit()
    return path


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def rewrite(path, change, seal=True):
    "Change a JSON file, with a digest that fits."
    content = change(json.loads(path.read_text()))
    path.write_text(json.dumps(add_digest(content) if seal else content))


def without_digests(directory):
    "Remove the digests from the descriptions in a directory; return it."
    for name in ("config.json", "state.json"):
        drop = lambda c: {k: v for k, v in c.items() if k not in ("digest", "files", "stepped")}
        if (directory / name).exists(): rewrite(directory / name, drop, seal=False)
    return directory


def put(directory, name, tensors):
    "Write a tensor file and its digest into the descriptions, so that what it holds is what is checked."
    save_file(tensors, directory / name)
    for description in (directory / "config.json", directory / "state.json"):
        if name not in read_digests(description): continue
        rewrite(description, lambda c: c | dict(files=c["files"] | {name: file_digest(directory / name)}))


def outcomes_of_kills(work):
    "Run `work` in processes that die before their n-th operation on files, n = 1, 2, ...; yields n after each."
    n = 0
    while True:
        n += 1
        if (child := os.fork()) == 0:
            left = iter(range(n - 1, -1, -1))
            def watch(event, args, left=left):
                if event in ("open", "os.rename", "os.remove", "os.chmod", "os.mkdir") and not next(left, 1):
                    os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(watch)
            try: work()
            finally: os._exit(0)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]): return
        yield n


# ---- a directory that holds files of others

def test_files_of_others_are_not_deleted(tmp_path):
    path = save_method(model(1.0), tmp_path / "m", README_md="# first", notes_txt="first")
    save_method(model(2.0), path, README_md="# second")
    assert sorted(p.name for p in path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    for name in ("thesis.tex", ".hidden", "model.safetensors.bak"):
        (path / name).write_text("years of work")
        with pytest.raises(ValueError, match=f"m: holds other files .{name}.; choose"): save_method(model(3.0), path)
        assert (path / name).read_text() == "years of work" and told(path) == 2.0
        (path / name).unlink()
    (path / "README.md").write_text("# mine")
    save_method(model(4.0), path)
    assert (path / "README.md").read_text() == "# mine" and told(path) == 4.0


def test_a_text_file_that_was_edited_is_not_overwritten(tmp_path):
    path = save_method(model(1.0), tmp_path / "m", notes_txt="first")
    (path / "notes.txt").write_text("edited")
    with pytest.raises(ValueError, match="holds other files .notes.txt."): save_method(model(), path, notes_txt="x")


@pytest.mark.parametrize("config", ['{"model_type": "bert"}', "[]", "{"])
def test_the_directory_of_another_program_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(b"theirs")
    with pytest.raises(ValueError, match="config.json is not a saved model's"): save_method(model(), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == b"theirs"


@pytest.mark.parametrize("name", ["config_json", "model_safetensors", "../x_txt", "a/b_txt"])
def test_a_text_file_cannot_take_the_place_of_the_model(tmp_path, name):
    texts = {name: "text"}
    with pytest.raises(ValueError, match="no name for a text file"): save_method(model(), tmp_path / "m", **texts)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [False, True])
def test_killed_at_each_operation_there_is_the_old_model_or_the_new(tmp_path, earlier):
    path = tmp_path / "m"
    save = lambda value: save_method(model(value), path, README_md=f"# {value}")
    def first():
        save(1.0)
        return without_digests(path) if earlier else path
    first()
    found, later, second = [], model(2.0), model(3.0)
    for _ in outcomes_of_kills(lambda: save_method(later, path, README_md="# 2.0")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(told(path))
        save_method(second, path)
        assert told(path) == 3.0
        assert {p.name for p in path.iterdir()} <= {"README.md", "config.json", "model.safetensors"}
        first()
    assert len(found) > 12 and found == sorted(found) and set(found) == {1.0, 2.0}


@pytest.mark.slow
def test_killed_at_each_operation_of_a_first_save_there_is_no_model_or_a_whole_one(tmp_path):
    method, found = model(1.0), []
    for _ in outcomes_of_kills(lambda: save_method(method, tmp_path / "m")):
        found.append((tmp_path / "m").exists())
        if found[-1]: assert told(tmp_path / "m") == 1.0
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
    assert found == sorted(found) and not found[0]


@pytest.mark.slow
def test_a_first_save_into_an_empty_directory_may_be_tried_again(tmp_path):
    method, found = model(1.0), []
    (tmp_path / "m").mkdir()
    for _ in outcomes_of_kills(lambda: save_method(method, tmp_path / "m")):
        found.append((tmp_path / "m" / "config.json").exists())
        if found[-1]: assert told(tmp_path / "m") == 1.0
        save_method(model(2.0), tmp_path / "m")
        assert told(tmp_path / "m") == 2.0
        shutil.rmtree(tmp_path / "m")
        (tmp_path / "m").mkdir()
    assert found == sorted(found) and set(found) == {False, True}


@pytest.mark.slow
def test_killed_at_each_operation_the_best_weights_are_there(tmp_path):
    keep_best(model(1.0), tmp_path / "best")
    later, again, found = model(2.0), model(1.0), []
    for _ in outcomes_of_kills(lambda: keep_best(later, tmp_path / "best")):
        found.append(told(tmp_path / "best"))
        keep_best(again, tmp_path / "best")
    assert found == sorted(found) and set(found) == {1.0, 2.0}
    (tmp_path / "best" / "figures.txt").write_text("kept")
    keep_best(later, tmp_path / "best")
    assert sorted(p.name for p in (tmp_path / "best").iterdir()) == ["config.json", "figures.txt", "model.safetensors"]


@pytest.mark.slow
def test_a_reader_meanwhile_sees_one_of_the_models(tmp_path):
    models, path = [model(float(n), max_length=n) for n in (8, 9)], tmp_path / "m"
    save_method(models[0], path)
    if (child := os.fork()) == 0:
        try:
            while True:
                for m in models: save_method(m, path)
        finally: os._exit(0)
    try:
        for _ in range(30):
            found = loflexmdm.load(path)
            assert found.method.token.out.bias[0].item() == found.config.max_length
    finally: os.kill(child, signal.SIGKILL), os.waitpid(child, 0)


def test_two_writers_take_turns(tmp_path):
    path, children = save_method(model(1.0), tmp_path / "m"), []
    for value in (2.0, 3.0):
        if (child := os.fork()) == 0:
            code = 1
            try:
                for _ in range(5): save_method(model(value), path)
                code = 0
            finally: os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0] and told(path) in (2.0, 3.0)


# ---- single bits

def contents(method):
    method = getattr(method, "method", method)  # of a loaded model
    return method.name, method.config, method.vocabulary, method.task, method.state_dict()


def same(a, b):
    *left, u = a
    *right, v = b
    return left == right and u.keys() == v.keys() and all(torch.equal(u[k], v[k]) for k in u)


def flips(directory, count, seed=0):
    "Turn random bits, one at a time and as often in each file of a directory; yields where."
    draw, files = random.Random(seed), sorted(p for p in directory.iterdir() if p.is_file())
    for i in range(count):
        path = files[i % len(files)]
        whole = path.read_bytes()
        at = draw.randrange(8 * len(whole))
        path.write_bytes(whole[:at // 8] + bytes([whole[at // 8] ^ 1 << at % 8]) + whole[at // 8 + 1:])
        yield f"{path.name}, bit {at}"
        path.write_bytes(whole)


def harm(load, expected, agree):
    "Whether a load is `refused` in one line, or `harmless`: what was loaded is the same."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try: found = load()
        except (ValueError, FileNotFoundError) as e:
            assert "\n" not in str(e)
            return "refused"
    assert agree(found, expected)
    return "harmless"


def model_flips(directory, count):
    "Outcomes of turned bits in the files of a model."
    path = save_method(model(1.0), directory, README_md="# A card")
    load = lambda: contents(load_method(path))
    expected = load()
    return {where: harm(load, expected, same) for where in flips(path, count)}


def checkpoint_flips(run, count):
    "Outcomes of turned bits in the files of a checkpoint, resumed from and loaded."
    path = checkpoints(run)[-1]

    def load():
        t = trainer(run)
        t.load(path)
        state = (t.step, t.best, t.evaluations, t.seconds, int(t.ema.n_averaged))
        moments, saved = t.checkpoints.moments(), contents(loflexmdm.load(path))
        return state, moments, contents(t.method), contents(t.ema.module), saved

    def agree(a, b):
        moments = a[1].keys() == b[1].keys() and all(torch.equal(a[1][k], b[1][k]) for k in a[1])
        return a[0] == b[0] and moments and all(map(same, a[2:], b[2:]))

    expected = load()
    return {where: harm(load, expected, agree) for where in flips(path, count)}


def test_a_turned_bit_in_a_model_is_refused_or_harmless(tmp_path):
    found = model_flips(tmp_path / "m", FLIPS)
    assert all(v == "refused" for k, v in found.items() if k.startswith("model.safetensors"))
    assert all(v == "harmless" for k, v in found.items() if k.startswith("README"))


@pytest.mark.slow
def test_a_turned_bit_in_a_checkpoint_is_refused_or_harmless(run):
    found = checkpoint_flips(run, FLIPS)
    assert all(v == "refused" for k, v in found.items() if ".safetensors" in k)


def test_packaged_models_have_digests():
    for name in names():
        meta = read_config(models_directory() / name)
        known = read_digests(meta).keys()
        assert meta["digest"] and {"model.safetensors"} <= known <= {"model.safetensors", "README.md"}
        assert file_digest(models_directory() / name / "model.safetensors") == meta["files"]["model.safetensors"]


# ---- models: mixtures, types, files without digests

def test_weights_of_another_save_are_refused(tmp_path):
    one, two = (save_method(model(v), tmp_path / str(v)) for v in (1.0, 2.0))
    shutil.copy(two / "model.safetensors", one)
    with pytest.raises(ValueError, match="model.safetensors: damaged, or of another save"): loflexmdm.load(one)


def test_an_edited_config_is_refused_unless_its_digest_is_removed(tmp_path):
    path = save_method(model(1.0), tmp_path / "m")
    rewrite(path / "config.json", lambda c: c | dict(task={"kind": "other"}), seal=False)
    with pytest.raises(ValueError, match='config.json: changed or damaged .* delete its entry "digest"'):
        loflexmdm.load(path)
    rewrite(path / "config.json", lambda c: {k: v for k, v in c.items() if k != "digest"}, seal=False)
    assert loflexmdm.load(path).method.task == {"kind": "other"}


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.bfloat16, torch.float64])
def test_undeclared_types_are_refused(tmp_path, dtype):
    path = save_method(model(1.0), tmp_path / "m")
    put(path, "model.safetensors", {k: v.to(dtype) for k, v in model(1.0).state_dict().items()})
    with pytest.raises(ValueError, match=f"is {str(dtype)[6:]}, not float32"): loflexmdm.load(path)


def test_numbers_of_another_kind_are_refused_without_digests_too(tmp_path):
    path = without_digests(save_method(model(1.0), tmp_path / "m"))
    put(path, "model.safetensors", {k: v.to(torch.int8) for k, v in model(1.0).state_dict().items()})
    with pytest.raises(ValueError, match="is int8, not float32"): loflexmdm.load(path)


@pytest.mark.parametrize("dtype", [torch.float16, "bfloat16"])
def test_half_precision_is_declared_and_becomes_float32(tmp_path, dtype):
    method, name = model(1.0), str(dtype).removeprefix("torch.")
    path = save_method(method, tmp_path / "m", dtype=dtype)
    whole = save_method(method, tmp_path / "whole")
    assert read_config(path)["dtype"] == name and "dtype" not in read_config(whole)
    assert (path / "model.safetensors").stat().st_size < 0.6 * (whole / "model.safetensors").stat().st_size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = loflexmdm.load(path)
    for k, v in dict(again.method.named_parameters()).items():
        assert v.dtype == torch.float32
        torch.testing.assert_close(v, method.state_dict()[k].to(getattr(torch, name)).float(), rtol=0, atol=0)
    load_weights(model(), path / "model.safetensors", read_digests(path / "config.json")["model.safetensors"], name)


def test_a_model_in_half_precision_is_declared_by_itself(tmp_path):
    path = save_method(model(1.0).to(torch.bfloat16), tmp_path / "m")
    assert read_config(path)["dtype"] == "bfloat16" and told(path) == 1.0


def test_what_half_precision_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dtype='float16': too small a range for token.out.bias"):
        save_method(model(1e6), tmp_path / "m", dtype="float16")
    with pytest.raises(ValueError, match="dtype='half': choose one of"): save_method(model(), tmp_path, dtype="half")
    assert not (tmp_path / "m").exists()


def test_a_file_without_a_digest_loads_with_one_notice(tmp_path, capsys):
    path = without_digests(save_method(model(1.0), tmp_path / "m"))
    put(path, "model.safetensors", {k: v.bfloat16() for k, v in model(1.0).state_dict().items()})
    with pytest.warns(UserWarning, match="model.safetensors: saved without a digest.*; holds bfloat16"):
        loflexmdm.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loflexmdm.load(path)
    again = shutil.copytree(path, tmp_path / "again")
    rewrite(again / "config.json", lambda c: c | dict(task=None), seal=False)
    assert main(["sample", str(again), "-n", "1"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "without a digest" in line]
    assert len(lines) == 1 and lines[0].startswith(f"loflexmdm: note: {again}/model.safetensors: saved without")


def test_an_average_that_is_recorded_and_missing_is_told(run):
    path = checkpoints(run)[-1]
    (path / "ema.safetensors").unlink()
    assert resolve(path)[1] == "ema.safetensors"
    with pytest.raises(FileNotFoundError, match="ema.safetensors: no such file"): loflexmdm.load(path)


@pytest.mark.parametrize("name", ["config.json", "ema.safetensors"])
def test_weights_to_start_from_are_checked(run, tmp_path, name):
    path = checkpoints(run)[-1]
    data = bytearray((path / name).read_bytes())
    data[-3] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(ValueError, match=name): trainer(tmp_path / "new", start_from=str(path)).fit()


# ---- checkpoints

def resume(run): trainer(run).load(checkpoints(run)[-1])


@pytest.mark.parametrize(
    "change, named",
    [
        (dict(averaged=-1), "averaged=-1"), (dict(averaged=5), "averaged=5"), (dict(averaged=True), "averaged=True"),
        (dict(step=-6), "step=-6"), (dict(step=6.0), "step=6.0"), (dict(evaluations="2"), "evaluations='2'"),
        (dict(seconds=math.nan), "seconds=nan"), (dict(seconds=-1), "seconds=-1"), (dict(best=math.nan), "best=nan"),
        (dict(best="low"), "best='low'"), (dict(format=0), "format=0"), (dict(format=2), "format 2 is newer"),
        (dict(config=3), "config=3"), (dict(stepped=3), "stepped=3"), (dict(files={}), "files={}"),
        (dict(stepped=["backbone"]), "of another model"),
    ],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_counters_out_of_range_are_refused(run, change, named, earlier):
    path = checkpoints(run)[-1]
    if earlier: without_digests(path)
    rewrite(path / "state.json", lambda c: c | change, seal=not earlier)
    with pytest.raises(ValueError, match=named): resume(run)


@pytest.mark.parametrize("text", ["[]", "3", '{"format": 1}', "{}"])
def test_a_state_that_is_none_is_refused(run, text):
    (checkpoints(run)[-1] / "state.json").write_text(text)
    with pytest.raises(ValueError, match="state.json: damaged"): resume(run)


def test_counters_that_were_changed_are_refused(run):
    rewrite(checkpoints(run)[-1] / "state.json", lambda c: c | dict(best=1e-3), seal=False)
    with pytest.raises(ValueError, match="state.json: changed or damaged"): resume(run)


MOMENTS = {
    "emptied": (lambda m: {}, "no moments after|missing"),
    "one missing": (lambda m: {k: v for k, v in m.items() if k != "token.out.bias.exp_avg"},
                    "token.out.bias.exp_avg is missing"),
    "one too much": (lambda m: m | {"token.out.bias.speed": torch.zeros(3)}, "token.out.bias.speed is too much"),
    "of an unknown parameter": (lambda m: m | {"brain.exp_avg": torch.zeros(3)}, "brain"),
    "shape": (lambda m: m | {"token.out.bias.exp_avg": torch.zeros(2)}, r"exp_avg has shape \(2,\)"),
    "type": (lambda m: m | {"token.out.bias.exp_avg": m["token.out.bias.exp_avg"].half()}, "exp_avg is torch.float16"),
    "not finite": (lambda m: m | {"token.out.bias.exp_avg": m["token.out.bias.exp_avg"] * math.nan}, "is not finite"),
    "negative": (lambda m: m | {"token.out.bias.exp_avg_sq": -m["token.out.bias.exp_avg_sq"] - 1}, "is negative"),
    "steps": (lambda m: m | {"token.out.bias.step": torch.tensor(7.0)}, "token.out.bias.step is 7"),
}


@pytest.mark.parametrize("case", MOMENTS)
@pytest.mark.parametrize("earlier", [False, True])
def test_moments_that_do_not_fit_are_refused(run, case, earlier):
    path, (change, named) = checkpoints(run)[-1], MOMENTS[case]
    if earlier: without_digests(path)
    put(path, "optimizer.safetensors", change(load_file(path / "optimizer.safetensors")))
    t = trainer(run)
    before = contents(t.method)[-1]["token.out.bias"].clone()
    with pytest.raises(ValueError, match=f"optimizer.safetensors: damaged.*({named})"): t.load(path)
    assert torch.equal(t.method.state_dict()["token.out.bias"], before) and t.step == 0  # nothing was taken


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_checkpoint_of_an_earlier_release_resumes_to_the_same_weights(tmp_path, optimiser):
    whole = trainer(tmp_path / "whole", optimiser=optimiser)
    whole.fit()
    cut = shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoints(cut)[-1])
    without_digests(checkpoints(cut)[-1])
    t = trainer(cut, optimiser=optimiser)
    with pytest.warns(UserWarning, match="saved without a digest"): t.fit(resume=True)
    assert all(torch.equal(v, t.method.state_dict()[k]) for k, v in whole.method.state_dict().items())


def test_a_config_of_another_checkpoint_is_refused(run):
    first, last = checkpoints(run)
    shutil.copy(first / "config.json", last)
    with pytest.raises(ValueError, match="config.json: belongs to another checkpoint"): resume(run)


# ---- numbers that are not finite

@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_that_is_not_finite_is_not_saved(tmp_path, value):
    keep_best(model(1.0), tmp_path / "best")
    for save in (lambda m: save_method(m, tmp_path / "m"), lambda m: keep_best(m, tmp_path / "best")):
        with pytest.raises(ValueError, match="not finite are not saved: token.out.bias"): save(model(value))
    assert not (tmp_path / "m").exists() and told(tmp_path / "best") == 1.0


def test_a_step_that_blew_up_leaves_the_last_good_checkpoint(tmp_path):
    t = trainer(tmp_path, valid_every=9, steps=9)
    step = t.optimizer_step
    def blow_up():
        step()
        if t.step == 5: torch.nn.init.constant_(t.method.token.out.bias, math.nan)
    t.optimizer_step = blow_up
    with pytest.raises(FloatingPointError, match="step 6: not finite: .*after step 5 not finite: token.out.bias.*"
                       "the newest good checkpoint is .*step_000004$"): t.fit()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000002", "step_000004"]
    assert all(v.isfinite().all() for p in tmp_path.rglob("*.safetensors") for v in load_file(p).values())
    assert t.log.rows()[-1]["not_finite"]


@pytest.mark.parametrize("options", [dict(lr=1e6, weight_decay=1e6), dict(lr=1e6, weight_decay=1e6, save_every=1),
                                     dict(lr=1e6, weight_decay=1e6, valid_every=1)])
def test_too_large_a_learning_rate_leaves_no_weights_that_are_not_finite(tmp_path, options):
    t = trainer(tmp_path, warmup=0, steps=9, **options)
    with pytest.raises(FloatingPointError): t.fit()
    assert all(v.isfinite().all() for p in tmp_path.rglob("*.safetensors") for v in load_file(p).values())


def test_a_blow_up_at_the_last_step_is_not_saved(tmp_path):
    t = trainer(tmp_path, steps=4)
    step = t.optimizer_step
    def blow_up():
        step()
        if t.step == 4: torch.nn.init.constant_(t.ema.module.token.out.bias, math.inf)
    t.optimizer_step = blow_up
    with pytest.raises(FloatingPointError, match="average of token.out.bias.*step_000002"): t.fit()
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000002"]


def test_no_setting_takes_a_number_that_is_not_finite():
    "Except the largest gradient norm, where inf means any."
    parts = [*METHODS.usable().values(), *TASKS.usable().values()]
    accepted = set()
    for cls in (TrainConfig, *(part.Config for part in parts if part.__module__.startswith("loflexmdm"))):
        for f in fields(cls):
            assert f.default is not MISSING
            for value in (math.nan, math.inf, -math.inf):
                try: cls(**{f.name: value})
                except ValueError: continue
                accepted.add((cls.__name__, f.name, value))
    assert accepted == {("TrainConfig", "clip", math.inf)}
    for key in ("lr", "weight_decay", "order_lr_scale"):
        with pytest.raises(ValueError, match=f"{key}=1e[+]38: must be at most 1e6"): TrainConfig(**{key: 1e38})
