"The molecules task: files of one's own, other vocabularies, a run that is stopped and goes on, and what is refused."
import gzip
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import forks
import pytest
import torch
from rdkit import Chem

from loflexmdm.molecules.notation.bracket_safe import Decoded, from_bracket_safe, to_bracket_safe
from loflexmdm.molecules.notation.fragments import fragment_prompt
from loflexmdm.molecules.task import MoleculesConfig, MoleculesTask, mirror
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe

DATA = Path(__file__).parents[3] / "shared" / "data"
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))


def smiles_file(path: Path, n: int = 60) -> Path:
    "n chains with a ring, an ether and an amide, all different."
    lines = [f"{'C' * (1 + i % 9)}Oc1ccc(C(=O)N{'C' * (1 + i // 9)}F)cc1 molecule_{i}" for i in range(n)]
    path.write_text("\n".join(lines) + "\n")
    return path


def words(task, example): return "".join(task.vocabulary.decode(example.tokens[1:]))


def test_a_file_of_ones_own(tmp_path):
    task = task_from(
        dict(kind="molecules", source=str(smiles_file(tmp_path / "mine.smi")), valid_share=0.2, test_share=0.2)
    )
    assert sum(len(task.texts(s)) for s in ("train", "valid", "test")) == 60
    known = set(task.smiles("train"))
    data = task.dataset("train")
    assert {from_bracket_safe(words(task, data[i])) for i in range(len(known))} == known  # one epoch


def test_stereochemistry_survives_shuffling_and_prompts(tmp_path):
    path = tmp_path / "stereo.smi"
    path.write_text(
        "\n".join(
            ["C[C@H](N)C(=O)N[C@@H](Cc1ccccc1)C(=O)O", "C/C=C/C(=O)Nc1ccccc1", "O[C@H]1CC[C@@H](OCc2ccncc2)CC1"] * 1
        )
        + "\n"
    )
    task = MoleculesTask(MoleculesConfig(source=str(path), valid_share=0.0, test_share=0.0, prompt_share=0.5))
    data, known = task.dataset("train"), set(task.smiles("train"))
    assert {from_bracket_safe(words(task, data[i])) for i in range(60)} == known
    assert len({words(task, data[i]) for i in range(60)}) > 3


@pytest.mark.parametrize("fragment, used, lost", [
    ("*CC[NH3+]", "*CCN", ["charges"]), ("*[C@H](C)F", "*C(C)F", ["stereochemistry"]), ("*CCN", "*CCN", []),
    ("*[C@H](F)C[NH3+]", "*C(F)CN", ["stereochemistry", "charges"]), ("no fragment", "no fragment", []),
])
def test_what_a_fragment_loses_without_tokens_for_it(tmp_path, fragment, used, lost):
    task = MoleculesTask(MoleculesConfig(source=str(smiles_file(tmp_path / "a.smi"))))
    text, told = task._plain(fragment)
    assert told == lost == [w for w in task.omissions(fragment).split(", ") if w]
    assert text == used


STEREO = "C N F O ( ) = 1 / \\ [C@H] [C@@H]"


@pytest.mark.parametrize("tokens, fragment, lost", [
    (STEREO, "*[C@H](C)F", ""), (STEREO, "*/C=C/F", ""), (STEREO, "*[C@](C)(O)F", "stereochemistry"),
    (STEREO.replace("[C@@H]", ""), "*[C@H](C)F", "stereochemistry"),
    (STEREO.replace("/", ""), r"*\C=C\F", "stereochemistry"),
])
def test_stereochemistry_is_given_to_who_can_write_both_senses(tmp_path, tokens, fragment, lost):
    "A model of SMILES that inserts."
    source = str(smiles_file(tmp_path / "a.smi"))
    task = MoleculesTask(MoleculesConfig(source=source, notation="smiles", tokens=tokens))
    inserts, appends = (SimpleNamespace(channels=(c,), task=dict(notation="smiles")) for c in ("place", "append"))
    assert task.omissions(fragment) == task.omissions(fragment, inserts) == lost
    assert task.omissions(fragment, appends) == "stereochemistry"
    given = "".join("*" if t is ... else t for t in task.prompt(fragment))
    kept = fragment if not lost else Chem.MolToSmiles(Chem.MolFromSmiles(fragment), isomericSmiles=False)
    assert Chem.CanonSmiles(given) == Chem.CanonSmiles(kept)


