"""Properties from a column of the data: what cells say, which molecules have a value, a model that is asked for it."""
import contextlib
import csv
import importlib.util
import json
import math
import random
import re
import tempfile
import warnings
from pathlib import Path

import forks
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loflexmdm.methods.base import method_class
from loflexmdm.models.saved import save_method
from loflexmdm.molecules.data import column_values as module
from loflexmdm.molecules.data.cleaning import clean
from loflexmdm.molecules.data.column_values import Measured, combine_cells, read_measurements, one_value
from loflexmdm.molecules.data.records import molecule_records, smiles_and_texts
from loflexmdm.molecules.data.sources import embedded_smiles
from loflexmdm.process.states import ANY, Vocabulary
from loflexmdm.samplers import Samples
from loflexmdm.support.records import LeftOut, number_in
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import take_weights

ROWS = [("CCO", "1"), ("OCC", "2.5"), ("CCN", "-4e1"), ("CCC", ""), ("CCF", ">5"), ("C1CC", "6"), ("CCCl", "NA")]
SPREAD = (
    "1 of 2 molecules have different values, of which the median counts; "
    "they spread by 1.5 (median), at most from 1 to 2.5 (CCO)"
)
EXPECTED = Measured({"CCO": 1.75, "CCN": -40.0}, 2, 1, ">5", SPREAD)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))


