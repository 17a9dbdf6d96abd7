"Parts of the site's build that need no site: links to machines that run a notebook, and pages that are folded."
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from sphinx.application import Sphinx

import loflexmdm

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
spec.loader.exec_module(build := importlib.util.module_from_spec(spec))

PAGE = """<article><section id="a"><h1>A</h1><p>said first</p>
<section id="b"><span id="x"></span><h2>B</h2><p>b</p><section id="b-1"><h3>B1</h3><p>b1</p></section></section>
<section id="c">
<h2>C</h2><p>c</p></section>
</section></article>"""


def test_sections_fold_behind_their_headings():
    page = build.folded(PAGE)
    assert page.count("<details") == page.count("</details>") == 2
    assert '<details class="fold" open><summary><h2>B</h2></summary><p>b</p><section id="b-1">' in page
    assert '<details class="fold"><summary><h2>C</h2></summary><p>c</p></details></section>' in page
    assert page.index('class="fold-all"') < page.index('<section id="b">')
    without = page.replace('<p><button type="button" class="fold-all" hidden>Open all sections</button></p>\n', "")
    for tag in ('<details class="fold" open>', '<details class="fold">', "<summary>", "</summary>", "</details>"):
        without = without.replace(tag, "")
    assert without == PAGE


def test_what_is_folded_counts_for_nothing():
    code = "<pre>" + "line\n" * 100 + "</pre>"
    assert build.height(f"<article>{code}</article>") == 22 * 100 + 50
    assert build.height(f"<article><details>{code}</details><img src='a.png'></article>") < 201


def test_links_to_machines_that_run_a_notebook():
    path = Path("nbs/tutorials/star_graphs.ipynb")
    text = build.hosted(path, True, "https://github.com/someone/some-fork.git")
    colab = "https://colab.research.google.com/github/someone/some-fork/blob/main/nbs/tutorials/star_graphs.ipynb"
    assert colab in text
    assert "https://mybinder.org/v2/gh/someone/some-fork/HEAD?labpath=nbs%2Ftutorials%2Fstar_graphs.ipynb" in text
    assert '%pip install -q "loflexmdm @ git+https://github.com/someone/some-fork"' in text
    with_data = build.hosted(path, False, "https://github.com/someone/some-fork")
    assert "Binder" in with_data and "Colab" not in with_data
    assert build.hosted(path, True, "") == ""


def test_the_repository_fills_lines_that_clone_and_links_to_sources():
    text = "```sh\ngit clone https://github.com/OWNER/NAME && cd NAME\npip install .\n```\n"
    assert build.with_repository(text, "") == "```sh\npip install .\n```\n"
    filled = build.with_repository(text, "https://github.com/someone/fork.git")
    assert filled == "```sh\ngit clone https://github.com/someone/fork && cd fork\npip install .\n```\n"
    link = build.source_link("nbs/index.ipynb", "https://github.com/someone/fork/")
    assert link == " [Source](https://github.com/someone/fork/blob/main/nbs/index.ipynb)."
    assert build.source_link("nbs/index.ipynb", "") == ""


@pytest.mark.parametrize("address", ["someone/fork", "https://example.org/someone/fork", "https://github.com/someone"])
def test_a_repository_elsewhere_is_refused(address):
    with pytest.raises(ValueError, match="must be https://github.com/OWNER/NAME"):
        build.hosted(Path("a"), True, address)


@pytest.mark.slow
def test_the_reference_opens_with_what_users_call():
    "Every name of the package itself, and each once."
    shown = build.users_reference()
    told = [path for paths in build.USED.values() for path in paths]
    assert len(told) == len(set(told)) > 35
    names = {path.rpartition(".")[2] for path in told}
    missing = set(loflexmdm.__all__) - names - {"Method", "LoFlexMDM", "collate"}
    assert not missing
    rows = [line.split("|") for line in shown.splitlines() if line.startswith("| [")]
    assert len(rows) == len(told) and all(len(row) == 4 and len(row[2].strip()) > 10 for row in rows)
    with pytest.raises(KeyError): build.used_row("models.pretrained.lod", {})


