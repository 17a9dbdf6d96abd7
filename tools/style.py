"""Style of notebooks, tests and docs: length of lines, functions and cells, English, docstrings and names.

`python tools/style.py` prints what must be corrected and fails if there is any, as before a commit; `--all` prints too
what `make house` counts: sentences of docstrings without a verb, names that are participles, long exported cells,
sections that export before they show a case, and habits that are not English."""
import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OWN = "tools/style.py", "tools/test_style.py"  # quote what they look for
WIDTH, FUNCTION, CELL = 120, 40, 40
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
OPENING = re.compile(r"(What|Whether|How|Which|Those|That)\b")

# phrases that are not English, with what to write instead
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

# counted only: one may be right where it stands
HABITS = {
    "fronted phrase": r"^(Of|From|To|With|For|At|In) [^,.]+, [a-z`]",
    "relative clause for a noun":
        r"\b(what|those) (is|are|that|which) (kept|left|there|made|given|said)\b|\bof which\b",
    "person made of a part":
        r"\b(who|whose) (says|asks|knows|reads)|\b(asks?|asked) (for|of)\b|\bis (said|told)\b|\bknows? nothing\b",
    "alone for only": r"\balone\b(?! (?:in|with))",
    "behind for after": r"\b(behind|anew)\b",
    "X included": r"\b(those|ones|token|tokens) (included|apart)\b",
}

# verbs of docstrings, to tell sentences from phrases: to be and its kind, then those that describe what code does
REGULAR = """
    need equal depend hold mean give take make say tell stand stay come follow begin end start belong become cost
    count contain keep return raise read write use show differ change work run wait lead get see know allow occur
    happen require remain leave move learn draw compute replace remove add fit fail matter exist ignore check set
    sum refuse accept treat yield decide let appear include consist receive continue stop open call train describe
    find cover save restore represent determine affect measure avoid prevent reproduce exceed grow shrink lose split
    join insert delete enter define map attend broadcast choose resolve predict evaluate own restart distinguish lie
    answer
"""
IRREGULAR = """
    is are was were be been has have had do does did can cannot could may might must shall should will would goes
    varies apply applies satisfy satisfies supply supplies pass passes match matches reach reaches correspond
    converge
"""
VERBS = re.compile(rf"\b(?:{'|'.join(IRREGULAR.split())}|(?:{'|'.join(REGULAR.split())})(?:s|d|ed)?)\b", re.IGNORECASE)
IRREGULAR_PARTICIPLES = """
    told said made given kept held taken drawn written grown known shown seen found left built begun chosen done
    gone lost
"""
PARTICIPLES = re.compile(
    r"(?:(?!string|ring|thing)\w{2,}ing|(?!seed|need|speed|embed|feed)\w{2,}ed|"
    rf"{'|'.join(IRREGULAR_PARTICIPLES.split())})$"
)
PREPOSITIONS = {"as", "by", "in", "into", "on", "of", "from", "to", "with", "within", "out", "only", "and", "after"}
NOUNS = {"padding", "setting", "embedding", "encoding", "training", "sampling", "mapping", "heading", "drawing",
         "warning", "spelling", "opening", "ending", "nothing"}


class Source(NamedTuple):
    "A cell or a file: where it is, of what kind (markdown, code, module or text) and its text."
    where: str
    kind: str
    text: str