@pytest.mark.parametrize("token, other", [
    ("[C@H]", "[C@@H]"), ("[C@@]", "[C@]"), ("/", "\\"), ("\\", "/"), ("C", "C"), ("[nH]", "[nH]"), ("(", "("),
])
def test_mirrored_tokens(token, other):
    assert mirror(token) == other and mirror(other) == token


def test_the_vocabulary_is_that_of_the_config_and_others_are_counted(tmp_path):
    path = smiles_file(tmp_path / "mine.smi")
    full = MoleculesTask(MoleculesConfig(source=str(path)))
    tokens = " ".join(t for t in full.vocabulary.tokens[3:] if t != "<3>")
    narrow = MoleculesTask(MoleculesConfig(source=str(path), tokens=tokens))
    lost = narrow.left_out.get("token outside the vocabulary", 0)
    assert 0 < lost == sum("<3>" in t for s in ("train", "valid", "test") for t in full.texts(s))
    assert lost + sum(len(narrow.texts(s)) for s in ("train", "valid", "test")) == 60
    assert f"\ntokens outside the vocabulary: '<3>' ({lost} molecules)" in narrow.summary()
    assert "tokens outside" not in full.summary() and full.missing_tokens() == {}


def test_a_packaged_model_that_knows_the_lacking_tokens_is_named(tmp_path):
    (path := tmp_path / "mine.smi").write_text("CCO\nC[C@H](N)O\nCCN\n")
    told = lambda tokens: MoleculesTask(MoleculesConfig(source=str(path), notation="smiles", tokens=tokens)).summary()
    assert "'[C@H]' (1 molecule); known to molecules-chembl, molecules-leads" in told("C N O ( )")
    (path := tmp_path / "mine.smi").write_text("CCO\nC[C@H](N)O\nCCN\nC[13CH2]O\n")
    assert "known to" not in told("C N O ( )")


def test_the_summary_shows_a_row_for_each_reason(tmp_path):
    (path := tmp_path / "mine.smi").write_text("CCO\nC[Ge]\nOCC\nno molecule\nCCN\nCCCN\n")
    *_, told = MoleculesTask(MoleculesConfig(source=str(path))).summary().split("\n")
    assert told == "for example: row 2, 'C[Ge]' (element), row 3, 'OCC' (duplicate), row 4, 'no' (unparsable)"


@pytest.mark.skipif(not (DATA / "safe_tokenizer.json").exists(), reason="the published tokenizer.json is not at hand")
def test_the_published_vocabulary(tmp_path):
    """1,880 tokens and two brackets, less the five special ones;
    attachments are three tokens each; text comes back whole."""
    task = MoleculesTask(
        MoleculesConfig(
            source=str(smiles_file(tmp_path / "mine.smi")), tokenizer=str(DATA / "safe_tokenizer.json"), max_length=120
        )
    )
    assert len(task.vocabulary) - 3 == 1880 + 2 - 5
    example = task.dataset("train")[0]
    assert from_bracket_safe(words(task, example)) in set(task.smiles("train"))
    assert task.vocabulary.decode(example.tokens).count("<") == task.vocabulary.decode(example.tokens).count(">") > 0
    assert task.prompt("*c1ccccc1")[-1] == "." and {"<", "1", ">"} < set(task.prompt("*c1ccccc1"))


