"""`make docs`: the site from the notebooks, in _site/.

Notebooks become pages with their kept outputs (nothing is run), the package's source becomes the reference,
the tables of checks are gathered on one page with a link to each cell. Sphinx does the rest; a warning is an
error, a request to the outside too."""
import ast
import base64
import configparser
import json
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
SOURCE, SITE = ROOT / "_docs", ROOT / "_site"
LADDERS = dict(  # the front's pages, in reading order; those of a room are numbered
    tutorials=(
        "star_graphs", "your_own_data", "fill_a_gap", "rules", "repair", "molecules", "fragments",
        "molecule_edits", "from_lead_to_report", "reading_an_order", "learned_order", "orders_on_a_clock", "digits",
        "choosing", "gaps_compared", "real_data", "log_anomalies", "training_on_a_gpu", "lesson", "course",
    ),
    how_to=(
        "install", "versions", "choose_a_sampler", "condition_on_a_prompt", "ask_for_a_rule", "read_samples",
        "pandas_and_files",
        "molecule_files", "optimise", "seeds", "resume_a_run", "log_and_sweep", "run_a_service", "more_than_one_gpu",
        "fine_tune", "import_a_checkpoint", "compare_methods", "report_a_bound", "your_own_tokenizer",
        "your_own_network", "add_your_own", "benchmarks", "faq",
    ),
)
MACHINE = r"https?://|^//|data:"


class Page(NamedTuple):
    "A notebook and its place on the site."
    path: Path
    section: str
    name: str

    @property
    def target(self) -> str: return self.name if self.section == "home" else f"{self.section}/{self.name}"

    @property
    def is_room(self) -> bool:
        "Whether it belongs to a room of the package: a page that derives and exports a module."
        return self.section in ROOMS


def page_of(path: Path) -> Page:
    """Where a notebook goes: tutorials, how-to guides and rooms have sections of their own.

    A room's folders, such as molecules/data, are one section."""
    name = re.sub(r"^\d+_", "", path.stem)
    if path.parent.name == "verbs": name = f"{name}_command"  # its room may have a page of the bare name
    folder = path.relative_to(ROOT / "nbs").parts[0]
    if name == "index": return Page(path, "home", name)
    return Page(path, "about" if path.parent == ROOT / "nbs" else folder, name)


def pages() -> list[Page]:
    "Every notebook, in the order of its section."
    paths = [p for p in sorted((ROOT / "nbs").rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts]
    ladder = {(section, name): i for section, names in LADDERS.items() for i, name in enumerate(names)}

    # a room's folders (notation, data, scores) come before what is built on them
    def rank(page: Page):
        folders = len(page.path.relative_to(ROOT / "nbs").parts)
        return page.section, ladder.get((page.section, page.name), 0), -folders, str(page.path)
    return sorted(map(page_of, paths), key=rank)


# The reference: public names of the package, their signatures, docstrings and comments

class Entry(NamedTuple):
    "A public name: its module, its definition and the module's source."
    module: str
    name: str
    node: ast.AST
    source: str

    @property
    def anchor(self) -> str:  # anchors ignore case, so that the kind tells `Recipe` from `recipe`
        kind = {ast.ClassDef: "-class", ast.FunctionDef: ""}.get(type(self.node), "-value")
        return f"api-{self.module.replace('.', '-')}-{self.name}{kind}"
    @property
    def code(self) -> str: return "\n".join(self.source.splitlines()[first_line(self.node) - 1:self.node.end_lineno])


def first_line(node: ast.AST) -> int:
    "Line of a definition, decorators included."
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def modules() -> list[str]:
    "Names of the package's modules, without `loflexmdm.`."
    files = sorted((ROOT / "loflexmdm").rglob("*.py"))
    return [
        ".".join(f.relative_to(ROOT / "loflexmdm").with_suffix("").parts) for f in files if not f.name.startswith("_")
    ]


@cache
def module_source(name: str) -> str:
    return (ROOT / "loflexmdm" / (name.replace(".", "/") + ".py")).read_text(encoding="utf-8")


@cache
def parsed(source: str) -> ast.Module:
    "The statements of a source; each module's are read many times."
    return ast.parse(source)


def public_names(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


def defined_names(node: ast.AST) -> list[str]:
    "What a statement of a module defines."
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)): return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for target in node.targets for t in getattr(target, "elts", [target]) if isinstance(t, ast.Name)]
    return [node.target.id] if isinstance(node, ast.AnnAssign) else []


@cache
def entries(module: str) -> list[Entry]:
    "The public names of a module, in the order of its source."
    source = module_source(module)
    tree = parsed(source)
    public = set(public_names(tree))
    found = {
        name: Entry(module, name, node, source) for node in tree.body for name in defined_names(node) if name in public
    }
    return list(found.values())


def comment_on(line: str) -> str:
    "The comment at the end of a line of source; empty if there is none."
    return line.split("  # ", 1)[1].strip() if "  # " in line else ""


def fields_of(entry: Entry, classes: dict[str, Entry]) -> list[tuple[str, str, str, str]]:
    """Name, type, default and comment of each annotated field of a class and of those it
    inherits from, the package's own."""
    lines, rows = entry.source.splitlines(), {}
    for base in entry.node.bases:
        if parent := classes.get(ast.unparse(base).split("[")[0]):
            rows |= {r[0]: (*r[:3], r[3] or f"see {parent.name}") for r in fields_of(parent, classes)}
    for node in entry.node.body:
        if not isinstance(node, ast.AnnAssign): continue
        name, default = ast.unparse(node.target), "" if node.value is None else ast.unparse(node.value)
        rows[name] = name, type_text(node.annotation), default, comment_on(lines[node.end_lineno - 1])
    return list(rows.values())


