"Molecules that can be made: groups, rings, and the filter of searches."
import csv
import gzip
import random
from collections import Counter
from pathlib import Path

import pytest
from rdkit import Chem

from loflexmdm.models.pretrained import load
from loflexmdm.molecules.optimise import Makeable, Similar, proposals_left_out
from loflexmdm.molecules.scores.makeable import LARGE, Environment, Table, count_environments, environments
from loflexmdm.molecules.scores.makeable import known_environments, objection, rings_in, unusual, write_table
from commands import call

STRAINED = {
    "C1#CCCC1": "strained ring", "C1=C=CCCCC1": "strained ring", "N1=C2C1C2": "strained ring",
    "C1CC2=NC12": "strained ring",
    "c1cc2ccc1CCCC2": "bridged aromatic ring", "c1ccc2c(c1)C2": "strained ring", "C1CCC/C=C/CC1": "strained ring",
    "CC1=C(C)C(C)C1C": "strained ring",  # four substituents, as a squaric acid has
}


@pytest.mark.parametrize("smiles, reason", STRAINED.items())
def test_strained_rings_have_their_reason(smiles, reason):
    mol = Chem.MolFromSmiles(smiles)
    if mol is None: pytest.skip("RDKit cannot read it")
    assert reason in rings_in(mol) and objection(mol)


@pytest.mark.parametrize("smiles", [
    "CN(C)C#CC", "C=C=CC", "CN(Cl)C", "CC(=O)OOC", "CSN(C)C", "CN=C=O", "C[PH]C", "CN(C)CN(C)C", "CC(=O)NCNC(C)=O",
    "CC(F)=NC", "C=CNC=NC", "CN(C)N(C)C", "CC(=O)Cl",
])
def test_unusual_environments_are_refused(smiles): assert unusual(Chem.MolFromSmiles(smiles))


@pytest.mark.parametrize("smiles", [
    "[2H]c1ccc(CN2CCOCC2)cc1", "[2H]C([2H])([2H])Oc1ccccc1", "O=C(N1CCOCC1)c1cc[13cH]cc1",
])
def test_isotopes_are_no_objection(smiles): assert objection(Chem.MolFromSmiles(smiles)) == ""


def test_an_environment_reaches_to_the_neighbours_of_unsaturated_atoms():
    "The nitrogen of an amide is not that of an amine; a ring counts by its size, a medium one as 8, a large one not."
    amide, amine = ({*environments(Chem.MolFromSmiles(s))} for s in ("CNC(C)=O", "CNC(C)C"))
    assert Environment("N~H1r0", ("-C", "-C=O")) in amide and Environment("NH1r0", ("-C", "-C")) in amine
    sizes = {n: environments(Chem.MolFromSmiles(f"C1{'C' * (n - 1)}1"))[0].centre for n in (6, 8, 11, 12, 30)}
    assert sizes == {6: "CH2r6", 8: "CH2r8", 11: "CH2r8", 12: "CH2r0", 30: "CH2r0"} and LARGE == (8, 12)


@pytest.mark.parametrize("smiles", [
    "CC1CCCCCCCCCCCCC(=O)C1", "CC1CCCC(=O)CCCC=Cc2cc(O)cc(O)c2C(=O)O1", "C1CCCCCNCCCCCC1",
    "O=C1CCCNc2cccc(c2)CCCCN1", "CC(C)(C)N1CCCCOCCCc2cccc(c2)C1", "CN1CCCNCCCCc2cccc(c2)CC1",
])
def test_atoms_of_macrocycles_are_judged_as_those_of_chains(smiles): assert not objection(Chem.MolFromSmiles(smiles))


def test_a_table_by_hand():
    "Of 8,000 ethers and amines, an aminal is as rare as 0 of some thousand; unknown neighbours are unusual."
    mols = [Chem.MolFromSmiles(s) for s in ("CCOC", "CCN(C)C", "CCC")] * 3
    table = count_environments(mols)
    assert table.molecules == 9 and table.counts[Environment("CH2r0", ("-C", "-O"))] == 3
    counts = {Environment("CH2r0", near): n for near, n in
              {("-C", "-C"): 6000, ("-C", "-N"): 1000, ("-C", "-O"): 1000, ("-N", "-N"): 1}.items()}
    table, aminal = Table(counts, 8000), Environment("CH2r0", ("-N", "-N"))
    share = 1002 / 16002
    assert table.expected_count(aminal) == pytest.approx(8001 * share ** 2)
    assert table.expected_count(Environment("CH2r0", ("-N", "-O"))) == pytest.approx(2 * 8001 * share * 1000 / 16002)
    assert table.is_unusual(aminal) and table.is_unusual(Environment("CH2r0", ("-C", "-S")))
    assert not table.is_unusual(Environment("CH2r0", ("-C", "-N"))) and table.is_unusual(Environment("BH2r0", ("-C",)))


