"Players of generations: nothing of the data becomes markup, and in a browser they play by mouse and by keyboard."
import json
import shutil
from html.parser import HTMLParser

import pytest

from loflexmdm.process.states import MASK, Vocabulary
from loflexmdm.models.player import GONE, MASKED, Player, changes_of, graph_picture, player_html
from loflexmdm.models.player import record_frames
from loflexmdm.samplers import EditTrajectory, Trajectory

HOSTILE = [
    "<script>alert(1)</script>", "`${alert(1)}`", '"><img src=x onerror=alert(1)>', "'", "</div>", "<!--", "&amp;",
]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EDITED = EditTrajectory([(0.0, [3, 4]), (0.2, [3, 5, 4]), (0.6, [5, 4]), (0.9, [5, 3])], [0.2, 0.0], [0.2, 0.9],
                        [[0, 1], [0, 2, 1], [2, 1], [2, 1]])


class Tags(HTMLParser):
    "Names of tags and of their attributes; the data and the boxes' texts."
    def __init__(self, text: str):
        super().__init__()
        self.tags, self.texts, self.data, self.inside = [], [], None, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *(name for name, _ in attributes)))
        self.data = dict(attributes).get("data-player", self.data)
        self.inside = "data-token" in dict(attributes)
    def handle_endtag(self, tag): self.inside = False
    def handle_data(self, data): self.texts += [data] * self.inside


def written_at_once(n: int) -> Trajectory:
    "A mask for each of n tokens, then all of them."
    return Trajectory([(0.0, []), (0.5, [MASK] * n), (1.0, [*range(3, 3 + n)])], [0.5] * n, [1.0] * n)


def page(vocabulary: Vocabulary, trajectory: Trajectory) -> Player:
    track = record_frames(trajectory)
    return Player(player_html(track, vocabulary), len(track.frames))


def test_hostile_tokens_stay_text():
    n = len(HOSTILE)
    bad, plain = (page(Vocabulary(v), written_at_once(n)).html for v in (HOSTILE, "abcdefg"))
    assert Tags(bad).tags == Tags(plain).tags and Tags(bad).texts == HOSTILE
    assert [*json.loads(Tags(bad).data)["words"].values()] == HOSTILE


def test_columns_of_edits():
    assert changes_of(record_frames(EDITED)) == [[(0, 3), (2, GONE)], [(1, 5)], [(0, 4), (3, 3)]]


def test_masks_that_are_forced_at_the_end_come_after_the_others():
    late = Trajectory([(1.0, [MASK]), (9.0, [3]), (9.0, [3, MASK]), (9.0, [3, 4])], [1.0, 9.0], [9.0, 9.5])
    assert changes_of(record_frames(late)) == [[(0, MASKED), (1, 3)], [(2, MASKED), (3, 4)]]


def test_long_generations_are_thinned_and_keep_both_ends():
    n = 300
    long = Trajectory([(float(k), [3] * k) for k in range(n + 1)], [float(k + 1) for k in range(n)], [0.0] * n)
    track = record_frames(long, most=50)
    assert len(track.frames) == 50 and track.frames[0] == {} and len(track.frames[-1]) == n


@pytest.mark.parametrize("tokens, free", [(["1", "2"], [False, False]), (["1"] * 5, [False] * 5)])
def test_a_prompt_that_is_not_a_star_graph(tokens, free):
    with pytest.raises(ValueError, match="not a list of edges"): graph_picture(tokens, free, [[]] * len(tokens))


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if BROWSER is None: pytest.skip("no Chromium on this machine")
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser, player: Player, folder, **options):
    "The player's page, and what went wrong in it; an alert counts."
    tab, wrong = browser.new_page(**options), []
    tab.on("pageerror", lambda e: wrong.append(str(e)))
    tab.on("dialog", lambda d: (wrong.append(d.message), d.dismiss()))
    tab.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
    tab.goto(player.save(folder / "player.html").as_uri())
    return tab, wrong


@pytest.mark.slow
def test_keys_step_through_the_states(browser, tmp_path):
    tab, wrong = opened(browser, page(Vocabulary("abc"), EDITED), tmp_path)
    texts = lambda: [t for t in tab.locator("[data-token]").all_inner_texts() if t]
    tab.locator("input").focus()
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
        seen.append(texts())
    assert seen == [["a", "b"], ["a", "c", "b"], ["a", "c", "b"], ["c", "a"]] and not wrong
    assert tab.locator(".lp-said").inner_text() == "State 3 of 3, clock reading 0.90: replaced b by a."
    assert tab.locator(".lp-row").get_attribute("aria-label") == "c a"


@pytest.mark.slow
def test_play_runs_to_the_end_and_pause_stops(browser, tmp_path):
    tab, wrong = opened(browser, page(Vocabulary(HOSTILE), written_at_once(len(HOSTILE))), tmp_path)
    for _ in range(3): tab.keyboard.press("Tab")  # to Start, one back, Play
    tab.keyboard.press("Enter")
    assert tab.locator("input").input_value() == "0" and tab.locator(".lp-play").inner_text() == "Pause"
    tab.wait_for_function("document.querySelector('.lp-play').textContent === 'Play'", timeout=5000)
    assert tab.locator("input").input_value() == "2" and not wrong
    assert tab.locator("[data-token]").all_inner_texts() == HOSTILE
    tab.keyboard.press("Enter")
    tab.keyboard.press("Enter")
    tab.wait_for_timeout(900)
    assert tab.locator("input").input_value() == "0"


def test_without_script_the_last_state_is_shown_and_no_buttons(browser, tmp_path):
    tab, _ = opened(browser, page(Vocabulary("abc"), EDITED), tmp_path, java_script_enabled=False)
    assert tab.locator("[data-token]").all_inner_texts() == ["", "c", "a"] and not tab.locator(".lp-bar").is_visible()


@pytest.mark.slow
def test_two_players_on_a_page_are_independent(browser, tmp_path):
    one, two = (page(Vocabulary("abc"), EDITED) for _ in range(2))
    tab, wrong = opened(browser, Player(one.html + two.html, 4), tmp_path)
    tab.locator(".lp-first").nth(1).click()
    assert [tab.locator("input").nth(k).input_value() for k in (0, 1)] == ["3", "0"] and not wrong
