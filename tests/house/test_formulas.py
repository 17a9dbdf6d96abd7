"The page of formulas: its links lead to sections that exist, and no numbered statement of a paper is left out."
import importlib
import json
import re
from functools import cache
from pathlib import Path

import pytest

NBS = Path(__file__).parents[2] / "nbs"
TITLES = ("LoFlexMDM", "FlexMDM", "Masked diffusion: MD4 and GenMD4", "PAPL and planners", "Edit Flows")
KINDS = dict(Prop="Prop", Eq="Eq", Alg="Alg", Def="Def", Thm="Thm", Cor="Cor", Lemma="Lemma", Remark="Remark")
NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)?"
# what each paper numbers, by hand; Edit Flows counts the lines of some equations, so that some numbers do not occur
NUMBERED = {
    "LoFlexMDM": "Eq 1-98, Alg 1-4, Def 1-3, Prop 1-6, Remark 1-4",
    "FlexMDM": "Eq 1-38, Alg 1-4, Def C.1, Def C.2, Def D.1, Def D.2, Def E.1, Prop 1-5, Prop C.1, Prop C.2, Prop D.1, "
               "Prop D.2, Prop D.3, Prop D.4, Thm E.1, Lemma E.1, Lemma E.2",
    "Masked diffusion: MD4 and GenMD4": "Eq 1-33, Alg 1-3, Prop 1, Lemma 2, Prop 3",
    "PAPL and planners": "Eq 1-35, Alg 1-4, Prop 3.1, Prop 3.2, Lemma A.1, Lemma A.2, Cor A.3, Cor A.4, Def A.5, "
                         "Prop A.6, Prop A.7, Cor A.8, Cor A.9, Prop A.10, Prop A.11, Prop A.12, Cor A.13",
    "Edit Flows": "Eq 1-30, Eq 33, Eq 42, Eq 67, Eq 76, Eq 93, Eq 102, Eq 111, Eq 120-132, Thm 3.1, Lemma A.1, "
                  "Lemma A.2",
}


def each(kind: str, numbers: str) -> set[str]:
    "Labels of `1, 3–5`, an en dash for a range."
    found = set()
    for part in numbers.split(", "):
        first, _, last = part.partition("–")
        found |= {f"{kind} {n}" for n in range(int(first), int(last) + 1)} if last else {f"{kind} {first}"}
    return found


def labels(text: str) -> set[str]:
    "What the first column of a row names."
    part = rf"{NUMBER}(?:–{NUMBER})?"
    found = re.findall(rf"\b({'|'.join(KINDS)})s?\.? ({part}(?:, {part})*)", text)
    return set().union(*(each(kind, numbers) for kind, numbers in found))


def page() -> dict[str, list[list[str]]]:
    "The rows of every paper, each a list of its cells."
    found = {}
    for cell in json.loads((NBS / "formulas.ipynb").read_text())["cells"]:
        text = "".join(cell["source"])
        if not (title := re.match("## (.+)", text)): continue
        lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
        found[title[1]] = [[c.strip() for c in line.strip("|").split(" | ")] for line in lines]
    return found


@cache
def slugs(name: str) -> set[str]:
    "Anchors of a notebook's headings, as the site makes them."
    text = "\n".join("".join(c["source"]) for c in json.loads((NBS / name).read_text())["cells"]
                     if c["cell_type"] == "markdown")
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-")
            for h in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)}


ROWS = page()
LINKS = sorted({m for rows in ROWS.values() for row in rows for m in re.findall(r"\]\(([^)]+)\)", " ".join(row))})


def test_every_paper_has_its_table():
    assert tuple(ROWS) == TITLES and all(len(row) == 5 for rows in ROWS.values() for row in rows)


@pytest.mark.parametrize("title", TITLES)
def test_no_numbered_statement_is_left_out(title):
    wanted = set().union(*(each(*item.replace("-", "–").split(" ")) for item in NUMBERED[title].split(", ")))
    named = set().union(*(labels(row[0]) for row in ROWS[title]))
    assert not wanted - named, f"no row: {sorted(wanted - named)}"
    assert not {n for n in named if n.startswith(("Prop", "Thm", "Lemma", "Cor", "Def"))} - wanted


def test_every_row_links_names_its_code_and_says_what_was_found():
    for what, says, where, code, found in (row for title in TITLES for row in ROWS[title]):
        assert what and says and "](" in where and found, what
        assert "`" in code or code == "in the notebook", what
        if found.startswith("not checked"): assert ":" in found, f"{what}: not checked, and why?"


CODE = sorted({name for rows in ROWS.values() for row in rows for name in re.findall(r"`([\w.]+)`", row[3])})


def docstring_of(name: str) -> str | None:
    "Return the docstring of a dotted name below the package; None where there is no such name."
    room, module, *parts = name.split(".")
    try: found = importlib.import_module(f"loflexmdm.{room}.{module}")
    except ModuleNotFoundError: return None
    for attribute in parts: found = getattr(found, attribute, None)
    return found and found.__doc__


def test_the_code_of_every_formula_exists():
    assert not [name for name in CODE if not docstring_of(name)] and len(CODE) > 40


def broken(links: list[str]) -> list[str]:
    "Return links to notebooks or sections that are not there."
    parts = [(link, *link.partition("#")[::2]) for link in links]
    return [link for link, name, anchor in parts
            if not (NBS / name).is_file() or anchor and anchor not in slugs(name)]


def test_links_lead_to_sections(): assert not broken(LINKS)


def test_labels_are_read():
    assert labels("Prop. D.4, Eqs 25–27; Lemmas A.1, A.2") == {"Prop D.4", "Eq 25", "Eq 26", "Eq 27", "Lemma A.1",
                                                              "Lemma A.2"}
