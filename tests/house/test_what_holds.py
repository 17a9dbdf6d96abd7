"The page of the papers' claims: every row has a verdict, its links lead to sections that exist, and all are counted."
import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

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


def commands() -> list[str]:
    "The commands of the rows, each once, and those of a loop for each of its words."
    found = dict.fromkeys(line for row in ROWS for part in row[5].split("; `") for line in [part.strip("`")])
    for line in list(found):
        if loop := re.fullmatch(r"for c in (.+); do (.+); done", line):
            del found[line]
            found |= dict.fromkeys(loop[2].replace("$c", word) for word in loop[1].split())
    return list(found)


def test_every_row_has_a_command_whose_file_exists():
    assert all(re.fullmatch(r"(`[^`]+`)(; `[^`]+`)*", row[5]) for row in ROWS)
    named = [re.match(r"(?:python|nbdev-test|loflexmdm train) (\S+)", line) for line in commands()]
    assert all(named) and [m[1] for m in named if not (NBS.parent / m[1]).exists()] == []


@pytest.mark.slow
def test_the_commands_are_accepted(monkeypatch, capsys):
    monkeypatch.syspath_prepend(NBS.parent / "experiments")
    for script, *words in [line.split()[1:] for line in commands() if line.startswith("python ")]:
        main = importlib.import_module(Path(script).stem).main
        monkeypatch.setattr(sys, "argv", [script, *words, "--help"])  # read after the words before it
        with pytest.raises(SystemExit) as stopped: main()
        assert stopped.value.code == 0, capsys.readouterr().err
