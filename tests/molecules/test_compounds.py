"Compounds of files: names, other columns and one rule for salts in every command of molecules."
import csv
import gzip
import time

import pytest

from loflexmdm.molecules.data.cleaning import small_splits
from loflexmdm.molecules.data.compounds import name_column, read_compounds, standard, without_counterions
from loflexmdm.molecules.data.tables import LIBRARY_WRITERS, as_sdf, as_smi
from loflexmdm.molecules.task import MoleculesConfig, MoleculesTask
from loflexmdm.support.table_writers import output_ending
from loflexmdm.tasks.base import SPLITS
from loflexmdm.tasks.inputs import InputRow, TaskInputs
from commands import call, refused

MIXED = """CC(=O)Nc1ccc(O)cc1.Cl lead1
C[C@H](N)c1ccccc1 lead2
OC(=O)C(F)(F)F.C[C@@H](NC)Cc1ccccc1 l3
[2H]C([2H])([2H])Oc1ccccc1 l4
CC[N+](C)(C)Cc1ccccc1.[Br-] l5
Cc1ccccc1 |$_R1$| l8
*c1ccccc1 l9
[CH3:1][C:2](=O)[NH:3]c1ccccc1 l10
"""
TABLE = "Compound ID;SMILES;pIC50\nLD-1;C[C@H](N)c1ccc(F)cc1.Cl;6,5\nLD-2;CC(=O)Nc1ccccc1;>7\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.smi").write_text(MIXED)
    (tmp_path / "leads.csv").write_text(TABLE)
    return tmp_path


def test_every_record_is_kept_or_has_a_reason():
    found = read_compounds("mixed.smi", salts="largest")
    assert [row.cell("name") for row in found.rows] == ["lead1", "lead2", "l3", "l4", "l5", "l8", "l9", "l10"]
    assert [row.smiles for row in found.rows] == [
        "CC(=O)Nc1ccc(O)cc1", "C[C@H](N)c1ccccc1", "CN[C@H](C)Cc1ccccc1", "[2H]C([2H])([2H])Oc1ccccc1",
        "CC[N+](C)(C)Cc1ccccc1", "Cc1ccccc1", "", "CC(=O)Nc1ccccc1",
    ]
    said = "\n".join(found.remarks)
    for part in ("8 records, 7 kept", "1 open attachment point", "salt removed: 3", "isotopes kept: 1",
                 "atom map removed: 1", "CXSMILES left out: 1"): assert part in said
    refused = read_compounds("mixed.smi").remarks
    assert any("3 several components" in line and "--salts largest" in line for line in refused)


def test_a_table_has_names_and_numbers():
    found = read_compounds("leads.csv", salts="largest")
    assert (found.name, found.columns) == ("Compound ID", ("Compound ID", "pIC50"))
    assert found.numbers("pIC50") == [6.5, None]
    with pytest.raises(ValueError, match="IC50: leads.csv has the columns SMILES, Compound ID, pIC50"):
        found.numbers("IC50")


@pytest.mark.parametrize("text, smiles", [
    ("CCO.[Na+].[Cl-]", "CCO"), ("[Na+].[Cl-]", ""), ("C[CH2:7]O", "CCO"), ("", ""), (None, ""), ("C1CC.Cl", ""),
])
def test_one_rule_for_the_molecule_of_a_text(text, smiles):
    found = standard(text, "largest")
    assert found.smiles == smiles and bool(found.reason) != bool(smiles)


def test_counterions_of_fragments():
    assert without_counterions("*CC.*c1ccccc1.Br") == "*CC.*c1ccccc1"
    assert without_counterions("CC(...)C") == "CC(...)C" and name_column(["x"]) == ""


@pytest.mark.parametrize("ending", LIBRARY_WRITERS)
def test_edited_leads_keep_their_names_in_every_format(place, ending):
    assert call(f"edit lead-edits --input leads.csv --salts largest -n 2 --out a{ending}")[0] == 0
    made = read_compounds(f"a{ending}", "" if ending in (".smi", ".sdf", ".sdf.gz") else "smiles")
    names = {row.cell(made.name or "name")[:4] for row in made.rows if row.smiles}
    assert names and names <= {"LD-1", "LD-2"}
    if ending != ".smi": assert {row.cell("input_pIC50").strip() for row in made.rows if row.smiles} <= {"6,5", ">7"}
    assert output_ending(f"a{ending}") == ending


def test_rows_of_edits_have_the_columns_of_their_leads():
    code, out, said = call("edit lead-edits --input leads.csv -n 1")
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0 and [row["Compound ID"] for row in rows] == ["LD-1", "LD-2"] and rows[1]["input_pIC50"] == ">7"
    assert "several components" in rows[0]["state"] and "--salts largest" in said


def test_edits_of_texts_have_no_molecules(place):
    (place / "a.txt").write_text("see you later\n")
    assert TaskInputs().sequences(place / "a.txt").rows == [InputRow(1, "see you later")]
    refused(call("edit repair-text --input a.txt --out a.sdf"), "--out a.sdf: must end in")
    refused(call("edit repair-text --input a.txt --salts largest"), "unknown argument --salts")


