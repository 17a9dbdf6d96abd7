"The command line as a user meets it: second processes, real signals, a full disk, and one line for every wrong input."
import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from commands import COMMAND, SMALL, Forked, call, refused, start, wait_for
from share import difference

from loflexmdm.cli import main
from loflexmdm.cli import sample as sample_command
from loflexmdm.cli.commands import one_line, parse
from loflexmdm.cli.evaluate import figure_line, read_samples
from loflexmdm.models.row_files import format_rows
from loflexmdm.cli.resumable_rows import SavedRows
from loflexmdm.cli.train import recipe_of
from loflexmdm.networks.transformer import SIZES
from loflexmdm.samplers import TauLeaping, fitting_samplers
from loflexmdm.samplers.choose import either
from loflexmdm.support.atomic_files import lock_file, add_digest
from loflexmdm.support.registries import METHODS, SAMPLERS, TASKS
from loflexmdm.tasks.base import TaskOutput, task_from
from loflexmdm.training import checkpoints as checkpoints_module
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.recipes import presets, recipe

@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    assert call("train brackets --steps 20 --save-every 10 --out", path, *SMALL)[0] == 0
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "An uninterrupted run of 120 steps."
    path = tmp_path_factory.mktemp("whole") / "run"
    assert call("train brackets --steps 120 --save-every 20 --out", path, *SMALL)[0] == 0
    return path


# what a run leaves, and what can be done with it

def test_train_writes_how_it_came_about(run):
    saved = json.loads((run / "run.json").read_text())
    assert saved["recipe"]["train"]["steps"] == 20 and saved["recipe"]["task"]["kind"] == "brackets"
    session = saved["sessions"][0]
    assert session["versions"]["torch"] == torch.__version__
    assert session["seed"] == 0
    assert session["command"].startswith("loflexmdm train brackets --steps 20")
    assert (run / "best/model.safetensors").exists() and (run / "checkpoints/step_000020/model.safetensors").exists()


def test_sample_to_jsonl_and_csv(run, tmp_path):
    for name in ("s.jsonl", "s.csv"): assert call(f"sample {run} -n 3 --nll 2 --out", tmp_path / name)[0] == 0
    lines = [json.loads(x) for x in (tmp_path / "s.jsonl").read_text().splitlines()]
    table = list(csv.DictReader(open(tmp_path / "s.csv")))
    assert len(lines) == len(table) == 3 and [" ".join(r["tokens"]) for r in lines] == [r["tokens"] for r in table]
    assert all(
        r["nll_bound"] == float(t["nll_bound"]) and r["generated"] == [1] * len(r["tokens"])
        for r, t in zip(lines, table, strict=True)
    )
    beside = json.loads((tmp_path / "s.jsonl.run.json").read_text())
    assert beside["task"]["kind"] == "brackets" and beside["counters"]["network_calls"] > 0 and beside["n"] == 3
    code, out, _ = call("evaluate", tmp_path / "s.jsonl")
    assert code == 0 and out == call("evaluate", tmp_path / "s.csv")[1] and out.split()[:2] == ["n", "3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "", "--sampler event", "--sampler tau --steps 4", "--top-p 0.5 --temperature 0.7 --confidence top_prob",
        "--sampler event --no-exact --events-per-call 2", "--max-length 5",
    ],
)
def test_sampling_is_seeded(run, options):
    one, two, other = (call(f"sample {run} -n 4 {options} --seed {seed}") for seed in (1, 1, 2))
    assert one[0] == 0 and one == two and one[1] != other[1] and len(one[1].splitlines()) == 4


@pytest.mark.slow
def test_thinning_where_samples_are_exact_or_it_is_asked_for(run):
    told = {options: call(f"sample {run} -n 4 {options}")[1] for options in (
        "--exact", "", "--top-p 0.5 --exact", "--top-p 0.5", "--top-p 0.5 --no-exact",
        "--top-p 0.5 --sampler event")}
    assert told[""] == told["--exact"]
    assert told["--top-p 0.5"] == told["--top-p 0.5 --no-exact"] == told["--top-p 0.5 --sampler event"]
    assert told["--top-p 0.5"] != told["--top-p 0.5 --exact"]


def test_prompts_in_three_forms(run, tmp_path):
    (tmp_path / "p.txt").write_text("( ... )\n\n[ (\n")
    (tmp_path / "p.jsonl").write_text('["(", "...", ")"]\n{"prompt": ["[", "("]}\n')
    outs = []
    for name in ("p.txt", "p.jsonl"):
        out = tmp_path / f"of-{name}.jsonl"
        assert call(f"sample {run} -n 2 --nll 2 --prompts {tmp_path / name} --out", out)[0] == 0
        outs.append(out.read_text())
    rows = [json.loads(x) for x in outs[0].splitlines()]
    assert outs[0] == outs[1] and [r["prompt"] for r in rows] == [["(", "...", ")"]] * 2 + [["[", "("]] * 2
    for r in rows:
        assert [t for t, g in zip(r["tokens"], r["generated"], strict=True) if not g] == [
            t for t in r["prompt"] if t != "..."
        ]
    assert all(r["tokens"][-1] == ")" and not r["generated"][-1] for r in rows[:2])  # nothing behind the closed end


