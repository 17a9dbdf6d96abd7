"Sources, cleaning, splits and cache of molecules: files as users have them, processes that are killed, streams."
import csv
import gzip
import hashlib
import importlib
import json
import os
import signal
import sys
from collections import Counter
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from loflexmdm.molecules.data import prepared as molecule_data
from loflexmdm.molecules.data import sources
from loflexmdm.molecules.data.cleaning import ELEMENTS, REJECT_REASONS, Cleaning, clean, clean_chunk
from loflexmdm.molecules.data.cleaning import molecule_split
from loflexmdm.molecules.data.prepared import CACHE_VERSION, CHUNK_ROWS, build_molecules, clean_rows
from loflexmdm.molecules.data.prepared import cache_directory, prepare, processes_for
from loflexmdm.molecules.data.sources import HUB_ROWS, SOURCES, embedded_smiles
from loflexmdm.molecules.data.records import read_smiles, smiles_and_texts
from loflexmdm.molecules.data.sources import hub_smiles
from loflexmdm.support.records import LeftOut
from loflexmdm.molecules.notation import bracket_safe
from loflexmdm.molecules.notation.bracket_safe import from_bracket_safe

DATA = Path(__file__).parents[3] / "shared" / "data"
SMILES = list(islice(embedded_smiles("nci"), 300))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def smi(path, smiles=SMILES):
    path.write_text("\n".join(smiles) + "\n")
    return path


# files

@pytest.mark.parametrize("ending", [".smi", ".txt", ".smi.gz", ".TXT.GZ"])
@pytest.mark.parametrize("line", ["{}", "{} name", "{}\tname with words", "  {}  "])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines(tmp_path, ending, line, newline):
    text = newline.join(line.format(s) for s in SMILES[:5]).encode()
    path = tmp_path / f"data.v2{ending}"
    path.write_bytes(gzip.compress(text) if ending.lower().endswith(".gz") else text)
    assert list(read_smiles(path)) == SMILES[:5]


@pytest.mark.parametrize("kind, tab", [("csv", ","), ("tsv", "\t")])
def test_tables(tmp_path, kind, tab):
    path = tmp_path / f"data.{kind}"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + "".join(
            f'"{i}"{tab}"{s}"{tab}"a ""note"""\r\n' for i, s in [("id", "Canonical_SMILES"), *enumerate(SMILES[:5])]
        ).encode()
    )
    assert list(read_smiles(path)) == list(read_smiles(path, "Canonical_SMILES")) == SMILES[:5]
    assert list(read_smiles(path, "id")) == ["0", "1", "2", "3", "4"]
    with pytest.raises(ValueError, match="column='smiles'.*id, Canonical_SMILES"): read_smiles(path, "smiles")


@pytest.mark.parametrize("text, found", [
    ("smiles,n\nCCO\n,2\nCCN,3,4\n\n", ["CCO", "", "", ""]),                         # short, empty and long rows
    ('smiles,n\n"CCO,1\nCCN,2\n', ["", "CCN"]),                                     # a quote that is never closed
    ('smiles,n\n"CCO,1\nCCN,2\nCCC,"3\nCCS,4\n', ["", "CCN", "", "CCS"]),           # and another
    # closed by another: rows, and no SMILES of several lines
    ('smiles,n\n"CCO,1\nCCN,2\nCCC",3\nCCS,4\n', ["", "CCN", 'CCC"', "CCS"]),
    ('n,smiles\n"a\nb\nc",CCO\n2,CCN\n', ["CCO", "CCN"]),                           # a field of three lines
    ('smiles\nCCO"\n"CCN"\n', ['CCO"', "CCN"])])
def test_broken_tables(tmp_path, text, found):
    (tmp_path / "a.csv").write_text(text)
    assert list(read_smiles(tmp_path / "a.csv")) == found


