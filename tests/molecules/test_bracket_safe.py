"Bracket SAFE against the published converter, safe-mol, RDKit's own tables and real molecules."
import gzip
import json
import os
import random
import sys
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import forks
import pytest
from rdkit import Chem, rdBase
from rdkit.Chem import BRICS

from loflexmdm.molecules.notation import bracket_safe
from loflexmdm.molecules.notation.bracket_safe import DECODE_REASONS, SLICERS, bonds_to_cut
from loflexmdm.molecules.notation.bracket_safe import brics_pairs, decode, from_bracket_safe
from loflexmdm.molecules.notation.bracket_safe import has_direction, parse_smiles, plot_fragments, read_tokenizer
from loflexmdm.molecules.notation.bracket_safe import reorder, split_attachments, to_bracket_safe
from loflexmdm.molecules.notation.bracket_safe import tokenize, vocabulary_of, write_text

DATA = Path(__file__).parents[3] / "shared" / "data"
DRUGS = {
    "imatinib": "Cc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1Nc1nccc(-c2cccnc2)n1",
    "atorvastatin": "CC(C)c1c(C(=O)Nc2ccccc2)c(-c2ccccc2)c(-c2ccc(F)cc2)n1CC[C@@H](O)C[C@@H](O)CC(=O)O",
    "lovastatin": "CC[C@H](C)C(=O)O[C@H]1C[C@@H](C)C=C2C=C[C@H](C)[C@H](CC[C@@H]3C[C@@H](O)CC(=O)O3)[C@H]21",
    "tamoxifen": "CC/C(=C(\\c1ccccc1)c1ccc(OCCN(C)C)cc1)c1ccccc1",
    "omeprazole": "COc1ccc2[nH]c([S@@](=O)Cc3ncc(C)c(OC)c3C)nc2c1",
}


def data(name):
    "A file of reference data beside the repository; skips where there is none."
    if not (DATA / name).exists(): pytest.skip(f"{name} is not at hand: it is not part of the repository")
    return DATA / name


def zinc(n, seed=0):
    "Random lines of ZINC250k."
    with gzip.open(data("zinc250k.txt.gz"), "rt") as f: lines = f.read().split()
    return random.Random(seed).sample(lines, n)


def flat(smiles): return Chem.MolToSmiles(parse_smiles(smiles), isomericSmiles=False)


def round_trip(smiles):
    """Class of a round trip: exact, stereo (the same without stereochemistry), changed, or the
    reason why the text cannot be read."""
    read, whole = decode(to_bracket_safe(smiles)), Chem.CanonSmiles(smiles)
    if read.smiles is None: return read.reason
    return "exact" if read.smiles == whole else "stereo" if flat(read.smiles) == flat(whole) else "changed"


@pytest.mark.parametrize("name", DRUGS)
@pytest.mark.parametrize("slicer", SLICERS)
def test_drugs_come_back_by_every_rule(name, slicer):
    text = to_bracket_safe(DRUGS[name], slicer=slicer)
    assert "<1>" in text and from_bracket_safe(text) == Chem.CanonSmiles(DRUGS[name])
    assert "".join(tokenize(text)) == text and from_bracket_safe(reorder(text, 3)) == Chem.CanonSmiles(DRUGS[name])


@pytest.mark.parametrize("text, ends, smiles", [
    ("CC=<1>", "[H]", "CC"), ("CC=<1>", "*", "*=CC"), ("CC(=<1>)C", "[H]", "CCC"), ("F/C=C/<1>", "[H]", "C=CF"),
    ("F/C=C/<1>", "*", "*/C=C/F"), ("CC<7>", "", None),
])
def test_a_point_that_is_open_gets_an_atom_by_the_bond_it_has(text, ends, smiles):
    "A hydrogen has a single bond without a direction, whatever stands there."
    with rdBase.BlockLogs(): mol = Chem.MolFromSmiles(bracket_safe.closures(text, ends))
    assert (mol and Chem.MolToSmiles(Chem.RemoveHs(mol))) == smiles


