"Options: one frozen object per command, made once; what decides rows has the names that older files know."
import ast
import hashlib
import inspect
import json
import re
import shlex
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from loflexmdm.cli import commands, edit, optimize, sample
from loflexmdm.cli.commands import find_commands, full_parser, parse
from loflexmdm.cli.sampler_options import SampleOptions, selected_sampler
from loflexmdm.models.pretrained import load
from loflexmdm.samplers import TauLeaping

LINES = dict(
    train="train brackets --out x", resume="resume x", sample="sample star-tiny", edit="edit star-tiny --input x.txt",
    evaluate="evaluate star-tiny", compare="compare brackets --methods ar --out x", optimize="optimize --objective qed",
    report="report x.smi", cite="cite", info="info", demo="demo", app="app",
    link="link c1ccccc1*.*CC",
)
LINES["import"] = "import x.safetensors --as safe --out x"


def test_every_command_is_here(): assert LINES.keys() == find_commands().keys()


@pytest.mark.parametrize("name", LINES)
def test_options_are_frozen_and_those_of_the_parser(name):
    options = parse(LINES[name].split())
    assert type(options) is options.command.options and options.command.name == name
    assert options.command_line == f"loflexmdm {shlex.join(LINES[name].split())}"
    with pytest.raises(FrozenInstanceError): options.quiet = True

    parser = full_parser(LINES[name].split())[1].choices[name]
    dests = {action.dest.partition(".")[0] for action in parser._actions} - {"help"}
    known = {f.name for f in fields(options)} - {"argv"}
    shared = {"min_length", "guidance", "guidance_scheme", "nll"} if name == "edit" else set()
    assert known - shared == dests, "a field without an option, or an option without a field"


@pytest.mark.parametrize("name", LINES)
def test_defaults_in_the_help_are_those_of_the_class(name):
    parser = full_parser(LINES[name].split())[1].choices[name]
    options = parse(LINES[name].split())
    for action in parser._actions:
        shown = (action.help or "").rpartition("[")[2].removesuffix("]")
        if action.dest not in vars(options) or not re.fullmatch(r"\d+(\.\d+)?", shown): continue
        value = vars(options)[action.dest]
        assert float(shown) == float(500 if value is None else value), action.dest  # 500: steps of the demonstration


def test_nothing_reads_or_changes_a_namespace():
    "The parser's own actions apart, which are argparse's."
    for c in find_commands().values():
        tree = ast.parse(inspect.getsource(inspect.getmodule(c.run)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute): assert node.attr != "Namespace"
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assert getattr(node.value, "id", "") not in ("args", "options")
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                assert getattr(node.args[0], "id", "") not in ("args", "options")


def test_sampler_settings_of_the_command_line():
    line = "sample star-tiny --sampler tau --steps 4 --top-p 0.5 --confidence none"
    options, star = parse(line.split()), load("star-tiny").method
    assert options.settings == dict(steps=4, top_p=0.5, confidence="none")
    assert selected_sampler(options, star) == TauLeaping(steps=4, top_p=0.5)
    assert selected_sampler(replace(options, sampler=None, settings={}), star) == star.default_sampler


def test_settings_of_sample_are_those_of_older_files():
    "A partial file of an older version is continued only if these agree by name and value."
    star, info = load("star-tiny").method, dict(versions=dict(torch="2"), sampler="TauLeaping()")
    found = sample.settings_of(SampleOptions(model="star-tiny", seed=3), star, [("1", ...)], 0, info)
    digest = hashlib.sha256(json.dumps([["1", "..."]]).encode()).hexdigest()
    assert found == {
        "seed": 3, "batch_size": 512, "min_length": 0, "max_length": None, "prompt_text": None, "guidance": 0.0,
        "guidance_scheme": "naive", "torch version": "2", "model": sample.model_digest(star), "task": star.task,
        "sampler": "TauLeaping()", "n": 1, "nll": 0, "prompts": digest, "device": "cpu",
    }
    more = SampleOptions(model="star-tiny", valid=2, unique=True, salvage=True)
    assert sample.settings_of(more, star, [()], 0, info).items() >= dict(valid=2, unique=True, salvage=True).items()


def test_settings_of_edit_and_optimize_are_those_of_older_files():
    star, info = load("star-tiny").method, dict(versions=dict(torch="2"), sampler="TauLeaping()")
    rows = [edit.Attempt(1, "a", 1, ["a"], [False]), edit.Attempt(2, "", 1, [], [], "skipped: empty")]
    found = edit.settings_of_edit(edit.EditOptions(model="star-tiny", input="x.txt"), star, rows, info)
    older = [[1, "a", 1, ["a"], [False], "", ""], [2, "", 1, [], [], "not read: empty", ""]]
    digest = hashlib.sha256(json.dumps(older).encode()).hexdigest()
    assert found == {
        "seed": 0, "batch_size": 512, "max_length": None, "torch version": "2", "model": sample.model_digest(star),
        "task": star.task, "sampler": "TauLeaping()", "device": "cpu", "attempts": digest,
    }
    options = optimize.OptimizeOptions(objective="qed", way="genetic", scaffold="C")
    found = optimize.settings_of(options, ["C"], None)
    assert found.pop("start") and found == dict(
        objective="qed", way="genetic", seed=0, population=50, children=50, time_limit=60.0, alerts=None, scaffold="C",
        sound=6.0,
    )


def words(text):
    "Words of an option's help, without its default and without a list of choices."
    return text.partition(" [")[0].partition(": ")[0].split()


def test_help_is_short():
    "At most ten words, none that begins with `of`; the samplers' and the tasks' comments are not counted here."
    pages = json.loads(commands.HELP.read_text(encoding="utf-8"))["pages"]
    groups = "positional arguments", "options"
    helps = [(name, o["option_strings"] or o["dest"], o["help"])
             for name, page in pages.items() for o in page["options"] if o["group"] in groups]
    assert len(helps) > 100
    assert [h for h in helps if len(words(h[2])) > 10 or h[2].startswith("of ")] == []
