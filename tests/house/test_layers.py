"""Imports go one way: no cycle between modules, and no room imports from a room on its floor or above, at any depth.
Type hints count, and so do modules that are named in a string for `imported`."""
import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "loflexmdm"
FLOORS = dict(
    support=1, process=2, exact=3, networks=3, samplers=3, methods=4, tasks=5, models=6, molecules=7, training=7,
    reports=8, cli=9, verbs=10,
)


def module_of(path: Path) -> str:
    "Dotted name below the package; a package stands for itself."
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(p): p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE}
ROOMS = {p.name for p in PACKAGE.iterdir() if any(p.rglob("*.py"))} if PACKAGE.is_dir() else set()


def for_types_only(node: ast.AST) -> bool:
    "Return True for `if TYPE_CHECKING`, whose imports only type checkers read."
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def statements(tree: ast.AST, inside: bool) -> list[ast.AST]:
    "Return the statements of a module, those for type checkers too; those of functions and classes too if `inside`."
    found = []
    for node in ast.iter_child_nodes(tree):
        found.append(node)
        if inside or for_types_only(node): found += statements(node, inside)
    return found


def named_in_strings(tree: ast.AST) -> list[str]:
    "Return the dotted names below the package in calls of `imported`."
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "imported"]
    names = [a.value for n in calls for a in n.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    below = [name.removeprefix("loflexmdm.") for name in names if name.startswith("loflexmdm.")]
    return [name for full in below for name in (full, full.rpartition(".")[0])]


def imported_names(node: ast.AST, path: Path) -> list[str]:
    "Dotted names below the package that an import may mean, the longest first."
    if isinstance(node, ast.Import):
        return [a.name.removeprefix("loflexmdm.") for a in node.names if a.name.startswith("loflexmdm.")]
    if not isinstance(node, ast.ImportFrom): return []
    if not node.level and (node.module or "").split(".")[0] != "loflexmdm": return []

    # a relative import starts in the folder of its file
    above = path.relative_to(PACKAGE).parts[:-node.level] if node.level else ()
    module = (node.module or "").removeprefix("loflexmdm").strip(".")
    base = ".".join([*above, *filter(None, module.split("."))])
    return [name for a in node.names for name in (f"{base}.{a.name}".strip("."), base)]


def imports_of(module: str, inside: bool) -> set[str]:
    "Modules of the package that this one imports: when it is imported itself, or at any time if it looks `inside`."
    path = MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [name for node in statements(tree, inside) for name in imported_names(node, path)]
    if inside: names += named_in_strings(tree)
    return {name for name in names if name in MODULES} - {module}


def room_of(module: str) -> str:
    "Return the room of a module. The verbs of molecules lie above the command line, into which they plug."
    return "verbs" if module.startswith("molecules.verbs") else module.split(".")[0]


def test_every_folder_is_a_room_with_a_floor():
    assert ROOMS | {"verbs"} == set(FLOORS)


def test_imports_form_no_circle():
    order = list(TopologicalSorter({m: imports_of(m, inside=False) for m in MODULES}).static_order())
    assert len(order) == len(MODULES) > 100


def test_imports_go_downward_only():
    wrong = [(module, other) for module in MODULES for other in imports_of(module, inside=True)
             if room_of(module) != room_of(other) and FLOORS[room_of(other)] >= FLOORS[room_of(module)]]
    assert not wrong, wrong


def test_the_command_line_names_no_room_of_molecules():
    "The app, its editor and the demo draw molecules; other modules reach them by a task, rule or verb that plugs in."
    users = {m for m in MODULES if room_of(m) not in ("molecules", "verbs")
             and any(room_of(other) == "molecules" for other in imports_of(m, inside=True))}
    assert users <= {"cli.answers", "cli.app", "cli.structure_editor", "reports.demo"}, users


@pytest.mark.slow
def test_enumeration_is_for_notebooks_and_tests_alone():
    users = [m for m in MODULES if room_of(m) != "exact"
             and any(room_of(other) == "exact" for other in imports_of(m, inside=True))]
    assert not users, users


@pytest.mark.parametrize("source, inside, expected", [
    ("from ..support.limits import TOKENS", False, ["support.limits.TOKENS", "support.limits"]),
    ("def f():\n    from loflexmdm.cli.train import run", False, []),
    ("def f():\n    from loflexmdm.cli.train import run", True, ["cli.train.run", "cli.train"]),
    ("if TYPE_CHECKING:\n    from loflexmdm.cli.train import run", False, ["cli.train.run", "cli.train"]),
    ("import loflexmdm.cli.train", False, ["cli.train"]), ("import torch", False, []),
])
def test_what_counts_as_an_import(source, inside, expected):
    path = PACKAGE / "process" / "states.py"
    found = [name for node in statements(ast.parse(source), inside) for name in imported_names(node, path)]
    assert found == expected


def test_modules_named_in_strings_count():
    call = "def f(): return imported('loflexmdm.reports.player.play')(1)"
    assert named_in_strings(ast.parse(call)) == ["reports.player.play", "reports.player"]
    assert named_in_strings(ast.parse("imported('torch.Tensor')")) == []
