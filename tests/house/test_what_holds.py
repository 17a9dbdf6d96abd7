"The page of the papers' claims: every row has a verdict, its links lead to sections that exist, and all are counted."
import json
import re
from collections import Counter

from house.test_formulas import NBS, TITLES, broken

VERDICTS = ("reproduced", "refuted here", "tie", "not tested")


def tables() -> list[list[list[str]]]:
    "The tables among the kept outputs, each a list of rows of cells, without their heads."
    cells = json.loads((NBS / "what_holds.ipynb").read_text())["cells"]
    shown = ["".join(o["data"].get("text/markdown", "")) for c in cells for o in c.get("outputs", []) if "data" in o]
    return [[re.split(r"(?<!\\) \| ", line.strip("| ")) for line in text.splitlines()[2:]] for text in shown if text]


*PAPERS, NUMBERS = tables()
ROWS = [row for paper in PAPERS for row in paper]
LINKS = sorted({link for row in ROWS for link in re.findall(r"\]\(([^)]+)\)", row[4])})


def test_every_paper_has_claims_with_a_verdict():
    assert len(PAPERS) == len(TITLES)
    assert all(len(row) == 6 and all(row) and row[3] in VERDICTS for row in ROWS)
    assert 25 <= len(ROWS) <= 50


def test_the_numbers_count_the_rows():
    counted = [[sum(row[3] == v for row in paper) for v in VERDICTS] + [len(paper)] for paper in [*PAPERS, ROWS]]
    assert [list(map(int, row[1:])) for row in NUMBERS] == counted


def test_a_claim_stands_once():
    assert not [claim for claim, n in Counter(row[0] for row in ROWS).items() if n > 1]


def test_links_lead_to_sections(): assert not broken(LINKS)


def test_every_row_has_a_command_whose_file_exists():
    named = {name for row in ROWS for name in re.findall(r"(experiments/\S+\.py|nbs/\S+\.ipynb)", row[5])}
    assert all(re.search(r"`(python experiments|nbdev-test --path nbs)/", row[5]) for row in ROWS)
    assert [name for name in named if not (NBS.parent / name).exists()] == []
