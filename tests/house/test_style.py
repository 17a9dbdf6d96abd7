"""House style, in notebooks, tests and docs: length of lines, functions and cells, and natural English.

`make update` shortens tests/data/long_cells.json, which may only shrink."""
import ast
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LONG_CELLS = ROOT / "tests" / "data" / "long_cells.json"
OWN = "tests/house/test_style.py"  # quotes what it looks for
WIDTH, FUNCTION, CELL = 120, 40, 40

NOUN = r"(?!longer\b|more\b|less\b|better\b|worse\b|fewer\b|such\b|different\b)[a-zA-Z-]+"
WORDS = {
    rf"(?<![Tt]here )\b(?:is|are|was|were|be) no {NOUN}": "is not a ... (there is no ... is fine)",
    r"(?<![Tt]here )\b(?:is|are) none\b(?! of)": "name what it is not, or what is allowed",
    r"\bof late\b": "recent, recently",
    r"\bso many\b": "the number: `n` steps, this number of masks",
    r"\bas was\b": "as ... was",
    r"\bper each\b": "per",
    r"\bexact side\b": "exact values, enumeration",
    r"\bsecond thoughts\b": "remasking",
    r"\bthe (?:kinder|better|worse) for it\b": "say in whose favour it is",
    r"\bexact-side\b": "exact, by enumeration",
    r"\bby heart\b": "memorise",
    r"\bin silence\b": "silently",
    r"\bmend(?:s|ed|ing)?\b": "repair, correct",
    r"\bat the price of\b": "at the cost of",
    r"\bone a token\b|\btokens? a (?:call|step)\b|\b(?:sequence|string|text)s? a line\b": "per",
    r"\bwhere (?:it|they) errs?\b": "its errors",
    r"\bblotted out\b|\ba picture beside\b|\bhold a paper\b|\bso to say\b|\bwant of\b": "say what it is, plainly",
    r"\b(?:hold|holds|held|holding)\b(?: \w+){0,2} against\b": "compare with",
    r"\b[Aa] (?:longer |short |small )?training\b(?! \w)|\b[Tt]rainings\b": "a training run, training",
    r"\b(?:blows?|blew|blowing) up\b": "diverge, tend to infinity",
    r"\b(?:comes?|came|coming) to rest\b": "a stationary point",
    r"\b(?:came|comes?|come) about\b": "how it is made, results from",
    r"\bin the place of\b": "in place of",
    r"\bone and the same\b": "the same",
    r"\b[Ss]urest\b": "most certain",
    r"\bleans? towards\b": "guidance towards",
    r"\bfound out\b": "detected",
    r"\b[Ss]ee it work\b": "Example",
    r"\bto pay for\b|\b(?:pays|paid) for\b": "costs, counts in the loss",
    r"\b(?:would|will) (?:not )?do(?=[.:;,])": "is enough, works, would be wrong",
    r"\bgo(?:es)? on (?:from|all the same)\b": "continue",
    r"\b[Ww]hat it says</summary>": "An answer",
    r"\b(?:evaluations|events|milliseconds?|ms|s|one) an? (?:step|call|molecule)\b": "per",
}


class Source(NamedTuple):
    "A cell or a file: where it is, of what kind (markdown, code, module or text) and what it says."
    where: str
    kind: str
    text: str


def cells() -> Iterator[Source]:
    "Every cell of every notebook."
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts: continue
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            yield Source(f"{path.relative_to(ROOT)}:{cell['id']}", cell["cell_type"], "".join(cell["source"]))


def files() -> Iterator[Source]:
    "Python outside the notebooks: tests, docs, experiments, tools, setup.py and the generated modules."
    written = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.py"),
               *(ROOT / "experiments").rglob("*.py"), *(ROOT / "tools").rglob("*.py"), ROOT / "setup.py"]
    generated = [p for p in (ROOT / "loflexmdm").rglob("*.py") if p.name != "_modidx.py"]
    for path in sorted(written): yield Source(str(path.relative_to(ROOT)), "code", path.read_text(encoding="utf-8"))
    for path in sorted(generated): yield Source(str(path.relative_to(ROOT)), "module", path.read_text(encoding="utf-8"))


def too_long(source: Source) -> Iterator[str]:
    "Lines over the limit. nbdev wraps `__all__` itself and does not count the name."
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > WIDTH and not (source.kind == "module" and line.startswith("__all__ = ")):
            yield f"{source.where}:{number}: {len(line)} characters"


def flat(text: str) -> str:
    "Text whose sentences run on where source breaks them: between literals, in comments and docstrings."
    return re.sub(r"\s*\n\s*(# )?", " ", re.sub(r'"\s*\n\s*f?"', "", text))


