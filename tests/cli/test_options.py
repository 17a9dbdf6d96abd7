"Options: one frozen object per command, made once, with the defaults that the help shows."
import ast
import inspect
import json
import re
import shlex
from dataclasses import FrozenInstanceError, fields

import pytest

from loflexmdm.cli import commands
from loflexmdm.cli.commands import find_commands, full_parser, parse
from loflexmdm.cli.resumable_rows import settings_of
from loflexmdm.models.pretrained import load
from loflexmdm.models.requests import SampleRequest
from loflexmdm.samplers import TauLeaping

LINES = dict(
    train="train brackets --out x", resume="resume x", sample="sample star-tiny", edit="edit star-tiny --input x.txt",
    evaluate="evaluate star-tiny", compare="compare brackets --methods ar --out x", optimize="optimize --objective qed",
    report="report x.smi", cite="cite", info="info", demo="demo", app="app",
    serve="serve star-tiny", link="link c1ccccc1*.*CC",
)
LINES["import"] = "import x.safetensors --as safe --out x"


def test_every_command_is_here():
    own = {name for name, command in find_commands().items() if command.run.__module__.startswith("loflexmdm.")}
    assert LINES.keys() == own


@pytest.mark.parametrize("name", LINES)
def test_options_are_frozen_and_those_of_the_parser(name):
    options = parse(LINES[name].split())
    assert type(options) is options.command.options and options.command.name == name
    assert options.command_line == f"loflexmdm {shlex.join(LINES[name].split())}"
    with pytest.raises(FrozenInstanceError): options.quiet = True

    parser = full_parser(LINES[name].split())[1].choices[name]
    dests = {action.dest.partition(".")[0] for action in parser._actions} - {"help"}
    known = {f.name for f in fields(options)} - {"argv"}
    unused = {"reading"} - dests  # a task without options of reading
    assert known - unused == dests, "a field without an option, or an option without a field"


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
    options, star = parse(line.split()), load("star-tiny")
    assert options.settings == dict(steps=4, top_p=0.5, confidence="none")
    assert star.request(**options.settings_for(star.method)).sampler == TauLeaping(steps=4, top_p=0.5)
    assert star.request().sampler == star.method.default_sampler


def test_what_decides_rows_is_every_setting_of_the_request():
    star = load("star-tiny")
    found = settings_of(star.request(n=1, seed=3), star.method, ["1"], dict(torch="2"))
    names = {f.name for f in fields(SampleRequest)} - {"generator", "progress", "skip", "record"}
    assert found.keys() == names | {"torch version", "model", "task", "device", "prompts"}
    assert json.loads(json.dumps(found)) == found


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
