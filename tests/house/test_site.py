"The site as a browser shows it. `make test` builds it first; without it, or without Chromium, these tests are skipped."
import ast
import importlib.util
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
SITE, SHOTS = ROOT / "_site", ROOT / "_screenshots"
BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
PAGES = dict(
    index="loflexmdm",
    **{
        "process/matching": "Rate matching",
        "tutorials/learned_order": "learning the order",
        "api/samplers.base": "samplers.base",
        "about/checked": "How it was checked",
        "about/glossary": "Glossary",
        "about/what_holds": "What holds",
    },
)

pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built (make docs)")
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


class Anchors(HTMLParser):
    "Links and ids of a page."
    def __init__(self, path: Path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes: self.ids.add(attributes["id"])
        if tag == "a" and attributes.get("href"): self.links.append(attributes["href"])


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def visit(browser, page: str, width: int = 1280, height: int = 900):
    """A page opened in a window of that size, and what went wrong while it loaded:
    errors in the console, requests to the outside."""
    tab, wrong = browser.new_page(viewport=dict(width=width, height=height)), []
    tab.set_default_timeout(120_000)  # a busy machine needs long for a page with many formulas
    tab.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda e: wrong.append(str(e)))
    tab.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(r.url))
    tab.goto(
        (SITE / page).as_uri() if "?" not in page else (SITE / page.split("?")[0]).as_uri() + "?" + page.split("?")[1]
    )
    tab.wait_for_load_state("load")
    return tab, wrong


def pages() -> list[Path]: return sorted(SITE.rglob("*.html"))


def test_every_link_leads_somewhere():
    seen = {p.resolve(): Anchors(p) for p in pages()}
    broken = []
    for path, page in seen.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if "://" in address or address.startswith("mailto:"): continue
            target = (path.parent / unquote(address)).resolve() if address else path
            if target not in seen and not target.is_file(): broken.append(f"{path.relative_to(SITE)}: {link}")
            elif anchor and target in seen and unquote(anchor) not in seen[target].ids:
                broken.append(f"{path.relative_to(SITE)}: {link}")
    assert len(seen) > 60 and not broken, "\n".join(broken[:20])


def test_every_notebook_has_a_page_and_a_picture_a_text():
    names = {p.stem for p in pages()}
    notebooks = [p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts]
    bare = {p: p.stem.split("_", 1)[-1] for p in notebooks}
    missing = [p.name for p in notebooks if not names & {p.stem, bare[p], f"{bare[p]}_command"}]
    assert not missing
    tags = {p: re.findall(r"<img [^>]*>", p.read_text(encoding="utf-8")) for p in pages()}
    without = [
        f"{p.relative_to(SITE)}: {tag[:80]}"
        for p, found in tags.items()
        for tag in found
        if not re.search(r'alt="[^"]+"', tag)
    ]
    assert not without


class Prose(HTMLParser):
    "The text of a page outside code, and its formulas."
    def __init__(self, path: Path):
        super().__init__()
        self.stack, self.text, self.formulas = [], "", []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        if tag not in ("img", "br", "hr", "input", "link", "meta", "col", "path", "use", "rect", "circle", "line"):
            self.stack.append((tag, dict(attributes).get("class") or ""))
    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag: pass

    def handle_data(self, data):
        if any(tag in ("pre", "code", "script", "style", "title", "svg") for tag, _ in self.stack): return
        if any("math" in kind.split() for _, kind in self.stack): self.formulas.append(data)
        else: self.text += data + "\n"


def test_no_formula_and_no_markup_is_left_unread():
    "A formula that the reader of Markdown has missed shows its dollars, and may swallow the paragraph after it."
    wrong = []
    for path in pages():
        page = Prose(path)
        left = re.findall(r".*(?:\$|\*\*|\\\(|\\\[).*", page.text) + [
            f for f in page.formulas if "**" in f or "$" in f or "](" in f
        ]
        wrong += [f"{path.relative_to(SITE)}: {found.strip()[:120]}" for found in left]
    assert not wrong, "\n".join(wrong[:30])


def builder():
    "The module that builds the site."
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
    spec.loader.exec_module(build := importlib.util.module_from_spec(spec))
    return build


