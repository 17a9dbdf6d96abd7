"Every public name of the last release is found at its old import path; where it has moved, a warning says so."
import importlib
import json
import subprocess
import sys
import warnings
from operator import attrgetter
from pathlib import Path

import pytest

from loflexmdm.moved import MODULES, NAMES

RELEASED: dict[str, list[str]] = json.loads((Path(__file__).parent / "names_0_1.json").read_text())  # __all__ of 0.1
GONE = {("loflexmdm.tasks.molecule_data", "code_digest"),  # hashed the source files; CACHE_VERSION takes its place
        # tables of samplers and special cases of molecules; samplers and tasks say them
        *(("loflexmdm.cli", name) for name in
          ("OWN_OPTIONS", "DESCRIBED_STATES", "DESCRIBED_ROWS", "mark_lost", "evaluate_smiles")),
        # BibTeX as code; papers.bib and the classes' own `papers` take its place
        *(("loflexmdm.citations", name) for name in
          ("BIBTEX", "METHOD_ENTRIES", "TOOL_ENTRIES", "DATA_ENTRIES", "SOFTWARE", "WHY", "FIELD", "fields_of",
           "SAMPLER_NAMES", "TASK_PAPERS", "method_names"))}


def test_tables_name_modules_of_the_last_release():
    assert MODULES.keys() <= RELEASED.keys() and NAMES.keys() <= RELEASED.keys()
    unknown = [(module, name) for module, names in NAMES.items() for name in names if name not in RELEASED[module]]
    assert not unknown, unknown


@pytest.mark.parametrize("module", sorted(RELEASED))
def test_every_name_of_the_last_release(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = importlib.import_module(module)
        lost = [name for name in RELEASED[module] if not hasattr(found, name) and (module, name) not in GONE]
    assert not lost, lost


@pytest.mark.parametrize("module", sorted(MODULES))
def test_moved_modules_warn_and_give_the_same_objects(module):
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=f"{module} is now {MODULES[module][0]}") as told:
        old = importlib.import_module(module)
    assert len(told) == 1
    news = [importlib.import_module(new) for new in MODULES[module]]
    for name in (
        set(RELEASED[module]) - NAMES.get(module, {}).keys() - {name for where, name in GONE if where == module}
    ):
        assert getattr(old, name) is getattr(next(new for new in news if hasattr(new, name)), name), name
    assert NAMES.get(module, {}).keys() <= set(old.__all__)
    with pytest.raises(AttributeError, match="no_such_name"): _ = old.no_such_name


@pytest.mark.parametrize("module, name", [(module, name) for module, names in NAMES.items() for name in names])
def test_renamed_names_warn_and_give_the_same_objects(module, name):
    new, _, attribute = NAMES[module][name].partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{name} is now {new}.{attribute};") as told:
        found = getattr(old, name)
    assert found is attrgetter(attribute)(importlib.import_module(new)) and told[0].filename == __file__


def test_a_script_is_told_where_it_uses_an_old_path(tmp_path):
    "Python shows a DeprecationWarning by default only where it is due to the script itself."
    script = tmp_path / "old.py"
    script.write_text("from loflexmdm.tasks.molecule_metrics import evaluate\nprint(evaluate(['CCO']).valid)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.stdout == "1\n" and done.stderr.count("DeprecationWarning") == done.stderr.count(f"{script}:1:") == 2


def test_the_package_itself_uses_no_old_path():
    "Every module is imported in a fresh process in which a DeprecationWarning of ours is an error."
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    root = Path(importlib.import_module("loflexmdm").__file__).parent
    files = [f for f in sorted(root.rglob("*.py")) if not f.name.startswith("_")]
    names = [".".join(("loflexmdm", *f.relative_to(root).with_suffix("").parts)) for f in files]
    ours = "error:loflexmdm:DeprecationWarning"  # messages that begin with our name
    done = subprocess.run([sys.executable, "-W", ours, "-c", code, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