@pytest.mark.skipif(not (DATA / "zinc250k.txt.gz").exists(), reason="the ZINC molecules are not at hand")
def test_zinc_molecules_are_a_source(tmp_path):
    path = tmp_path / "zinc.txt.gz"
    lines = random.Random(0).sample(gzip.open(DATA / "zinc250k.txt.gz", "rt").read().split(), 300)
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    task = MoleculesTask(MoleculesConfig(source=str(path), max_length=90))
    assert sum(len(task.texts(s)) for s in ("train", "valid", "test")) + sum(task.left_out.values()) == 300
    assert any("@" in t for t in task.vocabulary.tokens)


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_same_weights(tmp_path):
    "Six steps at once, and three, then three more: bit for bit the same."
    options = dict(
        source=str(smiles_file(tmp_path / "mine.smi")), size="nano", steps=6, batch_size=4,
        warmup=2, valid_every=3, valid_size=4, valid_samples=2, save_every=3,
    )
    r = recipe("molecules", **options)
    whole = r.trainer(tmp_path / "whole", progress=False)
    whole.fit()
    first = r.trainer(tmp_path / "cut", progress=False)
    move = first.optimizer_step
    def stop():
        if first.step == 3: raise KeyboardInterrupt
        move()
    first.optimizer_step = stop
    with pytest.raises(KeyboardInterrupt): first.fit()
    second = r.trainer(tmp_path / "cut", progress=False)
    second.fit(resume=True)
    for a, b in zip(whole.method.state_dict().values(), second.method.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_names_that_others_rely_on():
    assert to_bracket_safe("CCOc1ccccc1") and to_bracket_safe("CCO", seed=3)
    assert fragment_prompt("*c1ccccc1", "motif_extension").endswith(".")


@pytest.mark.slow
def test_import_is_quick_and_brings_no_heavy_library():
    "safe, datamol, pandas, pyarrow and matplotlib wait until they are needed."
    code = (
        "import sys, loflexmdm.molecules.task; print([m for m in ('safe', 'datamol', 'pandas', 'pyarrow', "
        "'matplotlib', 'datasets', 'scipy') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


WITHOUT_SAFE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("safe", "datamol"): raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
from loflexmdm.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_without_safe_mol(tmp_path):
    "Packaged models sample, a run trains, molecules are scored; a slicer of safe-mol is refused in one line."
    def call(line): return forks.run(["-c", WITHOUT_SAFE, *line.split()], cwd=tmp_path)
    smiles_file(tmp_path / "mine.smi")
    small = "--source mine.smi --size nano --order fixed --steps 2 --batch-size 4 --valid-share 0.2 --test-share 0.2"
    sample = "sample molecules -n 3 --nll 2 --out mols.csv"
    for line in (sample, "evaluate mine.smi", f"train molecules {small} --out run"):
        assert (done := call(line)).returncode == 0, done.stderr
    done = call(f"train molecules {small} --slicer recap --out other")
    assert done.returncode == 2 and "Traceback" not in done.stderr and not (tmp_path / "other").exists()
    assert "slicer='recap' needs the package safe-mol: pip install 'loflexmdm[safe]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(source="nowhere.smi"), "nowhere.smi"),
        (dict(max_length=1), "max_length=1"),
        (dict(prompt_share=-0.1), "prompt_share=-0.1"),
        (dict(slicer="scissors"), "slicer='scissors'"),
        (dict(salts="keep"), "salts='keep'"),
        (dict(valid_share=0.6, test_share=0.4), "valid_share=0.6"),
        (dict(tokenizer="nowhere.json"), "nowhere.json"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((ValueError, OSError), match=message):
        task_from(dict(kind="molecules", **options)).texts("train")


def test_a_prompt_with_a_gap_after_a_property_was_computed():
    "What is known of properties does not stand in the way of what is known of tokens."
    task = MoleculesTask(MoleculesConfig(condition="rings", bounds="1", tokens="C O <rings:1> <rings:2> <any>"))
    assert task.property_of(["C1CC1", "CCO"]) == [1.0, 0.0]
    assert task.prompt("<rings:2> C...O") == ["<rings:2>", "C", ..., "O"]


def test_what_repairs_make_of_a_text_is_told_apart(tmp_path, monkeypatch):
    "Of a valid text, one that is repaired, and one that is not."
    task = MoleculesTask(MoleculesConfig(source=str(smiles_file(tmp_path / "a.smi"))))
    plain = [Decoded("CCO", (), ""), Decoded(None, (), "syntax"), Decoded(None, (), "valence")]
    repaired = [Decoded("CCN", (), ""), Decoded("CCC", (), ""), Decoded(None, (), "valence")]
    decode = lambda self, samples, salvage=False: repaired if salvage else plain
    monkeypatch.setattr(MoleculesTask, "decode_samples", decode)
    told = lambda salvage: [(row["smiles"], row["state"]) for row in task.describe(None, salvage=salvage)]
    assert told(False) == [("CCO", "valid"), ("", "syntax"), ("", "valence")]
    assert told(True) == [("CCO", "valid"), ("CCC", "salvaged"), ("", "valence")]


def test_a_row_without_a_molecule_is_shown_as_it_was_generated():
    row = dict(smiles="CCO", tokens=["C", "C", "O"], state="valid")
    pretty = MoleculesTask(MoleculesConfig()).output.pretty
    assert pretty(row) == "CCO" and pretty(row | dict(smiles="", state="syntax")) == "-   CCO   (syntax)"