def test_evaluate_and_info(run, tmp_path):
    code, out, _ = call(f"evaluate {run} -n 5 --nll 2 --out", tmp_path / "e.json")
    figures = json.loads((tmp_path / "e.json").read_text())["figures"]
    assert code == 0
    assert figures["n"] == 5
    assert {"network_calls", "nll_bound", "nll_se"} <= figures.keys()
    assert "nll_bound" in out
    code, out, _ = call("info", run)
    assert code == 0
    assert 'kind = "brackets"' in out
    assert "trained: 20 steps, 20 network evaluations" in out
    assert "best validation bound" in out
    assert call("info star-tiny-fixed")[0] == 0 and "brackets" in call("info")[1]


@pytest.mark.slow
def test_every_preset_is_a_recipe():
    few = {"molecule-edits": dict(task_source="chembl", limit=300)}  # its own pairs take minutes to find
    for name in presets(): assert recipe(name, **few.get(name, {})).train.steps > 0
    tiny, fixed = recipe("star-tiny"), recipe("star-tiny-fixed")
    assert tiny.task == fixed.task
    assert tiny.model["size"] == fixed.model["size"]
    assert (tiny.model["order"], fixed.model["order"]) == ("learned", "fixed")
    budget = [
        r.train.steps * r.train.batch_size * r.train.accumulate * n
        for r, n in ((tiny, tiny.model["states"]), (fixed, 1))
    ]
    assert budget[0] == budget[1]


def test_help_of_every_command_has_examples():
    for name in ("train", "resume", "sample", "evaluate", "info"):
        with pytest.raises(SystemExit) as e, contextlib.redirect_stdout(io.StringIO()) as out: main([name, "--help"])
        assert e.value.code == 0 and f"loflexmdm {name} " in out.getvalue()
    with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main(["train", "brackets", "--help"])
    assert "--max-pairs" in out.getvalue() and "--order-size" in out.getvalue() and "--lr" in out.getvalue()


def test_help_names_sizes_and_what_makes_a_run_short():
    with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main(["train", "brackets", "--help"])
    text = " ".join(out.getvalue().split())
    assert text.count(", ".join(SIZES)) == 2 and "--steps 500 --size nano" in text


def test_info_of_a_recipe_file(tmp_path):
    (tmp_path / "r.toml").write_text("[task]\nkind = 'brackets'\n[train]\nsteps = 7\n")
    code, out, _ = call("info", tmp_path / "r.toml")
    assert code == 0 and 'kind = "brackets"' in out and "steps = 7" in out


def test_the_limit_of_prompts_is_that_of_sampling(run, tmp_path):
    (tmp_path / "p.txt").write_text("(\n( ( ( (\n")
    refused(
        call(f"sample {run} --max-length 4 --prompts", tmp_path / "p.txt"), "p.txt, line 2: prompt", "max_length is 4"
    )


def test_lines_of_figures():
    assert figure_line("violations", 0) == ""
    assert figure_line("violations", 6).split(maxsplit=2) == ["violations", "6", "rate bounds exceeded\n"]
    assert figure_line("nll_bound", 1.5).split(maxsplit=2) == ["nll_bound", "1.5000", "nats per sequence\n"]
    assert "total variation" in figure_line("length_tv", 0.1)
    assert figure_line("exact_match", 1.0).split() == ["exact_match", "1.0000"]


# sequences of one's own

SUMS = [f"{a}+{b}={a + b}" for a in range(12) for b in range(12)]


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    "A run on sums, written in characters, three of them too long, and what it said."
    path = tmp_path_factory.mktemp("sums")
    (path / "sums.txt").write_text("\n".join([*SUMS, *("1000000+1" for _ in range(3))]))
    (path / "r.toml").write_text(
        f"[task]\nkind = 'text'\nfile = '{path / 'sums.txt'}'\nunit = 'characters'\n"
        "max_length = 9\n[model]\nsize = 'nano'\norder = 'fixed'\n"
    )
    code, _, err = call(f"train {path / 'r.toml'} --steps 10 --out {path / 'run'}", *SMALL)
    assert code == 0
    return path, err


def test_single_words_are_refused(sums, tmp_path):
    text = (sums[0] / "r.toml").read_text().replace("unit = 'characters'\n", "").replace("max_length = 9\n", "")
    (tmp_path / "r.toml").write_text(text)
    refused(
        call("train", tmp_path / "r.toml", "--out", tmp_path / "x"),
        "unit='words'",
        "'0+0=0'",
        "unit='characters' splits each line into characters",
    )
    assert not (tmp_path / "x").exists()


def test_training_says_what_the_data_is(sums):
    data, lost, *_ = sums[1].splitlines()
    sizes = [int(n) for n in re.findall(r"(?:train|valid|test) (\d+)", data)]
    assert len(sizes) == 3 and sum(sizes) == len(SUMS) and "vocabulary of 12 tokens; at most 8 tokens" in data
    assert lost == "left out: 3 of the source (3 longer than max_length)"


