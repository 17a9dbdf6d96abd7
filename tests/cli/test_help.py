"Help pages come from the package's table: at once, without torch, and as the commands themselves would write them."
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import forks
import pytest

from loflexmdm.cli import commands
from loflexmdm.cli.commands import HELP, parse, stored_parser
from loflexmdm.cli.descriptions import describe_files
from loflexmdm.cli.info import describe_model
from loflexmdm.support.atomic_files import add_digest
from loflexmdm.support.saved_files import models_directory

ROOT = Path(__file__).parents[2]
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
    assert torch == "False" and float(seconds) < 1  # with torch 2 and more


def test_a_model_of_the_package_is_described_without_torch(tmp_path, monkeypatch):
    *text, last = subprocess.check_output([sys.executable, "-c", FRESH, "info", "star-tiny"], text=True).splitlines()
    torch, seconds = last.split()
    assert "\n".join(text) + "\n" == describe_model("star-tiny") and torch == "False" and float(seconds) < 1
    monkeypatch.setattr(commands.COMMANDS, "classes", {})
    monkeypatch.chdir(tmp_path)
    assert commands.stored_listing(["info", "star-tiny"]) == describe_model("star-tiny").removesuffix("\n")
    (tmp_path / "star-tiny").mkdir()  # which the whole command mentions
    assert commands.stored_listing(["info", "star-tiny"]) is commands.stored_listing(["info", "nosuch"]) is None


def test_a_run_is_described_without_torch(tmp_path):
    place = tmp_path / "run" / "best"
    place.parent.mkdir()
    shutil.copytree(models_directory() / "star-tiny", place)
    (place.parent / "metrics.jsonl").write_text('{"step": 7, "seconds": 3.0, "evaluations": 7}\n')
    told = subprocess.check_output([sys.executable, "-c", FRESH, "info", str(place.parent)], text=True)
    *text, last = told.splitlines()
    torch, seconds = last.split()
    assert torch == "False" and float(seconds) < 1 and "trained: 7 steps, 7 network evaluations, 3 s" in text
    assert text[0] == f"{place.parent}: loflexmdm, 487,504 parameters"


@pytest.mark.parametrize("damage", ["weights", "settings", "digests", "code"])
def test_what_is_not_as_it_was_saved_is_left_to_the_whole_command(damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models_directory() / "star-tiny", "model")
    assert describe_files("model").startswith("model: loflexmdm, 487,504 parameters")
    file, weights = Path("model/config.json"), Path("model/model.safetensors")
    meta = json.loads(file.read_text())
    if damage == "weights": weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    if damage == "settings": file.write_text(json.dumps(meta | dict(config={})))
    if damage == "digests": file.write_text(json.dumps({k: v for k, v in meta.items() if k not in ("digest", "files")}))
    if damage == "code": file.write_text(json.dumps(add_digest(meta | dict(method="mine.py:Mine"))))
    assert describe_files("model") is None


@pytest.mark.parametrize("name", ["star-tiny", "brackets"])
def test_a_name_of_the_package_is_not_a_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models_directory() / "star-tiny", name)
    assert describe_files(name) is None and describe_files(f"./{name}").startswith(f"./{name}: loflexmdm")


def test_the_list_of_names_leaves_torch_out():
    *listing, last = subprocess.check_output([sys.executable, "-c", FRESH, "info"], text=True).splitlines()
    torch, seconds = last.split()
    assert listing[0] == "models:" and any(line.startswith("networks: ") for line in listing)
    assert torch == "False" and float(seconds) < 1  # with torch 2 and more


ANEW = """
import json
import os
from loflexmdm.cli import commands
from loflexmdm.cli.commands import HELP, Parser, add_options, find_commands, full_parser, help_tables, stored_parser

stored = json.loads(HELP.read_text(encoding="utf-8"))
columns = os.environ.pop("COLUMNS")
current = stored == json.loads(json.dumps(help_tables())) and list(stored["commands"]) == list(find_commands())
os.environ["COLUMNS"] = columns
def pages(name):
    whole, page = full_parser([name, "--help"])[1].choices[name], stored["pages"][name]
    made = Parser(prog=whole.prog, description=page["description"], epilog=page["epilog"])
    add_options(made, page)
    return made.format_help(), whole.format_help()

found = {name: pages(name) for name in stored["commands"]}
found["the list"] = [full_parser(["--help"])[0].format_help()]
commands.COMMANDS.classes = {}
found["the list"].append(stored_parser(["--help"]).format_help())
print(json.dumps(dict(current=current, found=found)))
"""  # in a process of its own: other tests define methods, which its pages would name


@pytest.mark.parametrize("columns", ["60", "200"])
@pytest.mark.slow
def test_pages_from_the_table_are_those_of_the_commands(columns):
    made = json.loads(forks.run(["-c", ANEW], env=os.environ | dict(COLUMNS=columns)).stdout)
    assert made["current"], "run make update after a change of options"
    assert [name for name, (stored, whole) in made["found"].items() if stored != whole] == []


def test_plug_ins_make_the_pages_anew(monkeypatch):
    monkeypatch.setattr(commands.COMMANDS, "classes", {})
    assert stored_parser(["train", "--help"]) is not None
    point = EntryPoint("toy", "toy.methods", "loflexmdm.methods")
    monkeypatch.setattr(commands, "installed_points", lambda: EntryPoints([point]))
    assert stored_parser(["train", "--help"]) is None


@pytest.mark.parametrize("argv", [[], ["train"], ["train", "brackets", "--help"], ["train", "--version"], ["--quiet"]])
def test_all_else_is_parsed_in_full(argv, monkeypatch):
    monkeypatch.setattr(commands.COMMANDS, "classes", {})
    assert stored_parser(argv) is None


@pytest.mark.slow
def test_an_unknown_command_is_refused_with_those_there_are():
    done = subprocess.run([sys.executable, "-m", "loflexmdm", "trian", "--help"], capture_output=True, text=True)
    assert done.returncode == 2 and "'trian'" in done.stderr and done.stderr.count("\n") == 1


PLUGGED_IN = "add_your_own"  # the page whose commands another package has


def shell_lines() -> list[str]:
    "Commands in the shell blocks of the pages, without what follows a pipe or a redirection."
    found = {}
    for page in (ROOT / "nbs").glob("**/*.ipynb"):
        cells = json.loads(page.read_text())["cells"] if page.stem != PLUGGED_IN else []
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        blocks = [block for text in texts for block in re.findall(r"```sh\n(.*?)```", text, re.S)]
        found |= dict.fromkeys(line for block in blocks for line in re.findall(r"(?m)^loflexmdm (.+)$", block))
    quoted = r"""(?:"[^"]*"|'[^']*'|[^"'])*?"""
    return [re.match(rf"({quoted})( [>|;&]|$)", line)[1] for line in found]


@pytest.mark.slow
def test_commands_on_the_pages_have_options_that_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong, lines = [], shell_lines()
    recipe, table = '[task]\nkind = "text"\nfile = "a.txt"\n', "smiles\nCCO\nCCN\n"
    for line in lines:
        words = shlex.split(line, comments=True)
        for file in (Path(word) for word in words if re.fullmatch(r"\w+\.(txt|smi|csv|toml)", word)):
            file.write_text(recipe if file.suffix == ".toml" else table)
        try: parse(words)
        except ValueError as e: wrong += [line] if re.match("unknown argument|argument .*invalid", str(e)) else []
    assert len(lines) > 50 and not wrong