@pytest.mark.parametrize("cells", [["CCO", "CC\nO", "CCN"], ["\nCC\n\nO", "C"], ["", "C\n", "N\nC"]])
@pytest.mark.parametrize("ending, delimiter", [(".csv", ","), (".tsv", "\t")])
def test_a_cell_of_several_lines_is_one_row_as_where_values_are_read(tmp_path, cells, ending, delimiter):
    path = tmp_path / f"a{ending}"
    with open(path, "w", newline="") as f:
        csv.writer(f, delimiter=delimiter).writerows([("n", "smiles"), *enumerate(cells)])
    with open(path, newline="") as f: expected = [r["smiles"].strip() for r in csv.DictReader(f, delimiter=delimiter)]
    together = ["" if isinstance(s, LeftOut) else s for s, _ in smiles_and_texts(path, "smiles", "n")]
    assert list(read_smiles(path, "smiles")) == expected == together


def test_many_stray_quotes_take_no_longer_than_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,n\n" + '"x,1\n' * 5000)
    assert len(list(read_smiles(tmp_path / "a.csv"))) == 5000


def test_parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [*SMILES[:5], None, " CCO "]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        pq.write_table(pa.table(dict(smiles=pa.array(rows).cast(kind), n=list(range(7)))), tmp_path / "a.parquet")
        assert list(read_smiles(tmp_path / "a.parquet")) == [*SMILES[:5], "", "CCO"]
    with pytest.raises(ValueError, match="record 1: 0 is neither a text"): read_smiles(tmp_path / "a.parquet", "n")
    with pytest.raises(ValueError, match="smiles, n"): read_smiles(tmp_path / "a.parquet", "m")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:99])
    with pytest.raises(ValueError, match="cannot be read as .parquet"): read_smiles(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    "name, content, column, message",
    [
        ("no.smi", None, "", "no such file"),
        ("a.smi", b"", "", "is empty"),
        ("a.csv", b"", "", "is empty, it holds no records"),
        ("a.csv", b"smiles\n", "", "is empty"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), "", "is empty, it holds no records"),
        ("a.csv", b"a,b\n1,2\n", "", "columns a, b; name"),
        ("a.csv", b"smiles,SMILES\n1,2\n", "", "name one of them"),
        ("a.smi", b"C\n", "smiles", "is not a table"),
        ("a.xlsx", b"C\n", "", "cannot be read as .xlsx"),
        ("a.parquet.gz", b"C\n", "", "cannot be"),
        ("a.png", b"\x89PNG\r\n", "", "is a picture"),
        ("a.smi.gz", b"C\n", "", "cannot be unpacked"),
        ("a.parquet", b"C\n", "", "cannot be read"),
    ],
)
def test_refused_at_once(tmp_path, name, content, column, message):
    if content is not None: (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message): read_smiles(tmp_path / name, column)
    with pytest.raises(ValueError, match=message): prepare(tmp_path / name, column=column)


def test_a_file_cut_short_is_no_smaller_file(tmp_path):
    (tmp_path / "a.smi.gz").write_bytes(gzip.compress("\n".join(SMILES).encode())[:-20])
    with pytest.raises(ValueError, match="cannot be unpacked"): list(read_smiles(tmp_path / "a.smi.gz"))
    with pytest.raises(ValueError, match="cannot be unpacked"): prepare(tmp_path / "a.smi.gz")


def test_a_directory_is_no_file(tmp_path):
    (tmp_path / "a.smi").mkdir()
    with pytest.raises(ValueError, match="is a folder; name a file"): read_smiles(tmp_path / "a.smi")


# cleaning