def type_text(node: ast.expr) -> str:
    "A type as the source has it, with arrays' shapes in double quotes and without the space before a single dimension."
    return re.sub(r"\[Tensor, ' ?([^']*)'\]", r'[Tensor, "\1"]', ast.unparse(node))


def argument_texts(node: ast.arguments) -> list[str]:
    "The arguments of a function, one string each."
    positional = node.posonlyargs + node.args
    defaults = [None] * (len(positional) - len(node.defaults)) + node.defaults
    def text(arg: ast.arg, default: ast.expr | None = None, stars: str = "") -> str:
        typed = f": {type_text(arg.annotation)}" if arg.annotation else ""
        value = "" if default is None else (" = " if typed else "=") + ast.unparse(default)
        return stars + arg.arg + typed + value
    found = [text(*pair) for pair in zip(positional, defaults, strict=True)]
    if node.posonlyargs: found.insert(len(node.posonlyargs), "/")
    if node.vararg: found.append(text(node.vararg, stars="*"))
    elif node.kwonlyargs: found.append("*")
    found += [text(*pair) for pair in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
    return found + ([text(node.kwarg, stars="**")] if node.kwarg else [])


def signature(node: ast.FunctionDef, name: str = "") -> str:
    "`name(arguments) -> result`, as the source has it."
    returns = f" -> {type_text(node.returns)}" if node.returns else ""
    arguments = argument_texts(node.args)
    text = f"{name or node.name}({', '.join(arguments)}){returns}"
    return text if len(text) <= 110 else f"{name or node.name}(\n    " + ",\n    ".join(arguments) + f"\n){returns}"


def escaped(text: str) -> str: return text.replace("|", "\\|").replace("$", "\\$").replace("<", "&lt;")


def prose(docstring: str | None) -> str:
    "A docstring as Markdown."
    text = re.sub(r"(?m)^ {4,}", "", docstring or "")
    return re.sub(r"(`[^`]*`)|([<$*_])", lambda m: m[1] or "\\" + m[2], text)


def fence(code: str, language: str = "python") -> str: return f"```{{code-block}} {language}\n{code}\n```\n"


def table(header: list[str], rows: list) -> str:
    "A Markdown table of strings."
    return "\n".join(["| " + " | ".join(r) + " |" for r in (header, ["---"] * len(header), *rows)]) + "\n"


def linked_bases(entry: Entry, classes: dict[str, Entry]) -> str:
    "A line on the classes of the package that this one extends."
    found = [classes[b] for b in map(ast.unparse, entry.node.bases) if b in classes]
    return "Extends " + ", ".join(f"[`{b.name}`](#{b.anchor})" for b in found) + "." if found else ""


def without_self(text: str) -> str: return re.sub(r"\((\s*)self(: \w+)?(,\s*|(?=\)))", r"(\1", text, count=1)


def methods_of(entry: Entry) -> list[ast.FunctionDef]:
    "The methods of a class: those in its body, and the functions of its module that `@patch` adds to it."
    def patched(f): return any(ast.unparse(d) == "patch" for d in f.decorator_list) and f.args.args
    functions = [n for n in parsed(entry.source).body if isinstance(n, ast.FunctionDef) and patched(n)]
    return ([n for n in entry.node.body if isinstance(n, ast.FunctionDef)] +
            [f for f in functions if ast.unparse(f.args.args[0].annotation) == entry.name])


def describe_class(entry: Entry, classes: dict[str, Entry]) -> str:
    "Constructor or fields, docstring and methods of a class."
    node, functions = entry.node, methods_of(entry)
    init = next((f for f in functions if f.name == "__init__"), None)
    bases = ", ".join(ast.unparse(b) for b in node.bases)
    head = f"class {entry.name}({bases})" if bases else f"class {entry.name}"
    parts = [fence(head if init is None else without_self(signature(init, f"class {entry.name}")))]
    parts += [prose(ast.get_docstring(node)), linked_bases(entry, classes)]
    if rows := fields_of(entry, classes):
        parts.append(
            table(
                ["field", "type", "default", "meaning"],
                [[f"`{n}`", f"`{t}`".replace("|", "\\|"), f"`{d}`" if d else "", escaped(c)] for n, t, d, c in rows],
            )
        )
    for f in functions:
        if f.name.startswith("_") or not ast.get_docstring(f): continue
        is_property = any(ast.unparse(d).endswith("property") for d in f.decorator_list)
        typed = f": {type_text(f.returns)}" if f.returns else ""
        head = f".{f.name}{typed}" if is_property else "." + without_self(signature(f))
        parts.append(fence(head) + "\n" + prose(ast.get_docstring(f)))
    return "\n\n".join(parts)


def describe(entry: Entry, classes: dict[str, Entry]) -> str:
    "The section of one public name."
    body = f"({entry.anchor})=\n\n## {entry.name}\n\n"
    if isinstance(entry.node, ast.ClassDef): body += describe_class(entry, classes)
    elif isinstance(entry.node, ast.FunctionDef):
        body += fence(signature(entry.node)) + "\n" + prose(ast.get_docstring(entry.node))
    else: return body + fence(entry.code)
    return body + f"\n\n````{{dropdown}} Source\n{fence(entry.code)}````\n"


def purpose(module: str) -> str:
    "What a module says of itself."
    return prose((ast.get_docstring(parsed(module_source(module))) or "").strip())


def write_reference(module: str, notebooks: dict[str, Page], classes: dict[str, Entry]):
    "The page of a module."
    page = notebooks.get(module)
    told = f"\n\nDerived and checked in [](../{page.target}).\n" if page else ""
    told += source_link(f"loflexmdm/{module.replace('.', '/')}.py", repository())
    text = f"# loflexmdm.{module}\n\n{purpose(module)}{told}\n\n" + "\n\n".join(
        describe(e, classes) for e in entries(module)
    )
    (SOURCE / "api" / f"{module}.md").write_text(text + "\n", encoding="utf-8")


# Pages from notebooks

class Links:
    """Turns `Name` in prose into a link to the reference, where the name is public in one module alone.

    `room.module.Name`, with the name of a method after it or not, is a link in any case."""
    def __init__(self, all_entries: list[Entry]):
        seen: dict[str, list[str]] = {}
        for e in all_entries: seen.setdefault(e.name, []).append(e.anchor)
        self.anchors = {name: where[0] for name, where in seen.items() if len(where) == 1 and len(name) > 3}
        self.anchors |= {f"{e.module}.{e.name}": e.anchor for e in all_entries}

    def anchor(self, name: str) -> str | None:
        "The anchor of a name, or of the class that a dotted name begins with; None for another name."
        owner = name.rpartition(".")[0]
        return self.anchors.get(name) or (self.anchors.get(owner) if "." in owner else None)

    def __call__(self, text: str) -> str:
        "The Markdown with links; code blocks, formulas and existing links are left alone."
        keep = r"```.*?```|\$\$.*?\$\$|\[[^\]]*\]\([^)]*\)"
        name = r"`(?P<name>[A-Za-z_]\w*(?:\.\w+)*)(?P<call>\([^`]*\))?`"
        link = lambda m: f"[{m[0]}](#{at})" if (at := self.anchor(m["name"])) else m[0]
        return re.sub(f"{keep}|{name}", lambda m: link(m) if m["name"] else m[0], text, flags=re.S)


def directives(source: str) -> tuple[dict[str, str], str]:
    "nbdev's `#| key: value` lines at the head of a cell, and the rest; a value goes on in lines that are indented."
    found, lines = {}, re.sub(r"\n#\|\s{2,}", " ", source).splitlines()
    while lines and (m := re.match(r"^#\|\s*([\w-]+)\s*:?\s*(.*)$", lines[0])):
        found[m[1]] = m[2].strip().strip('"')
        lines.pop(0)
    return found, "\n".join(lines).strip("\n")


def cells_of(page: Page) -> list[dict]: return json.loads(page.path.read_text(encoding="utf-8"))["cells"]


def title_of(cells: list[dict]) -> str:
    return next(
        line[2:].strip()
        for c in cells
        if c["cell_type"] == "markdown"
        for line in "".join(c["source"]).splitlines()
        if line.startswith("# ")
    )


def alt_text(source: str, before: str, functions: dict[str, str], given: str | None = None) -> str:
    """What a picture shows: what the cell says (`fig-alt`), the docstring of the function that draws
    it, or the sentences before it."""
    if given: return given
    drawn = next((functions[n] for n in re.findall(r"(\w+)\(", source) if n in functions), "")
    plain = re.sub(r"[*`$>|\[\]]", "", re.sub(r"(?m)^#+ [\d. ]*(.*)$", r"\1:", before))
    sentences = [s for s in re.split(r"(?<=[.:])\s", plain) if len(s) > 8]
    drawn = re.sub(r"[.;,]? ([Rr]eturns the (two )?axes|ValueError).*", "", " ".join(drawn.split()))
    return " ".join((drawn or " ".join(sentences[:2]) or "figure").split())[:200].rstrip(":").replace('"', "'")


DRAWS = r"\b(ax|axes|plt|fig|svg)\b"  # a name that functions which draw use


def drawing_functions(cells: list[dict]) -> dict[str, str]:
    "Docstrings of the functions of a notebook that draw, by name."
    found = {}
    for c in cells:
        source = "".join(c["source"])
        if c["cell_type"] != "code" or not re.search(DRAWS, source): continue
        try: tree = ast.parse(source.replace("%matplotlib inline", ""))
        except SyntaxError: continue
        defined = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and ast.get_docstring(n)}
        found |= {
            name: ast.get_docstring(n)
            for name, n in defined.items()
            if re.search(DRAWS, ast.unparse(n))
        }
    return found


