"Files as users have them: each is read right by every command, or refused in one line with its cure."
import json
import sys
import zipfile

import pytest

from loflexmdm.cli.common import output_path
from loflexmdm.molecules.data.compounds import read_compounds
from loflexmdm.support.readers import LEGACY
from loflexmdm.support.records import read_records
from commands import call, refused, status_of

SMILES = "CC(=O)Nc1ccc(O)cc1", "CCOC(=O)c1ccccc1", "CNC(=O)Cc1ccccc1", "CCN(CC)CC", "Cc1ccccc1O"
COMMANDS = ("report {} --out page.html --force", "evaluate {}", "edit lead-edits -n 1 --input {}",
            "sample molecules-leads -n 1 --prompts {}")


def rows(form, *more): return "".join(form.format(i, s) for i, s in enumerate(SMILES, *more))


def workbook(path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"], sheet["A2"] = "Compound data, project X", "measured in March"
    for line in "A1:C1", "A2:C2": sheet.merge_cells(line)
    for row in [(None,) * 3, ("ID", "SMILES", "IC50 (nM)"), *((f"X{i}", s, 10 * i) for i, s in enumerate(SMILES))]:
        sheet.append(row)
    book.save(path)


READ = {
    "units.csv": "Name,SMILES,IC50\n,,nM\n" + rows("X{},{},1\n"),
    "titles.csv": "Compound data\nmeasured in March,,\n\n" + "ID,SMILES,IC50\n" + rows("X{},{},1\n"),
    "comments.csv": "# a tool, version 2\n# today\nname,smiles\n" + rows("X{},{}\n"),
    "chembl.tsv": '"Molecule ChEMBL ID"\t"Smiles"\t"Standard Relation"\n' + rows("\"CHEMBL{}\"\t\"{}\"\t\"'='\"\n"),
    "chembl.csv": '"Molecule ChEMBL ID";"Smiles";"Standard Relation"\n' + rows("\"CHEMBL{}\";\"{}\";\"'='\"\n"),
    "names.smi": "".join(f"{s}\tcompound {i} (lead)\n" for i, s in enumerate(SMILES)),
    "markdown.txt": "| name | smiles |\n|---|:---|\n" + rows("| a{} | {} |\n"),
    "registry.csv": "Compound,Area,Structure,Batch\n" + rows("X{},CNS,{},B01\n"),
    "inchi.csv": 'name,InChI\nmethane,InChI=1S/CH4/h1H4\nethanol,"InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"\n',
    "legacy.csv": "name,smiles\n" + rows("Säure {},{}\n"),
    "inchi.txt": "InChI=1S/CH4/h1H4\nInChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3\n",
}
REFUSED = {
    "word.txt": "is a Word file; save it as .txt", "mol2.txt": "is a mol2 file; convert it to SDF",
    "empty.csv": "is empty, it holds no records", "empty.xlsx": "is empty, it holds no records",
    "blank.tsv": "is empty, it holds no records", "folder.csv": "folder", "picture.csv": "is a picture",
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in READ.items():
        (tmp_path / name).write_text(text, encoding=LEGACY if name == "legacy.csv" else "utf-8")
    (tmp_path / "mol2.txt").write_text("@<TRIPOS>MOLECULE\nethanol\n 3 2 1 0 0\n")
    (tmp_path / "blank.tsv").write_text("\n\n \n")
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    for name in ("empty.csv", "empty.xlsx"): (tmp_path / name).write_text("")
    (tmp_path / "folder.csv").mkdir()
    with zipfile.ZipFile(tmp_path / "word.txt", "w") as packed: packed.writestr("word/document.xml", "<w:document/>")
    return tmp_path


@pytest.mark.parametrize("name", READ)
def test_molecules_are_read(name):
    found = read_compounds(name)
    wanted = ["C", "CCO"] if "inchi" in name else list(SMILES)
    assert [row.smiles for row in found.rows if row.smiles] == wanted
    if name not in ("inchi.txt",): assert all(row.cell(found.name) for row in found.rows if row.smiles)
    assert sum(not row.smiles for row in found.rows) == (name in ("units.csv", "markdown.txt"))


def test_titles_of_a_workbook_are_skipped_and_said(place):
    workbook(place / "merged.xlsx")
    found = read_compounds("merged.xlsx")
    assert found.smiles == list(SMILES) and found.columns == ("ID", "IC50 (nM)")
    assert "3 lines above the header left out" in found.remarks[0]
    assert "3 lines above the header left out" in read_compounds("titles.csv").remarks[0]


@pytest.mark.parametrize("text, names", [
    (",smiles\n0,CCO\n", ("", "smiles")), ("smiles\nCCO\nCCN\n", ("smiles",)), ("text,\na,\nb,\n", ("text", "")),
    ("a b\nid,text\n1,c d\n", ("id", "text")), ("one,two\nthree,four\n", ("one", "two")),
])
def test_headers_are_not_taken_for_titles(place, text, names):
    (place / "a.csv").write_text(text)
    assert read_records("a.csv", names[-1] or names[0]).names == names


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["titles.csv", "inchi.csv", "chembl.tsv", "legacy.csv"])
def test_commands_read_them(command, name): assert call(command.format(name))[0] == 0


@pytest.mark.parametrize("command", [*COMMANDS, "train {} --out run"])
@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_with_a_cure(command, name):
    code, out, said = call(command.format(name))
    is_model = name == "folder.csv" and command[:5] in ("evalu", "train")  # which a folder may be
    assert (code, out) == (2, "") and said.splitlines()[-1].startswith("loflexmdm: ")
    assert ("no saved model" if is_model else REFUSED[name]) in said.splitlines()[-1], said


def test_nested_json_has_columns_with_dots(place):
    lines = [dict(id=i, message=dict(role="user", content=f"number {i}"), tags=["a"]) for i in range(3)]
    (place / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns = "id, message.role, message.content, tags"
    refused(call("train a.jsonl --out run"), f"has the columns {columns}; name one of them")
    assert [r.text for r in read_records("a.jsonl", "message.content")] == ["number 0", "number 1", "number 2"]
    (place / "b.json").write_text(json.dumps([{"a": {"b.c": "x"}}, {"a.b.c": "y"}, {"a": {}}]))
    found = read_records("b.json", "a.b.c")
    assert [r.text for r in found] == ["x", "y"] and found.left_out == {"without the column": 1}


def test_colour_codes_of_logs_are_removed_and_said(place):
    (place / "a.log").write_text("\x1b[32mINFO\x1b[0m web up\n\x1b[1;31mERROR\x1b[0m db\nplain\n")
    found = read_records("a.log")
    assert [r.text for r in found] == ["INFO web up", "ERROR db", "plain"]
    assert "colour codes of a terminal are removed from 2 texts" in found.line()


def test_a_class_that_is_also_a_smiles_is_no_column_of_molecules(place):
    (place / "areas.csv").write_text("Compound,Area\nx,CNS\ny,CNS\nz,CNS\n")
    refused(call("report areas.csv --out page.html"), "columns Compound, Area; name one of them")


def test_a_table_trains_a_model_of_molecules_further(place):
    tiny = "--steps 2 --batch-size 2 --valid-size 2 --valid-samples 2 --device cpu"
    table = "Compound,Structure\n" + "".join(f"X{i},{'C' * i}c1ccccc1.Cl\n" for i in range(12))
    (place / "leads.csv").write_text(table)
    code, said = status_of(f"train leads.csv --start-from molecules-leads --salts largest {tiny} --out tuned")
    assert code == 0 and "weights: those of molecules-leads (leads.csv is a file)" in said, said
    assert "12 records, 12 kept; salt removed: 12" in said
    assert json.loads((place / "tuned/run.json").read_text())["recipe"]["task"]["kind"] == "molecules"


def test_texts_that_are_smiles_are_said_to_be(place):
    said = {
        name: status_of(f"train registry.csv --column {name} --steps 1 --batch-size 2 --device cpu --out {name}")[1]
        for name in ("Structure", "Compound")
    }
    hint = "`loflexmdm train registry.csv --start-from molecules-leads` trains on molecules"
    assert hint in said["Structure"] and "SMILES" not in said["Compound"]


def test_weights_that_do_not_fit_leave_no_folder(place):
    line = "train registry.csv --column Compound --unit characters --start-from star-tiny --out run"
    code, said = status_of(line)
    assert code == 2 and "vocabulary differs" in said.splitlines()[-1]
    assert not (place / "run").exists()


def test_excel_without_its_package_is_refused_before_the_work(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"pip install 'loflexmdm\[excel\]'"): output_path("a.xlsx", (".xlsx",))