@pytest.mark.parametrize(
    "smiles, outcome",
    [
        ("", "empty"), (" ", "empty"), ("C1CC", "unparsable"), ("CC(C)(C)(C)C", "unparsable"),
        ("CC name", "unparsable"), ("C\u03b1", "unparsable"), ("C\x00C", "unparsable"),
        ("CCO.Cl", "several components"), ("CCO.CCO", "several components"), ("C[Hg]C", "element"),
        ("[Na+]", "element"), ("C*", "element"), ("[1*]CC", "element"), ("[He]", "element"),
        ("CC(=O)[O-]", "CC(=O)[O-]"), ("[13CH3]CO", "[13CH3]CO"), ("[2H]OC", "[2H]OC"), ("[CH3:3][NH2:4]", "CN"),
        ("C[CH2]", "[CH2]C"), ("OB(O)c1ccccc1", "OB(O)c1ccccc1"), ("F[C@@H](Cl)Br", "F[C@@H](Cl)Br"),
        ("F/C=C\\F", "F/C=C\\F"), ("[H][H]", "[H][H]"), ("[O-]S(=O)(=O)C(F)(F)F", "O=S(=O)([O-])C(F)(F)F"),
    ],
)
def test_outcomes(smiles, outcome):
    [(_, [found])] = clean_rows([smiles], Cleaning())
    if outcome in REJECT_REASONS: assert found == outcome
    else: assert found[1] == outcome and from_bracket_safe(found[0]) == outcome


@pytest.mark.parametrize(
    "smiles, outcome",
    [
        ("CC[NH3+].[Cl-]", "CC[NH3+]"),
        ("O.O.c1ccccc1", "c1ccccc1"),
        ("CCO.CCN", "CCN"),
        ("[Na+].[Cl-]", "several components"),
        ("CCO.C[Hg]CCCC", "element"),
        ("CC[C@H](C)[NH3+].OC(=O)[C@H](O)[C@@H](O)C(=O)O", "O=C(O)[C@H](O)[C@@H](O)C(=O)O"),
    ],
)
def test_largest_organic_component(smiles, outcome):
    found = clean(smiles, Cleaning(salts="largest"))
    assert (found if isinstance(found, str) else found[1]) == outcome


def test_four_hundred_atoms():
    peptide = "N[C@@H](C)C(=O)" * 80 + "O"
    text, smiles = clean(peptide)
    assert from_bracket_safe(text) == smiles and "<%99>" in text
    assert clean(peptide, Cleaning(max_tokens=200)) == "too long"
    assert clean("CCO", Cleaning(max_tokens=3)) == ("CCO", "CCO")
    assert clean("CCOC", Cleaning(max_tokens=3)) == "too long"


def test_elements_can_be_chosen(tmp_path):
    assert prepare(smi(tmp_path / "a.smi", ["C[Hg]C", "CCO", "CCCl"]), elements=("C", "H", "O", "Hg")).smiles == [
        "[CH3][Hg][CH3]",
        "CCO",
    ]


def test_every_row_is_kept_or_counted(tmp_path):
    rows = [*SMILES, "", "rubbish", "CCO.CCN", "OCC", "CCO", "[Fe]"]
    m = prepare(smi(tmp_path / "a.smi", rows))
    assert len(m.smiles) == len(m.texts) == len(set(m.smiles)) and len(m.smiles) + m.rejects.total() == len(rows)
    plain = prepare(smi(tmp_path / "b.smi"))
    assert m.rejects - plain.rejects == Counter(empty=1, unparsable=1, element=1, duplicate=1) + Counter(
        {"several components": 1}
    )
    assert (301, "") in m.examples["empty"] and all(from_bracket_safe(t) == s for t, s in zip(m.texts, m.smiles))
    assert "| empty | 1 |" in m._repr_markdown_()
    assert list(m.smiles[:2]) == m.smiles[:2] == [m.smiles[0], m.smiles[1]]
    assert m.smiles[-1] == list(m.smiles)[-1]


