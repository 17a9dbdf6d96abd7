"""Sections of notebooks that export code show a case before it: a visible cell that runs, and ideally fails without it.

`make update` counts them and rewrites tests/data/cases_first.json, which may only grow."""
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
KNOWN = ROOT / "tests" / "data" / "cases_first.json"
HEADING = re.compile(r"^#{2,4} (.+)", re.M)
NAMES = ("__getattr__", "_all_", "__all__")  # of assignments that are not code to show a case of


class Section(NamedTuple):
    "A heading and the code cells below it, up to the next one."
    title: str
    cells: list[str]

    @property
    def exported(self) -> int | None:
        "The first cell that exports more than imports; None without one."
        found = (i for i, c in enumerate(self.cells) if is_exported(c) and is_code(c))
        return next(found, None)

    @property
    def shows_a_case(self) -> bool:
        "Whether a visible cell that is not exported comes before the first exported one."
        return any(not re.match(r"#\|\s*(?:export|hide|default_exp)", c) for c in self.cells[:self.exported])


def is_code(source: str) -> bool:
    "Whether a cell holds more than imports, texts and names that have moved."
    def plain(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign): return getattr(node.targets[0], "id", "") in NAMES
        return isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr))
    return not all(map(plain, ast.parse(source).body))


def is_exported(source: str) -> bool: return bool(re.match(r"#\|\s*export", source))


def sections(cells: list[dict]) -> Iterator[Section]:
    "The sections of a notebook."
    section = Section("", [])
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and (m := HEADING.search(source)):
            yield section
            section = Section(m[1].strip(), [])
        elif cell["cell_type"] == "code": section.cells.append(source)
    yield section


def counted() -> dict[str, tuple[int, int]]:
    "Of every notebook with sections that export: how many show a case first, and how many there are."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts: continue
        own = [s for s in sections(json.loads(path.read_text(encoding="utf-8"))["cells"]) if s.exported is not None]
        name = path.relative_to(ROOT / "nbs").with_suffix("").as_posix()
        if own: found[name] = sum(s.shows_a_case for s in own), len(own)
    return found


def is_worse(now: tuple[int, int], before: tuple[int, int]) -> bool:
    "Tell if a case was removed while its section is still there."
    return now[0] < before[0] and now[1] - now[0] > before[1] - before[0]


def test_a_section_may_leave_with_its_code():
    assert is_worse((2, 3), (3, 3)) and not is_worse((2, 2), (3, 3)) and not is_worse((3, 4), (3, 3))


def test_no_notebook_shows_fewer_cases_first():
    known, found = json.loads(KNOWN.read_text()), counted()
    fewer = {name: (found[name], tuple(n)) for name, n in known.items() if name in found and is_worse(found[name], n)}
    assert not fewer, f"sections that show a case first, now and before: {fewer}"
    more = [name for name, n in found.items() if n[0] > known.get(name, (0, 0))[0]]
    assert not more, f"run make update and commit: {more}"


CASE, EXPORT, HIDDEN = "1 + 1", "#| export\ndef f(): return 1", "#| hide\nimport x"


@pytest.mark.parametrize("cells, expected", [
    ([EXPORT, CASE], False), ([CASE, EXPORT], True), ([HIDDEN, EXPORT], False),
    (["#| export\nimport x", CASE, EXPORT], True), ([CASE], None), (["#| export\nimport x\nfrom y import z"], None),
])
def test_what_counts_as_a_case_first(cells, expected):
    section = Section("", cells)
    assert (None if section.exported is None else section.shows_a_case) == expected


if __name__ == "__main__":
    found, known = counted(), json.loads(KNOWN.read_text())
    kept = {name: known[name] if is_worse(n, known.get(name, n)) else n for name, n in found.items()}
    KNOWN.write_text(json.dumps(kept, indent=1) + "\n")
    first, total = (sum(n[i] for n in found.values()) for i in (0, 1))
    for name, (shown, of) in found.items(): print(f"{shown:3d} of {of:3d}  {name}")
    print(f"{first} of {total} exporting sections show a case first ({first / total:.0%})")
