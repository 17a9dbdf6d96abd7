"MOSES figures: by hand, beside the wheel's stored statistics and fcd_torch's own, and what is refused."
import math
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rdkit import Chem

from loflexmdm.molecules.data.sources import benchmark_files, benchmark_smiles
from loflexmdm.molecules.scores.metrics import judge

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
import moses_figures as moses  # noqa: E402
from moses_figures import (  # noqa: E402
    Described, brics_fragments, cosine, describe_molecules, filter_patterns, frechet, gaussian, internal_diversity,
    moses_metrics, nearest, passes_filters, reference_from, scaffold_of, store_reference, stored_reference,
)

SMILES = ["Oc1ccccc1-c1cccc2cnccc12", "COc1cccc(NC(=O)Cc2coc3ccc(OC)cc23)c1", "CCO", "CCO", "CCCCN1CCOCC1"]
CANONICAL = [j.smiles for j in judge(SMILES)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def found() -> Described: return describe_molecules(CANONICAL, network=False)


def needs_wheel():
    try: benchmark_files("moses")
    except ValueError as e: pytest.skip(str(e))


def bits(*rows): return np.packbits(np.array(rows, np.uint8), axis=1)


def test_similarities_by_hand():
    a = bits([1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0])
    b = bits([1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0])
    assert nearest(a, b).tolist() == [1 / 2, 2 / 4]
    assert internal_diversity(a) == 1 - 1 / 2
    three = bits([1, 1, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0])
    similar = np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(internal_diversity(three), 1 - similar.mean())
    np.testing.assert_allclose(internal_diversity(three, 2), 1 - np.sqrt((similar**2).mean(1)).mean())


def test_tiles_do_not_matter(monkeypatch):
    prints = np.random.default_rng(0).integers(0, 256, (53, 128), dtype=np.uint8)
    whole = nearest(prints[:20], prints[20:]), internal_diversity(prints, 2)
    monkeypatch.setattr(moses, "TILE_ROWS", 7)
    np.testing.assert_allclose(nearest(prints[:20], prints[20:]), whole[0])
    np.testing.assert_allclose(internal_diversity(prints, 2), whole[1])


def test_cosine_by_hand():
    assert cosine(Counter(a=3, b=4), Counter(a=3, b=4)) == 1 and cosine(Counter(a=1), Counter(b=1)) == 0
    np.testing.assert_allclose(cosine(Counter(a=1, b=1), Counter(a=1)), 2**-0.5)
    assert math.isnan(cosine(Counter(), Counter(a=1)))


def test_fragments_and_scaffolds_by_hand():
    assert sorted(brics_fragments(Chem.MolFromSmiles("CCOc1ccccc1"))) == ["[16*]c1ccccc1", "[3*]O[3*]", "[4*]CC"]
    assert scaffold_of(Chem.MolFromSmiles("Cc1ccccc1")) == ""
    assert scaffold_of(Chem.MolFromSmiles("CC1CC2CC2C1")) == "C1CC2CC2C1"


def test_filters_by_hand():
    assert passes_filters("CCO") and not passes_filters("C[N+](C)(C)C") and not passes_filters("CCP")
    assert not passes_filters("C1CCCCCCC1") and passes_filters("C1CCCCCC1")
    assert not passes_filters("CC=O", [Chem.MolFromSmarts("[#6]=O")])


def test_the_filters_are_all_of_both_files():
    "Medicinal chemistry filters and PAINS, counted by the lines of the files; 480 PAINS are published."
    try: folder = benchmark_files("moses")[0].parents[2] / "metrics"
    except ValueError as e: pytest.skip(str(e))
    lines = [len((folder / name).read_text().splitlines()) for name in ("mcf.csv", "wehi_pains.csv")]
    assert len(filter_patterns()) == lines[0] - 1 + lines[1] and lines[1] == 480 and all(filter_patterns())


def test_frechet_is_that_of_scipy():
    linalg = pytest.importorskip("scipy.linalg")
    rng = np.random.default_rng(1)
    (a, s), (b, r) = (gaussian(rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6))) for _ in range(2))
    wanted = ((a - b) ** 2).sum() + np.trace(s + r - 2 * linalg.sqrtm(s @ r).real)
    np.testing.assert_allclose(frechet(a, s, b, r), wanted)
    np.testing.assert_allclose(frechet(a, s, a, s), 0, atol=1e-9)


@pytest.mark.slow
def test_processes_and_rows(found):
    two = describe_molecules(CANONICAL * 60, processes=2, network=False)
    assert two.smiles == CANONICAL * 60 and two.fragments == found.fragments * 60
    some = found.rows([4, 0])
    assert some.smiles == [CANONICAL[4], CANONICAL[0]] and some.values["QED"][1] == found.values["QED"][0]


