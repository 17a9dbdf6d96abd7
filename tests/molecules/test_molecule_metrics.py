"""Molecule metrics: definitions against brute force and rdkit's own loops, reasons, bad input, several
processes and the larger real files."""
import csv
import gzip
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rdkit import Chem, DataStructs, RDConfig, rdBase
from rdkit.Chem import QED, rdFingerprintGenerator
from scipy import stats

from loflexmdm.molecules.scores import metrics as mm

IBUPROFEN, ASPIRIN, MORPHINE = (
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1CC[C@]23c4c5ccc(O)c4O[C@H]2[C@@H](O)C=C[C@H]3[C@H]1C5",
)
MORGAN = {bits: rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=bits) for bits in (1024, 2048)}
ZINC = Path(__file__).parents[3] / "shared" / "data" / "zinc250k.txt.gz"


@pytest.fixture(scope="module")
def library():
    with open(Path(RDConfig.RDDataDir) / "Pains/test_data/wehi_mols.csv", newline="") as file:
        return [row[0] for row in csv.reader(file)]


@pytest.mark.parametrize(
    "text, reason",
    [
        (None, "undecodable"), ("", "empty"), ("\n", "empty"), ("C1CC", "syntax"), ("C(", "syntax"),
        ("CCO name", "syntax"), ("C |$x$|", "syntax"), ("C\0C", "syntax"), ("\ud800", "syntax"),
        ("C\u00e9", "syntax"), ("F(C)C", "chemistry"), ("c1cccc1", "chemistry"),
        ("[Na+].[Cl-]", "several components"), ("C.C", "several components"), ("*", "open attachment point"),
        ("[3*]CC", "open attachment point"), ("C~C", "unspecified bond"), ("C", ""), ("[13CH4]", ""),
        ("[H][H]", ""), ("[Fe+2]", ""), ("[CH3]", ""), ("N->[Pt](Cl)(Cl)<-N", ""), ("C" * 400, ""),
    ],
)
def test_reasons(text, reason):
    (found,) = mm.judge([text])
    assert found.reason == reason and (found.mol is None) == (found.smiles is None) == bool(reason)
    result = mm.molecule_metrics([text, "CCO"])
    assert result.invalid == ({reason: 1} if reason else {}) and result.validity == (0.5 if reason else 1)


def test_rdkit_is_not_left_silent_nor_noisy(capfd):
    rdBase.LogToPythonStderr()
    try:
        mm.judge(["C1", "c1cccc1"])
        assert "ERROR" not in capfd.readouterr().err
        Chem.MolFromSmiles("C1")
        assert "unclosed ring" in capfd.readouterr().err
    finally: rdBase.LogToCppStreams()


def test_by_hand():
    result = mm.molecule_metrics(
        [IBUPROFEN, "OC(=O)C(C)c1ccc(CC(C)C)cc1", ASPIRIN, MORPHINE, "CCO.Cl", None], [ASPIRIN, "C1", None]
    )
    assert (result.n, result.valid, result.unique) == (6, 4, 3)
    assert result.invalid == {"several components": 1, "undecodable": 1}
    assert result.as_dict() == dict(
        validity=4 / 6, uniqueness=3 / 4, novelty=2 / 3,
        diversity=result.diversity, quality=1 / 6, quality_with_duplicates=2 / 6,
    )
    assert all(type(v) is float for v in result.as_dict().values())
    assert "| 66.7 | 75.0 | 66.7 |" in result._repr_markdown_()


def test_thresholds_are_inclusive():
    assert mm.is_good(np.array([[0.6, 4.0], [0.59999, 1], [0.9, 4.00001]])).tolist() == [True, False, False]


def test_order_and_writing_do_not_matter(library):
    texts = library[:60]
    rewritten = [
        Chem.MolToRandomSmilesVect(j.mol, 1, randomSeed=1)[0] if j.mol else t for t, j in zip(texts, mm.judge(texts))
    ]
    a, b = (
        mm.molecule_metrics(texts, library[40:80]).as_dict(),
        mm.molecule_metrics(rewritten[::-1], library[40:80]).as_dict(),
    )
    assert a == pytest.approx(b, abs=1e-12) and 0 < a["novelty"] < 1