def test_one_per_cent_of_garbage(tmp_path):
    lines = [f"{s},{i}" for i, s in enumerate(SMILES)]
    for i in (7, 107, 207): lines.insert(i, ['"stray,1', "\x00\xff,2", "never closed \",3"][i // 100])
    (tmp_path / "a.csv").write_bytes(("smiles,n\n" + "\n".join(lines)).encode("latin-1"))
    m, plain = prepare(tmp_path / "a.csv"), prepare(smi(tmp_path / "b.smi"))
    assert m.smiles == plain.smiles and m.rejects - plain.rejects == Counter({"unparsable": 2, "quote not closed": 1})


def test_nothing_left(tmp_path, own_cache):
    with pytest.raises(ValueError, match="no molecule is left of 2 rows.*unparsable: 1.*such as 'junk'"):
        prepare(smi(tmp_path / "a.smi", ["junk", "C.C"]))
    assert not list(own_cache.rglob("*.arrow"))


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(source="nowhere"), "source='nowhere'"),
        (dict(source="wehi+other"), "wehi\\+other"),
        (dict(slicer="x"), "slicer='x'.*brics"),
        (dict(salts="x"), "salts='x'.*refuse, largest"),
        (dict(max_tokens=-1), "max_tokens=-1"),
        (dict(elements=["Zz"]), "elements"),
        (dict(elements=[]), "elements"),
        (dict(limit=-2), "limit=-2"),
        (dict(processes=-2), "processes=-2"),
        (dict(column="x"), "column='x'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message): prepare(**options)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the larger data sets are not beside this checkout")
def test_zinc_is_reversible():
    m = build_molecules(list(islice(read_smiles(DATA / "zinc250k.txt.gz"), 500)), processes=1)
    assert m.rejects["not reversible"] == m.rejects["unparsable"] == 0 and len(m.smiles) > 490


# splits

def test_splits_are_pinned():
    assert [molecule_split(s) for s in ("CCO", "c1ccccc1", "CCBr")] == ["train", "valid", "test"]
    assert molecule_split("CCO", 0, 0) == "train"
    assert molecule_split("CCO", 0.3, 0.4) == "valid"
    assert molecule_split("CCO", 0, 0.7) == "test"
    for shares in ((-0.1, 0.1), (0.5, 0.5)):
        with pytest.raises(ValueError, match="valid_share"): molecule_split("CCO", *shares)


# processes

def test_number_of_processes_changes_nothing():
    one, two = build_molecules(SMILES, processes=1), build_molecules(SMILES, processes=2)
    assert one == two and one.rejects == two.rejects
    assert processes_for(10) == 1 and processes_for(10, 3) == 3 and processes_for(10**6) >= 1


def test_in_a_worker_of_a_data_loader(tmp_path):
    class Rows(list):
        def __getitem__(self, i): return len(prepare(smi(tmp_path / f"{i}.smi"), processes=2).smiles)
    assert len({*DataLoader(Rows([0]), num_workers=1, batch_size=None)}) == 1


# cache

def prepared_at_once(path, here, told):
    "In a process of its own: prepare when all others are here, and tell of it."
    build = molecule_data.build_molecules
    def counted(*args):
        told.put("built")
        return build(*args)
    molecule_data.build_molecules = counted
    here.wait(300)
    m = prepare(path, processes=1)
    told.put((len(m.smiles), m.rejects.total(), m.where.name))


@pytest.mark.skipif(sys.platform != "linux", reason="forks processes")
def test_two_processes_at_once(tmp_path, own_cache):
    "Two processes that start to prepare the same file at the same moment: one builds, both get it."
    path, fork = smi(tmp_path / "a.smi"), get_context("fork")
    here, told = fork.Barrier(2), fork.Queue()
    both = [fork.Process(target=prepared_at_once, args=(path, here, told)) for _ in range(2)]
    for p in both: p.start()
    out = [told.get(timeout=300) for _ in range(3)]  # a second "built" would take the place of a result
    for p in both: p.join(300)
    assert [p.exitcode for p in both] == [0, 0]
    out.remove("built")
    assert out[0] == out[1]
    assert told.empty()
    assert len(list(own_cache.rglob("*.arrow"))) == 1 and not list(own_cache.rglob("*.part"))


def killed_while_building(path, moment):
    "In a process of its own: prepare, and kill -9 at some moment."
    owner, name = (molecule_data.os, moment[3:]) if moment.startswith("os.") else (molecule_data, moment)
    setattr(owner, name, lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL))
    prepare(path, processes=2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks processes")
@pytest.mark.parametrize("moment", ["_wait_for", "os.fsync", "os.replace"])
def test_killed_in_the_middle(tmp_path, own_cache, moment):
    """kill -9 while two further processes clean molecules, before the file is complete,
    and just before it gets its name."""
    path, fork = smi(tmp_path / "a.smi"), get_context("fork")
    victim = fork.Process(target=killed_while_building, args=(path, moment))
    victim.start()
    victim.join(300)
    assert victim.exitcode == -signal.SIGKILL and not list(own_cache.rglob("*.arrow"))
    # would wait for ever if the lock were still held
    heir = fork.Process(target=prepare, args=(path,), kwargs=dict(processes=1))
    heir.start()
    heir.join(300)
    assert heir.exitcode == 0, "still waiting for a process that is dead" if heir.exitcode is None else "failed"
    assert len(list(own_cache.rglob("*.arrow"))) == 1
    assert not list(own_cache.rglob("*.part"))
    assert len(prepare(path).smiles) > 200


@pytest.mark.slow
def test_cache_is_used_and_never_stale(tmp_path, own_cache, monkeypatch):
    path = smi(tmp_path / "a.smi", SMILES[:60])
    first = prepare(path)
    assert first.where.parent == own_cache / "molecules" == cache_directory() / "molecules"
    monkeypatch.setattr(molecule_data, "build_molecules", lambda *a: pytest.fail("built again"))
    again = prepare(smi(tmp_path / "renamed.smi", SMILES[:60]))
    assert again == first and again.where == first.where
    monkeypatch.undo()
    keys = {first.where.name}
    changes = (dict(slicer="recap"), dict(max_tokens=60), dict(salts="largest"), dict(elements=ELEMENTS[:5]),
               dict(limit=30))
    for change in changes: keys.add(prepare(path, cache=own_cache, **change).where.name)
    with monkeypatch.context() as m:
        m.setattr(molecule_data, "CACHE_VERSION", 99)
        keys.add(prepare(path, cache=own_cache).where.name)
    keys.add(prepare(smi(path, SMILES[:59]), cache=own_cache).where.name)
    assert len(keys) == 8


def test_versions_are_part_of_the_key(monkeypatch):
    "Of rdkit always; of safe-mol only where its slicers are used, so that no other molecules need it."
    key = lambda slicer="brics": molecule_data.cache_key(["x"], Cleaning(slicer))
    with monkeypatch.context() as m:
        before = key()
        m.setattr(molecule_data.rdBase, "rdkitVersion", "0.0")
        assert key() != before
    before, recap = key(), key("recap")
    monkeypatch.setattr(bracket_safe, "version", lambda name: "0.0")
    assert key() == before and key("recap") != recap


def test_the_slicer_is_part_of_the_key_where_fragments_are():
    key = lambda **options: molecule_data.cache_key(["x"], Cleaning(**options))
    assert key(notation="smiles", slicer="recap") == key(notation="smiles", slicer="hr") != key(notation="smiles")
    assert len({key(slicer=slicer) for slicer in ("brics", "recap", "hr")} | {key(notation="smiles")}) == 4
    parts = [molecule_data.CACHE_VERSION, ["x"], Cleaning()._asdict(), molecule_data.rdBase.rdkitVersion, ""]
    assert key() == hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


# What the molecules below become, by CACHE_VERSION and the version of rdkit, which numbers atoms in a way of its own.
# A new digest for a pair that is here already means that cached molecules are stale: raise CACHE_VERSION instead.
ENCODINGS = {(3, "2026.09.1"): "6d3200fd11e909d2"}


def encoding_digest(first: int = 606) -> str:
    "A digest of what 606 fixed rows, or the first of them, become: texts, SMILES, reasons, with and without salts."
    rows = ["", "C1CC", "C[Pt]", "F/C=C/F", "N[C@@H](C)C(=O)O", "c1ccccc1-c1ccccc1"]
    for name in ("wehi", "nci"): rows += islice(embedded_smiles(name), 0, None, 25)
    assert len(rows) == 606
    found = [clean_chunk(rows[:first], options) for options in (Cleaning(), Cleaning(salts="largest", max_tokens=40))]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


@pytest.mark.slow
def test_another_encoding_has_another_cache_version(monkeypatch):
    found, versions = encoding_digest(), (CACHE_VERSION, molecule_data.rdBase.rdkitVersion)
    with monkeypatch.context() as m:  # the digest notices another order of the fragments
        m.setattr(bracket_safe, "write_pieces", lambda *args, write=bracket_safe.write_pieces: write(*args)[::-1])
        changed = encoding_digest(60)
    assert changed != encoding_digest(60)
    known = dict(ENCODINGS)
    assert any(version == CACHE_VERSION for version, _ in known), f"add the digest of {versions}: {found}"
    if versions not in known:
        pytest.skip(f"no digest for this rdkit; if the encoding is unchanged, add {versions}: {found}")
    assert found == known[versions], "rows are encoded in another way: raise CACHE_VERSION, then add its digest"


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = smi(tmp_path / "a.smi")
    content = molecule_data.content_of(path)
    smi(path, SMILES[:7])
    with pytest.raises(ValueError, match="changed while being read"): list(content.rows())


def test_rows_are_cleaned_as_they_are_read(monkeypatch):
    "When the first rows are cleaned, those behind them have not been read again."
    read, clean, seen = [], molecule_data.clean_chunk, []

    def rows():
        read.append(0)
        for k in range(3 * CHUNK_ROWS):
            read[-1] += 1
            yield "C" * (1 + k % 50)

    def watched(chunk, options):
        seen.append(list(read))
        return clean(chunk, options)
    monkeypatch.setattr(molecule_data, "clean_chunk", watched)
    found = molecule_data.clean_source(molecule_data.Content(["toy"], rows), 0, Cleaning(), processes=1)
    assert len(found.smiles) == 50 and found.rejects["duplicate"] == 3 * CHUNK_ROWS - 50
    assert seen[0] == [3 * CHUNK_ROWS, CHUNK_ROWS] and len(seen) == 3


@pytest.mark.parametrize("kind, limit, read", [
    ("hub", 0, molecule_data.HUB_ROWS), ("hub", 30, 30), ("file", 0, 0), ("file", 30, 30),
])
def test_how_many_rows_are_read(monkeypatch, kind, limit, read):
    "All of a file, and of the hub a number, unless a limit is given, which names the entry in the cache."
    entries, limits = set(), []
    monkeypatch.setattr(molecule_data, "content_of", lambda source, column: molecule_data.Content([kind], list))
    monkeypatch.setattr(molecule_data, "read_or_make", lambda path, make: (entries.add(path), make()))
    monkeypatch.setattr(molecule_data, "clean_source", lambda content, limit, *options: limits.append(limit))
    for n in (limit, limit, 7): prepare("any.smi", limit=n)
    assert limits == [read, read, 7] and len(entries) == 2


def test_columns_equal_sequences_of_the_same_strings():
    pa = pytest.importorskip("pyarrow")
    found = molecule_data.Strings(pa.chunked_array([["C", "CC"], ["CCC"]]))
    assert found == ["C", "CC", "CCC"] == found and found == ("C", "CC", "CCC")
    for other in (["C", "CC"], ["C", "CC", "N"], 3, None, {"C", "CC", "CCC"}): assert found != other
    assert found[-1] == "CCC" and found[1:] == ["CC", "CCC"] and len(found) == 3
    assert repr(found) == "Strings(3: 'C', 'CC', ...)"


def test_every_molecule_is_collected_once_whatever_the_size_of_the_parts(monkeypatch):
    monkeypatch.setattr(molecule_data, "PART", 2)
    rows = ["C" * k for k in (1, 2, 1, 3, 4, 4, 5)]
    found = molecule_data.collect([(rows[:4], [(f"text {len(s)}", s, ()) for s in rows[:4]]),
                                   (rows[4:], [(f"text {len(s)}", s, ()) for s in rows[4:]])])
    assert found.rejects == dict(duplicate=2) and found.examples["duplicate"] == [(3, "C"), (6, "CCCC")]
    assert list(found.texts) == [f"text {k}" for k in range(1, 6)]
    assert list(found.smiles) == ["C" * k for k in range(1, 6)]


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot be written"):
        m = prepare(smi(tmp_path / "a.smi"), cache=tmp_path / "file" / "below")
    assert m.where is None and len(m.smiles) > 200


@pytest.mark.parametrize("content", [b"", b"rubbish", b"ARROW1\0\0"])
def test_a_damaged_cache_is_made_again(tmp_path, content):
    path = smi(tmp_path / "a.smi")
    first = prepare(path)
    smiles = list(first.smiles)
    first.where.write_bytes(content)
    assert prepare(path).smiles == smiles


# sources

def test_sources():
    assert all(s.licence and s.what for s in SOURCES.values()) and all(next(embedded_smiles(n)) for n in SOURCES)
    with pytest.raises(ValueError, match="choose of wehi, nci, chembl"): list(embedded_smiles("zinc"))
    both, one = prepare("chembl+nci", limit=20), prepare("chembl", limit=20)
    assert both.smiles == one.smiles and both.where != one.where


def test_missing_file_of_the_wheel(monkeypatch):
    monkeypatch.setattr(sources.RDConfig, "RDDataDir", "/nowhere")
    with pytest.raises(ValueError, match="this installation of rdkit has no file /nowhere"): prepare("embedded")


def wheel(site: Path, package: str, files: dict[str, list[str]]):
    "An installed package that cannot be imported, with tables of SMILES, compressed by their names."
    for name, smiles in files.items():
        path = site / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "wt") as f: f.write("Index,SMILES\n" + "".join(f"{i},{s}\n" for i, s in enumerate(smiles)))
    (site / package / "__init__.py").write_text("raise RuntimeError('imported')")
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path, monkeypatch):
    "A folder of packages in front of all others; wheels that are installed are hidden."
    find = sources.importlib.util.find_spec
    monkeypatch.syspath_prepend(tmp_path / "site")
    hidden = lambda name: (found := find(name)) and (found if str(tmp_path) in str(found.origin) else None)
    monkeypatch.setattr(sources.importlib.util, "find_spec", hidden)
    return tmp_path / "site"


