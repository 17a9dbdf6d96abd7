"""The report of a set of molecules: counts by hand, hostile rows, every kind of file, and one line for wrong input."""
import csv
import json
import re
from html.parser import HTMLParser

import pytest
from rdkit import Chem

from loflexmdm.molecules.data import prepared
from loflexmdm.molecules.verbs import report as verb
from loflexmdm.molecules.verbs.report import scores_in
from loflexmdm.molecules.data.compounds import read_compounds
from loflexmdm.molecules.data.records import read_smiles
from loflexmdm.molecules.data.tables import as_sdf, as_smi, molecule_columns
from loflexmdm.molecules.report import cell, figures_of, histogram_svg, report
from loflexmdm.molecules.scores import metrics
from commands import call, refused, status_of

ROWS = ["CCO", "OCC", "c1ccccc1O", "C1CC", "", "CC.CC", None]
NASTY = [
    "<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "</title><b>", "C\x1b[31m", "&lt;", "<" * 5000,
]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(text)
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_counts_by_hand():
    f = figures_of(ROWS, ["Oc1ccccc1", "broken"])
    m = f.metrics
    assert (m.n, m.valid, m.unique, m.novelty) == (7, 3, 2, 0.5)
    assert m.invalid == {"syntax": 1, "empty": 1, "several components": 1, "undecodable": 1}
    assert f.scaffolds == {"c1ccccc1": 1, "": 1}
    page = report(ROWS, reference=["Oc1ccccc1"])
    for part in ("<td>7</td>", "<td>3</td>", "66.7 %", "50.0 %", "invalid: several components"): assert part in page


@pytest.mark.parametrize("text", NASTY)
def test_nothing_in_the_data_changes_the_page(text):
    plain, hostile = (Page(report(["CCO", t], title=t, reference=["CCO", t])) for t in ("C1", text))
    assert hostile.tags == plain.tags
    assert not [a for a in hostile.attributes if a.startswith("on") or a in ("src", "href")]
    assert "\x1b" not in report([text], title=text) and len(cell(text)) < 1300


def test_best_and_lowest():
    titles = lambda **options: re.findall(r"<figcaption>(.*?)</figcaption>", report(ROWS, top=1, **options))[0]
    assert titles(by="weight") == "weight 94.113<br>Oc1ccccc1"
    assert titles(by="-weight") == "weight 46.069, 2 times<br>CCO"
    assert titles(by="mine", scores={"CCO": 7.0}) == "mine 7.000, 2 times<br>CCO"


def test_no_molecule_at_all():
    page = report(["C1CC"])
    assert "invalid: syntax" in page and "<svg" not in page


@pytest.mark.parametrize("more, processes", [((), 3), (("--processes", 1), 1), (("--processes", 2), 2)])
def test_many_molecules_are_shared_by_all_cores(tmp_path, monkeypatch, more, processes):
    seen = []
    monkeypatch.setattr(prepared, "FEW", 3)
    monkeypatch.setattr(prepared.os, "sched_getaffinity", lambda _: range(3), raising=False)
    monkeypatch.setattr(verb, "report", lambda *args: seen.append(args[6]) or "")
    (tmp_path / "a.smi").write_text("CCO\nCCN\nCCC\n")
    assert call("report", tmp_path / "a.smi", *more)[0] == 0 and seen == [processes]
    (tmp_path / "few.smi").write_text("CCO\nCCN\n")
    assert call("report", tmp_path / "few.smi", *more)[0] == 0 and seen[1:] == [1 if processes == 3 else processes]


def test_bars_have_the_heights_of_the_shares():
    import numpy as np
    heights = [float(h) for h in re.findall(r'height="([\d.]+)"/>', histogram_svg(np.array([0, 0, 0, 1.0]), bins=2))]
    assert len(heights) == 2 and abs(heights[0] / heights[1] - 3) < 0.01


def test_every_kind_of_file(tmp_path):
    pair = "CCO", "Oc1ccccc1"
    rows = [dict(smiles=s, state="valid") | c for s, c in zip(pair, molecule_columns(pair))]
    (tmp_path / "a.smi").write_text(as_smi(rows))
    (tmp_path / "a.sdf").write_text(as_sdf(rows))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "a.csv").write_text("smiles\n" + "".join(r["smiles"] + "\n" for r in rows))
    for kind in ("smi", "sdf", "jsonl", "csv"):
        assert list(read_smiles(tmp_path / f"a.{kind}")) == ["CCO", "Oc1ccccc1"]
        code, out, err = call("report", tmp_path / f"a.{kind}", "--out", tmp_path / f"{kind}.html")
        assert code == 0 and "2 rows, 2 valid" in err and "<svg" in (tmp_path / f"{kind}.html").read_text()
    record = next(iter(Chem.SDMolSupplier(str(tmp_path / "a.sdf"))))
    assert record.GetProp("_Name") == "sample_1" and abs(float(record.GetProp("weight")) - 46.069) < 1e-9


def test_the_score_of_a_molecule_is_that_of_its_own_row(tmp_path):
    rows = [(f"C{'C' * i}O", str(i)) for i in range(9)]
    rows[3] = (rows[3][0] + "\nagain", "3")  # a name may follow
    rows[5] = (rows[5][0], "5.0\n(repeat 2)")
    rows[6] = (rows[6][0], "6_000")
    with open(tmp_path / "a.csv", "w", newline="") as f: csv.writer(f).writerows([("smiles", "y"), *rows])
    found = scores_in(read_compounds(tmp_path / "a.csv"), "y")
    assert found.values == {s.split()[0]: float(y) for i, (s, y) in enumerate(rows) if i not in (5, 6)}
    assert found.unreadable == 2
    assert "9 rows, 9 valid" in call("report", tmp_path / "a.csv", "--by", "y")[2]
    (tmp_path / "wide.csv").write_text("smiles,y\nCCO,1\nCCN,1,234\n")
    _, _, err = call("report", tmp_path / "wide.csv", "--by", "y")
    assert "left out: 1 more cells than the header, the first is line 3" in err and "2 rows, 1 valid" in err