@pytest.mark.parametrize("smiles", ["*CC", "CC*", "C[C@H](F)C*"])
def test_a_bond_of_a_point_of_attachment_is_not_cut(smiles):
    "The half would be the point alone, whichever end of the bond it is."
    mol = parse_smiles(smiles)
    [star] = [a for a in mol.GetAtoms() if not a.GetAtomicNum()]
    [bond] = star.GetBonds()
    assert not bracket_safe.is_safe_to_cut(bond)
    assert any(bracket_safe.is_safe_to_cut(b) for b in parse_smiles(smiles.replace("*", "C")).GetBonds())


@pytest.mark.slow
def test_zinc_round_trip():
    "500 molecules: all exact, and BRICS bonds those of RDKit."
    smiles = zinc(500, seed=1)
    assert Counter(map(round_trip, smiles)) == {"exact": 500}
    for s in smiles[:200]:
        mol = parse_smiles(s)
        assert {frozenset(p) for p, _ in BRICS.FindBRICSBonds(mol)} == {frozenset(p) for p in brics_pairs(mol)}


@pytest.mark.slow
def test_zinc_round_trip_large():
    """4,000 molecules: at least 99.5 % exact and all the same without stereochemistry; the classes are printed.

    A class of one in a thousand is among them with a probability of 98 %; `make fuzz` takes 20,000."""
    seen, examples, n = Counter(), {}, 20_000 if "LOFLEXMDM_FUZZ" in os.environ else 4_000
    for s in zinc(n):
        kind = round_trip(s)
        seen[kind] += 1
        examples.setdefault(kind, s)
    print(dict(seen), {k: v for k, v in examples.items() if k != "exact"})
    assert seen["exact"] >= 0.995 * n and seen["exact"] + seen["stereo"] == n


def reference():
    "Rows (smiles, bracket SAFE, SAFE, decoded) of what the published converter wrote."
    return [line.split("\t") for line in data("bracket_safe_reference.tsv").read_text().splitlines()]


def test_published_texts_decode_to_the_same_molecules():
    """Every text reads as its molecule; one that the published decoder rewrote (a sulfoxide as
    S+ O-) reads as it was written."""
    rows = reference()
    read = [decode(bracket).smiles for _, bracket, _, _ in rows]
    differ = [(s, r) for r, (s, _, _, decoded) in zip(read, rows, strict=True) if r != Chem.CanonSmiles(decoded)]
    assert len(rows) == 150 and len(differ) <= 1
    assert all(r == flat(s) and "S(=O)" in r for s, r in differ)


def test_published_molecules_round_trip():
    assert {round_trip(s) for s, *_ in reference()} == {"exact"}


PRINT = """
from loflexmdm.molecules.notation.bracket_safe import SLICERS, reorder, to_bracket_safe
for s in {smiles!r}:
    for slicer in SLICERS: print(to_bracket_safe(s, slicer=slicer))
    for seed in range(5): print(to_bracket_safe(s, seed=seed), reorder(to_bracket_safe(s), seed + 100))
"""


@pytest.mark.slow
def test_same_texts_whatever_the_hash_seed():
    "Two processes with different hash seeds print the same."
    smiles = [*DRUGS.values(), "N[C@@H](C)C(=O)" * 12 + "O", "[1*]N1CC([2*])(n2cccn2)C1"]
    env, code = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, ["-c", PRINT.format(smiles=smiles)]
    started = forks.start(code, env=env | dict(PYTHONHASHSEED="1"))
    forked = forks.run(code, env=env)  # with the seed of the server, another one each time
    assert started.returncode == forked.returncode == 0 and started.stdout == forked.stdout
    assert len(started.stdout.splitlines()) == len(smiles) * (len(SLICERS) + 5)


