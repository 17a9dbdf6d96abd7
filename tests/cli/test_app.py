"The app: answers without a page, and the page in a browser."
import asyncio
import csv
import io
import json
import re
import shutil
import signal
import sys
import time

import pytest
from commands import call
from rdkit import Chem
from served import Direct, running, seconds_to_end

from loflexmdm.cli import answers as answers_module
from loflexmdm.cli.answers import Answers, Drawings, cards, drawing, file_text
from loflexmdm.cli.app import ACTIONS, PAGE, AppOptions, Calls, check_form, models_for
from loflexmdm.cli.service import opened_socket
from loflexmdm.cli.structure_editor import to_molfile
from loflexmdm.molecules.closures import ring_size
from loflexmdm.molecules.scores.makeable import objection
from loflexmdm.support.limits import Budget

BROWSER = next((f for name in ("chromium", "chromium-browser", "google-chrome") if (f := shutil.which(name))), None)
MODELS = "molecules-moses-ar", "lead-edits", "star-medium-ordered", "repair-text"
GRAPH = "4 1  12 4  0 5  1 9  4 7  3 4  7 19  4 0  9 2    3 5"


@pytest.fixture(scope="module")
def answers(): return Answers(MODELS)


@pytest.fixture(scope="module")
def calls():
    answers = Answers(["molecules-leads", "lead-edits"])
    return Calls(answers.describe_models(), Budget(rows=256, seconds=60), Direct(answers), Direct(Drawings()))


def last(answers): return list(answers)[-1].rows


def of_page(parts):
    "The last of what a callback of the page yields."
    async def read(): return [part async for part in parts][-1]
    return asyncio.run(read())


def test_every_model_answers_its_own_example(answers):
    for row in answers.describe_models():
        found = answers.edit if row["edits"] else answers.sample
        rows = last(found(row["model"], row["prompt"] or None, n=2, seed=0))
        assert len(rows) == 2 and json.loads(json.dumps(rows)) == rows and "text" in rows[0]


@pytest.mark.slow
def test_the_page_closes_a_ring(calls):
    status, *_ = of_page(calls.show("Close", "*CCc1cccc(C*)c1", "molecules-leads", "", 4, 0, None, None, "drawn"))
    assert "4 drawn" in status
    status, *_ = of_page(calls.show("Close", "*CC", "molecules-leads", "", 4, 0, None, None, "drawn"))
    assert "two *" in status


@pytest.mark.slow
def test_the_page_asks_for_what_the_shell_asks_for(calls):
    def rows(action, text, model, *asked):
        status, *_, found = of_page(calls.show(action, text, model, "", 3, 0, None, None, "drawn", *asked))
        assert found and len({row["smiles"] for row in found}) == len(found), status
        assert not any(objection(Chem.MolFromSmiles(row["smiles"])) for row in found)
        return found

    ring, name = "*CCc1cccc(C*)c1", "molecules-leads"
    sizes = [ring_size(row["smiles"], ring) for row in rows("Close", ring, name, "12-13", "", "", "", True, True)]
    assert len(sizes) == 3 and {*sizes} <= {12, 13}
    links = rows("Link", "*c1ccncc1.*N1CCOCC1", name, "", "3-4", "0", "", True, True)
    assert {(row["atoms"], row["rings"]) for row in links} <= {(3, 0), (4, 0)} and len(links) == 3
    edits = rows("Edit", "CC(=O)Nc1ccccc1", "lead-edits", "", "", "", "heavy_atoms:up", True, True)
    assert all(Chem.MolFromSmiles(row["smiles"]).GetNumAtoms() > 10 for row in edits)


def test_a_generation_of_each_action_is_played_as_it_is_drawn(calls):
    play = lambda *arguments: asyncio.run(calls.play(*arguments, None, None))
    for action, text, said in ("Close", "*CCc1cccc(C*)c1", "A generation in"), ("Close", "*CC", "two *"):
        status, player = play(action, text, "molecules-leads", "", 0)
        assert said in status and bool(player) == (said == "A generation in")
    status, player = play("Edit", "CC(=O)Nc1ccccc1", "lead-edits", "c1ccccc1", 0)
    assert "A generation in" in status and player
    status, _ = play("Edit", "CC(=O)Nc1ccccc1", "lead-edits", "CC(=O)Nc1ccccc1", 0)
    assert "locks every token" in status