def test_benchmark_in_a_package_that_is_not_imported(site):
    with pytest.raises(ValueError, match="molsets is not installed; pip install --no-deps molsets"): prepare("moses")
    wheel(site, "moses", {"dataset/data/train.csv.gz": SMILES[:20]})
    found = prepare("moses", limit=10)
    assert found.smiles and len(found.smiles) + found.rejects.total() == 10 and "moses" not in sys.modules
    with pytest.raises(ValueError, match="molsets has no file dataset/data/test.csv.gz"): prepare("moses-test")
    with pytest.raises(ValueError, match="column='SMILES': the source 'moses' has no columns"):
        prepare("moses", column="SMILES")


def test_benchmark_in_several_files(site, monkeypatch):
    "QM9 is three tables; the molecules of all are counted, and one that is cut short is noticed at its end."
    with pytest.raises(ValueError, match="qm9pack is not installed"): prepare("qm9")
    wheel(site, "qm9pack", {f"data/qm9_part{k}.csv": SMILES[10 * k:10 * k + 10] for k in (1, 2, 3)})
    assert list(islice(molecule_data.benchmark_smiles("qm9"), 25)) == SMILES[10:35]
    with pytest.raises(ValueError, match="has 30 molecules, it should have 130,831; pip"): prepare("qm9")
    monkeypatch.setitem(molecule_data.BENCHMARKS, "qm9", molecule_data.BENCHMARKS["qm9"]._replace(rows=30))
    assert prepare("qm9", processes=2) == prepare("qm9", processes=1)
    (site / "qm9pack/data/qm9_part2.csv").unlink()
    with pytest.raises(ValueError, match="qm9pack has no file data/qm9_part2.csv"): prepare("qm9")