def markdown_cell(source: str, identity: str) -> dict:
    return dict(cell_type="markdown", id=identity, metadata={}, source=source)


def markdown_source(source: str, links: Links, page: Page) -> str:
    "A markdown cell as MyST reads it: the subtitle in italics, links to notebooks and pictures put right."
    in_italics = lambda m: f"# {m[1]}\n\n*{' '.join(m[2].replace('> ', '').split())}*"
    source = re.sub(r"(?m)^# (.+)\n+((?:> .+(?:\n|\Z))+)", lambda m: in_italics(m) + "\n" * m[2].endswith("\n"), source)
    return links(on_the_site(source, page))


def on_the_site(text: str, page: Page) -> str:
    "Markdown of a notebook with its links to notebooks, pictures and pages of docs put right."
    up = "" if page.section == "home" else "../"
    text = re.sub(
        r"\]\((?!https?:)(?:nbs/)?([\w./-]+)\.(?:ipynb|html)(#[a-z0-9-]+)?(?:#[\w-]*)?\)",
        lambda m: f"]({up}{page_of((page.path.parent / (m[1] + '.ipynb')).resolve()).target}.ipynb{m[2] or ''})",
        text,
    )
    text = with_repository(text, repository())
    text = re.sub(r"\]\((?:\.\./)*(?:nbs/)?images/", f"]({up}images/", text)
    return re.sub(r"\]\((?:\.\./)*docs/about/", f"]({up}about/", text)