def test_replicates_have_the_rule_of_training_and_a_sign_ranks_the_lowest_first(tmp_path):
    (tmp_path / "a.csv").write_text("smiles;IC50\nCCO;1,0\nOCC;10000\nCCN;5,0\nC(C)N;5,0\nCCC;\n")
    records = read_compounds(tmp_path / "a.csv")
    assert scores_in(records, "IC50").values == {"CCO": 5000.5, "CCN": 5.0}
    assert scores_in(records, "IC50", "geometric mean").values == pytest.approx({"CCO": 100.0, "CCN": 5.0})
    said = (
        "1 of 2 molecules have different values, of which the median counts; "
        "they spread by 9999 (median), at most from 1 to 10000 (CCO)"
    )
    for by, best in (("-IC50", "IC50 5.000, 2 times<br>CCN"), ("IC50", "IC50 5000.500, 2 times<br>CCO")):
        code, out, err = call("report", tmp_path / "a.csv", f"--by={by}", "--top", 1, "--force")
        assert code == 0 and said in err and best in (tmp_path / "a.html").read_text(), err
    refused(call("report", tmp_path / "a.csv", "--by", "nonsense", "--force"), "choose of qed", "columns IC50")


def test_captions_are_names_and_salts_are_said(tmp_path):
    (tmp_path / "a.csv").write_text("Compound ID,smiles,IC50\nLD-1,CCN.Cl,5\nLD-2,CCO,1\n")
    code, err = status_of("report", tmp_path / "a.csv", "--by=-IC50", "--salts", "largest")
    page = (tmp_path / "a.html").read_text()
    assert code == 0 and "by IC50, lowest first" in err and "salt removed: 1" in err and "Lowest IC50 first" in page
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert captions[:2] == ["LD-2<br>IC50 1.000<br>CCO", "LD-1<br>IC50 5.000<br>CCN"]


@pytest.mark.parametrize("text, first", [
    ("smiles,n\nx,1\ny,2\n", "the first, line 2, is 'x'"), ("smiles,n\n,1\n", "1 empty"),
    (",a,b\n0,1,2\n", "a, b; name"),
])
def test_a_file_without_molecules_is_refused_with_its_first_row(tmp_path, text, first):
    (tmp_path / "a.csv").write_text(text)
    refused(call("report", tmp_path / "a.csv"), first)


@pytest.mark.parametrize("words, part", [
    ("nowhere.smi", "no such file"), ("m.pdf", "is PDF"), ("m.csv --by fame", "choose of qed"),
    ("m.csv --out m.pdf", "must end in .html"), ("m.csv --top -1", "must not be negative"), ("empty.smi", "is empty"),
    ("m.csv --reference bad.smi", "none of its 1 entries"), ("m.csv --column x", "has the columns"),
    ("bad.jsonl", "neither a text"), ("m.csv --out nowhere/m.html", "does not exist"),
])
def test_wrong_input(tmp_path, monkeypatch, words, part):
    monkeypatch.chdir(tmp_path)
    for name, text in {"m.csv": "smiles,y\nCCO,1\n", "empty.smi": "", "bad.smi": "x\n", "m.pdf": "%PDF-1",
                       "bad.jsonl": '{"a": 1}\n'}.items(): (tmp_path / name).write_text(text)
    refused(call(f"report {words}"), part)


def test_an_analogue_stands_beside_its_lead(tmp_path):
    (tmp_path / "edited.csv").write_text("lead,smiles,name\nCOc1ccccc1,CCOc1ccccc1,a\n,CCO,b\nCCN,CCN,c\n")
    assert call("report", tmp_path / "edited.csv")[0] == 0
    page = (tmp_path / "edited.html").read_text()
    pairs = page.split("<h2>Leads and analogues</h2>")[1].split("<h2>")[0]
    assert pairs.count("<svg") == 2 and "COc1ccccc1" in pairs and "+14.03" in pairs
    assert "charge at pH 7, estimated" in pairs
    assert "Leads and analogues" not in report(["CCO"], leads={"CCO": "CCO"})


def test_no_molecule_is_parsed_or_scored_twice(monkeypatch):
    "The figures are those of `molecule_metrics` and `properties`, which parse texts, from one parse and one score."
    texts, known = [*ROWS, "CCO", "OCC"], ["Oc1ccccc1", "broken"]
    whole, table = metrics.molecule_metrics(texts, known), metrics.properties([*dict.fromkeys(texts)])
    read, scored, judge, score = [], [], metrics._judge, metrics._scores_and_parts
    monkeypatch.setattr(metrics, "_judge", lambda t: isinstance(t, str) and read.append(t) or judge(t))
    monkeypatch.setattr(metrics, "_scores_and_parts", lambda mol: scored.append(mol) or score(mol))
    f = figures_of(texts, known)
    assert f.metrics == whole and read == [t for t in (*texts, *known) if t is not None]
    assert len(scored) == whole.unique + 1  # of the reference
    place = [*dict.fromkeys(texts)].index
    places = [place("CCO"), place("c1ccccc1O")]
    for name, values in f.values.items(): assert values.tolist() == [table[name][i] for i in places]