def unnatural(source: Source) -> Iterator[str]:
    "Phrases of WORDS, with what to write instead."
    text = flat(source.text)
    for pattern, instead in WORDS.items():
        for m in re.finditer(pattern, text): yield f"{source.where}: '{m[0]}', write: {instead}"


def functions(source: Source) -> Iterator[tuple[int, str]]:
    "Length in lines and place of every function."
    code = "\n".join("pass" if re.match(r"[%!]", line) else line for line in source.text.splitlines())
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.end_lineno - node.lineno + 1, f"{source.where} {node.name}"


def is_class(source: Source) -> bool:
    "Whether a cell defines one class and nothing else."
    body = ast.parse(source.text).body
    return len(body) == 1 and isinstance(body[0], ast.ClassDef)


def long_cells() -> dict[str, int]:
    "Exported cells over the limit and their lengths; a class is written whole, however long it is."
    exported = [s for s in cells() if s.kind == "code" and re.match(r"#\s*\|\s*export", s.text) and not is_class(s)]
    return {s.where: n for s in exported if (n := len(s.text.splitlines())) > CELL}


def code() -> list[Source]:
    return [s for s in [*cells(), *files()] if s.kind != "markdown" and not s.text.startswith("%%")]


def test_no_line_is_too_long():
    found = [line for s in code() for line in too_long(s)]
    assert not found, "\n".join([f"{len(found)} lines over {WIDTH}:", *found[:40]])


def test_english_is_natural():
    texts = [s for s in [*cells(), *files()] if s.kind != "module" and s.where != OWN]
    found = [line for s in texts for line in unnatural(s)]
    assert not found, "\n".join(found)


def test_no_function_is_too_long():
    found = [f for s in code() for f in functions(s)]
    print(f"{len(found)} functions, median {statistics.median(n for n, _ in found)} lines, longest {max(found)}")
    assert not [f for f in found if f[0] > FUNCTION]


def test_exported_cells_are_short_or_known():
    known, found = json.loads(LONG_CELLS.read_text()), long_cells()
    grown = {where: n for where, n in found.items() if n > known.get(where, CELL)}
    assert not grown, f"over {CELL} lines, or longer than before; split: {grown}"
    gone = {where: n for where, n in known.items() if found.get(where, 0) < n}
    assert not gone, f"shorter by now: run make update; {list(gone)}"


def test_classes_of_the_package_are_written_whole():
    patched = [s.where for s in files() if s.kind == "module" and re.search(r"(?m)^@patch\b", s.text)]
    assert not patched


@pytest.mark.parametrize("text, expected", [
    ("a loss that is no bound", 1), ("there is no bound", 0), ("it is no longer so", 0), ("text that is none", 1),
    ("empty if there is none", 0), ("only the leftmost so many masks", 1), ('"the loss is "\n    "no bound"', 1),
    ("it repairs; it never mends", 1), ("two tokens a call", 1), ("two tokens per call", 0), ("lost in silence", 1),
    ("where it is none of them", 0), ("# the smallest rate of\n# late", 1), ("x is None", 0),
    ("samples held against the law", 1), ("compared with the law", 0), ("a longer training", 1), ("a training run", 0),
    ("hazards blow up", 1), ("0.7 s a step", 1), ("one step per call", 0), ("any list will do, as long", 1),
])
def test_phrases_that_the_list_finds(text, expected):
    assert len(list(unnatural(Source("", "code", text)))) == expected


def shortened() -> dict[str, int]:
    "The list without cells that are short by now; none is added, and none grows."
    known, found = json.loads(LONG_CELLS.read_text()), long_cells()
    return {where: min(n, found[where]) for where, n in known.items() if where in found}


if __name__ == "__main__": LONG_CELLS.write_text(json.dumps(shortened(), indent=1) + "\n")


def shadowed(tree: ast.AST) -> list[str]:
    "List methods whose class assigns an attribute of the same name to `self`, which hides the method."
    found = []
    for cls in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        methods = {n.name for n in cls.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
        found += [f"{cls.name}.{n.attr}" for n in ast.walk(cls) if isinstance(n, ast.Attribute)
                  and isinstance(n.ctx, ast.Store) and getattr(n.value, "id", "") == "self" and n.attr in methods]
    return found


def test_no_attribute_hides_a_method():
    modules = sorted((ROOT / "loflexmdm").rglob("*.py"))
    found = {f"{p.name}: {name}" for p in modules for name in shadowed(ast.parse(p.read_text(encoding="utf-8")))}
    assert not found
    assert shadowed(ast.parse("class A:\n def __init__(self): self.read = 1\n def read(self): ...")) == ["A.read"]
