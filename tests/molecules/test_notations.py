"Notations of molecules: exact round trips, one canonical text, holes that prompts leave, reasons, bad calls."
import random
import sys
from itertools import islice

import pytest
import torch
from rdkit import Chem

from loflexmdm.molecules.data.sources import benchmark_files, benchmark_smiles
from loflexmdm.molecules.notation import notations
from loflexmdm.molecules.notation.bracket_safe import parse_smiles
from loflexmdm.molecules.notation.fragments import DRUGS, contains_fragment
from loflexmdm.molecules.notation.linkers import link_cuts, spell_link
from loflexmdm.molecules.notation.notations import Notation, closure_spans, free_branches, is_atom
from loflexmdm.molecules.notation.notations import simpler
from loflexmdm.molecules.notation.notations import NOTATIONS, check_text, given_and_closed
from loflexmdm.molecules.notation.notations import notation_of, random_smiles
from loflexmdm.molecules.notation.notations import smiles_prompts, symbols
from loflexmdm.molecules.scores.metrics import judge
from loflexmdm.molecules.task import MoleculesConfig, MoleculesTask
from loflexmdm.process.states import BOS

STEREO = [
    "C[C@]12CC[C@H]3[C@@H](CC[C@@H]4CC(=O)CC[C@]34C)[C@@H]1CC[C@@H]2O", "C/C=C/C(=O)Nc1ccccc1",
    "CN1[C@@H]2CC[C@H]1[C@H]([C@H](C2)OC(=O)c1ccccc1)C(=O)OC", "F[C@]1(Cl)C[C@H]1/C=C\\CO", "C[S@](=O)c1ccccc1",
    "CC1(C)[C@@H]2CC[C@@]1(C)C(=O)C2", "O=C1O[C@@H]2[C@H](O)[C@@]12C", "C1C[C@@]23CCCN2CC[C@@H]13",
]
MOLECULES = sorted({Chem.CanonSmiles(s) for s in [*DRUGS.values(), *STEREO]})
OURS = sorted(set(NOTATIONS) - {"selfies"})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", NOTATIONS)
def test_round_trips_with_stereochemistry(name):
    if name == "selfies": pytest.importorskip("selfies")
    notation = notation_of(name)
    for smiles in MOLECULES:
        text = notation.write(smiles)
        again = [notation.rewrite(text, random.Random(k)) for k in range(5)]
        assert {notation.decode(t).smiles for t in [text, *again]} == {smiles}
        assert "".join(notation.tokens(text)) == text
        assert again == [notation.rewrite(text, random.Random(k)) for k in range(5)]


@pytest.mark.parametrize("name", OURS)
def test_one_canonical_text(name):
    notation = notation_of(name)
    for smiles in MOLECULES:
        others = {Chem.CanonSmiles(random_smiles(parse_smiles(smiles), random.Random(k))) for k in range(4)}
        assert len({notation.write(s) for s in others}) == len(others) == 1


@pytest.mark.parametrize("text", ["C==C", "=CC", "C=", "C(=)C", "C=(C)", "C%", ""])
def test_a_bond_stands_between_two_atoms(text):
    with pytest.raises(ValueError): check_text(text)


@pytest.mark.parametrize("smiles", ["C1CCCCC=1", "C=1CCCCC1", "C=1CCCCC=1", "C=1CC#CCCCCCC1"])
def test_the_bond_of_a_ring_stands_at_either_end(smiles): check_text(smiles)


@pytest.mark.parametrize("smiles, ring", [
    ("CCCCCCCCN1CCN(CCCCCCCC)CC1", "N1CCN(CC1)"), ("CCCCCCCCc1ccc(cc1)CCCCCCCC", "c1ccc(cc1)"),
])
def test_random_texts_leave_a_ring_between_its_substituents(smiles, ring):
    "From outside the ring, the rest of it is the branch in half of the texts: a share of (n - 6) / 2n."
    mol, n = Chem.MolFromSmiles(smiles), 2000
    law = (1 - 6 / mol.GetNumAtoms()) / 2
    share = sum(ring in random_smiles(mol, random.Random(k)) for k in range(n)) / n
    assert abs(share - law) < 4 * (law * (1 - law) / n) ** 0.5


def test_random_texts_depend_on_their_seed_alone():
    mol = Chem.MolFromSmiles(DRUGS["imatinib"])
    texts = [random_smiles(mol, random.Random(k)) for k in range(20)]
    Chem.MolToRandomSmilesVect(mol, 3)
    assert texts == [random_smiles(mol, random.Random(k)) for k in range(20)] and len(set(texts)) == 20


