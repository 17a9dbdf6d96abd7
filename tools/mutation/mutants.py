"""Mutants of a module: one small change each, found in its syntax tree.

Swapped operators and arguments, shifted boundaries, other constants, dropped terms, negated conditions and removed
statements; messages, docstrings, annotations, decorators and imports stay as they are. So do
functions that draw, and what cannot be seen whatever a test does: the order of the arguments of symmetric
functions, and how data comes to a device. The tree is that of the text, so that methods that are patched onto classes
and decorated functions have mutants like all others."""
import ast
import copy
import hashlib
from collections import Counter
from itertools import islice
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}
TERMS = ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr
UNSWAPPED = {"isinstance", "issubclass", "hasattr", "getattr", "setattr", "TypeVar", "cast"}
SYMMETRIC = {"min", "max", "minimum", "maximum", "promote_types", "gcd"}
UNSEEN = {"non_blocking", "pin_memory", "persistent_workers", "prefetch_factor"}  # arguments that choose a way alone
UNREMOVED = {"print", "warn"}


class Mutant(NamedTuple):
    "One change: the text between two offsets of a module is replaced."
    id: str        # the same as long as the statement and its function keep their text
    module: str    # path in the repository
    function: str  # dotted name of the function or class around it, or ""
    line: int      # first and
    last: int      # last line of the statement
    body: tuple[int, int]  # lines of the function or class around it: the whole module's for ""
    runs: bool     # whether the change runs when the function does, not when the module is imported
    kind: str
    start: int     # offsets in the module's text
    end: int
    before: str
    after: str

    def plant(self, text: str) -> str:
        "The module's text with the change."
        return text[:self.start] + self.after + text[self.end:]


def changed(node: ast.AST, **fields) -> ast.AST:
    "A copy of a node with other fields."
    new = copy.copy(node)
    for name, value in fields.items(): setattr(new, name, value)
    return new


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


# One function per kind of node: (kind, node that replaces it)

def of_compare(node: ast.Compare):
    for i, op in enumerate(node.ops):
        yield "comparison", changed(node, ops=[*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1:]])


def of_binop(node: ast.BinOp):
    if type(node.op) in ARITHMETIC: yield "arithmetic", changed(node, op=ARITHMETIC[type(node.op)]())
    if isinstance(node.op, TERMS):
        yield "dropped term", node.left
        if not isinstance(node.op, ast.Sub | ast.Div): yield "dropped term", node.right


def of_boolop(node: ast.BoolOp):
    yield "and/or", changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for i in range(len(node.values)):
        rest = node.values[:i] + node.values[i + 1:]
        yield "dropped condition", rest[0] if len(rest) == 1 else changed(node, values=rest)


def of_unaryop(node: ast.UnaryOp):
    if not isinstance(node.operand, ast.Constant): yield "dropped sign", node.operand


def of_constant(node: ast.Constant):
    value = node.value
    if isinstance(value, bool): yield "constant", changed(node, value=not value)
    elif isinstance(value, int): yield "constant", changed(node, value=value + 1)
    elif isinstance(value, float): yield "constant", changed(node, value=2 * value if value else 1.0)


def of_call(node: ast.Call):
    args = node.args
    plain = len(args) > 1 and not any(isinstance(a, ast.Starred) for a in args[:2])
    if plain and name_of(node) not in UNSWAPPED | SYMMETRIC and ast.dump(args[0]) != ast.dump(args[1]):
        yield "swapped arguments", changed(node, args=[args[1], args[0], *args[2:]])


def of_condition(node: ast.If | ast.While | ast.IfExp):
    yield "negated condition", changed(node, test=ast.UnaryOp(ast.Not(), node.test))


EXPRESSIONS = {
    ast.Compare: of_compare, ast.BinOp: of_binop, ast.BoolOp: of_boolop, ast.UnaryOp: of_unaryop,
    ast.Constant: of_constant, ast.Call: of_call, ast.IfExp: of_condition,
}


def targets(node: ast.Assign) -> set[str]:
    return {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def moves(node: ast.stmt) -> bool:
    "Whether a statement moves a value to a device, such as `x = x.to(device)`; with one device it is there already."
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and name_of(value) == "to" and "device" in "".join(map(ast.unparse, value.args))


def draws(node: ast.FunctionDef) -> bool:
    "Whether a function draws, by its name or what it imports."
    imported = {a.name for n in node.body if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module for n in node.body if isinstance(n, ast.ImportFrom)}
    return node.name.lstrip("_").startswith("plot") or bool(imported & {"matplotlib.pyplot", "PIL"})


def removable(node: ast.stmt, known: set[str]) -> bool:
    "Whether the rest can run without this statement; an assignment only where its names have a value before it."
    if moves(node): return False
    if isinstance(node, ast.Expr): return isinstance(node.value, ast.Call) and name_of(node.value) not in UNREMOVED
    if isinstance(node, ast.Assign): return bool(targets(node)) and targets(node) <= known
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Break | ast.Continue)