def test_a_damaged_benchmark(site):
    wheel(site, "moses", {"dataset/data/train.csv.gz": SMILES})
    path = site / "moses/dataset/data/train.csv.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cannot be unpacked"): prepare("moses")


@pytest.mark.parametrize("name", sorted(molecule_data.BENCHMARKS))
def test_the_wheels_themselves(name):
    rows = molecule_data.benchmark_smiles(name)
    try: first = next(rows)
    except ValueError as e: pytest.skip(str(e))
    assert from_bracket_safe(first) and 1 + sum(1 for _ in rows) == molecule_data.BENCHMARKS[name].rows


# streams

@pytest.fixture
def shards(tmp_path):
    "A folder of four files laid out like a data set of the hub."
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq
    (tmp_path / "hub").mkdir()
    good = [s for s in SMILES if not isinstance(clean(s), str)][:200]
    for k in range(4):
        pq.write_table(
            pa.table(dict(safe=[*good[50 * k : 50 * k + 50], None, "rubbish"], n=[k] * 52)),
            tmp_path / "hub" / f"train-{k:05d}-of-00004.parquet",
        )
    return tmp_path / "hub", [clean(s)[1] for s in good]


@pytest.mark.slow
def test_stream_gives_every_row_once(shards):
    folder, good = shards
    passes = [list(hub_smiles(str(folder), seed=1, buffer=20, epoch=epoch)) for epoch in (0, 1)]
    assert Counter(passes[0]) == Counter(passes[1]) and passes[0] != passes[1]
    assert Counter(clean(s)[1] for s in passes[0] if s not in ("", "rubbish")) == Counter(good)
    assert len(passes[0]) == 208