def output_on_the_site(output: dict, page: Page) -> dict:
    "An output of a cell; Markdown with its links put right, anything else as it is."
    if "text/markdown" not in output.get("data", {}): return output
    text = on_the_site("".join(output["data"]["text/markdown"]), page)
    return output | dict(data=output["data"] | {"text/markdown": text})


def is_table(source: str) -> bool:
    "Whether a cell does nothing but write a table."
    try: body = ast.parse(source).body
    except SyntaxError: return False
    if not body or not isinstance(body[-1], ast.Expr) or not isinstance(call := body[-1].value, ast.Call): return False
    return getattr(call.func, "id", "") in ("Markdown", "markdown_table", "table") and all(
        isinstance(s, (ast.Import, ast.ImportFrom)) for s in body[:-1]
    )


def code_cell(cell: dict, options: dict, source: str, alt: str) -> dict:
    "A code cell with its kept output: long definitions and tables' code folded, pictures with a text in their place."
    tags = [tag for key, tag in (("echo", "remove-input"), ("output", "remove-output")) if options.get(key) == "false"]
    notebook = dict(image=dict(alt=alt))
    imports_only = all(re.match(r"(from|import) |\s|\)|$", line) for line in source.splitlines())
    if is_table(source):
        tags.append("hide-input")
        notebook["code_prompt_show"] = "Show the code of the table"
    elif "code-fold" in options or "export" in options and (source.count("\n") > 32 or imports_only):
        tags.append("hide-cell" if "answer" in options.get("code-summary", "") else "hide-input")
        defined = ", ".join(re.findall(r"(?m)^(?:class|def) (\w+)", source)[:4])
        notebook["code_prompt_show"] = options.get("code-summary") or (
            f"Show the code of {defined}" if defined else "Show the imports"
        )
    outputs = [o for o in cell["outputs"] if o.get("name") != "stderr"]
    return dict(
        cell_type="code", id=cell["id"], metadata=dict(tags=tags, mystnb=notebook),
        source=source, outputs=outputs, execution_count=None,
    )


def stands_alone(cells: list[dict]) -> bool:
    "Whether a notebook runs anywhere: it reads no data that lie beside it."
    return not any(".json" in "".join(c["source"]) and "read" in "".join(c["source"]) for c in cells)


@cache
def repository() -> str:
    "The address of the repository in settings.ini; empty if it has none."
    settings = configparser.ConfigParser()
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    return settings["DEFAULT"].get("repository", "").strip()


PLACEHOLDER = "https://github.com/OWNER/NAME"


def with_repository(text: str, address: str) -> str:
    "Fill the address into lines that name the repository by OWNER/NAME; without an address they are left out."
    if not address: return re.sub(rf"(?m)^.*{re.escape(PLACEHOLDER)}.*\n?", "", text)
    address = address.rstrip("/").removesuffix(".git")
    return text.replace("cd NAME", "cd " + address.rpartition("/")[2]).replace(PLACEHOLDER, address)


def source_link(path: str | Path, address: str) -> str:
    "Markdown of a link to a file of the repository; empty without an address."
    return f" [Source]({address.rstrip('/').removesuffix('.git')}/blob/main/{quote(str(path))})." if address else ""