@pytest.mark.parametrize("slicer", [s for s in SLICERS if s != "brics"])
def test_other_slicers_say_what_to_install(monkeypatch, slicer):
    "Without safe-mol, or with one that cannot be imported."
    advice = f"slicer='{slicer}' needs the package safe-mol: pip install 'loflexmdm\\[safe\\]'"
    bracket_safe.slicer_patterns.cache_clear()
    with monkeypatch.context() as m:
        for name in ("safe", "safe.converter"): m.setitem(sys.modules, name, None)  # an import of it fails
        with pytest.raises(ImportError, match=advice): to_bracket_safe(DRUGS["imatinib"], slicer=slicer)
        assert round_trip(DRUGS["imatinib"]) == "exact"
    def missing(name): raise PackageNotFoundError(name)
    monkeypatch.setattr(bracket_safe, "version", missing)
    with pytest.raises(ImportError, match=advice): bracket_safe.safe_mol_version(slicer)


@pytest.mark.parametrize("residues, least", [(6, 10), (60, 100), (300, 598)])
@pytest.mark.slow
def test_many_attachments(residues, least):
    smiles = "N[C@@H](C)C(=O)" * residues + "O"
    text = to_bracket_safe(smiles)
    labels = [t for t in tokenize(text) if t.startswith("<")]
    assert len(set(labels)) == 2 * (residues - 1) >= least and f"<%{least}>" in labels and f"<{least}>" not in labels
    assert from_bracket_safe(text) == Chem.CanonSmiles(smiles) == from_bracket_safe(reorder(text, 1))


def test_attachments_may_have_any_number():
    assert from_bracket_safe("C<7>.O<7>") == from_bracket_safe("C<1234567>.O<%1234567>") == "CO"
    # ring closures of the text's own are kept apart
    assert from_bracket_safe("C1%(100)CC<1>C%(100)C1.O<1>") == Chem.CanonSmiles("C12CC(O)C1C2")


def test_bonds_in_parentheses_are_read():
    "As others write a cut double bond at a branch."
    assert from_bracket_safe("C(=<1>)c1ccccc1.C=<1>") == "C=Cc1ccccc1"


@pytest.mark.parametrize(
    "smiles",
    [
        "CC(=O)Oc1ccccc1C(=O)[O-].[Na+]", "[2H]C([2H])([2H])O[13CH2]c1ccccc1", "[NH3]->[Pt](<-[NH3])(Cl)Cl",
        "C[Hg]c1ccccc1", "[Fe+2].c1cc[cH-]c1.c1cc[cH-]c1", "CC[Mg]Br", "[NH3+][C@@H](Cc1ccccc1)C(=O)[O-]", "C" * 400,
        "C" * 50 + "OC(=O)".join(["CCC"] * 80), "C1CCCC/C=C/CCCOC(=O)CC1", "*", "**", "[H][H]", "[5*]1CCOC1",
    ],
)
def test_unusual_molecules(smiles):
    for slicer in SLICERS:
        assert decode(to_bracket_safe(smiles, slicer=slicer), open_points=True).smiles == Chem.CanonSmiles(smiles)


@pytest.mark.parametrize("smiles", ["c1ccncc1", "C", "CCC", "C1CC1.O"])
def test_nothing_to_cut(smiles):
    assert Counter(to_bracket_safe(smiles).split(".")) == Counter(Chem.CanonSmiles(smiles).split("."))
    assert not bonds_to_cut(parse_smiles(smiles))


def test_open_points():
    text = to_bracket_safe("[11*]C1(CC#N)CN(S(=O)(=O)CC)C1")
    assert decode(text).reason == "attachment used once"
    assert decode(text, open_points=True).smiles == Chem.CanonSmiles("*C1(CC#N)CN(S(=O)(=O)CC)C1")
    assert decode(to_bracket_safe("*C(C)=O.[2*]N"), open_points=True).smiles == Chem.CanonSmiles("*C(C)=O.*N")
    assert to_bracket_safe("[1*]CCOC") == to_bracket_safe("[*:3]CCOC") == to_bracket_safe("*CCOC")