def test_words_of_newcomers_are_on_the_page_that_answers_them():
    "A search ranks pages that have the word; one that lacks it is not found, whatever its rank."
    scorer = (ROOT / "docs" / "_static" / "scorer.js").read_text()
    answers = dict(re.findall(r'(\w+): "(\w+/\w+)"', scorer[scorer.index("const ANSWERS"):]))
    pages = {page.target: page.path.read_text().lower() for page in build.pages()}
    assert len(answers) > 30 and set(answers.values()) <= set(pages)
    new = "anomaly", "kubernetes", "prometheus", "version", "pin"
    assert [word for word in new if not re.search(rf"\b{word}\b", pages[answers[word]])] == []


def test_every_section_is_in_the_menu_behind_the_reference_or_outside():
    titles = re.findall(r"(\w+)/index", build.HOME_TREE)
    behind = [name.partition("/")[0] for name in build.BEHIND if not name.startswith("about/")]
    assert sorted([*titles, *behind, *build.OUTSIDE]) == sorted(build.SECTIONS)
    assert all(f"../{room}/index.md" in build.SECTIONS["api"][1] for room in build.OUTSIDE)


def test_links_in_outputs_lead_to_pages():
    page = build.page_of(ROOT / "nbs" / "what_holds.ipynb")
    lines = ["| [QM9](tutorials/real_data.ipynb#qm9) |\n", "| [b](methods/08_masked.ipynb) |"]
    shown = {"data": {"text/markdown": lines}}
    found = build.output_on_the_site(shown, page)["data"]["text/markdown"]
    assert found == "| [QM9](../tutorials/real_data.ipynb#qm9) |\n| [b](../methods/masked.ipynb) |"
    printed = {"name": "stdout", "text": "[a](methods/08_masked.ipynb)"}
    assert build.output_on_the_site(printed, page) is printed


@pytest.mark.slow
def test_the_menu_is_that_of_the_theme(tmp_path):
    "Every page, byte for byte: on the first level, below another, below two, and one that is not in the menu."
    tree = "```{toctree}\n:hidden:\n:caption: CAPTION\n\nNAMES\n```\n"
    pages = dict(
        index="# Home\n\n" + tree.replace("CAPTION", "One").replace("NAMES", "a/index\nalone") +
              tree.replace("CAPTION", "Two").replace("NAMES", "b/index"),
        alone="# Alone\n", orphan="---\norphan: true\n---\n# Orphan\n",
    ) | {
        "a/index": "# A `code` & \"more\"\n\n" + tree.replace("NAMES", "one\n/c/index"), "a/one": "# One\n",
        "b/index": "# B\n\n" + tree.replace("NAMES", "one"), "b/one": "# One\n",
        "c/index": "# C\n\n" + tree.replace("NAMES", "deep"), "c/deep": "# Deep\n",
    }
    for name, text in pages.items():
        (path := tmp_path / "source" / f"{name}.md").parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(":caption: CAPTION\n", ""), encoding="utf-8")
    def built(name: str, *extensions: str) -> dict[str, str]:
        settings = dict(extensions=["myst_parser", *extensions], html_theme="furo", html_copy_source=False)
        places = tmp_path / "source", None, tmp_path / name, tmp_path / "doctrees"
        Sphinx(*places, "html", settings, status=None, warningiserror=True).build()
        return {str(p.relative_to(tmp_path / name)): p.read_text() for p in (tmp_path / name).rglob("*.html")}
    sys.path.insert(0, str(ROOT / "docs"))
    try: ours = built("ours", "menu")
    finally: sys.path.remove(str(ROOT / "docs"))
    assert ours == built("theirs") and len(ours) > len(pages)
    assert ours["c/deep.html"].count("checked") == 2
