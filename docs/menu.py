"""The menu beside every page.

The theme renders and parses the whole menu for each page, which takes as many steps as pages squared. Here it is
rendered once; a page gets it with links from there and its own entry open."""
import re
from functools import cache

from furo.navigation import get_navigation_tree
from sphinx.util.osutil import relative_uri


def mark_current(line: str, *classes: str) -> str:
    "Mark the line of an entry as open, with more classes at the end."
    more = "".join(f" {c}" for c in classes)
    line = re.sub(r'^<li class="(toctree-l\d)([^"]*)"', rf'<li class="\1 current\2{more}"', line)
    return re.sub(r'(<input aria-label="[^"]*")', r'\1 checked=""', line)


def open_entry(lines: list[str], address: str) -> list[str]:
    "Mark the entry of a page and those above it; return the menu unchanged if the page has none."
    at = next((i for i, line in enumerate(lines) if f'href="{address}"' in line), None)
    if at is None: return lines
    lines = list(lines)
    level = int(lines[at].removeprefix('<li class="toctree-l')[0])
    lines[at] = mark_current(lines[at], "current-page").replace('<a class="', '<a class="current ')
    lines[at] = lines[at].replace(f'href="{address}"', 'href="#"')
    for i in reversed(range(at)):
        if level > 1 and lines[i].startswith(f'<li class="toctree-l{level - 1}'):
            lines[i] = mark_current(lines[i]).replace("<ul>", '<ul class="current">')
            level -= 1
        elif level == 1 and lines[i] == "<ul>":
            lines[i] = '<ul class="current">'
            return lines
    raise ValueError(f"{address}: its entry is in no list of the menu")


def with_links_from(lines: list[str], address: str) -> str:
    "Replace the links, which are those of the front page, with those of another page."
    link = lambda m: f'<a class="{m[1]}" href="{relative_uri(address, m[2])}"'
    return re.sub(r'<a class="([^"]*)" href="([^"#][^"]*)"', link, "\n".join(lines))


@cache
def front_menu(builder) -> list[str]:
    "Return the lines of the front page's menu."
    options = dict(collapse=False, titles_only=True, maxdepth=-1, includehidden=True)
    return get_navigation_tree(builder._get_local_toctree(builder.config.root_doc, **options)).split("\n")


def leave_out_menu(app, name, template, context, doctree):
    "Give the theme nothing to render."
    context["toctree"] = lambda **options: ""


def add_menu(app, name, template, context, doctree):
    "Add the menu of a page after the theme's own work."
    address = app.builder.get_target_uri(name)
    context["furo_navigation_tree"] = with_links_from(open_entry(front_menu(app.builder), address), address)


def setup(app):
    "Run before the theme and after it (its priority is 500)."
    app.connect("html-page-context", leave_out_menu, priority=400)
    app.connect("html-page-context", add_menu, priority=600)
    return dict(parallel_read_safe=True, parallel_write_safe=True)