@pytest.mark.parametrize("smiles", ["", "  ", "C1CC", "CC(C)(C)(C)C", "c1cccc1", "CC ethane", "Cé", "CC\n", None, 3])
def test_bad_smiles_are_named(smiles):
    with pytest.raises(ValueError, match="smiles="): parse_smiles(smiles)
    with pytest.raises(ValueError, match="smiles="): to_bracket_safe(smiles)


def test_bad_options():
    with pytest.raises(ValueError, match="slicer='bric': must be one of brics, hr"):
        to_bracket_safe("CCO", slicer="bric")
    with pytest.raises(ValueError, match=r"atoms \(0, 2\) are not bonded"):
        to_bracket_safe("CCO", slicer=lambda mol: [(0, 2)])
    assert to_bracket_safe("CCO", slicer=lambda mol: [(0, 1)]) == "OC<1>.C<1>"
    with pytest.raises(ValueError, match="no token covers 'Q'"): tokenize("CCQ")
    with pytest.raises(ValueError, match="no token covers ' '"): tokenize("C C\n")


def test_strict_never_mends():
    for text, reason in {
        "": "empty", "C<1>": "attachment used once", "C<1>.C<1>.C<1>": "attachment used more than twice",
        "C(": "syntax", "C..C": "syntax", "C.": "syntax", "C C": "syntax", "C<1>C<1>": "syntax",
        "CC(C)(C)(C)C": "valence", "c1cccc1": "aromaticity", "C\u00e9": "syntax",
    }.items():
        assert decode(text) == (None, (), reason) and from_bracket_safe(text) is None and reason in DECODE_REASONS
    assert from_bracket_safe("CC.CO") == "CC.CO"


def test_salvaging_lists_what_it_drops():
    assert decode("CC.CCO", salvage=True) == ("CCO", (("component", "CC"),), "")
    assert decode("CC(.CCO<1>.N<1>", salvage=True) == ("CCON", (("fragment", "CC("),), "syntax")
    assert decode("C=<1>.CC<2>.N<2>", salvage=True) == (
        "CCN",
        (("attachment", "<1>"), ("component", "C")),
        "attachment used once",
    )
    assert decode("[C@@H](<1>)(F)Cl.C<1>.C<1>", salvage=True) == (
        Chem.CanonSmiles("[C@@H](C)(F)Cl"),
        (("fragment", "C<1>"),),
        "attachment used more than twice",
    )
    # strict reading accepts it, so there is nothing to salvage
    assert decode("C1CC.C1", salvage=True) == ("CCCC", (), "")
    assert decode("((", salvage=True) == (None, (("fragment", "(("),), "syntax")


def test_nothing_is_printed(capfd):
    for text in ("C(", "c1cccc1", "CC(C)(C)(C)C"): decode(text), decode(text, salvage=True)
    with pytest.raises(ValueError): parse_smiles("C(")
    assert capfd.readouterr() == ("", "")


def test_random_fragments_keep_the_molecule():
    "Any subset of the bonds outside rings may be cut."
    rng = random.Random(0)
    for smiles in DRUGS.values():
        every = bonds_to_cut(parse_smiles(smiles), "attach")
        for _ in range(20):
            some = rng.sample(every, rng.randint(0, len(every)))
            assert from_bracket_safe(write_text(parse_smiles(smiles), some)) == Chem.CanonSmiles(smiles)


def test_published_tokenizer():
    "1,880 tokens less five special ones, plus < and >; every drug can be written with it."
    path = data("safe_tokenizer.json")
    vocabulary = read_tokenizer(path)
    assert len(vocabulary.tokens) - 3 == 1880 - 5 + 2
    for s in [*DRUGS.values(), *zinc(100)]: vocabulary.encode(split_attachments(tokenize(to_bracket_safe(s))))