@pytest.mark.parametrize("options, first", [
    ("star-tiny", "new (star-tiny is a recipe; --start-from star-tiny begins with those of the packaged model of that "
     "name)"),
    ("brackets", "new (brackets is a recipe)"),
    ("star-tiny --start-from star-tiny", "those of star-tiny (star-tiny is a recipe)"),
    ("{run}", "its own ({run} is a saved model)"),
    ("{run} --start-from star-tiny", "those of star-tiny ({run} is a saved model)"),
    ("{run} --start-from=", "new ({run} is a saved model)"),
])
def test_the_first_line_of_train_says_what_it_begins_with(run, capsys, options, first):
    recipe_of(parse(["train", *options.format(run=run).split(), "--out", "x"]))
    assert capsys.readouterr().err.split("\n")[0] == f"weights: {first.format(run=run)}"


def test_resuming_does_not_say_it_again(sums, tmp_path):
    shutil.copytree(sums[0] / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")
    code, _, err = call("resume", tmp_path / "run")
    assert code == 0 and "data:" not in err


def test_characters_are_written_without_spaces(sums, tmp_path):
    (tmp_path / "p.txt").write_text("12+1=...\n\n1 ... = 1 3\n")
    code, out, _ = call(f"sample {sums[0] / 'run'} -n 2 --prompts", tmp_path / "p.txt")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 4 and " " not in out and "=>" not in out
    assert all(x.startswith("12+1=") for x in lines[:2]) and all(x[0] == "1" and x.endswith("=13") for x in lines[2:])
    (tmp_path / "p.txt").write_text("12*1=...\n")
    refused(call(f"sample {sums[0] / 'run'} --prompts", tmp_path / "p.txt"), "p.txt, line 1: token '*'")


@pytest.mark.slow
def test_files_of_characters_hold_their_text(sums, tmp_path):
    for name in ("s.jsonl", "s.csv"): assert call(f"sample {sums[0] / 'run'} -n 5 --out", tmp_path / name)[0] == 0
    rows = [json.loads(x) for x in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert all(r["text"] == "".join(r["tokens"]) and "nll_bound" not in r for r in rows)
    assert [r["text"] for r in csv.DictReader(open(tmp_path / "s.csv"))] == [r["text"] for r in rows]
    assert call("evaluate", tmp_path / "s.csv") == call("evaluate", tmp_path / "s.jsonl")


def test_a_space_is_a_character_in_files_too(tmp_path):
    row = dict(text="a b", prompt=[], tokens=["a", " ", "b"], generated=[1, 1, 1])
    (tmp_path / "s.csv").write_text(format_rows([row], ".csv"))
    assert read_samples(tmp_path / "s.csv")[0]["tokens"] == ["a", " ", "b"]


# wrong input: one line, exit code 2

@pytest.mark.slow
def test_wrong_input_in_a_process_of_its_own(tmp_path):
    done = subprocess.run(
        [*COMMAND, "train", "brackets", "--stepz", "3", "--out", tmp_path / "x"], capture_output=True, text=True
    )
    refused((done.returncode, done.stdout, done.stderr), "unknown argument --stepz (did you mean '--steps'?)")
    assert not (tmp_path / "x").exists()


def test_a_word_without_an_option_may_be_a_prompt():
    "A prompt that is not said to be one gets the option that takes it, in place of a list of all."
    words = ["sample", "star-tiny", "*c1ccncc1"]
    with pytest.raises(ValueError) as e: parse(words)
    assert str(e.value) == "unknown argument *c1ccncc1 (did you mean '--prompt-text *c1ccncc1'?)"


TRAIN = {
    "train nosuch": "recipe 'nosuch': neither a preset (brackets",
    "train star-tinny": "recipe 'star-tinny' (did you mean 'star-tiny'?): neither",
    "train brackets --method loflexmd": "method='loflexmd' (did you mean 'loflexmdm'?)",
    "train missing.toml": "missing.toml: no such file",
    "train brackets --steps many": "argument --steps: invalid int value: 'many'",
    "train brackets --steps -5": "steps=-5: must be at least 1",
    "train brackets --lr nan": "lr=nan",
    "train brackets --order backwards": "order='backwards': choose one of learned, fixed",
    "train brackets --degree 3": "unknown argument --degree",
    "train brackets --device tpu": "argument --device: invalid choice",
    "train": "RECIPE",
    "dance": "invalid choice: 'dance': choose one of",
    "sampel": "invalid choice: 'sampel' (did you mean 'sample'?): choose one of",
}


@pytest.mark.parametrize("line", TRAIN)
def test_wrong_train(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(call(line, "--out", "x"), TRAIN[line])
    assert not Path("x").exists()


TOML = {
    "[task]\nkind = 'brackets'\n[train]\nsteps = 'many'": "r.toml: train: steps='many' must be of type int",
    "[task]\nkind = 'brackets'\n[train]\nstepz = 3": (
        "r.toml: train: unknown key 'stepz' (did you mean 'steps'?); known: steps, batch_size"
    ),
    "[task]\nkind = 'brackets'\n[model]\nsize = 3": "model: size=3 must be of type str",
    "[task]\nkind = 'brackets'\npears = 3": "r.toml: task brackets: unknown key 'pears'",
    "[task]\nkind = 'brackets'\n[trian]": (
        "r.toml: unknown table or key 'trian' (did you mean 'train'?); allowed: [task], [model], [train]"
    ),
    "steps = 3": "unknown table or key 'steps'",
    "task = 3": "task=3: must be a table",
    "[task]\nkind = 'chess'": "task kind='chess': choose one of brackets",
    "[train]\nsteps = 3": "kind=None",
    "[task\n": "not valid TOML",
}


@pytest.mark.parametrize("text", TOML)
def test_wrong_toml(text, tmp_path):
    (tmp_path / "r.toml").write_text(text)
    refused(call("train", tmp_path / "r.toml", "--out", tmp_path / "x"), TOML[text])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", ["train", "sample", "evaluate", "compare", "resume"])
def test_nothing_given(command):
    refused(call(command), "the following arguments are required", f"(see `loflexmdm {command} --help`)")


def test_wrong_out_of_train(run, tmp_path):
    refused(call("train brackets --out", run), "holds a run; continue it with `loflexmdm resume")
    (tmp_path / "file").write_text("mine")
    refused(call("train brackets --out", tmp_path), "is not empty")
    refused(call("train brackets --out", tmp_path / "file"), "file: File exists")
    refused(call("train brackets --out", tmp_path / "file" / "x"), "Not a directory")
    assert (tmp_path / "file").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_out(run, tmp_path):
    tmp_path.chmod(0o500)
    refused(call("train brackets --out", tmp_path / "x"), "Permission denied")
    refused(call(f"sample {run} --out", tmp_path / "x.csv"), "is not writable")
    tmp_path.chmod(0o700)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.parametrize("line", ["train brackets --out {}/x", "resume {}", "sample {}", "evaluate {}"])
def test_cuda_without_a_gpu(run, line):
    refused(call(line.format(run) + " --device cuda"), "device='cuda': no usable CUDA GPU")


SAMPLE = {
    "-n 0": "n=0",
    "-n -1": "n=-1",
    "--top-p 0": "top_p=0.0",
    "--top-p 1.5": "top_p=1.5",
    "--temperature 0": "temperature=0.0",
    "--temperature -1": "temperature=-1.0",
    "--sampler tau --steps -1": "steps=-1",
    "--steps 8": "steps=8: only with sampler tau, not event",
    "--sampler event --events-per-call 3": "events_per_call=3: exact simulation takes 1",
    "--confidence high": "invalid choice: 'high'",
    "--sampler fast": "invalid choice: 'fast'",
    "--max-length -3": "max_length=-3",
    "--min-length 99": "min_length=99",
    "--batch-size 0": "batch_size=0",
    "--nll 1": "nll=1",
    "--nll -4": "nll=-4",
    "--seed x": "invalid int",
    "--out x.pdf": "must end in .jsonl or .csv",
    "--out nowhere/x.csv": "nowhere does not exist",
    "--prompts nowhere.txt": "nowhere.txt: No such file",
    "--sampler ancestral": f"is for masked diffusion; choose {either(list(fitting_samplers(('insert', 'unmask'))))}",
    "--sampler left-to-right": "is for autoregressive methods",
}


@pytest.mark.parametrize("options", SAMPLE)
def test_wrong_sample(run, options): refused(call(f"sample {run} {options}"), SAMPLE[options])


PROMPTS = {
    '["("]\n["(", "[': "p.jsonl, line 2: not valid JSON",
    '[3.5]': "line 1: must be a list of tokens",
    '"(("': "line 1: must be a list of tokens",
    '{"text": ["("]}': "line 1: must be a list",
    "": "holds no prompts",
    "\n\n": "holds no prompts",
    '["<mask>"]': "<mask> (exactly one token)",
    '["<pad>"]': "token '<pad>' is special",
    '["("]\n' + json.dumps(["("] * 500): (
        "p.jsonl, line 2: prompt ['(', '(', '(', '(', '(', '(', '(', '(']... "
        "has 501 tokens with the start token: max_length is"
    ),
    '["(", "x"]': "token 'x' is outside the vocabulary",
    json.dumps(["("] * 500): "p.jsonl, line 1: prompt [",
}


@pytest.mark.parametrize("text", PROMPTS)
def test_wrong_prompts(run, text, tmp_path):
    (tmp_path / "p.jsonl").write_text(text)
    refused(call(f"sample {run} --prompts {tmp_path / 'p.jsonl'} --out", tmp_path / "out.jsonl"), PROMPTS[text])
    assert not (tmp_path / "out.jsonl").exists()


def test_prompts_that_are_no_text(run, tmp_path):
    (tmp_path / "p.txt").write_bytes(b"\xff\xfe\x00")
    refused(call(f"sample {run} --prompts", tmp_path / "p.txt"), "not a text file")
    refused(call(f"sample {run} --prompts", tmp_path), "Is a directory")


def cut(path): path.write_bytes(path.read_bytes()[:100])
def edit(path, **values): path.write_text(json.dumps(add_digest(json.loads(path.read_text()) | values)))
def add_token(path): edit(path, vocabulary=json.loads(path.read_text())["vocabulary"] + ["x"])
def remove_key(path):
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "config"}))
def other_task(path): edit(path, task=dict(kind="brackets", kinds=1))