class Finder(ast.NodeVisitor):
    "Walks through a module and collects what can be changed."
    def __init__(self, module: str, text: str):
        self.module, self.text, self.found = module, text, []
        starts = [0]
        for line in text.splitlines(keepends=True): starts.append(starts[-1] + len(line))
        self.starts, self.lines = starts, text.splitlines()
        self.place, self.body, self.runs, self.known = [], (1, len(self.lines)), False, set()
        self.statement = None
        self.seen = Counter()

    def offset(self, line: int, column: int) -> int:
        "Offset in the text of a line and a column in bytes."
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def add(self, node: ast.AST, kind: str, after: str):
        "Enter a mutant that replaces a node by a text."
        start = self.offset(node.lineno, node.col_offset)
        end = self.offset(node.end_lineno, node.end_col_offset)
        before, where = self.text[start:end], ".".join(self.place)
        key = f"{self.module}|{where}|{ast.unparse(self.statement)}|{kind}|{before}|{after}"
        self.seen[key] += 1
        name = hashlib.sha256(f"{key}|{self.seen[key]}".encode()).hexdigest()[:12]
        s = self.statement
        last = s.body[0].lineno - 1 if getattr(s, "body", None) and s.body[0].lineno > s.lineno else s.end_lineno
        lines = s.lineno, max(last, s.lineno)
        place = self.module, where, *lines, self.body, self.runs
        self.found.append(Mutant(name, *place, kind, start, end, before, after))

    def inside(self, node, runs: bool, known: set[str]):
        "Visit the body of a function or class."
        before = self.place, self.body, self.runs, self.known
        self.place, self.body = [*self.place, node.name], (node.lineno, node.end_lineno)
        self.runs, self.known = runs, known
        for child in node.body: self.visit(child)
        self.place, self.body, self.runs, self.known = before

    def visit_FunctionDef(self, node):
        "Default values run with the module, the body when it is called; what draws is left alone."
        if draws(node): return
        args = node.args
        names = {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
        before = self.statement, self.place, self.body
        self.statement, self.place, self.body = node, [*self.place, node.name], (node.lineno, node.end_lineno)
        for default in filter(None, [*args.defaults, *args.kw_defaults]): self.visit(default)
        self.statement, self.place, self.body = before
        self.inside(node, True, names)

    def visit_ClassDef(self, node):
        self.inside(node, self.runs, set())

    def visit_AnnAssign(self, node):
        self.statement = node
        if node.value: self.visit(node.value)

    def visit_Raise(self, node): self.statement_of(node, deeper=False)

    def visit_JoinedStr(self, node): pass  # messages

    def visit_Import(self, node): pass

    def visit_ImportFrom(self, node): pass

    def visit_keyword(self, node):
        if node.arg not in UNSEEN: self.visit(node.value)

    def visit_If(self, node):
        if "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test): return
        self.statement_of(node, deeper=False)
        self.conditional(node)

    def visit_While(self, node):
        self.statement_of(node, deeper=False)
        self.conditional(node)

    def conditional(self, node):
        "Negate the test of a statement, then change what is in it."
        self.statement = node
        self.add(node.test, "negated condition", f"(not ({ast.unparse(node.test)}))")
        self.visit(node.test)
        for child in [*node.body, *node.orelse]: self.visit(child)

    def statement_of(self, node, deeper=True):
        "Remove a statement, where the rest can run without it, then change what is in it."
        self.statement = node
        if removable(node, self.known): self.add(node, "removed statement", "pass")
        if isinstance(node, ast.Assign): self.known = self.known | targets(node)
        if deeper: super().generic_visit(node)

    def generic_visit(self, node):
        if isinstance(node, ast.stmt): return self.visit_statement(node)
        if isinstance(node, ast.expr): self.expression(node)
        if not isinstance(node, ast.Constant): super().generic_visit(node)

    def visit_statement(self, node):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant): return  # docstrings
        if isinstance(node, ast.Assign) and targets(node) <= {"__all__", "_all_"} and targets(node): return
        self.statement_of(node)

    def visit_Constant(self, node): self.expression(node)

    def expression(self, node: ast.expr):
        for kind, new in EXPRESSIONS.get(type(node), lambda _: ())(node): self.add(node, kind, f"({ast.unparse(new)})")


def mutants(module: str, text: str) -> list[Mutant]:
    "All mutants of a module, in the order of the text; a few of them are not Python."
    finder = Finder(module, text)
    finder.visit(ast.parse(text))
    return finder.found


def compiles(text: str) -> bool:
    try: compile(text, "<mutant>", "exec")
    except SyntaxError: return False
    return True


def sample(found: list[Mutant], texts: dict[str, str], n: int, seed: int = 0) -> list[Mutant]:
    """`n` of them that compile, `texts` being those of the modules: those of the smallest digests, so that a change of
    one function leaves the rest of the sample."""
    order = sorted(found, key=lambda m: hashlib.sha256(f"{seed}:{m.id}".encode()).digest())
    return list(islice((m for m in order if compiles(m.plant(texts[m.module]))), n))


def planted_cell(source: str, chunk: str, mutated: str) -> str | None:
    "Source of an exported cell with the change of its part of the module, or None where the two differ."
    body = chunk.strip("\n")
    return source.replace(body, mutated.strip("\n")) if source.count(body) == 1 else None