def test_links_of_a_molecule_by_hand():
    "Between two of three bonds outside rings; none without a ring, and none in salts' other parts."
    cuts = link_cuts(Chem.MolFromSmiles("CC(=O)Nc1ccccc1"))
    assert sorted(cut.atoms for cut in cuts) == [1, 2, 3]
    assert link_cuts(Chem.MolFromSmiles("CCCCO")) == []
    assert [cut.atoms for cut in link_cuts(Chem.MolFromSmiles("C1CC1CC1CC1"))] == [1]
    assert [cut.atoms for cut in link_cuts(Chem.MolFromSmiles("C1CC1CC1CC1.CCC"))] == [1]


@pytest.mark.parametrize("smiles", MOLECULES)
def test_every_link_is_spelled_between_its_ends(smiles):
    "With the number of atoms of the graph, and the molecule's stereocentres."
    mol = Chem.MolFromSmiles(smiles)
    for cut in link_cuts(mol):
        made = [spell_link(mol, cut, random.Random(k)) for k in range(3)]
        for text, (a, b) in filter(None, made):
            assert Chem.CanonSmiles(text) == smiles and sum(map(is_atom, symbols(text)[a:b])) == cut.atoms


REFUSED = [
    ("smiles", "", "empty"), ("smiles", " ", "syntax"), ("smiles", "C)", "parentheses"), ("smiles", "(C)", "syntax"),
    ("smiles", "C=", "syntax"), ("smiles", "C.C", "syntax"), ("smiles", "C11", "ring"), ("smiles", "C=1CC#1", "ring"),
    ("smiles", "1CC1", "syntax"), ("smiles", "C{C}", "syntax"), ("smiles", "C=(C)C", "syntax"),
    ("smiles", "C1CC", "ring not closed"), ("smiles", "CC(", "parentheses"), ("smiles", "CXC", "syntax"),
    ("smiles", "cccccc", "aromaticity"), ("smiles", "C(C)(C)(C)(C)C", "valence"), ("smiles", "CCC", ""),
]


@pytest.mark.parametrize("name, text, reason", REFUSED)
def test_reasons(name, text, reason):
    found = notation_of(name).decode(text)
    assert found.reason == reason and (found.smiles is None) == bool(reason)


@pytest.mark.parametrize("name", ["bracket-safe", "smiles"])
def test_a_molecule_whose_smiles_cannot_be_read_is_refused(name):
    "RDKit takes the text, and writes OCc1oc2nncn12, which it does not take."
    for salvage in (False, True):
        found = notation_of(name).decode("OCC1=oc2nncn12", salvage=salvage)
        assert (found.smiles, found.reason) == (None, "aromaticity")
    assert judge(["OCC1=oc2nncn12", "OCC"])[0] == (None, None, "chemistry")
    parts = notation_of("bracket-safe").decode("CC.c1ccccc1", salvage=True)
    assert parts.smiles == "c1ccccc1" and len(parts.dropped) == 1


@pytest.mark.parametrize("fragment", ["*c1ccncc1.*N1CCOCC1", "*C.*N", "*=C1CCNCC1.*c1ccccc1", "*c1ccc(*)cc1.*N1CCOCC1"])
def test_smiles_of_two_fragments_leave_a_gap_for_their_link(fragment):
    "Whatever stands in the gap, both fragments are there; either of them comes first in some of the prompts."
    prompts = smiles_prompts(fragment)
    assert len({tuple(p) for p in prompts}) == len(prompts) > 1 and len({p[0] for p in prompts}) > 1
    for prompt in prompts:
        assert prompt[0] is not ... and prompt.count(...) == fragment.count("*") - 1
        texts = iter(("C", "N"))
        text = "".join(next(texts) if t is ... else t for t in prompt)
        assert contains_fragment(Chem.CanonSmiles(text), fragment), text


def test_prompts_that_a_notation_cannot_hold():
    with pytest.raises(ValueError, match="takes no fragments as prompts"): notation_of("selfies").prompt("*c1ccccc1")
    with pytest.raises(ValueError, match="no attachment point"): notation_of("smiles").prompt("c1ccccc1")
    with pytest.raises(ValueError, match="c1cc"): notation_of("smiles").prompt("c1cc")
    with pytest.raises(ValueError, match="notation='inchi'"): notation_of("inchi")