def test_published_tokenizer_against_the_library():
    "Our tokens are those of the `tokenizers` library with safe-mol's pattern, also for 100 attachments and more."
    tokenizers, utils = pytest.importorskip("tokenizers"), pytest.importorskip("safe._tokenizer_utils")
    keys = (
        "version", "truncation", "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",
    )
    stored = json.loads(data("safe_tokenizer.json").read_text())
    # the published file holds keys that the library refuses
    library = tokenizers.Tokenizer.from_str(json.dumps({k: stored[k] for k in keys}))
    assert library.add_tokens(["<", ">"]) == 2 and library.get_vocab_size() == 1882
    pattern = next(v.REGEX_PATTERN for v in vars(utils).values() if hasattr(v, "REGEX_PATTERN"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    for s in [*DRUGS.values(), *zinc(300), "COC(=O)N" * 60 + "C"]:
        text = to_bracket_safe(s)
        assert split_attachments(tokenize(text)) == library.encode(text, add_special_tokens=False).tokens


def test_vocabulary_is_sorted_and_complete():
    texts = [to_bracket_safe(s) for s in DRUGS.values()]
    vocabulary = vocabulary_of(texts)
    assert list(vocabulary.tokens[3:]) == sorted({t for x in texts for t in tokenize(x)})


def test_plot_returns_the_axes():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = pyplot.figure().add_subplot()
    assert plot_fragments(to_bracket_safe(DRUGS["imatinib"]), ax) is ax and len(ax.images) == 1
    with pytest.raises(ValueError, match="piece='C\\('"): plot_fragments("C(", ax)


def fastest(fn, items, repeats=3):
    """Mean over the items of the fastest of several calls, in ms of processor time, so that other processes on the
    machine count as little as possible."""
    best = [float("inf")] * len(items)
    for _ in range(repeats):
        for k, x in enumerate(items):
            start = time.process_time()
            fn(x)
            best[k] = min(best[k], time.process_time() - start)
    return 1e3 * sum(best) / len(best)


@pytest.mark.slow
def test_rates_beside_safe_mol():
    """Encoding and decoding against safe-mol on the same molecules in one run:
    the figures are printed, ours must be the lower ones."""
    safe = pytest.importorskip("safe")
    smiles = zinc(150, seed=5)
    ours, theirs = [to_bracket_safe(s) for s in smiles], [safe.encode(s, allow_empty=True) for s in smiles]
    ms = dict(
        encode=fastest(to_bracket_safe, smiles),
        safe_encode=fastest(lambda s: safe.encode(s, allow_empty=True), smiles),
        decode=fastest(from_bracket_safe, ours),
        safe_decode=fastest(lambda t: safe.decode(t, canonical=True), theirs),
        reorder=fastest(lambda t: reorder(t, 1), ours),
        tokenize=fastest(tokenize, ours),
        parse=fastest(Chem.MolFromSmiles, smiles),
    )
    print({k: round(v, 3) for k, v in ms.items()})
    assert ms["encode"] < ms["safe_encode"] and ms["decode"] < ms["safe_decode"]


@pytest.mark.slow
def test_exact_for_messy_texts():
    """Texts with one character replaced: strict reading and RDKit agree on what is a
    molecule, and salvaging never raises."""
    rng = random.Random(0)
    alphabet = "CNOcn()=#123[]@/.<>%+-*"
    for s in zinc(300, seed=2):
        text = to_bracket_safe(s)
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice(alphabet) + text[i + 1:]
        strict, kept = decode(text), decode(text, salvage=True)
        with rdBase.BlockLogs():
            for smiles in (strict.smiles, kept.smiles): assert smiles is None or Chem.MolFromSmiles(smiles) is not None
        assert (strict.smiles is None) == (strict.reason in DECODE_REASONS)


@pytest.mark.parametrize("stereo, has", [
    ("STEREONONE", False), ("STEREOANY", False), ("STEREOE", True), ("STEREOZ", True),
])
def test_a_double_bond_of_any_direction_has_none(stereo, has):
    mol = Chem.MolFromSmiles("CC=CC")
    bond = mol.GetBondWithIdx(1)
    bond.SetStereoAtoms(0, 3)
    bond.SetStereo(getattr(Chem.BondStereo, stereo))
    assert has_direction(bond) == has