@pytest.mark.slow
def test_the_best_of_a_search_name_their_leads():
    line = "optimize --objective qed --way ranked --start leads.csv --salts largest --budget 12 --children 6"
    code, out, _ = call(line)
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0 and {row["lead"] for row in rows} == {"LD-1", "LD-2"}
    start = {row["smiles"]: row for row in rows if row["by"] == "start"}
    assert start["C[C@H](N)c1ccc(F)cc1"]["Compound ID"] == "LD-1" and start["CC(=O)Nc1ccccc1"]["pIC50"] == ">7"
    assert call(f"{line} --best best.sdf.gz")[0] == 0
    assert gzip.open("best.sdf.gz").read().count(b"$$$$") == len(rows)


def test_a_file_is_evaluated_with_its_salts():
    code, out, _ = call("evaluate mixed.smi --salts largest")
    assert code == 0 and "several components" not in out
    assert "several components" in call("evaluate mixed.smi")[1]


def test_a_pasted_salt_gets_its_cure():
    answer = call("sample molecules-leads -n 1 --fragment C[C@H](N)c1ccccc1.Cl")
    refused(answer, "Cl is a counterion", "--salts largest")
    code, out, _ = call("sample molecules-leads -n 2 --salts largest --fragment *c1ccc(CN)cc1.Cl")
    assert code == 0 and len(out.splitlines()) == 2


def test_thirty_leads_have_all_splits(place):
    smiles = [f"{'C' * k}c1ccccc1" for k in range(1, 31)]
    (place / "thirty.smi").write_text("\n".join(smiles))
    task = MoleculesTask(MoleculesConfig(source="thirty.smi"))
    assert set(small_splits(smiles, 0.05, 0.05).values()) <= {"valid", "test"}
    assert all(len(task.texts(split)) >= 1 for split in SPLITS)
    assert sum(len(task.texts(split)) for split in SPLITS) == 30


def test_names_are_titles_and_attempts_are_numbered():
    rows = [dict(name="m1", attempt=2, smiles="CCO", state="valid"), dict(name="m2", attempt=1, smiles="", state="x")]
    assert as_smi(rows) == "CCO\tm1-2\n" and as_smi([dict(smiles="CCO", state="valid")]) == "CCO\tsample_1\n"


def test_conditions_are_asked_for_by_name(place):
    settings = dict(tokens="C O <pIC50:1> <pIC50:2> <pIC50:3> <any>", condition="pIC50", bounds="5.5 7", source="a.csv")
    task = MoleculesTask(MoleculesConfig(**settings))
    asked = {"pIC50=low": 1, "pic50=High": 3, "pIC50 = medium": 2, "pIC50=4": 1, "pIC50=5.5": 2, "pIC50=9": 3}
    assert {text: task.condition(text) for text in asked} == {text: f"<pIC50:{k}>" for text, k in asked.items()}
    assert task.condition("pIC50=any") == "<any>"
    for wrong in ("IC50=high", "pIC50", "pIC50=huge", "pIC50=nan"):
        with pytest.raises(ValueError, match="pIC50"): task.condition(wrong)
    refused(call("sample molecules-leads -n 1 --ask pIC50=high"), "--ask pIC50=high: the model has no conditions")
    refused(call("sample star-tiny -n 1 --ask pIC50=high"), "--ask pIC50=high: the task")


@pytest.mark.parametrize("write, ending", [(as_smi, ".smi"), (as_sdf, ".sdf")])
def test_spaces_around_names_are_left_out_and_said(write, ending, tmp_path):
    rows = [dict(name=' "b" c', smiles="CCO"), dict(name="d", smiles="CCN")]
    with pytest.warns(UserWarning, match=r"spaces around names are left out \(1 texts\)"): text = write(rows)
    (tmp_path / f"a{ending}").write_text(text)
    assert [row.cell("name") for row in read_compounds(tmp_path / f"a{ending}").rows] == ['"b" c', "d"]


def test_a_table_whose_cells_are_all_blank_has_no_molecule(tmp_path):
    (tmp_path / "a.csv").write_text(",,\n,,\n")
    with pytest.raises(ValueError, match="a.csv"): read_compounds(tmp_path / "a.csv")


def test_long_molecules_are_read_once_and_a_file_of_many_is_refused(tmp_path):
    "A packed file may hold thousands of molecules of thousands of atoms, each of which takes RDKit seconds."
    place = tmp_path / "long.csv"
    place.write_text("smiles\n" + ("C" * 1500 + "\n") * 400)
    begun = time.process_time()
    assert len(read_compounds(place).rows) == 400 and time.process_time() - begun < 5
    place.write_text("smiles\n" + "".join("C" * (14_000 + i) + "\n" for i in range(60)))
    with pytest.raises(ValueError, match="seconds for its long molecules.*LOFLEXMDM_MAX_READING"): read_compounds(place)