def test_a_drawing_that_is_no_molecule_leaves_the_text(calls):
    text, hint = asyncio.run(calls.drawn(to_molfile("*CC"), "Grow"))
    assert text == "*CC" and "a fragment with *" in hint
    text, hint = asyncio.run(calls.drawn("no molfile", "Grow"))
    assert "value" not in text and "drawing: cannot be read" in hint


def test_notes_on_a_prompt_are_shown(calls):
    status, *_ = of_page(calls.show("Grow", "*c1ccc([2H])nc1", "molecules-leads", "", 1, 0, None, None, "drawn"))
    assert "isotopes left out" in status


def test_cards_shade_what_was_given():
    shaded = drawing("O=C(c1ccncc1)N1CCOCC1", "*c1ccncc1.*N1CCOCC1").count("#FFCC72")
    assert shaded >= 12 and "#FFCC72" not in drawing("O=C(c1ccncc1)N1CCOCC1")


def test_rows_do_not_depend_on_batches(answers, monkeypatch):
    whole = last(answers.sample("star-medium-ordered", GRAPH, n=9, seed=0))
    monkeypatch.setattr(answers_module, "BATCH", 4)
    parts = list(answers.sample("star-medium-ordered", GRAPH, n=9, seed=0))
    assert [len(p.rows) for p in parts] == [4, 8, 9, 9]
    assert [r["text"] for r in parts[-1].rows] == [r["text"] for r in whole]


@pytest.mark.parametrize("form, values, says", [
    ("sample", dict(model="star-medium", prompts=GRAPH), "star-medium-ordered"),
    ("sample", dict(model="star-medium-ordered", prompts=GRAPH, n=0), "n=0: must be at least 1"),
    ("sample", dict(model="molecules-moses-ar", prompts="*c1cc"), "c1cc"),
    ("edit", dict(model="molecules-moses-ar", texts="CC"), "does not edit"),
    ("edit", dict(model="lead-edits", texts="CC)"), "not a molecule"),
    ("edit", dict(model="repair-text", texts="abc", keep="1-3"), "locks every token"),
    ("sample", dict(model="star-medium-ordered", prompts=GRAPH, temperature=-1.0), "temperature"),
])
def test_bad_calls_are_refused_in_words(answers, form, values, says):
    with pytest.raises(ValueError, match=re.escape(says)): last(getattr(answers, form)(**values))


@pytest.mark.parametrize("action", ACTIONS)
def test_the_example_of_each_action_fits_it_alone(action, answers):
    text = re.search(r"such as ([^;,]+)", ACTIONS[action])[1].strip()
    assert check_form(action, f" {text} ") == text
    alike = {"Decorate", "Edit"}, {"Close", "Grow"}
    others = {other for other in ACTIONS if other != action and {other, action} not in alike}
    for other in others:
        with pytest.raises(ValueError, match=f"{other}: write "): check_form(other, text)
    edits = dict(zip(MODELS, (False, True)))
    assert all(edits[name] == (action == "Edit") for name in models_for(action, answers.describe_models()))


def test_files_hold_the_rows(answers):
    rows = last(answers.sample("molecules-moses-ar", "*c1ccc2c(c1)OCCO2", n=4, seed=0))
    table = list(csv.DictReader(io.StringIO(file_text(rows, ".csv"))))
    assert [r["smiles"] for r in table] == [r["smiles"] for r in rows]
    assert file_text(rows, ".sdf").count("$$$$") == sum(bool(r["smiles"]) for r in rows)
    grid = cards(rows, "*c1ccc2c(c1)OCCO2")
    assert grid.count("<figure") == 4 and grid.count("<svg") == sum(bool(r["smiles"]) for r in rows)


def test_without_gradio_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    code, _, err = call("app --port 0")
    assert code == 2 and "pip install 'loflexmdm[app]'" in err


