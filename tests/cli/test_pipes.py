"A pipe in place of a file, as in `--prompts <(...)`: every option that names a file refuses it in one line."
import os
import signal
from dataclasses import fields

import pytest

import published_files
from commands import call

from loflexmdm.cli.commands import find_commands, full_parser, reads_file
from loflexmdm.support.registries import TASKS

REFUSAL = "is a pipe or device, which cannot be read twice; save its content in a file first"
NEEDED = dict(  # values of required arguments beside the one that is tried
    recipe="brackets", model="molecules-leads", input="leads.smi", objective="qed", file="leads.smi",
    out="out", methods="mdm", kind="safe", ends="*C.*C", directory="out", names="qed",
)
OWN = {"edit": dict(model="lead-edits"), "import": dict(file="flexmdm_generator.weights.safetensors")}
PIPE = "train.toml"  # a name that every reader accepts


def arguments_of(command: str) -> list: return full_parser([command])[1].choices[command]._actions


def line_with(command: str, tried: str, value: str) -> list[str]:
    "Return a command line with one argument of this value, and the required ones."
    line = [command, *["--heads=4"] * (command == "import")]
    needed = NEEDED | OWN.get(command, {})
    for action in arguments_of(command):
        if action.dest != tried and not action.required: continue
        line += [*action.option_strings[:1], value if action.dest == tried else needed[action.dest]]
    return line


FILES = [(name, action.dest) for name in find_commands() for action in arguments_of(name) if reads_file(action)]
SETTINGS = [(kind, key) for kind, cls in TASKS.all().items()
            for key in cls.paths({f.name: "a.smi" for f in fields(cls.Config) if isinstance(f.default, str)})
            if key != "vocabulary_from"  # a folder
            and cls.__module__.startswith("loflexmdm.")]  # no task that another test imported


def stop_reading(*_): raise TimeoutError("the pipe was opened, and read to its end")


@pytest.fixture(autouse=True)
def pipe(tmp_path, monkeypatch):
    "A pipe in which some SMILES wait, and a file of the same content."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leads.smi").write_text("".join("C" * n + "\n" for n in range(1, 50)))
    os.mkfifo(PIPE)
    ends = os.open(PIPE, os.O_RDWR)  # so that nothing waits for the other end
    os.write(ends, b"CCO\nCCN\n")
    signal.signal(signal.SIGALRM, stop_reading)
    signal.alarm(60)
    yield
    signal.alarm(0)
    os.close(ends)


def test_the_options_are_found():
    assert len(FILES) >= 13 and {("sample", "prompts"), ("edit", "input"), ("report", "file")} <= {*FILES}
    assert {("text", "file"), ("molecules", "source")} <= {*SETTINGS}


@pytest.mark.parametrize("command,argument", FILES)
def test_a_pipe_is_refused_by_name(command, argument, tmp_path):
    if command == "import": published_files.write_all(tmp_path)
    code, out, err = call(*line_with(command, argument, PIPE))
    assert code == 2 and not out and err.splitlines()[-1].endswith(f" {PIPE}: {REFUSAL}")


@pytest.mark.parametrize("kind,key", SETTINGS)
def test_a_pipe_in_a_recipe_is_refused_by_name(kind, key, tmp_path):
    values = dict(kind=kind) | (dict(file="leads.smi") if kind == "text" else {})
    values[key] = "{split}.toml" if kind == "star" else PIPE
    (tmp_path / "recipe.toml").write_text("[task]\n" + "".join(f'{k} = "{v}"\n' for k, v in values.items()))
    code, out, err = call("train recipe.toml --steps 1 --out run")
    assert code == 2 and not out and err.splitlines()[-1].endswith(f"{PIPE}: {REFUSAL}")
