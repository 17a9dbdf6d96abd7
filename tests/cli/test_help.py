"Help pages come from the package's table: at once, without torch, and as the commands themselves would write them."
import json
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from loflexmdm.cli import commands
from loflexmdm.cli.commands import HELP, Parser, add_options, find_commands, full_parser, help_tables, stored_parser

NAMES = list(json.loads(HELP.read_text(encoding="utf-8"))["commands"])

FRESH = """
import contextlib, io, sys, time
from loflexmdm.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out: main(sys.argv[1:])
print(out.getvalue() + f"{'torch' in sys.modules} {time.process_time()}")
"""


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["train", "-h"], *([name, "--help"] for name in NAMES)])
def test_help_leaves_torch_out(argv):
    said = subprocess.check_output([sys.executable, "-c", FRESH, *argv], text=True)
    *page, last = said.splitlines()
    torch, seconds = last.split()
    assert page[0].startswith(" ".join(["usage: loflexmdm", *argv[:-1]])) or argv == ["--version"]
    assert torch == "False" and float(seconds) < 0.3


def test_the_table_is_that_of_the_commands():
    stored = json.loads(HELP.read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(help_tables())), "call cli.commands.write_help() after a change of options"
    assert NAMES == list(find_commands())


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_pages_from_the_table_are_the_same(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    for name in NAMES:
        whole = full_parser([name, "--help"])[1].choices[name]
        page = json.loads(HELP.read_text(encoding="utf-8"))["pages"][name]
        made = Parser(prog=whole.prog, description=page["description"], epilog=page["epilog"])
        add_options(made, page)
        assert made.format_help() == whole.format_help(), name


def test_the_list_of_commands_is_the_same(monkeypatch):
    whole = full_parser(["--help"])[0].format_help()
    monkeypatch.setattr(commands, "COMMANDS", {})
    assert stored_parser(["--help"]).format_help() == whole


def test_plug_ins_make_the_pages_anew(monkeypatch):
    monkeypatch.setattr(commands, "COMMANDS", {})
    assert stored_parser(["train", "--help"]) is not None
    point = EntryPoint("toy", "toy.methods", "loflexmdm.methods")
    monkeypatch.setattr(commands, "entry_points", lambda: EntryPoints([point]))
    assert stored_parser(["train", "--help"]) is None


@pytest.mark.parametrize("argv", [[], ["train"], ["train", "brackets", "--help"], ["train", "--version"], ["--quiet"]])
def test_all_else_is_parsed_in_full(argv, monkeypatch):
    monkeypatch.setattr(commands, "COMMANDS", {})
    assert stored_parser(argv) is None


def test_an_unknown_command_is_refused_with_those_there_are():
    done = subprocess.run([sys.executable, "-m", "loflexmdm", "trian", "--help"], capture_output=True, text=True)
    assert done.returncode == 2 and "'trian'" in done.stderr and done.stderr.count("\n") == 1
