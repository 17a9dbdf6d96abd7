"Records of molecules: no record of an SDF is lost, names and properties are columns."
import gzip
import random
from pathlib import Path

import pytest
from rdkit import Chem

from loflexmdm.molecules.data.compounds import read_compounds
from loflexmdm.molecules.data.records import molecule_records, read_smiles, smiles_and_texts
from loflexmdm.molecules.data.tables import as_sdf
from loflexmdm.support.records import LeftOut, read_records

CASES = Path(__file__).parents[3] / "shared" / "cases"
SMILES = ["CCO", "CCN", "CCCl", "C[C@H](N)c1ccccc1", "[NH4+]", "c1ccc2[nH]ccc2c1"]


def block(smiles, name=""):
    "A molecule's part of an SDF record."
    mol = Chem.MolFromSmiles(smiles)
    mol.SetProp("_Name", name)
    return Chem.MolToMolBlock(mol)


PROPERTIES = [
    "", "> <a>\n1\n\n", "> <a>\n1\n", ">  <>\n2\n\n", "> <a>\n1\n> <b c> (3)\ntwo\nlines\n\n", "> <b c>\n\n\n",
]


@pytest.mark.parametrize("seed", range(40))
def test_no_record_of_an_sdf_is_lost(tmp_path, seed):
    "Out of specification too: no blank line before the end, properties without a name, no molecule."
    rng = random.Random(seed)
    chosen = [rng.choice([*SMILES, ""]) for _ in range(rng.randrange(1, 9))]
    parts = [block(s, f"m{i}") if s else "bad\n\n\n  1  0\nM  END\n" for i, s in enumerate(chosen)]
    text = "".join(part + rng.choice(PROPERTIES) + "$$$$\n" for part in parts)
    path = tmp_path / rng.choice(["a.sdf", "a.sdf.gz", "a.txt", "a.mol"])
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    found = molecule_records(path)
    assert [r.text for r in found] == [Chem.CanonSmiles(s) for s in chosen if s]
    assert found.left_out["unparsable"] == chosen.count("")
    assert found.kept + found.left_out.total() == len(chosen)
    assert [r.number for r in found.every()] == list(range(1, len(chosen) + 1))


def test_properties_of_an_sdf_are_columns(tmp_path):
    rows = [dict(smiles=s, state="valid", score=i + .5) for i, s in enumerate(SMILES)]
    (tmp_path / "a.sdf").write_text(as_sdf(rows))
    found = molecule_records(tmp_path / "a.sdf")
    assert found.names[:2] == ("smiles", "name") and found.values("score") == [f"{i}.5" for i in range(6)]
    assert found.values("name") == [f"sample_{i}" for i in range(1, 7)]
    assert list(read_smiles(tmp_path / "a.sdf")) == [Chem.CanonSmiles(s) for s in SMILES]
    assert list(smiles_and_texts(tmp_path / "a.sdf", "", "score"))[1] == ("CCN", "1.5")
    with pytest.raises(ValueError, match="column='pIC50'.*score"): smiles_and_texts(tmp_path / "a.sdf", "", "pIC50")


def test_names_and_extensions_of_lines(tmp_path):
    (tmp_path / "a.smi").write_text("smiles id\nCc1ccccc1 |$_R1$| m1\nC[C@H](O)CC |&1:1|\tm2 or so\nCCO\n\nC|C x\n")
    found = molecule_records(tmp_path / "a.smi")
    assert [r.text for r in found] == ["Cc1ccccc1", "C[C@H](O)CC", "CCO", "C|C"]
    assert found.values("name") == ["m1", "m2 or so", "", "x"]
    assert found.left_out == {"header": 1, "empty": 1}
    assert "extensions of CXSMILES left out: 2, such as |$_R1$|" in found.line()


@pytest.mark.parametrize("text, expected", [
    (",smiles,pIC50\n0,CCO,5.1\n1,CCN,6.2\n", ["CCO", "CCN"]), ("smiles,pIC50,\nCCO,5.1,\nCCN,6.2,\n", ["CCO", "CCN"]),
    ("Smiles;pIC50\nCCO;5,00\nCCN;5,01\n", ["CCO", "CCN"]), ("sep=;\nSmiles;pIC50\nCCO;5,0\n", ["CCO"]),
    ("smiles\tpIC50\nCCO\t5\n", ["CCO"]), ("smiles,n\nCCO |$_R1$|,1\nNA,2\n CCN ,3\n", ["CCO", "", "CCN"]),
])
def test_tables_of_spreadsheets(tmp_path, text, expected):
    (tmp_path / "a.csv").write_text(text)
    assert list(read_smiles(tmp_path / "a.csv")) == expected


def test_values_and_reasons_by_row(tmp_path):
    (tmp_path / "a.csv").write_text('smiles;v\nCCO;1,5\n;2\nCCN;>7,0\nCCC;1;2\nC;\n')
    rows = list(smiles_and_texts(tmp_path / "a.csv", "", "v"))
    assert [v for s, v in rows if isinstance(s, str)] == ["1.5", ">7,0", ""]
    assert [s.reason for s, _ in rows if isinstance(s, LeftOut)] == ["empty", "more cells than the header"]


def test_a_header_that_is_a_molecule_is_no_header(tmp_path):
    (tmp_path / "a.csv").write_text("CCO\nCCN\n")
    message = "its header 'CCO' is a molecule; write a header"
    with pytest.raises(ValueError, match=message): read_smiles(tmp_path / "a.csv")