def hosted(path: Path, alone: bool, address: str) -> str:
    """Markdown of links that open a notebook of a GitHub repository in Colab and Binder, with the cell that installs
    the package in Colab; empty without an address. ValueError for an address elsewhere."""
    if not address: return ""
    if not (m := re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", address)):
        raise ValueError(f"repository={address!r}: must be https://github.com/OWNER/NAME, or empty")
    binder = f"[Open in Binder](https://mybinder.org/v2/gh/{m[1]}/HEAD?labpath={quote(str(path), safe='')})"
    if not alone: return binder
    colab = f"[Open in Colab](https://colab.research.google.com/github/{m[1]}/blob/main/{quote(str(path))})"
    install = fence(f'%pip install -q "loflexmdm @ git+https://github.com/{m[1]}"')
    return f"{colab} | {binder}\n\nIn Colab, run this in a cell of its own first:\n\n{install}"


def opened_elsewhere(page: Page, cells: list[dict]) -> list[dict]:
    "For a page that readers run themselves, and a repository with an address: links to machines that run it."
    if page.section not in ("tutorials", "how_to"): return []
    text = hosted(page.path.relative_to(ROOT), stands_alone(cells), repository())
    return [markdown_cell(text, "hosted")] if text else []


def origin(page: Page, cells: list[dict]) -> list[dict]:
    """For a page that readers run themselves: where its notebook is, and a copy unless it
    reads files that lie beside it. For other pages the notebook's address, if the repository has one."""
    path = page.path.relative_to(ROOT)
    link = source_link(path, repository())
    if page.section not in ("tutorials", "how_to"): return [markdown_cell(link.strip(), "origin")] if link else []
    copy = (
        f"{{download}}`Download this page as a notebook <../../{path}>`"
        if stands_alone(cells)
        else "This page is a notebook with data beside it"
    )
    return [markdown_cell(f"{copy}; in a clone it is `{path}`, and `make lab` opens it.{link}", "origin")]


def convert(page: Page, links: Links) -> dict:
    "The notebook as a page: hidden cells left out, an anchor before each code cell."
    nb = json.loads(page.path.read_text(encoding="utf-8"))
    functions, cells, before = drawing_functions(nb["cells"]), [], ""
    for c in nb["cells"]:
        source = "".join(c["source"])
        if c["cell_type"] == "markdown":
            before = source
            cells.append(markdown_cell(markdown_source(source, links, page), c["id"]))
        if c["cell_type"] != "code": continue
        options, code = directives(source)
        if "hide" in options and page.section in ("tutorials", "how_to") and re.match(r"(from|import) ", code):
            # so that a reader can paste the rest
            options = {"code-fold": "true", "code-summary": "Show the imports and settings"}
        if "hide" in options or "default_exp" in options and not code: continue
        slow = (
            "\n\n*The next cell takes minutes or a GPU; its output is kept.*"
            if {"slow", "gpu"} & options.keys()
            else ""
        )
        cells.append(markdown_cell(f"({anchor_of(page, c['id'])})={slow}", c["id"] + "-anchor"))
        c = c | dict(outputs=[output_on_the_site(o, page) for o in c["outputs"]])
        cells.append(code_cell(c, options, code, alt_text(source, before, functions, options.get("fig-alt"))))
    cells = cells[:1] + opened_elsewhere(page, nb["cells"]) + cells[1:] + origin(page, nb["cells"])
    outside = dict(orphan=True) if page.section in OUTSIDE else {}
    return nb | dict(cells=cells, metadata=dict(kernelspec=nb["metadata"].get("kernelspec", {})) | outside)


def anchor_of(page: Page, identity: str) -> str: return f"cell-{page.section}-{page.name}-{identity}"


# How it was checked

class Check(NamedTuple):
    "A line of a notebook's table of checks."
    claim: str
    how: str
    seen: str
    anchor: str


def checks_of(page: Page) -> list[Check]:
    "The last table of a notebook, each line with the cell that made it."
    cells = cells_of(page)
    at = next(
        (i for i, c in enumerate(cells) if "What was checked" in "".join(c["source"]) and c["cell_type"] == "markdown"),
        len(cells),
    )
    texts = [
        "".join(o["data"].get("text/markdown", "")) for c in cells[at:] for o in c.get("outputs", []) if "data" in o
    ]
    rows = [
        line.strip().strip("|").strip().split(" | ")
        for text in texts[:1]
        for line in text.splitlines()[2:]
        if line.startswith("|")
    ]
    return [
        Check(r[0].strip(), " ".join(r[1:-1]).strip(), r[-1].strip(), where_claimed(r[0].strip(), page, cells))
        for r in rows
        if len(r) >= 2
    ]


def where_claimed(claim: str, page: Page, cells: list[dict]) -> str:
    "Anchor of the visible cell that records the claim; empty if there is none."
    for c in cells:
        source = "".join(c["source"])
        said = re.sub(r'"\s*\n\s*f?"', "", source.replace('\\"', '"'))  # a long text may be written as several literals
        named = claim in said or claim.replace("\\|", "|") in said
        if c["cell_type"] == "code" and named and not source.startswith("#| hide"):
            return anchor_of(page, c["id"])
    return ""


def assertions() -> tuple[int, int]:
    "How many statements of the notebooks, and of the tests, fail where they do not hold: assertions and refusals."
    cells = ("".join(c["source"]) for p in pages() for c in cells_of(p) if c["cell_type"] == "code")
    tests = (p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests").rglob("test_*.py")))
    made = r"(?m)^\s*(?:assert\b|test_\w+\(|with pytest\.raises)|\bassert_close\(|; assert\b|: assert\b"
    count = lambda texts: sum(len(re.findall(made, text)) for text in texts)
    return count(cells), count(tests)


def bars(text: str) -> str:
    "Text of a table's cell, its own bars written so that they do not end it."
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def write_checked(all_pages: list[Page]):
    "The page that gathers every table of checks."
    text, total = "", 0
    for page in all_pages:
        if not (rows := checks_of(page)): continue
        total += len(rows)
        title = title_of(cells_of(page)).replace("`", "")
        text += f"\n````{{dropdown}} {title}: {len(rows)}\nFrom [](../{page.target}).\n\n"
        text += table(
            ["claim", "check", "seen"],
            [
                [f"{bars(r.claim)} [→](#{r.anchor})" if r.anchor else bars(r.claim), bars(r.how), bars(r.seen)]
                for r in rows
            ],
        ) + "````\n"
    in_notebooks, in_tests = assertions()
    head = (
        "# How it was checked\n\nNotebooks of the theory end in a table of their claims, how each was checked and what "
        f"was seen. These are all of them: {total} claims, from the notebooks when this site was built. A claim "
        "counts once, however many cases were tried for it. The number behind the name of a notebook is that of its "
        "claims; a click shows them. The arrow leads to the cell that makes the check; a cell whose assertion fails "
        f"stops the page. The notebooks hold {in_notebooks:,} assertions, and the tests another {in_tests:,}.\n"
    )
    (SOURCE / "about").mkdir(exist_ok=True)
    (SOURCE / "about" / "checked.md").write_text(head + text, encoding="utf-8")
    return total


# The site

ROOMS = dict(  # in the order of reading: the theory first, what serves it last
    process=(
        "Process",
        "The nouns of the theory, in order. Each page derives one piece, checks it on the smallest case that can be "
        "enumerated, and exports it into the library."
        "\n\n![A position of the sequence is dropped, then a mask, then its token](../images/states.png)\n\n"
        "Every position of a sequence goes through three states: it is missing, then a mask, then its token. "
        "When is up to a schedule; these pages say what follows from it. "
        "The loss is derived in [Rate matching and the bounds](./matching.ipynb).",
    ),
    exact=("Exact", "Distributions by enumeration: what every rate, loss and sampler of the package is checked with."),
    networks=("Networks", "What a method requires of a network, and the networks of the package."),
    samplers=(
        "Samplers",
        "Init and step: how sequences are drawn. Which one to take is told in "
        "[Choose a sampler](../how_to/choose_a_sampler.ipynb).",
    ),
    methods=("Methods", "A network, a path and a loss that belong together; sampling and editing with them."),
    tasks=("Tasks", "Data in three splits, prompts and a score."),
    training=(
        "Training",
        "How a model is made: batches, optimisers, checkpoints and the loop. To train on data of your own, start with "
        "[Your own data](../tutorials/your_own_data.ipynb).",
    ),
    models=("Models", "A model in the package, on the hub, and from the authors of LoFlexMDM."),
    molecules=("Molecules", "Notations, data, scores, the two tasks, growth from a fragment and optimisation."),
    reports=("Reports", "What a person looks at: figures, the player, comparisons, citations."),
    cli=("Command line", "What a terminal can ask for."),
    support=("Support", "What does not depend on the theory: files, readers, settings, registries, random numbers."),
)
OUTSIDE = ("cli", "support")  # rooms that a reader looks up: their pages are not in the menu, and folded by section
SECTIONS = dict(
    tutorials=("Tutorials", "From an installed package to a result, step by step."),
    how_to=("How to", "One question, one screen."),
    **ROOMS,
    api=(
        "Reference",
        "What users call, by what they want to do. Names of the package itself (`loflexmdm.load`) and of its "
        "subpackages (`loflexmdm.samplers.Planner`) are imported when they are first asked for. All other public "
        "names follow at the end, module by module. How the [command line](../cli/index.md) and "
        "[files, settings and registries](../support/index.md) are made is told on pages of their own.",
    ),
)


def subtitle_of(page: Page) -> str:
    text = "\n\n".join("".join(c["source"]) for c in cells_of(page)[:3] if c["cell_type"] == "markdown")
    m = re.search(r"(?m)^(?:> .+\n?)+", text)
    return " ".join(m[0].replace("> ", "").split()) if m else ""


USED = {  # what users call, by what they want; `Class.method` leads to the class
    "Load and save": (
        "models.pretrained.load", "support.saved_files.names", "models.pretrained.from_hub",
        "models.model.Model", "models.model.Model.save", "models.model.Model.push",
    ),
    "Sample": (
        "models.model.Model.sample", "models.model.Model.sample_batches", "models.model.Model.score",
        "models.generated.Generated", "samplers.simulate.Samples",
        "process.states.prefix_example", "samplers.state.Limits",
    ),
    "Edit": ("models.model.Model.edit", "molecules.optimise.optimise"),
    "Train": (
        "training.recipes.recipe", "training.recipes.recipe_from", "training.recipes.Recipe",
        "training.trainer.Trainer", "training.optimisers.TrainConfig",
    ),
    "Tasks and data": (
        "tasks.sequences.SequencesTask", "molecules.task.MoleculesTask", "molecules.edit_task.MoleculeEditsTask",
        "tasks.repair.RepairTask", "tasks.star_graphs.StarTask", "tasks.base.Task", "tasks.base.task_from",
        "tasks.base.check_prompts", "process.states.Vocabulary",
    ),
    "Samplers": (
        "samplers.event_driven.EventDriven", "samplers.tau_leaping.TauLeaping",
        "samplers.left_to_right.LeftToRight", "samplers.planner.Planner", "samplers.entropy_bounded.EntropyBounded",
    ),
    "Figures": (
        "models.player.play", "reports.figures.trajectory_strip", "samplers.generation_order.plot_raster",
        "training.log.plot_metrics", "molecules.scores.metrics.molecule_grid",
    ),
    "Compare, report, cite": (
        "reports.comparison.compare", "molecules.scores.metrics.molecule_metrics", "molecules.report.report",
        "reports.citations.citation",
    ),
}


def first_sentence(docstring: str | None) -> str:
    "The first sentence of a docstring, for a cell of a table: up to its full stop, what follows a colon included."
    [start, *_] = re.split(r"(?<=\.)\s", " ".join((docstring or "").split("\n\n")[0].split()))
    return bars(prose(start.rstrip(";:")))


def used_row(path: str, known: dict[str, Entry]) -> list[str]:
    "Name and meaning of something that users call. KeyError for what the package does not have."
    if path in known:
        entry = known[path]
        return [f"[`{entry.name}`](#{entry.anchor})", first_sentence(ast.get_docstring(entry.node))]
    owner, _, name = path.rpartition(".")
    entry = known[owner]
    methods = {f.name: f for f in methods_of(entry)}
    return [f"[`model.{name}`](#{entry.anchor})", first_sentence(ast.get_docstring(methods[name]))]


def users_reference() -> str:
    "The tables of what users call, by what they want."
    known = {f"{e.module}.{e.name}": e for m in modules() for e in entries(m)}
    parts = [
        f"## {title}\n\n" + table(["name", "what it does"], [used_row(path, known) for path in paths])
        for title, paths in USED.items()
    ]
    return "\n".join(parts)


def every_module() -> str:
    "All modules with what they say of themselves, those of a room folded."
    text = "## Every module\n\n"
    for room, (title, _) in ROOMS.items():
        own = [f"- [{name}](./{name}.md): {purpose(name)}" for name in modules() if name.split(".")[0] == room]
        text += f"````{{dropdown}} {title}: {len(own)} modules\n" + "\n".join(own) + "\n````\n\n"
    return text


# pictures of tutorials in the gallery, where it is not the first one on the page: a cell, or a file of nbs/images
PICTURES = dict(
    course="states.png", repair="re000003", reading_an_order="7ab16ae4", learned_order="of000001",
    from_lead_to_report="fl000009", your_own_data="927ef7de", star_graphs="188a5d4e",
)


def picture_of(page: Page) -> str:
    "Write the picture of a tutorial for the gallery; return its place below images. ValueError if it has none."
    chosen = PICTURES.get(page.name, "")
    if "." in chosen: return chosen
    outputs = [o.get("data", {}) for c in cells_of(page) if chosen in ("", c["id"]) for o in c.get("outputs", [])]
    kinds = {"image/png": "png", "image/svg+xml": "svg"}
    found = [(kind, "".join(data[kind])) for data in outputs for kind in kinds if kind in data]
    if not found: raise ValueError(f"{page.path}: no picture{chosen and f' in cell {chosen}'} for the gallery")
    kind, content = found[0]
    path = SOURCE / "images" / "gallery" / f"{page.name}.{kinds[kind]}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(base64.b64decode(content) if kind == "image/png" else content.encode())
    return f"gallery/{path.name}"


def card(page: Page) -> str:
    "A tutorial in the gallery: picture, title, subtitle."
    title, text = title_of(cells_of(page)), subtitle_of(page)
    options = f":link: {page.name}\n:link-type: doc\n:img-top: ../images/{picture_of(page)}\n:img-alt: {title}"
    return f":::{{grid-item-card}} {title}\n{options}\n\n{text}\n:::"


def gallery(found: list[Page]) -> str:
    "Tutorials as cards, three in a row on a wide screen."
    return "::::{grid} 1 2 3 3\n:gutter: 3\n\n" + "\n\n".join(map(card, found)) + "\n\n::::"


def write_section(section: str, found: list[Page]):
    "The overview of a section."
    title, text = SECTIONS[section]
    names = [p.name for p in found]
    body = gallery(found) if section == "tutorials" else "\n".join(
        f"- [](./{p.name}.ipynb): {subtitle_of(p)}" for p in found
    )
    if section == "api":
        names = [*(f"{title} </{name}>" for name, title in BEHIND.items()), *(f"{name} <{name}>" for name in modules())]
        body = users_reference() + "\n" + every_module()
    body = f"# {title}\n\n{text}\n\n{body}\n"
    tree = "\n".join(names)
    if section in OUTSIDE: body = "---\norphan: true\n---\n" + body
    else: body += f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{tree}\n```\n"
    (SOURCE / section / "index.md").write_text(body, encoding="utf-8")


def write_llms(found: list[Page]):
    "llms.txt: a line on every page, for programs that read the site."
    home = next(p for p in found if p.section == "home")
    lines = ["# loflexmdm", "", f"> {subtitle_of(home)}"]
    for section, (title, _) in SECTIONS.items():
        own = [p for p in found if p.section == section]
        told = [f"- [{title_of(cells_of(p))}]({p.target}.html): {subtitle_of(p)}" for p in own]
        told += [f"- [{m}](api/{m}.html): {purpose(m)}" for m in modules() if section == "api"]
        lines += ["", f"## {title}", "", *told]
    (SITE / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def tree(caption: str, names: list[str]) -> str:
    "A part of the site's menu."
    head = "```{toctree}\n:hidden:\n:maxdepth: 1\n" + (f":caption: {caption}\n" if caption else "")
    return head + "\n" + "\n".join(names) + "\n```"


HOME_TREE = "\n\n".join([  # what readers want, and below it the rooms where they find it
    tree("Try and learn", ["tutorials/index", "how_to/index"]),
    tree("Understand the theory", ["process/index", "exact/index", "about/formulas", "about/what_holds",
                                   "about/where_we_lose", "about/checked"]),
    tree("Choose a method", ["about/methods", "methods/index", "samplers/index", "networks/index"]),
    tree("Train on data, make molecules", [f"{room}/index" for room in ("tasks", "molecules", "training", "reports")]),
    tree("Look something up", ["api/index", "about/glossary", "about/changelog"]),
])
BEHIND = {  # pages in the menu below the reference, with their titles there
    "models/index": "How models are stored", "about/security": "Security",
}


def write_pages():
    "Everything Sphinx reads, in _docs/."
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in ("conf.py", "menu.py"): shutil.copy(ROOT / "docs" / name, SOURCE)
    shutil.copytree(ROOT / "nbs" / "images", SOURCE / "images")
    found, links = pages(), Links([e for m in modules() for e in entries(m)])
    for page in found:
        nb = convert(page, links)
        if page.section == "home": nb["cells"].append(markdown_cell(HOME_TREE, "tree"))
        path = SOURCE / f"{page.target}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(nb), encoding="utf-8")
    (SOURCE / "api").mkdir()
    exported = {exported_module(p): p for p in found}
    classes = {e.name: e for m in modules() for e in entries(m) if isinstance(e.node, ast.ClassDef)}
    for module in modules(): write_reference(module, exported, classes)
    for section in SECTIONS:
        (SOURCE / section).mkdir(exist_ok=True)
        write_section(section, [p for p in found if p.section == section])
    checks = write_checked([p for section in ROOMS for p in found if p.section == section])
    (SOURCE / "about" / "changelog.md").write_text(changelog_page(), encoding="utf-8")
    shutil.copy(ROOT / "SECURITY.md", SOURCE / "about" / "security.md")
    return len(found), checks


def changelog_page() -> str:
    "The changelog with its links put right."
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return on_the_site(text, Page(ROOT / "nbs" / "changelog.ipynb", "about", "changelog"))


def exported_module(page: Page) -> str:
    "The module that a notebook exports; empty if none."
    m = re.search(r"#\| default_exp ([\w.]+)", page.path.read_text(encoding="utf-8"))
    return m[1] if m else ""


def outside_requests() -> list[str]:
    "What a page would fetch from elsewhere: scripts, styles, pictures and fonts with an address."
    found = []
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        found += [
            f"{page.relative_to(SITE)}: {m}"
            for m in re.findall(r"<(?:script|link|img|iframe|source)[^>]*(?:src|href)=\"((?:https?:)?//[^\"]+)\"", text)
            if "rel=\"canonical\"" not in m
        ]
    for sheet in SITE.rglob("*.css"):
        found += [
            f"{sheet.relative_to(SITE)}: {u}"
            for u in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", sheet.read_text(encoding="utf-8"))
        ]
    return found


# Long pages are folded

LONG = 14_000  # pixels, estimated; no page should need more than 15,000 before it is unfolded


def visible(page: str) -> str:
    "What a page shows: without scripts, styles and what is folded."
    return re.sub(r"<(script|style|details)\b.*?</\1>", " ", page, flags=re.S)


def height(page: str) -> float:
    """Pixels that a page's HTML takes on a wide screen, to about 5 %: lines and blocks of code, letters, pictures. The
    weights are a least-squares fit to pages measured in a browser."""
    shown = visible(page)
    code = re.findall(r"<pre.*?</pre>", shown, flags=re.S)
    rest = re.sub(r"<pre.*?</pre>|<[^>]*>", "", re.sub(r"<img", "\0<img", shown), flags=re.S)
    return 22 * sum(c.count("\n") for c in code) + 50 * len(code) + 0.37 * len(rest) + 200 * rest.count("\0")


def sections(page: str) -> list[tuple[int, int, int]]:
    "Of each section with a heading of level 2: where its heading begins and ends, and where the section ends."
    found, stack = [], []
    for m in re.finditer(r"<section\b[^>]*>(?:\s|<span[^>]*></span>)*(<h2\b.*?</h2>)?|</section>", page, flags=re.S):
        if m[0] != "</section>": stack.append(m)
        elif (opening := stack.pop())[1]: found.append((opening.start(1), opening.end(1), m.start()))
    return sorted(found)


def folded(page: str) -> str:
    "A page with each section of level 2 behind its heading, the first one open."
    found = sections(page)
    for k, (start, end, stop) in reversed(list(enumerate(found))):
        head, body = page[start:end], page[end:stop]
        kept = f'<details class="fold"{"" if k else " open"}><summary>{head}</summary>{body}</details>'
        page = page[:start] + kept + page[stop:]
    button = '<p><button type="button" class="fold-all" hidden>Open all sections</button></p>\n'
    at = page.rfind("<section", 0, found[0][0])
    return page[:at] + button + page[at:]


def fold_long_pages():
    "Fold the sections of pages that would be very long, and of all outside the menu, which open with an example."
    for path in (page for room in ROOMS for page in SITE.glob(f"{room}/*.html")):
        page = path.read_text(encoding="utf-8")
        start, end = page.index("<article"), page.index("</article>")
        folds = path.parent.name in OUTSIDE or height(page[start:end]) >= LONG
        if not folds or not sections(article := page[start:end]): continue
        path.write_text(page[:start] + folded(article) + page[end:], encoding="utf-8")


def main():
    started = time.monotonic()
    notebooks, checks = write_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    subprocess.run(
        [
            sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j",
            "2", "-d", str(SOURCE / ".doctrees"), str(SOURCE), str(SITE),
        ],
        check=True,
    )
    fold_long_pages()
    write_llms(pages())
    shutil.copy(ROOT / "loflexmdm" / "recipe.schema.json", SITE)  # for editors: an address to name in a recipe
    shutil.rmtree(SITE.parent / "jupyter_execute", ignore_errors=True)  # where myst-nb puts pictures on their way
    if outside := outside_requests(): sys.exit("requests to the outside:\n" + "\n".join(outside))
    size = sum(f.stat().st_size for f in SITE.rglob("*") if f.is_file()) / 1e6
    print(
        f"{SITE / 'index.html'}: {len(list(SITE.rglob('*.html')))} pages from {notebooks} notebooks, "
        f"{checks} claims checked, {size:.0f} MB, no warning, nothing from outside; "
        f"{time.monotonic() - started:.0f} s"
    )


if __name__ == "__main__": main()