def test_no_page_is_very_long():
    "About 15,000 pixels on a wide screen, as `height` estimates to some 5 %, before anything is unfolded."
    texts = {str(p.relative_to(SITE)): p.read_text(encoding="utf-8") for p in pages()}
    articles = {name: t[t.index("<article"):t.index("</article>")] for name, t in texts.items() if "<article" in t}
    heights = {name: builder().height(article) for name, article in articles.items()}
    assert len(heights) > 100 and max(heights.values()) < 16_000, max(heights, key=heights.get)
    assert articles["process/schedules.html"].count('<details class="fold') > 5


def test_rooms_outside_the_menu_are_found_from_the_reference():
    reference, home = ((SITE / f"{name}.html").read_text(encoding="utf-8") for name in ("api/index", "index"))
    for room in builder().OUTSIDE:
        assert f"{room}/index.html" in reference and f'href="{room}/' not in home
        own = [p.read_text(encoding="utf-8") for p in (SITE / room).glob("*.html")]
        assert sum('<details class="fold"' in page for page in own) > len(own) / 2


def test_the_reference_gives_whole_sentences():
    "A table that said of `Limits` no more than `What a simulation may do` helped nobody."
    said = builder().first_sentence("What a simulation may do: the last reading; the lengths.\n\nMore of it.")
    assert said == "What a simulation may do: the last reading; the lengths."


def test_the_reference_says_what_every_field_means():
    build = builder()
    classes = {e.name: e for m in build.modules() for e in build.entries(m) if isinstance(e.node, ast.ClassDef)}
    without = [
        f"{name}.{field}"
        for name, entry in classes.items()
        for field, _, _, meaning in build.fields_of(entry, classes)
        if not meaning
    ]
    assert not without and len(classes) > 60
    # its own and those of Sampler
    assert {"top_p", "slack"} <= {row[0] for row in build.fields_of(classes["EventDriven"], classes)}


@in_browser
@pytest.mark.parametrize("page", PAGES)
def test_page_opens(browser, page):
    tab, wrong = visit(browser, page + ".html")
    assert PAGES[page] in tab.title() or PAGES[page] in tab.locator("h1").first.inner_text()
    SHOTS.mkdir(exist_ok=True)
    tab.screenshot(path=SHOTS / f"{page.replace('/', '-')}.png")
    assert not wrong
    tab.close()


@in_browser
@pytest.mark.parametrize("page", ["process/matching", "about/glossary"])
def test_formulas_are_drawn(browser, page):
    tab, wrong = visit(browser, page + ".html")
    tab.wait_for_selector("mjx-container svg", state="attached")  # most are in folded sections
    assert tab.locator("mjx-container svg").count() > 10 and tab.locator("mjx-merror").count() == 0 and not wrong
    tab.close()


INK = """image => { const c = document.createElement('canvas'); c.width = image.naturalWidth; c.height = \
image.naturalHeight;
    const g = c.getContext('2d'); g.drawImage(image, 0, 0); return [c.width, c.height]; }"""


@in_browser
@pytest.mark.parametrize("page", ["index", "process/matching", "tutorials/learned_order"])
def test_pictures_are_not_blank(browser, page, tmp_path):
    import matplotlib.image
    tab, _ = visit(browser, page + ".html")
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    pictures = tab.locator("article img")
    assert pictures.count() > 0
    for i in range(min(pictures.count(), 4)):
        pictures.nth(i).scroll_into_view_if_needed()
        assert min(pictures.nth(i).evaluate(INK)) > 20
        pictures.nth(i).screenshot(path=tmp_path / "picture.png")
        assert matplotlib.image.imread(tmp_path / "picture.png")[..., :3].std() > 0.01
    tab.close()


@in_browser
@pytest.mark.parametrize("word", ["EventDriven", "Kumaraswamy"])
def test_search_finds(browser, word):
    tab, wrong = visit(browser, f"search.html?q={word}")
    tab.wait_for_selector("ul.search li")
    tab.wait_for_function("document.querySelector('#search-results p.search-summary')?.innerText.includes('found')")
    found = tab.locator("ul.search li a").all_inner_texts()
    assert len(found) > 1 and not wrong
    tab.close()


