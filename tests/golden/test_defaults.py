"""Numbers and names that hold where nobody gives others: with another default the same command means something else.

`python tests/golden/test_defaults.py` writes down those of now, after a change that is meant."""
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "attacks" / "mutation"))
import campaign  # noqa: E402

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("defaults.json")
MODULES = sorted(p.relative_to(ROOT).as_posix() for p in campaign.computing(ROOT))


def simple(value: object) -> bool:
    "Whether a value can be written down: a number or a text, or an ordered collection or named tuple of these."
    if isinstance(value, dict): return all(map(simple, (*value, *value.values())))
    if isinstance(value, tuple | list): return all(map(simple, value))
    return type(value) in (bool, int, float, str, type(None))


def has_number(value: object) -> bool:
    "Whether a number is in it; texts alone are what help pages and messages show."
    if isinstance(value, dict): return any(map(has_number, (*value, *value.values())))
    if isinstance(value, tuple | list): return any(map(has_number, value))
    return isinstance(value, int | float)


def functions_of(module) -> Iterator[tuple[str, object]]:
    "Classes, functions and methods of a module, with their names."
    for name, one in vars(module).items():
        if getattr(one, "__module__", None) != module.__name__ or not callable(one): continue
        yield name, one
        if not inspect.isclass(one): continue
        inner = {key: getattr(value, "__func__", value) for key, value in vars(one).items() if key != "__init__"}
        yield from ((f"{name}.{key}", value) for key, value in inner.items() if inspect.isfunction(value))


def arguments_of(function: object) -> dict[str, object]:
    "What the arguments of a function or class are where they are left out."
    try: arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError): return {}
    return {a.name: a.default for a in arguments if a.default is not a.empty}


def table_of(file: str) -> dict[str, str]:
    "Constants of a module and of its classes, and defaults of its functions, where they hold a number."
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    targets = re.findall(r"^(\w+(?:, \w+)*)(?::[^=\n]+)? = ", (ROOT / file).read_text(encoding="utf-8"), re.M)
    assigned = set(", ".join(targets).split(", "))
    found = {name: value for name, value in vars(module).items() if name in assigned}
    for name, one in functions_of(module):
        found |= {f"{name}({key})": value for key, value in arguments_of(one).items()}
        if not inspect.isclass(one) or is_dataclass(one): continue
        found |= {f"{name}.{key}": value for key, value in vars(one).items() if not key.startswith("_")}
    shown = {name: repr(value) for name, value in found.items() if simple(value) and has_number(value)}
    return {name: text for name, text in shown.items() if len(text) < 1000}  # longer ones are data


@pytest.mark.parametrize("file", MODULES)
def test_what_holds_where_nothing_else_is_given(file):
    "What is new need not be in the table yet."
    found, known = table_of(file), json.loads(TABLE.read_text(encoding="utf-8")).get(file, {})
    changed = {name: (value, found[name]) for name, value in known.items() if found.get(name, value) != value}
    assert not changed, "(then, now); if this is meant: python tests/golden/test_defaults.py"


if __name__ == "__main__":
    found = {file: table_of(file) for file in MODULES}
    TABLE.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