MODEL = [
    ("model.safetensors", cut, "damaged"),
    ("model.safetensors", Path.unlink, "no such file"),
    ("config.json", cut, "not valid JSON"),
    ("config.json", add_token, "weights of another model"),
    ("config.json", remove_key, "config"),
    ("config.json", other_task, "another vocabulary than its task"),
]


@pytest.mark.parametrize("name, damage, message", MODEL)
def test_damaged_model(run, tmp_path, name, damage, message):
    shutil.copytree(run / "best", tmp_path / "model")
    damage(tmp_path / "model" / name)
    refused(call("sample", tmp_path / "model"), message)


def test_no_model(tmp_path):
    refused(call("sample nosuch"), "nosuch")
    refused(call("sample", tmp_path), tmp_path)
    refused(call("info nosuch"), "nosuch")
    refused(call("sample star-tinny"), "'star-tinny' is neither", "did you mean 'star-tiny'?")
    refused(call("info bracket"), "did you mean 'brackets'?", "a preset (brackets")
    refused(call("sample mine.toml"), "mine.toml: is a recipe", "loflexmdm train mine.toml")


CHECKPOINT = [
    ("checkpoints/step_000010/model.safetensors", cut, "damaged"),
    ("checkpoints/step_000010/optimizer.safetensors", cut, "damaged"),
    ("checkpoints/step_000010/optimizer.safetensors", Path.unlink, "optimizer.safetensors"),
    ("checkpoints/step_000010/state.json", cut, "damaged"),
    ("run.json", cut, "damaged"),
    ("run.json", Path.unlink, "holds no run"),
    ("run.json", lambda p: p.write_text("[]"), "damaged"),
]


