"Small files are split, and an empty split names what fills it."
import random
import re

import pytest

from loflexmdm.molecules.edit_task import MoleculeEditsConfig, MoleculeEditsTask
from loflexmdm.molecules.task import MoleculesConfig, MoleculesTask
from loflexmdm.tasks.base import SPLITS
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask

WORDS = "the cat sat on a mat while my dog ran over hills and saw two red birds".split()
LEADS = [f"{group}c1ccc({core})cc1" for core in ("C(=O)NC2CC2", "-c2ccncc2", "CN2CCOCC2")
         for group in ("F", "Cl", "C", "OC", "N", "N#C", "O", "CC", "CN(C)", "FC(F)(F)")]


def sentences(n, seed):
    draw = random.Random(seed)
    return [" ".join(draw.sample(WORDS, 6)) for _ in range(n)]


def cured(message, option="valid_share"):
    "The value that a message names for an option."
    return float(re.search(rf"{option}=([\d.]+) \(--", message)[1])


@pytest.mark.parametrize("seed", range(12))
def test_twelve_sentences_have_all_splits(seed):
    task = SequencesTask(SequencesConfig(), sentences(12, seed))
    assert all(len(task.dataset(split)) for split in SPLITS) and sum(task.sizes().values()) == 12
    again = SequencesTask(SequencesConfig(), sentences(12, seed)[::-1])
    assert {s: set(rows) for s, rows in again.splits.items()} == {s: set(rows) for s, rows in task.splits.items()}


def test_what_is_held_out_is_said():
    said = [SequencesTask(SequencesConfig(), sentences(12, seed)).summary() for seed in range(6)]
    assert 0 < sum("small source: 1 for " in text for text in said) < 6


def test_large_sources_and_full_splits_are_as_before():
    task = SequencesTask(SequencesConfig(), sentences(400, 0))
    assert not task.data.held and "small source" not in task.summary()


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_an_empty_split_names_the_share_that_fills_it(n):
    found = 0
    for seed in range(20):
        rows = sentences(n, seed)
        for split in ("valid", "test"):
            try: SequencesTask(SequencesConfig(), rows).dataset(split)
            except ValueError as e: found += cures(str(e), split, rows)
    assert found


def cures(message, split, rows):
    "True if a message names a share, which then fills the split."
    advice = message.partition("; ")[2]
    assert advice.endswith("10 or more different ones are split by themselves")
    if "holds out one" not in advice: return False
    share = {f"{split}_share": cured(advice, f"{split}_share")}
    return len(SequencesTask(SequencesConfig(**share), rows).dataset(split)) >= 1


def test_a_few_molecules_name_the_share(tmp_path):
    (tmp_path / "a.smi").write_text("\n".join(LEADS[:5]))
    with pytest.raises(ValueError, match="--valid-share 0") as e:
        MoleculesTask(MoleculesConfig(source=str(tmp_path / "a.smi"))).dataset("valid")
    share = cured(str(e.value))
    assert len(MoleculesTask(MoleculesConfig(source=str(tmp_path / "a.smi"), valid_share=share)).dataset("valid"))


def edits(path, **options):
    return MoleculeEditsTask(MoleculeEditsConfig(source=str(path), max_length=64, **options))


@pytest.mark.parametrize("seed", range(6))
def test_few_leads_have_pairs_in_all_splits(tmp_path, seed):
    (tmp_path / "leads.smi").write_text("\n".join(random.Random(seed).sample(LEADS, 15)))
    task = edits(tmp_path / "leads.smi", goal="any")
    assert all(task.dataset(split) for split in SPLITS)
    held = {s for split in ("valid", "test") for s in task.leads(split)}
    assert not held & {task.found.smiles[m.second] for m in task.matched["train"]}
    assert "read: " in task.summary() and ("small source: " in task.summary()) == bool(task._held_out)


def test_thirty_leads_have_pairs_in_all_splits(tmp_path):
    (tmp_path / "leads.smi").write_text("\n".join(LEADS))
    task = edits(tmp_path / "leads.smi")
    assert all(task.dataset(split) for split in SPLITS)


def test_leads_without_pairs_name_the_cure(tmp_path):
    (tmp_path / "three.smi").write_text("\n".join(LEADS[:3]))
    with pytest.raises(ValueError, match="more pairs by --gain 0") as e: edits(tmp_path / "three.smi").dataset("valid")
    assert "--goal any" in str(e.value) and "--exchanges" in str(e.value)
    (tmp_path / "more.smi").write_text("\n".join(LEADS[::2]))  # more molecules, and both ways
    assert all(edits(tmp_path / "more.smi", goal="any").dataset(split) for split in SPLITS)