def test_a_port_in_use_is_one_line():
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'loflexmdm[app]'")
    with opened_socket("127.0.0.1", 0) as taken:
        code, _, err = call(f"app --port {taken.getsockname()[1]}")
    assert code == 2 and "in use; choose another --port" in err


def test_it_listens_on_this_machine_unless_told_otherwise(): assert AppOptions.host == "127.0.0.1"


@pytest.mark.parametrize("request_line, used", [
    ("GET /", True), ("GET /assets/a.js", True), ("POST /gradio_api/queue/join", True),
    ("POST /gradio_api/upload", False), ("GET /gradio_api/info", False), ("POST /gradio_api/run/sample", False),
    ("GET /gradio_api/file=/etc/passwd", False), ("POST /gradio_api/run/predict", True),
    ("POST /gradio_api/call/molecule", False), ("GET /gradio_api/proxy=http://a", False),
])
def test_the_page_has_its_own_routes_only(request_line, used): assert bool(PAGE.fullmatch(request_line)) == used


@pytest.fixture(scope="module")
def server():
    "Process and address of a running app."
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'loflexmdm[app]'")
    with running("app", *MODELS) as (process, address): yield process, address + "/"


@pytest.mark.slow
def test_routes_of_gradio_are_for_who_has_opened_the_page(server):
    httpx = pytest.importorskip("httpx")
    _, address = server
    joined = dict(data=[], fn_index=0, session_hash="abc")
    with httpx.Client(base_url=address) as client:
        assert client.post("gradio_api/queue/join", json=joined).status_code == 403
        assert "connect-src 'self'" in client.get("/").headers["content-security-policy"]
        assert client.post("gradio_api/queue/join", json=joined).status_code != 403
        assert client.post("gradio_api/upload", files=dict(files=b"x")).status_code == 404
        assert client.get("/", headers=dict(host="evil.example")).status_code == 400
        assert client.get("health").json() == dict(status="ok")


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None: pytest.skip("no Chromium on this machine")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=[1280, 390])
def tab(browser, server, request):
    "The page at two widths; nothing may go wrong on it, or be asked of another machine."
    _, server = server
    tab, wrong = browser.new_page(viewport=dict(width=request.param, height=900)), []
    tab.set_default_timeout(120_000)
    tab.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda e: wrong.append(str(e)))
    tab.on("request", lambda r: None if r.url.startswith((server, "data:", "blob:")) else wrong.append(r.url))
    tab.goto(server)
    tab.wait_for_selector("text=Generate")
    yield tab
    assert not wrong and tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    tab.close()


@pytest.mark.slow
def test_a_chemist_grows_sorts_selects_and_downloads(tab):
    tab.get_by_role("button", name="Generate").first.click()
    tab.wait_for_selector("text=Done: 16 drawn")
    assert tab.locator(".la-card").count() == 16 and tab.locator(".la-card svg").count() > 12
    for number in ("2", "4"): tab.get_by_label(number, exact=True).check()
    with tab.expect_download() as saved: tab.get_by_role("button", name="Download SDF").click()
    assert saved.value.suggested_filename == "molecules.sdf"
    with open(saved.value.path()) as f: assert f.read().count("$$$$") == 2
    tab.get_by_label("Sort by").first.click()
    tab.get_by_role("option", name="qed", exact=True).click()
    tab.wait_for_function("() => !document.querySelector('.la-card').getAttribute('aria-label').startsWith('1:')")
    captions = " ".join(tab.locator(".la-card figcaption").all_inner_texts())
    shown = [float(value) for value in re.findall("QED ([.0-9]+)", captions)]
    assert shown == sorted(shown, reverse=True)


def drawn(tab, atoms: int, points: int):
    "Return the editor once it shows these numbers of atoms and points."
    tab.wait_for_selector(f"[aria-label*=': {atoms} atoms, {points} points']")
    return tab.locator(".la-canvas")