@pytest.mark.parametrize("name, damage, message", CHECKPOINT)
def test_damaged_run(run, tmp_path, name, damage, message):
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints/step_000020")
    damage(tmp_path / "run" / name)
    refused(call("resume", tmp_path / "run"), message)


def test_checkpoint_of_another_vocabulary(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints/step_000020")
    saved = json.loads((tmp_path / "run/run.json").read_text())
    saved["recipe"]["task"]["kinds"] = 1
    (tmp_path / "run/run.json").write_text(json.dumps(saved))
    refused(call("resume", tmp_path / "run"), "run.json: changed or damaged since it was written")
    (tmp_path / "run/run.json").write_text(json.dumps(add_digest(saved)))
    refused(call("resume", tmp_path / "run"), "task.kinds: 2 then, 1 now")
    refused(call("resume", tmp_path / "run", "--changed-data"), "weights of another model")
    refused(call(f"evaluate {run} --task star-tiny"), "has another vocabulary than the task")


def test_wrong_samples_files(run, tmp_path):
    refused(call("evaluate nowhere.jsonl"), "nowhere.jsonl")
    assert call(f"sample {run} -n 2 --out", tmp_path / "s.jsonl")[0] == 0
    (tmp_path / "s.jsonl.run.json").unlink()
    refused(call("evaluate", tmp_path / "s.jsonl"), "has no record of its task")
    assert call(f"evaluate {tmp_path / 's.jsonl'} --task brackets")[0] == 0
    refused(call(f"evaluate {tmp_path / 's.jsonl'} --task star-tiny"), "s.jsonl")
    (tmp_path / "s.jsonl").write_text('{"prompt": []}\n')
    refused(call(f"evaluate {tmp_path / 's.jsonl'} --task brackets"), "sample 1: needs the keys")


def test_resume_of_a_finished_run_says_so(run):
    code, out, err = call("resume", run)
    assert code == 0 and err.strip() == f"{run}: finished at step 20; nothing to do"


def test_resume_of_nothing(tmp_path):
    refused(call("resume", tmp_path / "nowhere"), "no such directory")
    refused(call("resume", tmp_path), "holds no run")


# what happens to running processes

@pytest.mark.slow
def test_kill_9_then_resume(whole, tmp_path):
    process = start("train", "brackets", "--steps", 120, "--save-every", 20, "--out", tmp_path / "run", *SMALL)
    wait_for(tmp_path / "run/checkpoints/step_000040", process)
    process.kill()
    assert process.wait() == -signal.SIGKILL and checkpoints(tmp_path / "run")[-1].name < "step_000120"
    assert call("resume", tmp_path / "run")[0] == 0
    assert difference(tmp_path / "run", whole) == 0
    assert (tmp_path / "run/best/model.safetensors").read_bytes() == (whole / "best/model.safetensors").read_bytes()


@pytest.mark.slow
def test_signals_save_first(whole, tmp_path, number=signal.SIGTERM):
    "Which signals are noted is tested in support/test_stop_signals."
    line = ("train", "brackets", "--steps", 120, "--save-every", 20, "--out", tmp_path / "run", *SMALL)
    process = Forked(tmp_path / "said", *line)
    wait_for(tmp_path / "run/checkpoints/step_000020", process)
    process.send_signal(number)
    assert process.wait() == 128 + number
    err = process.said.read_text()
    step = int(checkpoints(tmp_path / "run")[-1].name[5:])
    assert f"{number.name} at step {step}: saved; continue with `loflexmdm resume" in err
    assert "Traceback" not in err
    assert call("resume", tmp_path / "run")[0] == 0
    assert difference(tmp_path / "run", whole) == 0


def test_two_runs_in_one_directory(tmp_path):
    line = ("train", "brackets", "--steps", 100000, "--save-every", 5, "--out", tmp_path / "run", *SMALL)
    process = Forked(tmp_path / "said", *line)
    try:
        wait_for(tmp_path / "run/checkpoints/step_000005", process)
        refused(call("train brackets --out", tmp_path / "run"), ": holds a run; continue")
        code, _, err = call("resume", tmp_path / "run")
        assert code == 2 and process.poll() is None
        assert f"another run is writing here (process {process.pid} on " in err.splitlines()[-1]
        assert len(json.loads((tmp_path / "run/run.json").read_text())["sessions"]) == 1
    finally:
        process.kill()
        process.wait()


def test_a_run_that_was_killed_before_it_began_can_be_trained(tmp_path):
    (tmp_path / "run").mkdir()
    for name in (".lock", ".run.json.abcdefgh"): (tmp_path / "run" / name).write_text("{")
    assert call("train brackets --steps 2 --size nano --out", tmp_path / "run", *SMALL)[0] == 0
    assert not (tmp_path / "run/.run.json.abcdefgh").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.hidden").write_text("mine")
    refused(call("train brackets --out", tmp_path / "other"), "is not empty")


LONG = "-n 40 --batch-size 10 --nll 2 --max-length 6 --device cpu".split()


def stopped_after(batches, number, directory, run, options=LONG):
    "A sample command in a process of its own that gets a signal after some batches: exit code, last line of stderr."
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, (directory / "said").read_text().splitlines()[-1]
    add, seen = SavedRows.add, []
    def counting(*args):
        if len(seen) == batches: os.kill(os.getpid(), number)
        seen.append(add(*args))
    SavedRows.add = counting
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code, _, err = call(f"sample {run} --out", directory / "s.jsonl", *options)
        (directory / "said").write_text(err)
    finally: os._exit(code)


@pytest.mark.slow
def test_sampling_is_stopped_and_continued(run, tmp_path, number=signal.SIGINT):
    assert call(f"sample {run} --out", tmp_path / "s.jsonl", *LONG)[0] == 0
    (d := tmp_path / "cut").mkdir()
    code, said = stopped_after(2, number, d, run)
    partial = d / "s.jsonl.partial.jsonl"
    assert code == 128 + number
    assert said.startswith(f"loflexmdm: {number.name}: 20 of 40 sequences are kept in {partial}; continue with `")
    code, _, err = call(f"sample {run} --out", d / "s.jsonl", *LONG)
    assert code == 0 and "continuing: 20 of 40 sequences are kept" in err
    assert (d / "s.jsonl").read_bytes() == (tmp_path / "s.jsonl").read_bytes()
    infos = [json.loads((p / "s.jsonl.run.json").read_text()) for p in (tmp_path, d)]
    assert infos[0]["counters"] == infos[1]["counters"]
    assert sorted(p.name for p in d.iterdir()) == ["s.jsonl", "s.jsonl.run.json", "said"]


@pytest.mark.slow
def test_a_partial_file_of_another_command_is_refused(run, tmp_path):
    stopped_after(2, signal.SIGINT, tmp_path, run)
    held = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for other in ("--seed 1", "-n 41", "--top-p 0.5", "--batch-size 20", "--nll 3"):
        refused_by = call(f"sample {run} --out {tmp_path / 's.jsonl'}", *LONG, *other.split())
        assert refused_by[0] == 2 and "holds sequences of a command with another" in refused_by[2], other
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == held
    (tmp_path / "s.jsonl.partial.jsonl.run.json").unlink()
    refused(call(f"sample {run} --out", tmp_path / "s.jsonl", *LONG), "missing or damaged", "cannot be continued")


def test_a_partial_file_is_a_samples_file(run, tmp_path):
    stopped_after(1, signal.SIGINT, tmp_path, run, "-n 80 --batch-size 70 --nll 2 --max-length 6".split())
    code, out, _ = call("evaluate", tmp_path / "s.jsonl.partial.jsonl")
    assert code == 0 and out.split()[:2] == ["n", "70"]


def test_ctrl_c_in_the_first_batch_leaves_nothing(run, tmp_path):
    (tmp_path / "s.jsonl").write_text("what was here before\n")
    code, said = stopped_after(0, signal.SIGINT, tmp_path, run, (*LONG, "--force"))
    assert code == 130 and "the first batch was not finished, nothing is kept" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.jsonl", "said"]
    assert (tmp_path / "s.jsonl").read_text() == "what was here before\n"


def test_two_commands_that_write_one_file(run, tmp_path):
    with lock_file(tmp_path / ".s.jsonl.partial.jsonl.lock"):
        code, _, err = call(f"sample {run} --out", tmp_path / "s.jsonl", *LONG)
    assert code == 2 and "another command is writing there (process " in err


def test_ctrl_c_while_evaluating_leaves_no_half_files(run, tmp_path, monkeypatch):
    def interrupted(handle): raise KeyboardInterrupt
    monkeypatch.setattr(os, "fsync", interrupted)
    assert call(f"evaluate {run} -n 4 --out", tmp_path / "e.json")[0] == 130
    assert not list(tmp_path.iterdir())


@pytest.fixture
def small_disk(tmp_path):
    "A file system of 6 MB, where one can be mounted."
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", tmp_path], capture_output=True).returncode
    ):
        pytest.skip("cannot mount a small file system")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow
