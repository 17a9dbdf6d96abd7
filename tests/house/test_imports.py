"What can be imported where, what users need of each room, and scripts that start processes."
import ast
import importlib
import inspect
import json
import pkgutil
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import loflexmdm

PACKAGE = Path(loflexmdm.__file__).parent
PAGES = Path(__file__).parents[2]
ROOMS = sorted(m.name for m in pkgutil.iter_modules(loflexmdm.__path__, "loflexmdm.") if m.ispkg)

IMPORT_ALL = """
import importlib, pkgutil, sys
import torch  # what it needs of the system is its own affair
sys.modules["fcntl"] = None  # as on Windows
import loflexmdm
for module in pkgutil.walk_packages(loflexmdm.__path__, "loflexmdm."): importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_everything_can_be_imported_without_fcntl():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SCRIPT = """
import sys
from loflexmdm.support.worker_pool import worker_pool

def main():
    with worker_pool(2, "spawn") as pool: print(sum(pool.map(abs, range(-3, 0))))

{call}
"""


@pytest.mark.parametrize("call, out, error", [
    ("if __name__ == '__main__': main()", "6\n", ""),
    ("main()", "", "ValueError: processes=2: a worker process died; a script that starts processes needs")])
def test_a_script_that_starts_processes(call, out, error, tmp_path):
    (script := tmp_path / "script.py").write_text(SCRIPT.format(call=call))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines() or [""]
    assert done.stdout == out and lines[-1].startswith(error)
    assert "BrokenProcessPool" not in done.stderr and "bootstrapping" not in done.stderr
    assert done.stderr.count("Traceback") == (1 if error else 0)


LIGHT = """
import sys, time
before = time.process_time()
import loflexmdm
print(time.process_time() - before, "torch" in sys.modules, loflexmdm.__version__)
"""


def test_the_package_is_imported_at_once():
    seconds, torch, version = subprocess.check_output([sys.executable, "-c", LIGHT], text=True).split()
    assert float(seconds) < 0.05 and torch == "False" and version == loflexmdm.__version__


def names_for_type_checkers(package: str) -> set[str]:
    "What the branch of TYPE_CHECKING imports, each name as `module.name`."
    tree = ast.parse((PACKAGE.parent / package.replace(".", "/") / "__init__.py").read_text())
    branch = next((n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"), None)
    return {f"{n.module}.{a.name}" for n in branch.body for a in n.names} if branch else set()


@pytest.mark.parametrize("package", ["loflexmdm", *ROOMS])
def test_what_users_need_of_a_room(package):
    "Each name of `__all__` is there, type checkers see the same, and none hides a module."
    room = importlib.import_module(package)
    assert room.__doc__ and len(set(room.__all__)) == len(room.__all__) > 1
    assert all(hasattr(room, name) and name in dir(room) for name in room.__all__)
    assert not [name for name in room.__all__ if inspect.ismodule(getattr(room, name))]
    found = {seen for seen in names_for_type_checkers(package) if seen not in ROOMS}
    for seen in found:
        module, _, name = seen.rpartition(".")
        assert getattr(room, name) is getattr(importlib.import_module(module), name), seen
    assert not found or {seen.rpartition(".")[2] for seen in found} == set(room.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"): _ = room.nothing


def test_rooms_are_there_without_an_import():
    code = "import loflexmdm; print(loflexmdm.models.names()[0], *loflexmdm.ROOMS)"
    first, *rooms = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert first == loflexmdm.models.names()[0] and sorted(f"loflexmdm.{r}" for r in rooms) == ROOMS
    assert {seen for seen in names_for_type_checkers("loflexmdm") if seen in ROOMS} == set(ROOMS)


def code_of_pages() -> list[str]:
    "Python of the pages that users read: README, the front page, tutorials and how-to."
    code = re.findall(r"```python\n(.*?)```", (PAGES / "README.md").read_text(), re.S)
    for path in [PAGES / "nbs/index.ipynb", *PAGES.glob("nbs/tutorials/*.ipynb"), *PAGES.glob("nbs/how_to/*.ipynb")]:
        for cell in json.loads(path.read_text())["cells"]:
            source = "".join(cell["source"])
            code += [source] if cell["cell_type"] == "code" else re.findall(r"```python\n(.*?)```", source, re.S)
    return [re.sub(r"^\s*[%!].*$", "", c, flags=re.M) for c in code]


def imported_by_pages() -> list[tuple[str, str]]:
    "Each name that they import from this package: (module, name)."
    nodes = [n for code in code_of_pages() for n in ast.walk(ast.parse(code)) if isinstance(n, ast.ImportFrom)]
    return sorted({(n.module, a.name) for n in nodes if n.module.startswith("loflexmdm") for a in n.names})


def test_what_pages_import_is_in_the_rooms():
    used = imported_by_pages()
    assert len(used) > 100
    missing = [
        (module, name)
        for module, name in used
        if module != "loflexmdm"
        if name not in (room := importlib.import_module(".".join(module.split(".")[:2]))).__all__
        if not (Path(room.__file__).parent / f"{name}.py").exists()  # a module of that name is in its place
    ]
    assert not missing


@pytest.mark.slow
def test_all_names_at_once():
    code = "from loflexmdm import *; print(load.__name__, Trainer.__name__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "load Trainer\n"


def test_help():
    "The page begins with what it is, an example and the main names; `load` names the models of the package."
    text = pydoc.render_doc(loflexmdm, renderer=pydoc.plaintext)
    page = text[:text.index("PACKAGE CONTENTS")]
    assert len(page.splitlines()) < 60 and 'model = loflexmdm.load("star-tiny")' in page
    assert not [name for name in loflexmdm.__all__ if name not in page]
    # after it only what lies in the package: no class with all its methods
    assert len(text.splitlines()) < 80 and "CLASSES" not in text
    from loflexmdm.models import names
    words = re.findall(r"[\w-]+", pydoc.render_doc(loflexmdm.load))
    assert names() and not set(names()) - set(words)
