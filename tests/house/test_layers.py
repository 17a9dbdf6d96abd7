"Imports go one way: no circle between modules, and no room imports from a room above it."
import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "loflexmdm"
ROOMS = (  # from the ground up; a room may import from itself and from those before it
    "limits moved registries files readers writers tokenizer_files digests configs statistics parallel "
    "permutations shards shares progress colours notebook",
    "states streams alignments schedules clocks given_orders order_learning processes objective ctmc edit_laws "
    "localized_paths reverse_and_guidance guidance estimators calibration networks hugging_face",
    "samplers", "methods pretrained hub retrofit importing", "training distributed", "tasks", "plotting orders player",
    "molecules", "citations recipes compare demo", "cli __main__",
)


def module_of(path: Path) -> str:
    "Dotted name below the package; a package stands for itself."
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    module_of(p): p
    for p in PACKAGE.rglob("*.py")
    if p.name != "_modidx.py" and p.parent / p.name != PACKAGE / "__init__.py"
}


def imports_of(module: str) -> set[str]:
    "Modules of the package that are imported when this one is; imports inside functions do not count."
    path, found = MODULES[module], set()
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ImportFrom): continue
        above = path.relative_to(PACKAGE).parts[:-node.level] if node.level else ()
        base = ".".join([*above, *(node.module or "").removeprefix("loflexmdm").strip(".").split(".")]).strip(".")
        if not node.level and not (node.module or "").startswith("loflexmdm"): continue
        found |= {name for a in node.names for name in (f"{base}.{a.name}".strip("."), base) if name in MODULES}
    return found - {module}


def test_imports_form_no_circle():
    order = list(TopologicalSorter({module: imports_of(module) for module in MODULES}).static_order())
    assert len(order) == len(MODULES) > 40


def test_imports_go_upward_only():
    level = {name: i for i, room in enumerate(ROOMS) for name in room.split()}
    wrong = [(module, other) for module in MODULES for other in imports_of(module)
             if level[other.split(".")[0]] > level[module.split(".")[0]]]
    assert not wrong, wrong