def write(path: Path, rows=ROWS, header=("smiles", "pIC50")) -> str:
    with open(path, "w", newline="") as f:
        csv.writer(f, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([header, *rows])
    return str(path)


@pytest.mark.parametrize("text, value", [("7", 7.0), (" 1e-3", 1e-3), ("", math.nan), ("N/A", math.nan), (">10", None),
                                         ("-inf", None), ("1,5", None), ("1_234", None), ("1e400", None),
                                         ("None", math.nan), ("0", 0.0)])
def test_cells(text, value):
    assert str(number_in(text)) == str(value)


@pytest.mark.parametrize("progress", [False, True])
def test_progress_is_shown_on_request(progress, tmp_path, monkeypatch):
    hidden, bar = [], module.progress_bar
    monkeypatch.setattr(module, "progress_bar", lambda *a, disable: hidden.append(disable) or bar(*a, disable=disable))
    read_measurements(write(tmp_path / "mine.csv"), "pIC50", progress=progress)
    assert hidden == [not progress]


@pytest.mark.parametrize("name", ["mine.csv", "mine.tsv"])
def test_a_table_gives_means_and_counts(tmp_path, name):
    assert read_measurements(write(tmp_path / name), "pIC50") == EXPECTED


def test_parquet_with_numbers_and_with_text(tmp_path):
    smiles = [s for s, _ in ROWS]
    numbers = [1, 2.5, -40, None, None, 6, None]
    pq.write_table(pa.table(dict(smiles=smiles, pIC50=numbers)), tmp_path / "numbers.parquet")
    pq.write_table(pa.table(dict(smiles=smiles, pIC50=[t for _, t in ROWS])), tmp_path / "text.parquet")
    assert read_measurements(str(tmp_path / "numbers.parquet"), "pIC50") == Measured(EXPECTED.values, 3, 0, "", SPREAD)
    assert read_measurements(str(tmp_path / "text.parquet"), "pIC50") == EXPECTED
    with pytest.raises(ValueError, match="has the columns smiles, pIC50"):
        read_measurements(str(tmp_path / "text.parquet"), "IC50")


def test_every_row_of_a_long_table_has_its_own_number(tmp_path):
    """More rows than a chunk has, invalid ones between them: cells and molecules must not slip past each other."""
    found = list(dict.fromkeys(s for s in embedded_smiles("wehi") if s))[:700]
    rows = [(s, str(i)) if i % 7 else (s[:-1] + "(", str(-i)) for i, s in enumerate(found)]
    values = read_measurements(write(tmp_path / "long.csv", rows), "pIC50").values
    rng = random.Random(0)
    for i in rng.sample(range(700), 60):
        outcome = clean(rows[i][0])
        if not isinstance(outcome, str): assert values[outcome[1]] == i
    assert min(values.values()) >= 0 and len(values) > 500


def test_limit_reads_the_first_rows(tmp_path):
    assert read_measurements(write(tmp_path / "mine.csv"), "pIC50", limit=1).values == {"CCO": 1.0}


def test_the_cache_is_used_and_a_damaged_one_made_again(tmp_path, monkeypatch):
    source = write(tmp_path / "mine.csv")
    read_measurements(source, "pIC50")
    [file] = (tmp_path / "cache" / "measured").glob("*.json")
    with monkeypatch.context() as m:
        m.setattr(module, "combine_cells", lambda *a: pytest.fail("read again"))
        assert read_measurements(source, "pIC50") == EXPECTED
    file.write_text(file.read_text().replace("1.75", "9.75"))
    with pytest.warns(UserWarning, match="damaged"): assert read_measurements(source, "pIC50") == EXPECTED
    assert json.loads(file.read_text())["values"]["CCO"] == 1.75
    write(Path(source), [("CCO", "3")])
    assert read_measurements(source, "pIC50").values == {"CCO": 3.0}  # another file under the same name


def test_sources_without_columns_are_refused(tmp_path):
    (tmp_path / "list.smi").write_text("CCO\n")
    for source in (str(tmp_path / "list.smi"), "embedded", "wehi+nci", "hub:some/where"):
        with pytest.raises(ValueError, match="is not a table"): read_measurements(source, "pIC50")
    with pytest.raises(ValueError, match="no molecule has a number .blank: 1, not a number: 1."):
        read_measurements(write(tmp_path / "none.csv", [("CCO", ""), ("CCN", "high"), ("C1", "2")]), "pIC50")
    with pytest.raises(ValueError, match="2 columns of that name"):
        read_measurements(write(tmp_path / "twice.csv", header=("smiles", "x", "x")), "x")


def test_replicates_have_one_rule_by_name():
    far = [1.0, 10_000.0, 10.0]
    assert one_value(far) == 10 and one_value(far[:2]) == 5000.5 and one_value([3.0], "geometric mean") == 3
    assert one_value(far, "geometric mean") == pytest.approx(10 ** (5 / 3))
    with pytest.raises(ValueError, match="0 is not positive; choose median"): one_value([0.0, 1.0], "geometric mean")
    with pytest.raises(ValueError, match="choose one of median, geometric mean"): one_value(far, "mean")
    assert combine_cells([("C", "1"), ("CC", "2")]).replicates == ""


def test_values_have_no_order():
    rows = [("C", "1"), ("CC", "2"), ("C", "4"), ("CC", "x"), ("C", "")]
    assert combine_cells(rows)[:3] == combine_cells(rows[::-1])[:3] == ({"C": 2.5, "CC": 2.0}, 1, 1)


def test_a_line_break_in_a_value_moves_no_other(tmp_path):
    rows = [(f"C{'C' * i}O", str(i)) for i in range(40)]
    rows[5] = (rows[5][0], "5.0\n(repeat 2)")
    found = read_measurements(write(tmp_path / "mine.csv", rows), "pIC50")
    assert found.values == {s: float(n) for i, (s, n) in enumerate(rows) if i != 5} and found.unreadable == 1
    rows[7] = (f"{rows[7][0]}\nsecond line", "7")
    assert set(read_measurements(write(tmp_path / "mine.csv", rows), "pIC50").values.values()) == {*range(40)} - {5, 7}


@pytest.mark.parametrize("name", ["mine.csv", "mine.tsv"])
def test_a_row_wider_than_the_header_is_left_out(tmp_path, name):
    source = write(tmp_path / name, [("CCO", "1"), ("CCN", "1", "234"), ("CCC", "2")])
    assert read_measurements(source, "pIC50").values == {"CCO": 1.0, "CCC": 2.0}
    assert read_measurements(write(tmp_path / name, [("CCO", "1", "", "")]), "pIC50").values == {"CCO": 1.0}


def test_medians_of_large_numbers_are_finite():
    found = combine_cells([("C", "1e308"), ("C", "1.7e308"), *[("CC", "1.7976931348623157e308")] * 3]).values
    assert found == {"C": 1.35e308, "CC": 1.7976931348623157e308}


SMILES = [f"C{'C' * i}O" for i in range(12)]
CELL = st.one_of(
    st.integers(-99, 99).map(str), st.sampled_from(["", "1,5", "1_2", "NA", '"', "a\nb", "3\n", " 4 ", "\n\n", ">7"]),
    st.text('12,"\n \u2028\x0c', max_size=4),
)
ROW = st.one_of(st.just([]), st.tuples(st.sampled_from(SMILES), CELL, CELL).map(list), st.just(["CCO"]))


@settings(max_examples=300, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.sampled_from(["mine.csv", "mine.tsv"]), st.booleans())
@pytest.mark.slow
def test_values_are_those_of_the_dictionary_reader(rows, name, ends):
    with tempfile.TemporaryDirectory() as folder:
        path, delimiter = Path(folder, name), "," if name.endswith(".csv") else "\t"
        with open(path, "w", newline="") as f:
            csv.writer(f, delimiter=delimiter, lineterminator="\r\n" if ends else "\n").writerows(
                [["smiles", "note", "pIC50"], *rows]
            )
        with open(path, newline="") as f: expected = list(csv.DictReader(f, delimiter=delimiter))
        pairs = [(r["smiles"].strip(), (r["pIC50"] or "").strip()) for r in expected]
        if molecule_records(path).layout.decimal == ",":
            pairs = [(s, re.sub(r"^([+-]?\d+),(\d+)$", r"\1.\2", text)) for s, text in pairs]
        found = [pair for pair in smiles_and_texts(path, "", "pIC50") if not isinstance(pair[0], LeftOut)]
        assert found == [pair for pair in pairs if any(pair)]


# ---- the task


def chains(tmp_path, **options):
    "Forty chains whose number is their length; each tenth has no number."
    rows = [("C" * k, str(k) if k % 10 else "") for k in range(1, 41)]
    source = write(tmp_path / "chains.csv", rows)
    return task_from(dict(kind="molecules", source=source, condition="pIC50", classes=2, notation="smiles",
                          test_share=0.2, **options))


def test_the_task_asks_for_classes_of_the_column(tmp_path):
    task = chains(tmp_path)
    with pytest.warns(UserWarning, match="4 rows have no number; molecules without one"): classes = task.vocabulary
    assert classes.conditions == ("<pIC50:1>", "<pIC50:2>")
    bound = float(task.bounds_text)
    for smiles, [token] in zip(task.smiles("train"), task.class_prompts("train")):
        assert token == (ANY if len(smiles) % 10 == 0 else f"<pIC50:{1 + (len(smiles) >= bound)}>")
    again = task_from(task.as_dict())
    assert again.vocabulary == task.vocabulary and "measured" not in vars(again)  # no data is read for it


@pytest.mark.filterwarnings("ignore:condition=")
def test_valid_molecules_without_a_number_are_not_counted(tmp_path):
    task = chains(tmp_path)
    low, high = task.vocabulary.conditions
    def share(*samples):
        ids = [task.vocabulary.encode([asked, *text]) for asked, text in samples]
        return task.requested_fraction(Samples(ids, [[True] * len(i) for i in ids]))
    right, wrong, unknown, invalid = (low, "CC"), (high, "CC"), (low, "C" * 10), (low, "")
    assert share(right) == 1 and share(wrong) == 0 and share(invalid) == 0 and math.isnan(share(unknown))
    assert share(right, unknown, invalid) == 0.5 and share((ANY, "C" * 10)) == 1
    assert share(right, wrong, unknown) == 0.5
    ids = [task.vocabulary.encode([low, *"C" * 30])] * 3
    figures = task.with_data().score("test", Samples(ids, [[True] * 31] * 3))
    assert "asked" not in figures and figures["validity"] == 1
    assert [len(s) for s in task.smiles("test")].count(30) == 1 and len(task.smiles("test")) == 5
    assert figures["length_tv"] == pytest.approx(1 - 1 / 5)  # one of five has this length, its condition not counted


def test_what_the_task_refuses(tmp_path):
    task = lambda **o: task_from(dict(kind="molecules", **o))
    with pytest.raises(ValueError, match="condition='logP': choose none, qed, .*not a table"):
        _ = task(condition="logP", limit=20).vocabulary
    with pytest.raises(ValueError, match="condition='IC50'.*has the columns smiles, pIC50"):
        _ = task(source=write(tmp_path / "mine.csv"), condition="IC50").vocabulary
    with pytest.raises(ValueError, match="all molecules prepared"): task(source="m.csv", condition="pIC50", stream=True)
    with pytest.raises(ValueError, match="condition=' '"): task(condition=" ")


def test_names_of_columns_become_tokens(tmp_path):
    source = write(tmp_path / "mine.csv", [("C" * k, str(k)) for k in range(1, 40)], ("smiles", "IC50: <nM> a"))
    task = task_from(dict(kind="molecules", source=source, condition="IC50: <nM> a", classes=2, notation="smiles"))
    assert task.vocabulary.conditions == ("<IC50_nM_a:1>", "<IC50_nM_a:2>")
    assert task_from(task.as_dict()).vocabulary == task.vocabulary


def classes_of_values(tmp_path, values, **options):
    rows = [("C" * (k + 1), str(value)) for k, value in enumerate(values)]
    return task_from(dict(kind="molecules", source=write(tmp_path / "mine.csv", rows), condition="pIC50",
                          test_share=0.0, notation="smiles", valid_share=0.0) | options)


@pytest.mark.parametrize("values, bounds", [
    ([5] * 20 + [*range(6, 16)], "6"), ([*range(6, 16)] + [20] * 20, "20"), ([1] * 15 + [2] * 15, "2"),
])
def test_equal_values_are_a_class_of_their_own(tmp_path, values, bounds):
    task = classes_of_values(tmp_path, values)
    few = len(bounds.split()) < 2
    with pytest.warns(UserWarning, match="2 classes in place of 3") if few else contextlib.nullcontext():
        assert task.bounds_text == bounds
    assert sum(task.class_counts().values()) == len(values) and min(task.class_counts().values()) >= 6
    counted = ", ".join(f"{token} {n}" for token, n in task.class_counts().items())
    assert task.summary().splitlines()[-1] == f"classes of pIC50, bounds {bounds}: {counted}"


def test_one_value_is_refused(tmp_path):
    with pytest.raises(ValueError, match="condition='pIC50': all 30 training molecules with a number have 5"):
        _ = classes_of_values(tmp_path, [5] * 30).vocabulary


def command(*args, cwd): return forks.run(["-m", "loflexmdm", *args], cwd=cwd)


@pytest.mark.slow
def test_on_the_command_line(tmp_path):
    chains(tmp_path)
    options = ("molecules", "--source", "chains.csv", "--notation", "smiles", "--classes", 2, "--method", "ar",
               "--size", "nano", "--steps", 2, "--valid-size", 4, "--test-share", 0.2)
    wrong = command("train", *options, "--condition", "IC50", "--out", "no", cwd=tmp_path)
    assert wrong.returncode == 2 and "loflexmdm: condition='IC50': choose none" in wrong.stderr.splitlines()[-1]
    assert not (tmp_path / "no").exists()
    done = command("train", *options, "--condition", "pIC50", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 rows have no number" in done.stderr + done.stdout
    drawn = command("sample", "run", "--prompt-text", "<pIC50:2>", "-n", 3, "--out", "x.csv", cwd=tmp_path)
    assert drawn.returncode == 0 and len((tmp_path / "x.csv").read_text().splitlines()) == 4
    judged = command("evaluate", "run", "--task-data", "-n", 8, cwd=tmp_path)
    assert judged.returncode == 0 and "asked" in judged.stdout, judged.stderr


@pytest.mark.filterwarnings("ignore:condition=")
def test_an_empty_split_has_no_prompts(tmp_path):
    task = task_from(chains(tmp_path).as_dict() | dict(test_share=0.0)).with_data()
    with pytest.raises(ValueError, match="the test split of .* is empty: 40 molecules"): task.prompts("test", 8)


def test_qm9_has_a_gap():
    "The first molecules of the benchmark, where its wheel is installed."
    if importlib.util.find_spec("qm9pack") is None: pytest.skip("the wheel qm9pack is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_measurements("qm9", "HOMO_LUMO_gap_au", limit=20)
    assert abs(found.values["C"] - 0.5048) < 1e-3 and not found.blank  # methane, hartree


# ---- from a model without conditions


@pytest.mark.filterwarnings("ignore:condition=")
@pytest.mark.parametrize("kind", ["ar", "loflexmdm", "mdm"])
def test_a_model_without_conditions_can_be_trained_to_take_some(tmp_path, kind):
    "Every weight is that of the old model, but for the rows of two classes and <any>, in front of a blank or an end."
    plain = task_from(dict(kind="molecules", source=chains(tmp_path).config.source, notation="smiles", max_length=12))
    classes = chains(tmp_path, max_length=13, tokens=" ".join(plain.vocabulary.tokens[3:]))
    cls = method_class(kind)
    old = cls(plain.vocabulary, cls.Config(size="nano", max_length=12), plain.as_dict())
    with torch.no_grad():
        for p in old.parameters(): p.normal_(std=0.3, generator=torch.Generator().manual_seed(p.numel()))
    save_method(old, tmp_path / "old")
    new = cls(classes.vocabulary, cls.Config(size="nano", max_length=13), classes.as_dict())
    kept = {k: v.clone() for k, v in new.state_dict().items()}
    assert take_weights(new, tmp_path / "old") == []
    there, n = old.state_dict(), len(plain.vocabulary)
    for name, value in new.state_dict().items():
        if value.shape == there[name].shape: torch.testing.assert_close(value, there[name], rtol=0, atol=0)
        else:
            torch.testing.assert_close(value[:n], there[name][:n], rtol=0, atol=0)
            torch.testing.assert_close(value[n:n + 3], kept[name][n:n + 3], rtol=0, atol=0)  # two classes and <any>
            torch.testing.assert_close(value[n + 3:], there[name][n:], rtol=0, atol=0)  # blank or end
    ids = torch.tensor([[2, 3, 3, 3]])
    told = [m.backbone.token(ids) for m in (old, new)]
    torch.testing.assert_close(*told, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:condition=")
def test_a_class_is_not_taken_for_a_fragment(tmp_path):
    task = chains(tmp_path)
    ids = task.vocabulary.encode(["<pIC50:2>", *"CCC"])
    state = lambda text: task.describe(Samples([ids], [[True] * len(ids)]), prompt_text=text)[0]["state"]
    assert state("<pIC50:2>") == state(ANY) == state("<pIC50:2> *C") == state("*C") == "valid"
    assert state("<pIC50:2> *O") == state("*O") == "fragment altered"

    # what is not a molecule has its own state, whatever was asked for
    ids = []
    assert state("*O") == state("") not in ("valid", "fragment altered")


def test_other_tokens_are_still_refused(tmp_path):
    cls = method_class("ar")
    make = lambda tokens: cls(Vocabulary(tokens), cls.Config(size="nano", max_length=9))
    save_method(make(["C", "O"]), tmp_path / "old")
    save_method(make(["C", "O", "<a:1>", ANY]), tmp_path / "asked")
    for tokens in (["C"], ["C", "N"], ["O", "C"], ["C", "O", "N"], ["C", "N", "<a:1>", ANY]):
        with pytest.raises(ValueError, match="vocabulary differs"): take_weights(make(tokens), tmp_path / "old")
    for tokens in (["C", "O"], ["C", "O", "<a:2>", ANY]):
        with pytest.raises(ValueError, match="vocabulary differs"): take_weights(make(tokens), tmp_path / "asked")
    assert take_weights(make(["C", "O", "<a:1>", ANY]), tmp_path / "asked") == []
    differences = {("C", "N"): r"lacks \['N'\], it has \['O'\] besides;", ("O", "C"): "another order; .* keeps it"}
    for tokens, said in differences.items():
        with pytest.raises(ValueError, match=said): take_weights(make([*tokens]), tmp_path / "old")


@pytest.mark.filterwarnings("ignore:condition=")
@pytest.mark.slow
def test_the_packaged_model_trained_further_to_deliver_a_column(tmp_path):
    rows = [(s, str(len(s))) for s in list(dict.fromkeys(filter(None, embedded_smiles("wehi"))))[:200]]
    write(tmp_path / "mine.csv", rows)
    done = command("train", "molecules-moses-ar", "--source", "mine.csv", "--condition", "pIC50", "--steps", 2,
                   "--batch-size", 4, "--valid-size", 4, "--out", "asked", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = command("sample", "asked", "--prompt-text", "<pIC50:3>", "-n", 40, "--out", "x.csv", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    with open(tmp_path / "x.csv", newline="") as f: states = [row["state"] for row in csv.DictReader(f)]
    assert states.count("valid") > 20  # of an untrained one none would be
