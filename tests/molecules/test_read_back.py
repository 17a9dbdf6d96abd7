"What is written is read back: the same rows, names and properties in every format, or the writer says what it changed."
import random
import warnings

import pytest

from loflexmdm.molecules.data.compounds import read_compounds
from loflexmdm.molecules.data.records import molecule_records
from loflexmdm.molecules.data.tables import LIBRARY_WRITERS
from loflexmdm.support.table_writers import TABLE_WRITERS
from loflexmdm.support.writers import write_texts

SMILES = ["CCO", "c1ccccc1", "C[C@H](N)C(=O)O", "[NH4+]", "CC(C)=O"]
ODD = [
    "plain", "two words", "one\ntwo", "one\r\ntwo", "one\rtwo", "one\n\ntwo", "\nbefore", "after\n", "one\n  \ntwo",
    "\n", "=1+1", "+1", "-5", "@x", "'quoted", '"quoted"', 'a "b" c', "a,b", "a;b", "a\tb", "a|b", "|a|", "| b",
    "sep=;", "007", "1e5", "TRUE", "NA", "nan", "None", "#N/A", "#comment", "> a quotation", "><b>", "> <c>",
    "$$$$", "M  END",
    "caf\u00e9", "cafe\u0301", "\u4e2d\u6587", "\U0001f9ea", "a\u2028b", "a\x85b", "a\x0bb", "a\x00b", "a\x1bb",
    "\ud800", "_x000D_", "{\"a\": 1}", "[1, 2]", "C1CC", "smiles", "name", "id", "x" * 40_000, "\\n", "%s",
    "<b>&amp;</b>",
]


def read_back(path, rows, column):
    "Write rows and read them: names and notes as they come back, and what was said."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ending = "".join(path.suffixes)
        data = LIBRARY_WRITERS[ending](rows)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    found = read_compounds(path, column)
    return found, [str(w.message) for w in said]


@pytest.mark.parametrize("ending", LIBRARY_WRITERS)
@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:20])
def test_names_and_properties_come_back_or_are_said(tmp_path, ending, text):
    of_lines = ending == ".smi"
    rows = [dict(name=name, smiles=s, note=note, score=i + .5) for i, (s, name, note) in enumerate(zip(
        SMILES, ["first", text, "", "last", text], ["", text, "b", text, ""]))]
    wanted = [row["name"] or "sample_3" * (ending in (".smi", ".sdf", ".sdf.gz")) for row in rows]
    found, said = read_back(tmp_path / f"a{ending}", rows, "" if of_lines or "sdf" in ending else "smiles")
    assert [row.smiles for row in found.rows] == [row["smiles"] for row in rows]
    strip = (lambda t: t.strip()) if of_lines or "sdf" in ending else (lambda t: t)
    names = [strip(row.cell("name")) for row in found.rows]
    assert names[0::2][0] == "first" and names[3] == "last" and [i for i, n in enumerate(names) if n] == [
        i for i, n in enumerate(wanted) if n] or said
    same = names == wanted
    if not of_lines:
        notes, numbers = [row.cell("note") for row in found.rows], found.numbers("score")
        assert numbers == [i + .5 for i in range(5)]
        same = same and notes == [row["note"] for row in rows]
    assert same == (not said) or text == "M  END", (said, names)  # its space goes when a title is read


@pytest.mark.parametrize("ending", [e for e in LIBRARY_WRITERS if e != ".smi"])
@pytest.mark.parametrize("key", [
    "p IC50", " padded\n", "a<b", "a>b", "<c>", "k\nl", "_hidden", "caf\u00e9", "=x", "a,b", "a|b",
])
def test_names_of_properties_come_back_or_are_said(tmp_path, ending, key):
    rows = [{"name": f"m{i}", "smiles": s, key: f"v{i}"} for i, s in enumerate(SMILES)]
    found, said = read_back(tmp_path / f"a{ending}", rows, "" if "sdf" in ending else "smiles")
    same = key in found.columns
    assert same == (not said) and [row.smiles for row in found.rows] == SMILES
    if same: assert [row.cell(key) for row in found.rows] == [f"v{i}" for i in range(5)]


@pytest.mark.parametrize("ending", TABLE_WRITERS)
def test_values_of_all_types_come_back(tmp_path, ending):
    values = [0, -1, 2.5, 2**53 + 1, 2**70, True, False, None, "", "0", "x", 1e-9]
    rows = [dict(smiles="CCO", mixed=v, n=v if isinstance(v, float) else None) for v in values]
    found, said = read_back(tmp_path / f"a{ending}", rows, "smiles")
    assert [row.cell("mixed") for row in found.rows] == ["" if v is None else str(v) for v in values] and not said
    assert [v for v in found.numbers("n") if v == v] == [2.5, 1e-9]


@pytest.mark.parametrize("seed", range(12))
def test_molecules_beside_names_that_look_like_a_header(tmp_path, seed):
    "The first line of a .smi is a molecule, whatever its name is."
    rng = random.Random(seed)
    names = rng.sample(["name", "id", "12", "13", "label", "A", "value", "x y"], 4)
    rows = [dict(name=name, smiles=s) for name, s in zip(names, rng.sample(["CCO", "C", "N", "c1ccccc1"], 4))]
    found, said = read_back(tmp_path / "a.smi", rows, "")
    pairs = [(row.text, row.cell("name")) for row in found.rows]
    assert pairs == [(row["smiles"], row["name"]) for row in rows] and not said


@pytest.mark.parametrize("texts, format", [
    (["id,text", "1,a", "2,b"], "table"), (['{"text": "a"}', '{"text": "b"}'], "json lines"), ([">a", "ACG"], "fasta"),
])
def test_texts_that_look_like_another_format_are_said(tmp_path, texts, format):
    with pytest.warns(UserWarning, match=f"look like {format}"): write_texts(tmp_path / "a.txt", texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_texts(tmp_path / "b.jsonl", texts)
        write_texts(tmp_path / "b.txt", ["one, two", "three"])


def test_molfiles_in_a_table_are_no_sdf(tmp_path):
    from rdkit import Chem
    lines = ["id,structure,n"]
    for i, s in enumerate(SMILES): lines.append(f'{i},"{Chem.MolToMolBlock(Chem.MolFromSmiles(s))}",{i}')
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    found = molecule_records(tmp_path / "a.csv", "structure")
    assert [record.text for record in found] == SMILES and "read from molfiles: 5" in found.about()
    with pytest.raises(ValueError, match="has the columns id, structure, n"): molecule_records(tmp_path / "a.csv")
    with_smiles = [f"{line},{s}" for line, s in zip(lines, ["smiles", *SMILES])]
    (tmp_path / "b.csv").write_text("\n".join(with_smiles) + "\n")
    assert [record.text for record in molecule_records(tmp_path / "b.csv")] == SMILES