def test_holes_and_gaps():
    "Spans are apart and in order; gaps are open inside them and nowhere else, and closed ones precede no free token."
    for smiles in MOLECULES:
        tokens = symbols(smiles)
        for k in range(40):
            holes = free_branches(tokens, random.Random(k))
            assert all(a <= b for a, b in holes) and all(x[1] < y[0] for x, y in zip(holes, holes[1:]))
            fixed, closed = given_and_closed(tokens, holes)
            assert len(fixed) == len(closed) == len(tokens) + 1 and fixed[0]
            for i in range(len(tokens)): assert fixed[i + 1] or not closed[i]  # a free token lies behind an open gap
    assert given_and_closed(["C", "C"], []) == ([True, False, False], [False] * 3)
    fixed, closed = given_and_closed(["C", "(", "C", ")"], [(2, 3)])
    assert fixed == [True] * 3 + [False, True] and closed == [True, True, False, False, True]


@pytest.mark.parametrize("name", NOTATIONS)
def test_the_task_in_every_notation(name, tmp_path):
    if name == "selfies": pytest.importorskip("selfies")
    path = tmp_path / "mine.smi"
    lines = [f"{'C' * (1 + i % 9)}Oc1ccc(C(=O)N{'C' * (1 + i // 9)}F)cc1" for i in range(40)]
    path.write_text("\n".join(lines))
    options = dict(source=str(path), valid_share=0.0, test_share=0.0, prompt_share=0.5, notation=name)
    task = MoleculesTask(MoleculesConfig(**options))
    examples = [task.dataset("train")[i] for i in range(80)]
    said = [task.notation.decode("".join(task.vocabulary.decode(e.tokens[1:]))).smiles for e in examples]
    assert set(said[:40]) == set(said[40:]) == set(task.smiles("train"))
    assert all(e.tokens[0] == BOS and len(e.tokens) == len(e.fixed) == len(e.closed) for e in examples)
    held = name != "selfies"
    assert any(sum(e.fixed) > 1 for e in examples) == held
    assert len({tuple(e.tokens) for e in examples}) > 40
    short = MoleculesTask(MoleculesConfig(**options | dict(limit=7)))
    assert sum(short.sizes().values()) == 7
    assert [MoleculesTask(task.config).dataset("train")[i] for i in (3, 60)] == [examples[i] for i in (3, 60)]


def test_texts_with_holes_are_written_anew_though_others_are_not(tmp_path):
    path = tmp_path / "mine.smi"
    path.write_text("\n".join(f"{'C' * (1 + i)}Oc1ccc(C(=O)NCF)cc1" for i in range(8)))
    options = dict(source=str(path), valid_share=0.0, test_share=0.0, prompt_share=0.5)
    options |= dict(notation="smiles", reorder=False)
    task = MoleculesTask(MoleculesConfig(**options))
    written, found = set(task.texts("train")), {False: set(), True: set()}
    for e in (task.dataset("train")[i] for i in range(200)):
        found[sum(e.fixed) > 1].add("".join(task.vocabulary.decode(e.tokens[1:])))
    assert found[False] == written
    assert found[True] - written and len(found[True]) > len(written)


@pytest.mark.slow
def test_a_prompt_with_holes_is_sampled_inside_them(tmp_path):
    from loflexmdm.training.recipes import recipe
    path = tmp_path / "mine.smi"
    path.write_text("\n".join(f"{'C' * (1 + i % 9)}Oc1ccc(C(=O)N{'C' * (1 + i // 9)}F)cc1" for i in range(40)))
    r = recipe("molecules-fixed", source=str(path), notation="smiles", size="nano", steps=1, batch_size=2, valid_size=2)
    method = r.trainer(tmp_path / "run", progress=False).fit()
    task = MoleculesTask(MoleculesConfig(source=str(path), notation="smiles"))
    prompt = task.prompt("*c1ccc(*)cc1")
    samples = method.sample([list(prompt)], 3, generator=torch.Generator().manual_seed(0))
    given = [t for t in prompt if t is not ...]
    for sequence, free in zip(samples.sequences, samples.free):
        kept = [t for t, f in zip(method.vocabulary.decode(sequence), free) if not f]
        assert kept == given and not free[0]


def test_selfies_missing(monkeypatch):
    notations.selfies_package.cache_clear()
    monkeypatch.setitem(sys.modules, "selfies", None)
    with pytest.raises(ImportError, match=r"pip install 'loflexmdm\[selfies\]'"): notation_of("selfies").write("C")
    notations.selfies_package.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTATIONS)