def notebooks(root: Path) -> Iterator[tuple[Path, list[dict]]]:
    "Yield notebooks and their cells."
    for path in sorted((root / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in path.parts: yield path, json.loads(path.read_text(encoding="utf-8"))["cells"]


def cells(root: Path) -> Iterator[Source]:
    "Yield every cell of every notebook."
    for path, found in notebooks(root):
        for cell in found:
            yield Source(f"{path.relative_to(root)}:{cell['id']}", cell["cell_type"], "".join(cell["source"]))


def files(root: Path) -> Iterator[Source]:
    "Yield Python outside the notebooks: tests, docs, experiments, tools, setup.py and the generated modules."
    written = [p for folder in ("tests", "docs", "experiments", "tools") for p in (root / folder).rglob("*.py")]
    generated = [p for p in (root / "loflexmdm").rglob("*.py") if p.name != "_modidx.py"]
    for kind, paths in ("code", [*written, root / "setup.py"]), ("module", generated):
        for path in filter(Path.exists, sorted(paths)):
            yield Source(str(path.relative_to(root)), kind, path.read_text(encoding="utf-8"))


def code(root: Path) -> list[Source]:
    return [s for s in [*cells(root), *files(root)] if s.kind != "markdown" and not s.text.startswith("%%")]


# What must be corrected

def long_lines(root: Path) -> Iterator[str]:
    "Yield lines over the limit. nbdev wraps `__all__` itself and does not count the name."
    for source in code(root):
        for number, line in enumerate(source.text.splitlines(), 1):
            if len(line) > WIDTH and not (source.kind == "module" and line.startswith("__all__ = ")):
                yield f"{source.where}:{number}: {len(line)} characters"


def flat(text: str) -> str:
    "Return text whose sentences run on where source breaks them: between literals, in comments and docstrings."
    return re.sub(r"\s*\n\s*(# )?", " ", re.sub(r'"\s*\n\s*f?"', "", text))


def phrases_in(text: str) -> Iterator[tuple[str, str]]:
    "Yield phrases of WORDS in a text, with what to write instead."
    for pattern, instead in WORDS.items():
        for m in re.finditer(pattern, flat(text)): yield m[0], instead


def phrases(root: Path) -> Iterator[str]:
    for source in [*cells(root), *files(root)]:
        if source.kind == "module" or source.where in OWN: continue
        for found, instead in phrases_in(source.text): yield f"{source.where}: '{found}', write: {instead}"


def long_functions(root: Path) -> Iterator[str]:
    for source in code(root):
        text = "\n".join("pass" if re.match(r"[%!]", line) else line for line in source.text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (lines := node.end_lineno - node.lineno + 1) > FUNCTION:
                yield f"{source.where} {node.name}: {lines} lines"


def patched_classes(root: Path) -> Iterator[str]:
    "Yield modules with `@patch`: a class of the package is written whole."
    yield from (s.where for s in files(root) if s.kind == "module" and re.search(r"(?m)^@patch\b", s.text))


def shadowed(tree: ast.AST) -> list[str]:
    "List methods whose class assigns an attribute of the same name to `self`, which hides the method."
    found = []
    for cls in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        methods = {n.name for n in cls.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
        found += [f"{cls.name}.{n.attr}" for n in ast.walk(cls) if isinstance(n, ast.Attribute)
                  and isinstance(n.ctx, ast.Store) and getattr(n.value, "id", "") == "self" and n.attr in methods]
    return found


def hidden_methods(root: Path) -> Iterator[str]:
    for source in files(root):
        if source.kind == "module": yield from (f"{source.where}: {name}" for name in shadowed(ast.parse(source.text)))


# What is counted

class Docstring(NamedTuple):
    "A docstring's place and text."
    where: str
    text: str


def docstrings(root: Path) -> Iterator[Docstring]:
    "Yield the docstrings of the package's modules, classes and functions."
    for source in files(root):
        if source.kind != "module": continue
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.Module | DEFINITIONS) and (text := ast.get_docstring(node)):
                yield Docstring(f"{source.where} {getattr(node, 'name', 'module')}", text)


def sentences(text: str) -> list[str]:
    "Split a docstring into sentences; `et al.`, `Eq.` and `e.g.` do not end one, and code counts as a name."
    paragraphs = re.split(r"\n\s*\n", re.sub(r"`[^`]*`", "X", text.strip()))
    end = r"(?<!\bal\.)(?<!\bEq\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])\s+(?=[A-Z])"
    return [s for p in paragraphs for s in re.split(end, " ".join(p.split()))]


def openings(root: Path) -> Iterator[str]:
    "Yield docstrings that open with a question word in place of a verb or a noun."
    yield from (f"{d.where}: {sentences(d.text)[0]}" for d in docstrings(root) if OPENING.match(d.text))


def has_verb(sentence: str, verbs: set[str]) -> bool:
    "Check whether a sentence has a verb, states an equation or names an error, as far as lists of words can tell."
    first = re.match(r"\w*", sentence)[0]
    return bool(first.lower() in verbs or first.endswith("Error") or VERBS.search(sentence)
                or re.search(r"[=$]", sentence))


def imperatives(found: list[Docstring]) -> set[str]:
    "Return the verbs with which docstrings of functions begin; what begins with another word counts for nothing."
    others = set("a an the all in of from on by to no one two tokens scores prompt".split())
    return {re.match(r"\w*", d.text)[0].lower() for d in found if re.match(r"[A-Z][a-z]+ ", d.text)} - others


def verbless(root: Path) -> Iterator[str]:
    "Yield sentences after the first that have no verb. Those that describe an argument, after a colon, need none."
    verbs = imperatives(found := list(docstrings(root)))
    for d in found:
        for sentence in sentences(d.text)[1:]:
            if sentence.endswith(".") and not sentence.startswith("X:") and not has_verb(sentence, verbs):
                yield f"{d.where}: {sentence}"


def is_participle(name: str, verbs: set[str]) -> bool:
    "Check whether a name is or ends in a participle without a verb, or begins with one and a preposition."
    first, *more = name.strip("_").split("_")
    if more and (first in verbs or first in {"is", "has", "are", "was"}): return False
    ends = more[-1] if more else first
    if PARTICIPLES.match(ends) and ends not in NOUNS: return True
    return bool(more and PARTICIPLES.match(first) and more[0] in PREPOSITIONS)


def participles(root: Path) -> Iterator[str]:
    "Yield functions and methods named by a participle: `holding`, `rows_kept`, `accepted_by`."
    verbs = imperatives(list(docstrings(root)))
    for source in files(root):
        if source.kind != "module": continue
        for node in ast.walk(ast.parse(source.text)):
            if not isinstance(node, ast.FunctionDef) or any("property" in ast.unparse(d) for d in node.decorator_list):
                continue
            if is_participle(node.name, verbs): yield f"{source.where} {node.name}"


def habits(root: Path) -> Iterator[str]:
    for d in docstrings(root):
        for name, pattern in HABITS.items():
            if re.search(pattern, " ".join(d.text.split())): yield f"{d.where}: {name}: {sentences(d.text)[0]}"


def long_cells(root: Path) -> Iterator[str]:
    "Yield exported cells over the limit; a class is written whole, however long it is."
    for source in cells(root):
        if source.kind != "code" or not is_exported(source.text): continue
        body = ast.parse(source.text).body
        one_class = len(body) == 1 and isinstance(body[0], ast.ClassDef)
        if not one_class and (lines := len(source.text.splitlines())) > CELL: yield f"{source.where}: {lines} lines"


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


def cases_last(root: Path) -> Iterator[str]:
    "Yield sections of notebooks that export code before a visible cell shows a case of it."
    for path, found in notebooks(root):
        for section in sections(found):
            if section.exported is not None and not section.shows_a_case:
                yield f"{path.relative_to(root)}: {section.title}"


REFUSED = dict(lines_too_long=long_lines, phrases_to_avoid=phrases, functions_too_long=long_functions,
               patched_classes=patched_classes, methods_hidden_by_attributes=hidden_methods,
               docstrings_that_open_with_a_question_word=openings)
COUNTED = dict(sentences_of_docstrings_without_a_verb=verbless, functions_named_by_a_participle=participles,
               habits_that_are_not_English=habits, exported_cells_over_40_lines=long_cells,
               exporting_sections_without_a_case_first=cases_last)


def figures(root: Path) -> dict[str, int]:
    "Count what is found of each kind."
    return {kind.replace("_", " "): sum(1 for _ in find(root)) for kind, find in (REFUSED | COUNTED).items()}


def report(kinds: dict[str, Callable[[Path], Iterator[str]]], root: Path) -> int:
    "Print what is found of each kind; return how many there are."
    total = 0
    for kind, find in kinds.items():
        found = list(find(root))
        total += len(found)
        if found: print(f"{len(found)} {kind.replace('_', ' ')}:", *found, sep="\n    ")
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print what is counted too, which is no reason to fail")
    asked = parser.parse_args()
    wrong = report(REFUSED, ROOT)
    if asked.all: report(COUNTED, ROOT)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__": main()
