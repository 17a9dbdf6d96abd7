"""Sections of notebooks that export code show a case before it: a visible cell that runs, and ideally fails without it.

tests/data/cases_first.json counts those that do not, by notebook: it may only shrink, and a new notebook is not in it
(`make update` shortens it)."""
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
    "Of every notebook with sections that export: how many show no case first, and how many there are."
    found = {}
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts: continue
        own = [s for s in sections(json.loads(path.read_text(encoding="utf-8"))["cells"]) if s.exported is not None]
        name = path.relative_to(ROOT / "nbs").with_suffix("").as_posix()
        if own: found[name] = sum(not s.shows_a_case for s in own), len(own)
    return found


def test_no_more_sections_export_before_they_show_a_case():
    known, found = json.loads(KNOWN.read_text()), {name: n for name, (n, _) in counted().items()}
    more = {name: (n, known.get(name, 0)) for name, n in found.items() if n > known.get(name, 0)}
    assert not more, f"sections without a case first, now and before: {more}"
    fewer = [name for name, n in known.items() if found.get(name, 0) < n]
    assert not fewer, f"run make update and commit: {fewer}"


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
    lacking = {name: min(n, known.get(name, 0)) for name, (n, _) in found.items()}
    KNOWN.write_text(json.dumps({name: n for name, n in lacking.items() if n}, indent=1) + "\n")
    without, total = (sum(n[i] for n in found.values()) for i in (0, 1))
    for name, (n, of) in found.items(): print(f"{of - n:3d} of {of:3d}  {name}")
    print(f"{total - without} of {total} exporting sections show a case first ({1 - without / total:.0%})")