def test_ten_thousand_molecules_of_moses(name):
    try: benchmark_files("moses")
    except ValueError as e: pytest.skip(str(e))
    if name == "selfies": pytest.importorskip("selfies")
    notation, lost = notation_of(name), 0
    for smiles in islice(benchmark_smiles("moses"), 0, 1_580_000, 158):
        smiles = Chem.CanonSmiles(smiles)
        text = notation.write(smiles)
        lost += notation.decode(text).smiles != smiles
        lost += notation.decode(notation.rewrite(text, random.Random(text))).smiles != smiles
    assert not lost


@pytest.mark.parametrize("smiles, without, found", [
    ("C[C@H](O)F", "@", ("CC(O)F", ["stereochemistry"])), ("C[C@H](O)F", "+", ("C[C@H](O)F", [])),
    ("C[C@H]([NH3+])F", "+", ("C[C@H](N)F", ["charges"])),
    ("C[C@H]([NH3+])F", "@+", ("CC(N)F", ["stereochemistry", "charges"])),
    ("[13CH3][C@H]([NH3+])F", "@+1", ("CC(N)F", ["stereochemistry", "charges", "isotopes"])),
    ("[13CH3]O", "1", ("CO", ["isotopes"])), ("C/C=C/C", "/", ("CC=CC", ["stereochemistry"])),
    ("C[N+](C)(C)C", "+", ("C[N+](C)(C)C", [])), ("CC(=O)[O-]", "-", ("CC(=O)O", ["charges"])),
])
def test_what_is_left_out_where_tokens_are_missing(smiles, without, found):
    assert simpler(smiles, lambda text: not set(text) & set(without)) == found


def test_branches_and_ends_that_are_generated():
    "Without a branch always an end, of one atom or more and never all; with branches an end in half of the draws."
    drawn = lambda text, n: [free_branches(list(text), random.Random(seed)) for seed in range(n)]
    assert {tuple(spans) for spans in drawn("CNOS", 60)} == {((start, 4),) for start in (1, 2, 3)}
    assert all(not spans for spans in drawn("C1CC1", 20)) and not free_branches([], random.Random(0))
    with_end = [any(end == 6 for _, end in spans) for spans in drawn("CC(N)O", 400)]
    assert all(drawn("CC(N)O", 400)) and abs(sum(with_end) - 200) < 4 * 10  # of a standard deviation of 10


def test_a_prompt_is_the_first_way_to_write_a_fragment():
    ways = smiles_prompts("*CCN*")
    assert len(ways) > 1 and notation_of("smiles").prompt("*CCN*") == ways[0] != ways[1]
    assert Notation.prompt(notation_of("smiles"), "*CCN*") == ways[0]


RINGS = "c1ccc(CCOC(=O)NC2CCCCC2)cc1"  # links of one to several atoms, and a ring of single bonds


@pytest.fixture
def one_molecule(tmp_path):
    path = tmp_path / "one.smi"
    path.write_text("\n".join([RINGS, *(f"CC{'C' * k}O" for k in range(40))]) + "\n")
    return str(path)


def drawn_from(one_molecule, **settings):
    "What a task generates of the molecule with rings: texts and spans."
    config = MoleculesConfig(source=one_molecule, notation="smiles", reorder=False, prompt_share=1.0, **settings)
    task = MoleculesTask(config)
    return [(symbols(text), spans) for text, spans in (task._hide_parts(RINGS, random.Random(i)) for i in range(600))]


def test_links_by_length_have_each_number_of_atoms_as_often(one_molecule):
    "Two ends, and the rest by its number of atoms."
    counts = {}
    for tokens, spans in drawn_from(one_molecule, links="length"):
        [(a, b), *others] = spans
        if others or b == len(tokens) or tokens[b] == ")": continue
        n = sum(map(is_atom, tokens[a:b]))
        counts[n] = counts.get(n, 0) + 1
    lengths = {cut.atoms for cut in link_cuts(Chem.MolFromSmiles(RINGS))}
    assert set(counts) == lengths and max(counts.values()) < 3 * min(counts.values())


def test_rings_to_close_are_prompts_where_there_are_any(one_molecule):
    closes = lambda tokens, spans: set(spans) <= set(closure_spans(tokens))
    assert sum(closes(*drawn) for drawn in drawn_from(one_molecule, close=1.0)) > 500
    assert not any(closes(*drawn) for drawn in drawn_from(one_molecule))


def test_links_and_closures_need_smiles():
    for wrong in (dict(links="length"), dict(close=0.5)):
        with pytest.raises(ValueError, match="notation='smiles'"): MoleculesConfig(**wrong)