def test_full_disk(small_disk, whole, monkeypatch, capsys):
    "Training stops with one line; what was complete stays so, and goes on when there is room."
    line = ["train", "brackets", "--steps", "120", "--save-every", "20", "--out", str(small_disk / "run"), *SMALL]
    code, _, err = call(*line)
    assert code == 2 and "are free" in err.splitlines()[-1] and "Traceback" not in err

    # a disk that others fill after the check
    monkeypatch.setattr(checkpoints_module, "check_room", lambda *_: None)
    code, err = main(line), capsys.readouterr().err
    assert code == 2 and "No space left on device" in err.splitlines()[-1] and "Traceback" not in err
    assert err.splitlines()[-1].startswith(f"loflexmdm: {small_disk}/run/")
    assert not [p for p in (small_disk / "run").rglob(".*") if p.name != ".lock"]
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    assert call("resume", small_disk / "run")[0] == 0
    assert difference(small_disk / "run", whole) == 0


def test_full_disk_while_sampling(small_disk, run, monkeypatch, capsys):
    (small_disk / "s.jsonl").write_text("what was here before\n")
    with open(small_disk / "filler", "wb") as f, contextlib.suppress(OSError): f.write(bytes(7 << 20))
    line = ["sample", str(run), "-n", "20", "--force", "--out", str(small_disk / "s.jsonl")]
    code, _, err = call(*line)
    assert code == 2 and "are free" in err.splitlines()[-1]

    monkeypatch.setattr(sample_command, "check_room", lambda *_: None)
    code, err = main(line), capsys.readouterr().err
    assert code == 2 and "No space left on device" in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith(f"loflexmdm: {small_disk}/")
    assert (small_disk / "s.jsonl").read_text() == "what was here before\n"
    assert sorted(p.name for p in small_disk.iterdir()) == ["filler", "s.jsonl"]