@pytest.mark.parametrize("text, column, format, smiles", [
    ("CCO,n\nCCN,1\n", "CCO", "auto", ["CCN"]), ("CO\nCCN\n", "", "table", ["CCN"]),
    ("smiles\nCCN\n", "", "auto", ["CCN"]),
    ("text\nCCN\n", "", "auto", ["CCN"]), ('{"CCO": "CCN"}\n', "", "json lines", ["CCN"]),
    ("CCO\nCCN\n", "", "lines", ["CCO", "CCN"]),
])
def test_headers_that_are_asked_for_short_or_no_molecule_are_headers(tmp_path, text, column, format, smiles):
    (tmp_path / "a.csv").write_text(text)
    assert [row.text for row in molecule_records(tmp_path / "a.csv", column, format)] == smiles


def test_a_short_header_of_three_letters_is_a_molecule(tmp_path):
    (tmp_path / "a.csv").write_text("CCN\nCCO\n")
    with pytest.raises(ValueError, match="'CCN' is a molecule"): molecule_records(tmp_path / "a.csv", "", "table")


def test_frames_and_lists():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(dict(n=[1, 2, 3], smiles=["CCO ", None, "CCN"]))
    for source in (frame, ["CCO", "CCN"]): assert [r.text for r in molecule_records(source)] == ["CCO", "CCN"]


@pytest.mark.skipif(not CASES.is_dir(), reason="needs the cases of users")
@pytest.mark.parametrize("name, first, names, kept", [
    ("sdf_no_blank_before_end.sdf", "CCO", ("smiles", "name", "a"), 5),
    ("sdf_empty_property_name.sdf", "CCO", ("smiles", "name"), 5), ("cxsmiles.smi", "Cc1ccccc1", ("smiles", "name"), 2),
    ("leads_mixed.smi", "CC(=O)Nc1ccc(O)cc1.Cl", ("smiles", "name"), 11), ("pandas_index.csv", "CCO", None, 3),
    ("excel_semicolon_comma.csv", "CCOc1ccsc1", ("Smiles", "pIC50"), 5), ("relations.csv", "CCOc1ccsc1", None, 19),
])
def test_cases_of_users(name, first, names, kept):
    found = molecule_records(CASES / name)
    assert (found.rows[0].text, len(found.rows), found.left_out) == (first, kept, {})
    assert names is None or found.names == names


HEAD = "  RDKit\n\n  1  0  0  0  0  0  0  0  0  0999 V2000\n"
ENCODED = {
    "a.csv": "Name;SMILES;Aktivität µM\nMüller-1;CCO;5,1\nÖl;CCN;6,1\n", "a.smi": "CCO Müller-1\nCCN Öl\n",
    "a.txt": "Name\tSMILES\tAktivität µM\nMüller-1\tCCO\t5.1\nÖl\tCCN\t6.1\n",
    "a.jsonl": '{"smiles": "CCO", "name": "Müller-1", "Aktivität µM": 5.1}\n{"smiles": "CCN", "name": "Öl"}\n',
    "a.sdf": "".join(f"{name}\n{HEAD}    0.0000    0.0000    0.0000 {atom}   0  0\nM  END\n"
                     "> <Aktivität µM>\n5\n\n$$$$\n" for name, atom in (("Müller-1", "O"), ("Öl", "N"))),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "windows-1252"])
@pytest.mark.parametrize("name", ENCODED)
def test_names_and_headers_are_read_in_every_encoding(tmp_path, name, encoding):
    (tmp_path / name).write_bytes(ENCODED[name].encode(encoding))
    found = read_compounds(tmp_path / name)
    assert [row.cell(found.name) for row in found.rows] == ["Müller-1", "Öl"] and all(found.smiles)
    if name != "a.smi": assert "Aktivität µM" in found.columns
    if not encoding.startswith("utf-8"): assert f"{encoding})" in found.remarks[0]


def test_a_late_byte_of_windows_is_read_and_texts_are_refused_with_a_cure(tmp_path):
    (tmp_path / "a.smi").write_bytes(b"CCO x\n" * 60_000 + "CCN Öl\n".encode("windows-1252"))
    *_, (last, name) = (record.cells for record in molecule_records(tmp_path / "a.smi"))
    assert (last, name) == ("CCN", "Öl")
    (tmp_path / "a.txt").write_bytes("Müller geht\n".encode("latin-1"))
    with pytest.raises(ValueError, match="line 1: not a text file in UTF-8.*iconv -f windows-1252 -t utf-8"):
        list(read_records(tmp_path / "a.txt"))


@pytest.mark.parametrize("name", ENCODED)
def test_utf16_without_a_mark_is_refused_with_a_cure(tmp_path, name):
    (tmp_path / name).write_bytes(ENCODED[name].encode("utf-16-le"))
    with pytest.raises(ValueError, match="save it as UTF-8|not an SDF"): read_compounds(tmp_path / name)


@pytest.mark.parametrize("above", ["", "\ufeff", "# export of Monday\n", "\ufeff# export of Monday\n", "export\n\n"])
@pytest.mark.parametrize("name", ["Canonical SMILES ", "canonical_smiles", "Smiles", "SMILES"])
@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_a_title_above_a_usual_name_is_left_out(tmp_path, above, name, delimiter):
    cells = [["Compound ID", name, "pIC50 (nM)"], ["A-1 x", "CCO", "5,1"], ["A-2 x", "CC(=O)[O-].[Na+]", "n/a"]]
    if delimiter == ",": cells[1][2] = "5.1"
    path = tmp_path / "a.csv"
    path.write_text(above + "\n".join(map(delimiter.join, cells)) + "\n")
    assert [record.text for record in molecule_records(path)] == ["CCO", "CC(=O)[O-].[Na+]"]