def test_a_pasted_fragment_is_shown_and_a_drawn_one_is_written(tab):
    field = tab.get_by_label("Fragment or molecule (SMILES)")
    drawn(tab, 10, 1)
    field.fill("*c1ccncc1.*N1CCOCC1")
    drawn(tab, 12, 2)
    field.fill("")
    editor = drawn(tab, 0, 0)
    editor.click(position=dict(x=35, y=204))  # a ring of benzene
    editor.click(position=dict(x=180, y=180))
    tab.wait_for_function("() => [...document.querySelectorAll('input,textarea')].some(e => e.value == 'c1ccccc1')")
    tab.get_by_role("button", name="Add points").click()
    editor.click(position=dict(x=180, y=204))
    drawn(tab, 6, 1)
    tab.wait_for_function("() => [...document.querySelectorAll('input,textarea')].some(e => e.value == '*c1ccccc1')")
    assert field.input_value() == "*c1ccccc1"


def test_a_drawing_that_is_no_molecule_is_answered_in_the_page(tab):
    field = tab.get_by_label("Fragment or molecule (SMILES)")
    field.fill("FF")
    editor = drawn(tab, 2, 0)
    box = editor.bounding_box()
    tab.get_by_role("button", name="Add points").click()
    editor.click(position=dict(x=(box["width"] + 46) / 2, y=box["height"] / 2))  # the middle, right of the tools
    assert "drawing: Explicit valence" in tab.get_by_role("alert").first.inner_text()
    assert field.input_value() == "FF"


def test_the_keyboard_passes_the_editor(tab):
    drawn(tab, 10, 1)
    tab.get_by_label("Fragment or molecule (SMILES)").focus()
    tab.keyboard.press("Tab")
    points = tab.get_by_role("button", name="Add points")
    assert points.evaluate("e => e === document.activeElement")
    tab.keyboard.press("Enter")
    assert points.get_attribute("aria-pressed") == "true"


def test_bad_input_is_answered_in_the_page(tab):
    tab.get_by_label("Link").check()
    tab.wait_for_selector("text=two fragments with one")
    tab.get_by_role("button", name="Generate").first.click()
    assert "Link: write two fragments" in tab.get_by_role("alert").first.inner_text()


def test_enter_and_the_keyboard_do_what_the_mouse_does(tab):
    tab.get_by_role("tab", name="Texts and graphs").focus()
    tab.keyboard.press("Enter")
    play = tab.get_by_role("button", name="Play one generation").last
    play.focus()
    tab.keyboard.press("Enter")
    frame = tab.frame_locator("iframe.la-player")
    frame.locator(".lp-first").click()
    assert frame.locator(".lp-bar input").input_value() == "0"
    tab.get_by_role("button", name="Generate").last.click()
    tab.wait_for_selector("iframe.la-player", state="detached")  # it shows what was played before
    tab.wait_for_selector("text=Done: 16 drawn")


def test_a_call_can_be_stopped(tab):
    tab.get_by_label("number input for Number").first.fill("256")
    tab.keyboard.press("Tab")
    tab.get_by_role("button", name="Generate").first.click()
    tab.wait_for_selector(".la-card")
    tab.get_by_role("button", name="Stop").first.click()
    tab.wait_for_timeout(3000)
    assert 0 < tab.locator(".la-card").count() < 256 and tab.locator("text=Done:").count() == 0


def test_ctrl_c_ends_the_app_while_a_page_is_open(browser):
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'loflexmdm[app]'")
    with running("app", "star-medium-ordered") as (process, address):
        tab = browser.new_page()
        tab.goto(address)
        tab.wait_for_selector("text=Generate")
        tab.get_by_role("button", name="Generate").first.click()
        assert seconds_to_end(process, signal.SIGINT) < 3
        tab.close()


def test_a_closed_page_ends_its_call(browser, server):
    httpx = pytest.importorskip("httpx")
    tab, calls = browser.new_page(), lambda: httpx.get(server[1] + "metrics").text
    tab.goto(server[1])
    tab.get_by_label("number input for Number").first.fill("256")
    tab.keyboard.press("Tab")
    tab.get_by_role("button", name="Generate").first.click()
    tab.wait_for_selector(".la-card")
    assert "loflexmdm_running 1.0" in calls()
    tab.close()
    begun = time.monotonic()
    while "loflexmdm_running 0.0" not in calls():
        assert time.monotonic() - begun < 8
        time.sleep(0.2)