def test_references_are_stored_without_pickles(found, tmp_path):
    reference = reference_from(found)
    store_reference(reference, tmp_path / "a.npz")
    again = stored_reference(tmp_path / "a.npz")
    assert again.fragments == reference.fragments and again.scaffolds == reference.scaffolds and again.mean is None
    assert all((again.values[k] == v).all() for k, v in reference.values.items())
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:99])
    assert stored_reference(tmp_path / "a.npz") is None and stored_reference(tmp_path / "none.npz") is None


def test_a_small_reference_is_evenly_spaced(tmp_path, monkeypatch):
    file = tmp_path / "test.csv"
    file.write_text("")
    rows = ["C" * n for n in range(1, 12)]  # eleven rows: every third for a limit of three, the last two left out
    monkeypatch.setattr(moses, "benchmark_files", lambda name: [file])
    monkeypatch.setattr(moses, "benchmark_smiles", lambda name: iter(rows))
    monkeypatch.setattr(moses, "BENCHMARKS", {"moses-test": SimpleNamespace(rows=len(rows))})
    monkeypatch.setattr(moses, "has_chemnet", lambda: False)
    asked = []
    monkeypatch.setattr(moses, "judge", lambda smiles: asked.append(smiles) or judge(smiles))
    for limit in (3, 0, 20): moses.moses_reference(limit=limit)
    assert asked == [["C", "CCCC", "C" * 7], rows, rows]


def test_a_set_against_itself(found):
    given = [*SMILES, None, "c1cc", "C.C"]
    figures = moses_metrics(given, {"test": reference_from(found)}, CANONICAL[:2], unique_at=(3, 9))
    assert figures["valid"] == 5 / 8 and figures["unique@3"] == 1 and math.isnan(figures["unique@9"])
    assert figures["Novelty"] == 2 / 4 and figures["SNN/test"] == 1
    for k in ("Frag/test", "Scaf/test"): np.testing.assert_allclose(figures[k], 1)
    assert all(figures[k] == 0 for k in moses.COMPUTED)


def test_refused():
    with pytest.raises(ValueError, match="smiles: empty"): describe_molecules([])
    with pytest.raises(ValueError, match="none of 2 is a valid"): moses_metrics(["c1cc", None], {})


def test_chemnet_as_its_package_reads_it():
    fcd = pytest.importorskip("fcd_torch")
    ours, theirs = moses.activations(CANONICAL), fcd.FCD(device="cpu").get_predictions(CANONICAL)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_stored_statistics_of_the_wheel():
    "The first molecules of the test set, value by value; only a test opens the wheel's pickles."
    needs_wheel()
    path = benchmark_files("moses-test")[0].with_name("test_stats.npz")
    theirs = np.load(path, allow_pickle=True)["stats"].item()
    smiles = [s for s, _ in zip(benchmark_smiles("moses-test"), range(200))]
    mine = describe_molecules(smiles, network=False)
    for k in ("logP", "weight", "QED"):
        values = np.asarray(theirs[k]["values"] if "values" in theirs[k] else theirs[k]["mu"])
        np.testing.assert_allclose(mine.values[k], values[:200], rtol=1e-6)
    prints = theirs["SNN"]["fps"][:200]
    prints = prints.toarray() if hasattr(prints, "toarray") else np.asarray(prints)
    assert (np.unpackbits(mine.prints, axis=1, bitorder="little") == prints).all()
    names = set(theirs["Frag"]["frag"])
    assert {f for row in mine.fragments for f in row} <= names
    assert {s for s in mine.scaffolds if s} <= set(theirs["Scaf"]["scaf"])


def test_activations_are_of_one_molecule_each_whatever_they_are_computed_with(monkeypatch):
    "A network in ChemNet's place, whose features are the first characters: (rows, characters known, positions)."
    shapes = []

    def network(x):
        shapes.append(tuple(x.shape))
        return x[:, :, :2].argmax(1).float()

    def one_hot(smiles, longest):
        out = np.zeros((longest, moses.WIDTH))
        for i, c in enumerate(smiles): out[i, "CNO".index(c)] = moses.WIDTH
        return out

    monkeypatch.setattr(moses, "_chemnet", lambda: (network, one_hot))
    found = moses.activations(["CN", "OC", "NO"], batch=2)
    assert found.tolist() == [[0, 1], [2, 0], [1, 2]] and found.dtype == np.float64
    assert shapes == [(2, moses.WIDTH, moses.LONGEST), (1, moses.WIDTH, moses.LONGEST)]