@in_browser
@pytest.mark.parametrize(
    "words, first",
    {
        "own data": "Your own data",
        "molecules": "Molecules from nothing",
        "GPU": "Training on a GPU",
        "server": "Run a service: a page, an HTTP API, a container",
        "app": "Run a service: a page, an HTTP API, a container",
        "tensorboard": "Log a run and sweep its settings",
        "custom loss": "Add a method, a task, a sampler, a network, a schedule",
        "score": "Report a bound",
        "likelihood": "Report a bound",
        "anomaly": "Odd lines of a log",
        "version": "Pin a version",
        "pin": "Pin a version",
        "EventDriven": "loflexmdm.samplers.event_driven > EventDriven",
    }.items(),
)
def test_search_puts_first_what_a_reader_wants(browser, words, first):
    tab, _ = visit(browser, f"search.html?q={words}")
    tab.wait_for_function("document.querySelector('#search-results p.search-summary')?.innerText.includes('found')")
    assert tab.locator("ul.search li a").first.inner_text() == first
    tab.close()


@in_browser
@pytest.mark.parametrize("words", ["linker", "fragment", "train", "gap", "similarity", "kubernetes", "prometheus"])
def test_search_finds_pages_for_readers_before_the_reference(browser, words):
    tab, _ = visit(browser, f"search.html?q={words.replace(' ', '+')}")
    tab.wait_for_function("document.querySelector('#search-results p.search-summary')?.innerText.includes('found')")
    first = tab.locator("ul.search li a").first.get_attribute("href")
    assert first.startswith(("tutorials/", "how_to/", "about/")), first
    tab.close()


@in_browser
@pytest.mark.parametrize("page", PAGES)
def test_a_phone_does_not_scroll_sideways(browser, page):
    tab, _ = visit(browser, page + ".html", 390, 844)
    tab.wait_for_timeout(1500)  # formulas are drawn late and may be wide
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    SHOTS.mkdir(exist_ok=True)
    tab.screenshot(path=SHOTS / f"phone-{page.replace('/', '-')}.png")
    tab.close()


def test_every_page_is_in_llms_txt():
    targets = re.findall(r"\]\(([^)]+\.html)\)", (SITE / "llms.txt").read_text(encoding="utf-8"))
    assert len(targets) == len(set(targets)) > 80 and all((SITE / t).is_file() for t in targets)
    found = (p for s in ("tutorials", "how_to", *builder().ROOMS) for p in (SITE / s).glob("*.html"))
    assert {str(p.relative_to(SITE)) for p in found if p.stem != "index"} <= set(targets)


TABLES = ["reports/comparison", "tutorials/choosing", "molecules/de_novo", "how_to/choose_a_sampler"]
TOO_WIDE = """() => [...document.querySelectorAll("article table")].map(table => {
    const place = table.closest(".table-wrapper, .cell_output") || table.parentElement;
    return table.scrollWidth - place.clientWidth; }).filter(excess => excess > 1)"""


@in_browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", TABLES)
def test_tables_fit(browser, page, width):
    tab, wrong = visit(browser, page + ".html", width)
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    tab.wait_for_timeout(500)
    assert tab.locator("article table").count() > 0 and tab.evaluate(TOO_WIDE) == [] and not wrong
    tab.close()


@in_browser
def test_a_link_into_a_folded_section_opens_it(browser):
    checked = Anchors(SITE / "about" / "checked.html").links
    link = [a for a in checked if a.startswith("../process/schedules.html#cell-")][-1]
    tab, wrong = visit(browser, "process/schedules.html")
    assert tab.locator("details.fold[open]").count() == 1
    tab.evaluate("anchor => { location.hash = anchor; }", urldefrag(link)[1])
    tab.wait_for_timeout(300)
    assert tab.locator("details.fold[open]").count() == 2 and not wrong
    tab.locator(".fold-all").click()
    assert tab.locator("details.fold:not([open])").count() == 0
    tab.close()


@in_browser
@pytest.mark.parametrize("page", ["star_graphs", "molecules", "repair", "molecule_edits"])
def test_tutorials_have_a_player(browser, page):
    tab, wrong = visit(browser, f"tutorials/{page}.html", 390, 844)
    player = tab.locator(".lp").first
    assert len(player.evaluate("p => p.outerHTML")) < 60_000
    final = player.locator(".lp-row").inner_text()
    player.locator(".lp-first").click()
    assert player.locator("input").input_value() == "0" and player.locator(".lp-row").inner_text() != final
    for _ in range(int(player.locator("input").get_attribute("max"))): player.locator(".lp-next").click()
    assert player.locator(".lp-row").inner_text() == final and not wrong
    tab.close()