def test_quiet_leaves_results_and_errors(run, tmp_path):
    told, quiet = call(f"sample {run} -n 2 --seed 3"), call(f"sample {run} -n 2 --seed 3 --quiet")
    assert quiet == (0, told[1], "") and told[2] and quiet[1]
    assert call("train brackets --steps 2 --quiet --out", tmp_path / "run", *SMALL) == (0, "", "")
    code, out, err = call("train brackets --quiet --out", tmp_path / "run", *SMALL)
    assert code == 2 and not out and len(err.splitlines()) == 1 and ": holds a run; continue" in err


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(run):
    done = subprocess.run(
        f"{sys.executable} -m loflexmdm.cli sample {run} -n 2000 --max-length 3 | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


# parts of other packages

@pytest.fixture
def broken(monkeypatch):
    "Plug-ins of all three kinds whose import fails."
    for registry in (METHODS, SAMPLERS, TASKS):
        point = EntryPoint("broken", "no_such_package:Part", registry.group)
        monkeypatch.setattr(registry, "plugins", lambda point=point: dict(broken=point))


@pytest.mark.parametrize(
    "line",
    [
        "sample {run} --sampler broken", "train brackets --method broken --out {out}",
        "train {toml} --out {out}", "sample {model}", "cite broken",
    ],
)
def test_plug_ins_that_fail_are_refused_in_one_line(run, broken, tmp_path, line):
    (tmp_path / "r.toml").write_text("[task]\nkind = 'broken'\n")
    shutil.copytree(run / "best", tmp_path / "model")
    edit(tmp_path / "model/config.json", task=dict(kind="broken"))
    places = dict(run=run, out=tmp_path / "x", toml=tmp_path / "r.toml", model=tmp_path / "model")
    refused(
        call(line.format(**places)), "broken", "plug-in 'no_such_package:Part' cannot be imported (ModuleNotFoundError"
    )
    assert not (tmp_path / "x").exists()


def test_plug_ins_that_fail_stop_nothing_else(run, broken, tmp_path):
    assert call(f"sample {run} -n 2")[0] == 0
    (tmp_path / "m.smi").write_text("CCO\n")
    assert call("evaluate", tmp_path / "m.smi")[0] == 0
    with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(["sample", "--help"])


def test_newer_format_is_refused(run, tmp_path):
    shutil.copytree(run / "best", tmp_path / "model")
    edit(tmp_path / "model/config.json", format=99)
    refused(call("sample", tmp_path / "model"), "format 99 is newer than this version reads")


@pytest.fixture
def loud():
    "A task of another package that says everything a task may say."
    brackets = TASKS["brackets"]

    class LoudOutput(TaskOutput):
        file_suffixes = (".loud",)
        def pretty(self, row): return row["text"] + " " + "".join(row["tokens"])
        def advice(self, rows, options): return [f"louder with --top-p {options.get('top_p')}, -n {options['n']}"]
        def picture(self, rows): return b"picture of %d" % len(rows)
        def bound_states(self, rows): return 2
        def evaluate_file(self, path, column="", task=None, progress=False, **reading):
            return dict(bytes=len(path.read_bytes()), known=task is not None)

    class LoudTask(brackets):
        kind, prompt_help, papers = "loud", ("TEXT", "brackets without spaces"), {"ilm": "noise"}
        output = LoudOutput()
        def prompt(self, text): return list(text)
        def describe(self, samples, prompt_text=""):
            return [dict(state="loud", text=prompt_text + "!") for _ in samples.sequences]
    yield LoudTask
    del TASKS.classes["loud"]


def test_every_hook_of_a_task_is_used(run, loud, tmp_path):
    shutil.copytree(run / "best", tmp_path / "model")
    edit(
        tmp_path / "model/config.json",
        task=task_from(json.loads((run / "run.json").read_text())["recipe"]["task"]).as_dict() | dict(kind="loud"),
    )
    for flag in ("--prompt-text", "--fragment"):
        code, out, err = call(f"sample {tmp_path / 'model'} -n 2 --top-p 0.5 {flag} ((")
        assert code == 0 and all(line.startswith("((! ((") for line in out.splitlines()) and len(out.splitlines()) == 2
        assert "of 2: 2 loud" in err and "louder with --top-p 0.5, -n 2" in err
    assert call(f"sample {tmp_path / 'model'} -n 3 --out", tmp_path / "s.jsonl")[0] == 0
    assert (tmp_path / "s.png").read_bytes() == b"picture of 3" and "nll_bound" in (tmp_path / "s.jsonl").read_text()
    (tmp_path / "x.loud").write_text("abc")
    assert call("evaluate", tmp_path / "x.loud")[1].split() == ["bytes", "3", "known", "False"]
    (tmp_path / "r.toml").write_text("[task]\nkind = 'loud'\n")
    assert call(f"evaluate {tmp_path / 'x.loud'} --task", tmp_path / "r.toml")[1].split() == [
        "bytes", "3", "known", "True",
    ]
    assert call("cite loud")[1].startswith("% task loud: noise\n@")
    with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        main(["sample", str(tmp_path / "model"), "--help"])
    assert "brackets without spaces" in " ".join(out.getvalue().split())


def test_samplers_of_others_are_on_the_command_line(run):
    class Halving(TauLeaping):
        "Tau-leaping that halves its steps."
        name, options, papers = "halving", ("steps", "seed"), ("ilm",)
        seed: int = 0  # a field whose option is taken
    dataclass(frozen=True)(Halving)
    try:
        assert call(f"sample {run} -n 2 --sampler halving --steps 4 --sampler-seed 3")[0] == 0
        refused(call(f"sample {run} --sampler tau --sampler-seed 3"), "seed=3: only with sampler halving, not tau")
    finally: del SAMPLERS.classes["halving"]


class Unreadable(torch.utils.data.Dataset):
    "Data that a loader's process cannot read."
    def __init__(self, error): self.error = error
    def __len__(self): return 1
    def __getitem__(self, i): raise self.error


@pytest.mark.parametrize("error", [ValueError("words.txt, line 7: is\nempty"), OSError("words.txt: cut off")])
def test_errors_of_loader_processes_have_their_own_message(error):
    with pytest.raises(type(error), match="Caught") as e:
        list(torch.utils.data.DataLoader(Unreadable(error), num_workers=1))
    assert one_line(e.value) == " ".join(str(error).split())


# Files that are there already

@pytest.mark.slow
def test_a_file_that_is_there_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "mine.jsonl"
    for line in ("sample star-tiny -n 2 --device cpu", "optimize --objective qed --way ranked --budget 2 --device cpu"):
        notes.write_text("my notes")
        refused(call(f"{line} --out mine.jsonl"), "mine.jsonl")
        assert notes.read_text() == "my notes"
    code, _, err = call("sample star-tiny -n 2 --device cpu --out mine.jsonl --force")
    assert code == 0 and len(notes.read_text().splitlines()) == 2, err


@pytest.mark.slow
def test_a_command_may_run_again(tmp_path, monkeypatch):
    "What it made is made again; another command, and a file whose origin is not known, are refused."
    monkeypatch.chdir(tmp_path)
    line = "sample star-tiny -n 2 --device cpu --out s.jsonl"
    assert call(line)[0] == call(line)[0] == 0
    refused(call(line + " --seed 1"), "s.jsonl exists; choose another name", "--force")
    (tmp_path / "s.jsonl.run.json").write_text("damaged")
    refused(call(line), "s.jsonl exists; choose another name", "--force")


def test_a_report_replaces_no_page(tmp_path, monkeypatch):
    "`--by -sa` is an example of the help: the value begins with a minus."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.smi").write_text("CCO\nc1ccccc1\n")
    assert call("report leads.smi --by -sa")[0] == 0
    page = tmp_path / "leads.html"
    assert "Lowest sa first" in page.read_text()
    page.write_text("mine")
    refused(call("report leads.smi"), "leads.html exists; choose another name", "--force")
    assert page.read_text() == "mine"
    assert call("report leads.smi --force --by qed")[0] == 0 and "mine" not in page.read_text()


@pytest.mark.parametrize("line", ["--by", "--by --top 3"])
def test_by_needs_a_value(tmp_path, line): refused(call(f"report leads.smi {line}"), "--by: expected one argument")


def test_a_picture_that_is_there_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = tmp_path / "mols.png"
    picture.write_text("mine")
    refused(call("sample molecules -n 1 --device cpu --out mols.csv"), "mols.png exists; choose another name")
    assert picture.read_text() == "mine" and not (tmp_path / "mols.csv").exists()