def test_canonical_reference_skips_reading():
    assert (
        mm.molecule_metrics(["OCC"], ["OCC"]).novelty
        == mm.molecule_metrics(["OCC"], ["CCO"], canonical_reference=True).novelty
        == 0
    )
    # not canonical: taken at its word
    assert mm.molecule_metrics(["OCC"], ["OCC"], canonical_reference=True).novelty == 1


@pytest.mark.parametrize("tile", [1, 7, 39, 40, 1000])
def test_diversity_is_the_double_loop(library, tile, monkeypatch):
    mols = [j.mol for j in mm.judge(library[:40]) if j.mol]
    prints = [MORGAN[2048].GetFingerprint(m) for m in mols]
    loop = np.mean([1 - DataStructs.TanimotoSimilarity(p, q) for i, p in enumerate(prints) for q in prints[:i]])
    monkeypatch.setattr(mm, "TILE", tile)
    assert mm.diversity(library[:40] + library[:3]) == pytest.approx(loop, abs=1e-13)


@pytest.mark.parametrize("bits", [1024, 2048])
def test_similarities_equal_rdkit_exactly(library, bits):
    mols = [j.mol for j in mm.judge(library[:150]) if j.mol]
    prints = [MORGAN[bits].GetFingerprint(m) for m in mols]
    rows = mm.bit_rows(mols, bits)
    assert rows.shape == (len(mols), bits // 8)
    assert (mm.tanimoto(rows, rows) == np.array([DataStructs.BulkTanimotoSimilarity(p, prints) for p in prints])).all()
    target = Chem.MolToSmiles(mols[0])
    assert (
        mm.distances_to(library[:150], target, bits)
        == 1 - np.array(DataStructs.BulkTanimotoSimilarity(prints[0], prints))
    ).all()


def test_nothing_valid():
    result = mm.molecule_metrics([None, "C.C"], ["C"])
    assert result.validity == result.quality == 0
    assert math.isnan(result.diversity)
    assert math.isnan(result.novelty)
    assert math.isnan(result.uniqueness)
    assert mm.distances_to([None], "C").shape == (0,) and all(np.isnan(v).all() for v in mm.properties([None]).values())


def test_processes_and_threads_give_the_same(library):
    mols = [j.mol for j in mm.judge(library[:40]) if j.mol]
    one = mm.qed_sa(mols)
    assert one.tolist() == [[QED.qed(m), mm.sa_scorer().calculateScore(m)] for m in mols]
    with ThreadPoolExecutor(4) as pool: assert all((t == one).all() for t in pool.map(mm.qed_sa, [mols] * 4))
    assert len({id(mm.sa_scorer()) for _ in range(3)}) == 1


@pytest.mark.slow
def test_two_processes(library, monkeypatch):
    monkeypatch.setattr(mm, "CHUNK_MOLECULES", 10)
    mols = [j.mol for j in mm.judge(library[:40]) if j.mol]
    assert (mm.qed_sa(mols, processes=2) == mm.qed_sa(mols)).all()
    one, two = (mm.properties([*library[:40], "C("], processes=n) for n in (1, 2))
    assert one.keys() == two.keys() and all(np.array_equal(one[k], two[k], equal_nan=True) for k in one)


def test_missing_sa_script(monkeypatch, tmp_path):
    monkeypatch.setattr(RDConfig, "RDContribDir", str(tmp_path))
    with pytest.raises(ImportError, match="sascorer.py is missing"): mm._sa_scorer.__wrapped__()


def test_wasserstein_is_scipys():
    rng = np.random.default_rng(0)
    for n, m in [(1, 1), (5, 3), (200, 317)]:
        a, b = rng.normal(size=n), rng.normal(size=m).round(1)
        assert mm.wasserstein(a, b) == pytest.approx(stats.wasserstein_distance(a, b), abs=1e-12)
    assert mm.wasserstein(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == 0
    assert mm.wasserstein_floor(np.array([3.0, 3.0]), 5) == 0


def test_ideal_samples_are_at_the_floors():
    rng = np.random.default_rng(1)
    law = dict(x=rng.integers(0, 6, 500).astype(float))
    rows = [mm.compare_properties(dict(x=rng.choice(law["x"], 50)), law)["x"] for _ in range(300)]
    for seen, floor in [("wasserstein", "wasserstein_floor"), ("variation", "variation_floor")]:
        values = np.array([getattr(r, seen) for r in rows])
        assert abs(values.mean() - getattr(rows[0], floor)) < 4 * values.std() / 300**0.5


def test_compare_leaves_out_what_is_not_valid():
    result = mm.compare_properties([ASPIRIN, None, "C.C"], [ASPIRIN, IBUPROFEN])
    assert result.n == 1
    assert result.reference_n == 2
    assert result["heavy_atoms"].mean == 13
    assert result["heavy_atoms"].variation == 0.5
    assert math.isnan(result["qed"].variation) and "| heavy atoms | 13 | 14 |" in result._repr_markdown_()


def test_own_columns():
    table = mm.properties([ASPIRIN, None, IBUPROFEN]) | dict(tokens=np.array([20, 3, 30]))
    assert mm.compare_properties(table, table)["tokens"].mean == 25
    assert mm.compare_properties(table, table)["tokens"].wasserstein == 0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: mm.molecule_metrics([]), "smiles: empty"),
        (lambda: mm.molecule_metrics("CCO"), "must be a list of SMILES, not one text"),
        (lambda: mm.molecule_metrics(["C", 3]), r"smiles\[1\]=3"),
        (lambda: mm.molecule_metrics([math.nan]), r"smiles\[0\]=nan"),
        (lambda: mm.molecule_metrics(["C"], []), "reference: empty"),
        (lambda: mm.molecule_metrics(["C"], "CC"), "reference='CC'"),
        (lambda: mm.molecule_metrics(["C"], [None, "C1"]), "reference: none of its 2"),
        (lambda: mm.molecule_metrics(["C"], [None], canonical_reference=True), "reference: none of its 1"),
        (lambda: mm.molecule_metrics(["C"], processes=0), "processes=0"),
        (lambda: mm.diversity([]), "smiles: empty"),
        (lambda: mm.distances_to(["C"], "C.C"), "several components"),
        (lambda: mm.compare_properties([None], ["C"]), "smiles: none of its 1"),
        (lambda: mm.compare_properties(["C"], [None]), "reference: none of its 1"),
        (lambda: mm.molecule_grid(["C"], legends=[]), "legends: 0 given for 1"),
        (lambda: mm.plot_properties(dict(a=["C"]), ["mass"]), "names='mass'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message): call()


def test_pictures():
    axes = mm.plot_properties(dict(a=[ASPIRIN, None], b=[IBUPROFEN]), ["qed", "rings"])
    assert len(axes) == 2 and axes[1].get_xlabel() == "rings"
    own = plt.figure().subplots()
    assert mm.plot_properties(dict(a=[ASPIRIN]), ["heavy_atoms"], own) is own
    plt.close("all")
    assert mm.molecule_grid([ASPIRIN, None, "C"], columns=2, size=(150, 100)).size == (300, 200)
    reason, bare = (np.asarray(mm.molecule_grid([None], legends, size=(150, 100))) for legends in (None, [""]))
    assert reason.shape == (100, 150, 3) and (bare == 255).all() and (reason < 255).any()  # an empty place shows why


def test_import_is_quick():
    code = (
        "import sys, loflexmdm.molecules.scores.metrics; print([m for m in ('torch', 'matplotlib', "
        "'pandas', 'safe', 'datamol', 'PIL') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.slow
@pytest.mark.skipif(not ZINC.exists(), reason=f"{ZINC.name}: larger real data, not at hand")
def test_real_molecules_are_valid_and_stable():
    with gzip.open(ZINC, "rt") as file: texts = [line.strip() for line in file][::125]
    judged = mm.judge(texts)
    assert not any(j.reason for j in judged)
    assert [j.smiles for j in mm.judge([j.smiles for j in judged])] == [j.smiles for j in judged]