@pytest.mark.slow
def test_stream_is_reproducible(shards):
    folder, good = shards
    one, two, other = (list(hub_smiles(str(folder), seed=s, buffer=20)) for s in (1, 1, 2))
    assert one == two != other and Counter(one) == Counter(other)
    with pytest.raises(ValueError, match="column='smiles'.*safe, n"): next(hub_smiles(str(folder), column="smiles"))


@pytest.mark.slow
def test_prepared_stream(shards, own_cache):
    folder, good = shards
    m = prepare(f"hub:{folder}")
    assert set(m.smiles) == set(good) and m.rejects["empty"] == m.rejects["unparsable"] == 4 and HUB_ROWS > 208
    assert prepare(f"hub:{folder}").where == m.where and len(prepare(f"hub:{folder}", limit=30).smiles) <= 30


def test_commit_of_the_hub(monkeypatch):
    "The commit is part of the key; one that is given is not looked up."
    monkeypatch.setattr(molecule_data, "hub_commit", lambda name, revision: "f" * 40)
    looked_up, given = (molecule_data.content_of(f"hub:a/b{r}").identity for r in ("", "@" + "0" * 40))
    assert looked_up == ["hub", "a/b", "f" * 40, ""] and given == ["hub", "a/b", "0" * 40, ""]


@pytest.mark.slow
def test_unreachable_hub(tmp_path):
    pytest.importorskip("datasets")
    with pytest.raises(ValueError, match="cannot be opened"): hub_smiles(str(tmp_path / "nothing"))


def test_without_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="loflexmdm\\[hub\\]"): hub_smiles()


@pytest.mark.parametrize("source, packaged", [
    ("embedded", True), ("+".join(SOURCES), True), (next(iter(SOURCES)), True), ("moses", True),
    (f"{next(iter(SOURCES))}+mine", False), ("mine.smi", False), ("hub:owner/name", False),
])
def test_what_comes_with_a_package(source, packaged): assert molecule_data.is_packaged(source) == packaged