def test_the_table_of_the_package_is_small_and_is_read_as_written():
    table = known_environments()
    packed = write_table(table)
    assert len(packed) < 300_000 and packed == write_table(Table(dict(reversed(table.counts.items())), table.molecules))
    assert max(table.counts.values()) <= table.molecules


def test_few_molecules_of_zinc_are_refused():
    path = Path(__file__).parents[3] / "shared" / "data" / "zinc250k.txt.gz"
    if not path.is_file(): pytest.skip("no ZINC here")
    lines = gzip.open(path, "rt").read().split()
    refused = [objection(Chem.MolFromSmiles(s)) for s in random.Random(0).sample(lines, 400)]
    assert sum(map(bool, refused)) <= 12, Counter(refused)


def test_filters_count_by_reason():
    proposed = ["C1#CCCC1", "CCO", "CN(C)Cl", "CCCCCCCC"]
    list_of = lambda population, rng: [(s, "list") for s in proposed]
    kept = Similar(Makeable(list_of), ["CCO"], 0.3)
    assert kept([], random.Random(0)) == [("CCO", "list")]
    assert proposals_left_out(kept) == {
        "strained ring": 1, "rare environment CN(C)Cl": 1, "similarity below 0.3": 1,
    }
    with pytest.raises(ValueError, match="the lower first"): Similar(list_of, ["CCO"], 0.8, 0.4)


@pytest.mark.slow
def test_the_command_prints_what_it_left_out(tmp_path):
    leads = tmp_path / "leads.smi"
    leads.write_text("CCOOC\nCC(=O)Nc1ccc(O)cc1\nCc1ccccc1NC(C)=O\n")
    line = f"optimize --objective qed --way ranked --start {leads} --budget 60 --out {tmp_path / 'run.jsonl'}"
    code, out, said = call(line)
    assert code == 0 and "molecules that cannot be made are not proposed (SA at most 6; --no-sound for all)" in said
    assert "--start: scored, but as proposals left out unless --no-sound: 1 rare environment COO" in said
    best = [row["smiles"] for row in csv.DictReader(out.splitlines())]
    assert best and {objection(Chem.MolFromSmiles(s)) for s in best} <= {"", "rare environment COO"}
    code, _, said = call(f"{line} --no-sound")
    assert code == 2 and "a run with other settings (sound)" in said
    code, _, said = call(f"{line} --no-sound --force")
    assert code == 0 and "all valid molecules may be proposed (--no-sound)" in said
    code, _, said = call(f"{line} --similarity 0.9-0.2 --force")
    assert code == 2 and "the lower first" in said
    code, out, said = call(f"{line} --similarity 0.4-0.9 --force")
    assert code == 0
    assert call("optimize --objective qed --way ranked --similarity 0.4-0.9")[0] == 2


def test_goals_say_that_parallel_is_not_used(tmp_path):
    from loflexmdm.molecules.scores.desirability import read_goals
    path = tmp_path / "g.toml"
    path.write_text("[scoring]\nparallel = 8\n[[scoring.component]]\n[scoring.component.QED]\n"
                    "[[scoring.component.QED.endpoint]]\nname = 'q'\n")
    with pytest.warns(UserWarning, match="parallel=8: not used; molecules are scored one at a time"): read_goals(path)


@pytest.mark.slow
@pytest.mark.parametrize("prompt, settings", [
    (None, dict(n=12, temperature=1.2)), ("*c1ccncc1", dict(n=12, temperature=1.2)),
    ("*CCc1cccc(C*)c1", dict(n=4, close=True, ring_size="12-16")),
])
def test_samples_are_sound_by_the_rule_and_reasons_are_named(prompt, settings):
    found = load("molecules-leads").sample(prompt, seed=0, rule="sound", **settings)
    assert len(found) == settings["n"] and not any(objection(Chem.MolFromSmiles(s)) for s in found.smiles)
    assert found.rule.tries == found.rule.accepted + len(found.rule.reasons) > len(found)
    assert "left out: " in found.counters_text()


def test_edits_are_sound_by_the_rule():
    found = load("lead-edits").edit("CC(=O)Nc1ccc(O)cc1", n=12, seed=0, rule="sound")
    assert len(found) == 12 and not any(objection(Chem.MolFromSmiles(s)) for s in found.smiles)


def test_half_a_molecule_is_added_to_both_numbers():
    "An environment without a molecule is unusual where some are expected, and usual where hardly one is."
    counts = {Environment("CH3r0", ("-C",)): 400, Environment("CH2r0", ("-C", "-C")): 100,
        Environment("CH2r0", ("-C", "-O")): 3,
              Environment("OH1r0", ("-C",)): 3}
    table = Table(counts, 100)
    rare = Environment("CH2r0", ("-O", "-O"))
    share = 3 / 206
    assert table.expected_count(rare) == pytest.approx(103 * share ** 2)
    assert not table.is_unusual(rare), ".5 over .52"
    table.counts = counts | {rare: 0}
    assert table.is_unusual(Environment("CH2r0", ("-N", "-O"))), "a neighbour that was never seen"
