"""Molecules on the command line: what a results file says of them, pieces to grow from, files of SMILES, and
one line for every wrong input."""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from loflexmdm.cli.sample import states_for, status_lines
from loflexmdm.models.pretrained import load
from loflexmdm.models import rows as model_rows
from loflexmdm.models.model import Model
from loflexmdm.models.requests import SampleRequest
from loflexmdm.models.rows import states_of
from loflexmdm.models.saved import save_method
from loflexmdm.molecules.data.records import read_smiles
from loflexmdm.molecules.notation.bracket_safe import decode, tokenize
from loflexmdm.molecules.notation.fragments import contains_fragment
from loflexmdm.molecules.task import MoleculeOutput, MoleculesTask
from loflexmdm.samplers import Samples
from loflexmdm.support.saved_files import names
from loflexmdm.tasks.base import task_from
from loflexmdm.training.recipes import recipe_from
from commands import SMALL, call, refused, status_of
from stored_models import stored

KNOWN = [
    "CCO", "CCN", "c1ccccc1O", "CC(=O)NC", "CCOC(=O)C", "C1CCNCC1", "CN1CCOCC1",
    "OCCO", "CC(C)C", "CCCCN", "COC", "CNC", "CCC", "NCCO", "CC(=O)O", "OC=O",
]


def rows_of(path): return list(csv.DictReader(open(path)))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    "A cache of prepared data of our own."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOFLEXMDM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    "A file of molecules."
    path = tmp_path_factory.mktemp("data") / "known.smi"
    path.write_text("\n".join(KNOWN) + "\n")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory, known):
    "A run of so few steps that some of its samples are molecules and some are not."
    path = tmp_path_factory.mktemp("model")
    (path / "r.toml").write_text(f"""[task]
kind = "molecules"
source = "{known}"
tokens = "( ) . 1 <1> <2> <3> = C N O c"
max_length = 24
valid_share = 0.2
test_share = 0.2
[model]
size = "nano"
order = "fixed"
order_size = "nano"
""")
    assert (
        call(
            f"train {path / 'r.toml'} --steps 60 --lr 3e-3 --out",
            path / "run", *SMALL, "--batch-size", 16, "--valid-every", 60,
        )[0]
        == 0
    )
    return path / "run"


def untrained(path, tokens, source):
    "Save an untrained model: its samples are random texts of these tokens."
    table = dict(kind="molecules", tokens=tokens, max_length=24, source=str(source))
    _, method = recipe_from(dict(task=table, model=dict(size="nano", order="fixed", order_size="nano"))).build()
    return save_method(method, path)


@pytest.fixture(scope="module")
def table(model, tmp_path_factory):
    "What the first command a newcomer runs leaves, and says."
    path = tmp_path_factory.mktemp("out") / "mols.csv"
    code, out, err = call(f"sample {model} -n 60 --out", path)
    assert code == 0 and not out
    return path, err


# what a results file says

@pytest.mark.slow
def test_columns_and_states(table):
    path, err = table
    rows = rows_of(path)
    numbers = ["qed", "sa", "logp", "weight"]
    names = "text", "smiles", "state", *numbers, "nll_bound", "nll_se", "prompt", "tokens", "generated"
    assert (*rows[0],) == names
    assert all((r[k] == "") == (r["state"] != "valid") for r in rows for k in numbers)
    assert len(rows) == 60
    counts = Counter(r["state"] for r in rows)
    assert len(counts) > 2 and counts["valid"] and counts.total() == 60
    line = next(x for x in err.splitlines() if x.startswith("of 60: "))
    assert line == "of 60: " + ", ".join(f"{n} {state}" for state, n in counts.most_common())
    assert json.loads((path.parent / "mols.csv.run.json").read_text())["states"] == dict(counts)


@pytest.mark.slow
def test_smiles_are_what_the_tokens_say(table):
    for row in rows_of(table[0]):
        d = decode(row["tokens"].replace(" ", ""))
        assert row["smiles"] == (d.smiles or "")
        assert (row["state"] == "valid") == (d.smiles is not None and "." not in d.smiles)


def test_the_bound_is_that_of_16_states(table, model, tmp_path):
    again = tmp_path / "again.jsonl"
    assert call(f"sample {model} -n 60 --nll 16 --no-picture --out", again)[0] == 0
    lines = [json.loads(x) for x in again.read_text().splitlines()]
    assert [(r["smiles"], str(r["nll_bound"])) for r in lines] == [
        (r["smiles"], r["nll_bound"]) for r in rows_of(table[0])
    ]
    assert list(lines[0])[7:9] == ["nll_bound", "nll_se"] and min(r["nll_bound"] for r in lines) > 0


# as many valid ones as wanted

@pytest.mark.slow
def test_valid_ones_alone(model, tmp_path):
    code, _, err = call(f"sample {model} --valid 5 --unique --nll 4 --no-picture --out", out := tmp_path / "v.csv")
    rows = rows_of(out)
    assert code == 0 and {r["state"] for r in rows} == {"valid"} and len({r["smiles"] for r in rows}) == len(rows) == 5
    info = json.loads((tmp_path / "v.csv.run.json").read_text())
    assert info["n"] == 5 and info["drawn"] == sum(info["states"].values()) >= 5
    assert call(f"sample {model} --valid 5 --nll 4 --no-picture --out", twice := tmp_path / "t.csv")[0] == 0
    assert [r["smiles"] for r in rows] == [*dict.fromkeys(r["smiles"] for r in rows)] and len(rows_of(twice)) == 5


def test_fewer_valid_ones_than_wanted_are_written_and_told(model, tmp_path):
    code, out, err = call(f"sample {model} --valid 40 --tries 20")
    assert code == 0 and "of 40 valid sequences in 20 draws" in err


def test_none_that_is_valid_is_an_error_with_one_line(model, tmp_path, monkeypatch):
    monkeypatch.setattr(type(MoleculesTask.output), "sample_key", lambda self, row: None)
    for more in ([], ["--out", tmp_path / "v.csv"]):
        code, out, err = call(f"sample {model} --valid 3 --tries 8", *more)
        assert code == 2 and not out and err.splitlines()[-1] == (
            "loflexmdm: valid=3: none of 8 draws is valid; tries allows more draws"
        )
    assert not (tmp_path / "v.csv").exists()


def test_what_could_not_be_made_is_not_kept(model):
    task = load(str(model)).task
    kept = {s: task.output.sample_key(dict(smiles=s, state="valid")) for s in ("CCO", "C[CH]C", "C[SH]=C")}
    assert kept == {"CCO": "CCO", "C[CH]C": None, "C[SH]=C": None}


def test_radicals_and_impossible_valences_are_no_valid_rows():
    task = load("molecules-moses-ar").task
    states = {"CCO": "valid", "C[CH]C": "radical", "C=[SH]C": "hypervalent S-H", "C1C": "ring not closed"}
    task.decode_samples = lambda samples, salvage=False: [task.notation.decode(s) for s in states]
    rows = task.describe(Samples([[]] * 4, [[]] * 4))
    assert [row["state"] for row in rows] == list(states.values()) and rows[1]["smiles"] == "C[CH]C"
    assert [task.output.sample_key(row) for row in rows] == ["CCO", None, None, None]
    assert states_of(rows)["radical"] == 1


def test_salvaged_ones_say_so(model):
    method = load(str(model))
    texts = "CC.CCO", "CCO", "C1C"
    sequences = [method.vocabulary.encode(tokenize(t)) for t in texts]
    samples = Samples(sequences, [[True] * len(s) for s in sequences])
    found = [(d["smiles"], d["state"]) for d in method.task.describe(samples, salvage=True)]
    assert found[:2] == [("CCO", "salvaged"), ("CCO", "valid")] and found[2][1] not in ("valid", "salvaged")
    assert method.task.describe(samples)[0]["state"] == "several components"
    assert call(f"sample {model} -n 3 --salvage")[0] == 0


@pytest.mark.slow
def test_smi_and_sdf_hold_the_molecules(model, tmp_path):
    for kind in ("csv", "smi", "sdf"):
        assert call(f"sample {model} -n 20 --nll 0 --no-picture --out", tmp_path / f"m.{kind}")[0] == 0
    wanted = [r["smiles"] for r in rows_of(tmp_path / "m.csv") if r["state"] == "valid"]
    assert list(read_smiles(tmp_path / "m.smi")) == list(read_smiles(tmp_path / "m.sdf")) == wanted


@pytest.mark.parametrize("options, message", [
    ("--valid 0", "valid=0: must be at least 1"), ("--valid 3 --tries 0", "tries=0: must be at least 1"),
    ("--tries 9", "tries=9: only with valid or unique"), ("--valid 3 -n 4", "n=4: not with valid=3"),
])
def test_wrong_numbers_of_valid_ones(model, options, message): refused(call(f"sample {model} {options}"), message)


def test_tasks_that_cannot_tell():
    refused(call("sample star-tiny --valid 3"), "does not define valid samples")
    refused(call("sample star-tiny --salvage"), "repairs nothing")


def test_a_fragment_is_a_prompt(model):
    method = load(str(model))
    samples = method.sample("*c1ccccc1", n=3, seed=0)
    same = method.sample([method.prompt("*c1ccccc1")], n=3, seed=0)
    assert samples.sequences == same.sequences
    with pytest.raises(ValueError, match="attachment point"): method.sample(["CC.CC"], n=3)


def test_no_bound_if_not_wanted(model, tmp_path):
    assert call(f"sample {model} -n 3 --nll 0 --out", tmp_path / "m.csv")[0] == 0
    columns = ["text", "smiles", "state", "qed", "sa", "logp", "weight", "prompt", "tokens", "generated"]
    assert list(rows_of(tmp_path / "m.csv")[0]) == columns


@pytest.mark.parametrize(
    "nll, out, rows, task, states",
    [
        (None, "m.csv", 1000, "molecules", 16), (None, "m.csv", 1001, "molecules", 0),
        (None, None, 9, "molecules", 0), (None, "m.csv", 9, "brackets", 0),
        (None, "m.csv", 9, None, 0), (4, None, 9999, "brackets", 4), (0, "m.csv", 9, "molecules", 0),
    ],
)
def test_when_there_is_a_bound(nll, out, rows, task, states):
    request, task = SampleRequest(n=rows, nll=nll), task and task_from(dict(kind=task))
    assert states_for(request, out and Path(out), rows, task) == states


def test_the_terminal_shows_molecules_and_why_not(model, table):
    code, out, _ = call(f"sample {model} -n 60")
    lines, rows = out.splitlines(), rows_of(table[0])
    assert code == 0 and len(lines) == 60
    for line, row in zip(lines, rows, strict=True):
        if row["state"] == "valid": assert line == row["smiles"]
        else:
            assert line.startswith(row["smiles"] or "-   " + row["tokens"].replace(" ", ""))
            assert line.endswith(f"   ({row['state']})")


def test_states_of_what_tells_none(): assert states_of([dict(tokens=[]), dict(tokens=[])]) == {}


def test_columns_and_few_valid_molecules_are_explained(model, known, tmp_path):
    hopeless = untrained(tmp_path / "hopeless", ") (", known)
    _, out, err = call(f"sample {hopeless} -n 5")
    assert len(out.splitlines()) == 5 and err.splitlines()[-1].startswith("SMILES, or - and the text as it was written")
    assert err.splitlines()[-2] == "0 of 5 are valid molecules: more with a larger -n, or --top-p 0.5 (now 1.0)"
    samples, options = Samples([[]] * 4, [[]] * 4, network_calls=1), dict(out="m.csv")
    rows = [dict(smiles="C", state="valid"), dict(smiles="", state="syntax")] * 2
    assert status_lines(rows, samples, task_from(dict(kind="molecules")), options) == [
        "1 network calls",
        "of 4: 2 valid, 2 syntax",
    ]


def test_training_says_which_rows_it_left_out(tmp_path):
    (tmp_path / "m.csv").write_text("smiles\n" + "\n".join([*KNOWN, "c1cc", "CCO", "CC.CC"]) + "\n")
    (tmp_path / "r.toml").write_text(
        f"[task]\nkind = 'molecules'\nsource = '{tmp_path / 'm.csv'}'\nvalid_share = 0.2\n"
        "test_share = 0.2\n[model]\nsize = 'nano'\norder_size = 'nano'\n"
    )
    code, _, err = call(f"train {tmp_path / 'r.toml'} --steps 2 --out", tmp_path / "run", *SMALL)
    data, lost = err.splitlines()[:2]
    assert code == 0
    assert (
        sum(map(int, re.findall(r"(?:train|valid|test) (\d+)", data))) + int(re.search(r"left out: (\d+)", lost)[1])
        == len(KNOWN) + 3
    )
    assert "1 unparsable" in lost and "1 duplicate" in lost and "1 several components" in lost


# the picture

def test_picture(table):
    data = (table[0].parent / "mols.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert len(data) > 2000
    assert table[1].rstrip().endswith(f"picture: {table[0].with_suffix('.png')}")
    assert sorted(p.name for p in table[0].parent.iterdir()) == ["mols.csv", "mols.csv.run.json", "mols.png"]


@pytest.mark.slow
def test_no_picture(model, known, tmp_path):
    assert call(f"sample {model} -n 20 --nll 0 --no-picture --out", tmp_path / "m.csv")[0] == 0
    hopeless = untrained(tmp_path / "hopeless", ") (", known)
    code, _, err = call(f"sample {hopeless} -n 5 --nll 0 --out", tmp_path / "h.csv")
    assert code == 0
    assert "0 of 5 are valid molecules" in err
    assert "picture:" not in err
    assert not list(tmp_path.glob("*.png"))
    assert len(rows_of(tmp_path / "h.csv")) == 5


def test_place_of_the_picture_is_taken(model, tmp_path):
    (tmp_path / "m.png").mkdir()
    code, _, err = call(f"sample {model} -n 20 --nll 0 --force --out", tmp_path / "m.csv")
    assert code == 2 and err.splitlines()[-1] == f"loflexmdm: {tmp_path / 'm.png'}: Is a directory"
    assert len(rows_of(tmp_path / "m.csv")) == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "m.csv.run.json", "m.png"]


# pieces to grow from

def test_fragment_stays(model, tmp_path):
    from loflexmdm.molecules.notation.fragments import contains_fragment
    assert (
        call(
            (
                f"sample {model} -n 60 --min-length 13 --max-length 13 --top-p 1 --confidence "
                f"none --nll 2 --out {tmp_path / 'm.csv'} --fragment"
            ),
            "[1*]c1ccccc1",
        )[0]
        == 0
    )
    rows = rows_of(tmp_path / "m.csv")
    assert len(rows) == 60
    assert len({r["prompt"] for r in rows}) == 1
    assert rows[0]["prompt"].endswith(" .")
    assert "c <1>" in rows[0]["prompt"]
    assert all(
        r["tokens"].startswith(r["prompt"]) and r["generated"].startswith(" ".join("0" for _ in r["prompt"].split()))
        for r in rows
    )
    valid = [r["smiles"] for r in rows if r["state"] == "valid"]
    assert valid and all(contains_fragment(s, "[1*]c1ccccc1") for s in valid)


def test_a_molecule_without_its_fragment_is_not_valid(known):
    task = task_from(dict(kind="molecules", source=str(known), tokens="( ) . 1 <1> = C O"))
    ids = [task.vocabulary.encode(tokenize(text)) for text in ("C<1>O.C<1>", "C<1>O.C=<1>", "(")]
    samples = Samples(ids, [[True] * len(i) for i in ids])
    found = [(d["smiles"], d["state"]) for d in task.describe(samples, "*CO")]
    assert found[:2] == [("CCO", "valid"), ("C=CO", "fragment altered")] and found[2][1] != "valid"
    assert {d["state"] for d in task.describe(samples)[:2]} == {"valid"}


def test_two_pieces_are_one_prompt(model, tmp_path):
    assert call(f"sample {model} -n 5 --nll 0 --out {tmp_path / 'm.csv'} --fragment", "*c1ccccc1.*N1CCC1")[0] == 0
    prompt = rows_of(tmp_path / "m.csv")[0]["prompt"]
    assert prompt.count(".") == 2 and "<1>" in prompt and "<2>" in prompt


# files of fragments

FRAGMENTS = "[R1]c1ccccc1 benzene\n\n*c1ccccc1|*N1CCC1\ttwo parts\nc1cc bad\n*CC | *CN\n*CCO\n*CBr heavy\n"


def test_a_file_of_fragments_keeps_names_and_counts_what_it_leaves_out(model, tmp_path):
    (tmp_path / "f.smi").write_text(FRAGMENTS)
    line = f"sample {model} -n 3 --nll 0 --no-picture --prompts {tmp_path / 'f.smi'} --out"
    code, _, said = call(line, tmp_path / "m.csv")
    rows = rows_of(tmp_path / "m.csv")
    assert code == 0 and [(r["name"], r["prompt_text"]) for r in rows] == [
        pair for pair in [("benzene", "[R1]c1ccccc1"), ("two parts", "*c1ccccc1|*N1CCC1"), ("", "*CCO")] for _ in "123"]
    assert len({r["prompt"] for r in rows}) == 3
    assert all(contains_fragment(r["smiles"], r["prompt_text"]) for r in rows if r["state"] == "valid")
    said += status_of(line.removesuffix(" --out"))[1]
    for told in ("f.smi: lines: 7 records, 3 kept; left out: ", "1 not a SMILES, the first is record 4 'c1cc'",
                 "vocabulary lacks Br",
                 "1 empty, the first is record 2", "1 blanks beside |, the first is record 5 '*CC | *CN'"):
        assert told in said
    code, out, _ = call(line.removesuffix(" --out"))
    assert code == 0 and [x.split(":")[0] for x in out.splitlines()][2:4] == ["benzene", "two parts"]


@pytest.mark.slow
def test_rows_of_a_file_are_those_of_its_fragments_in_a_table_too(model, tmp_path):
    "The first fragment of a file has the seeds of --fragment; a table gives the same rows."
    (tmp_path / "f.smi").write_text("*c1ccccc1 a\n*CCO b\n")
    (tmp_path / "f.csv").write_text("id,note,core\na,x,*c1ccccc1\nb,y,*CCO\n")
    line = f"sample {model} -n 3 --nll 0 --no-picture --salvage --out"
    assert call(line, tmp_path / "one.csv", "--fragment", "*c1ccccc1")[0] == 0
    assert call(line, tmp_path / "file.csv", "--prompts", tmp_path / "f.smi")[0] == 0
    assert call(line, tmp_path / "table.csv", "--prompts", tmp_path / "f.csv", "--column", "core")[0] == 0
    file, one = rows_of(tmp_path / "file.csv"), rows_of(tmp_path / "one.csv")
    assert file == rows_of(tmp_path / "table.csv") and [{k: r[k] for k in one[0]} for r in file[:3]] == one
    assert call(line, tmp_path / "found.csv", "--prompts", tmp_path / "f.csv")[0] == 0  # the column that holds SMILES
    assert rows_of(tmp_path / "found.csv") == file
    (tmp_path / "two.csv").write_text("core,other\n*c1ccccc1,*c1ccccc1\n*CCO,*C(=O)O\n")
    refused(call(line, tmp_path / "no.csv", "--prompts", tmp_path / "two.csv"), "name one of them")


@pytest.mark.slow
def test_an_interrupted_file_of_fragments_is_continued_with_the_same_names_alone(model, tmp_path, monkeypatch):
    (tmp_path / "f.smi").write_text("*c1ccccc1 a\n*CCO b\n")
    line = f"sample {model} -n 3 --batch-size 2 --no-picture --prompts {tmp_path / 'f.smi'} --out"
    assert call(line, tmp_path / "whole.csv")[0] == 0
    draw = Model.sample_batches
    def two(*args, **more):
        yield from islice(draw(*args, **more), 2)
        raise ZeroDivisionError
    with monkeypatch.context() as patch:
        patch.setattr(Model, "sample_batches", two)
        with pytest.raises(ZeroDivisionError): call(line, tmp_path / "part.csv")
    (tmp_path / "f.smi").write_text("*c1ccccc1 a\n*CCO c\n")
    code, _, said = call(line, tmp_path / "part.csv")
    assert code == 2 and "another prompts" in said
    (tmp_path / "f.smi").write_text("*c1ccccc1 a\n*CCO b\n")
    code, _, said = call(line, tmp_path / "part.csv")
    assert code == 0 and "continuing: 4 drawn sequences are kept" in said
    assert (tmp_path / "part.csv").read_text() == (tmp_path / "whole.csv").read_text()


@pytest.mark.slow
def test_fragments_that_grow_in_ways_of_their_own_are_in_one_file(tmp_path):
    (tmp_path / "f.txt").write_text("[R1]c1ccncc1\n*c1ccncc1|*N1CCCC1\n")
    code, _, said = call(f"sample molecules-moses-ar -n 2 --nll 0 --no-picture --prompts {tmp_path / 'f.txt'} --out",
                         tmp_path / "m.jsonl")
    rows = [json.loads(line) for line in open(tmp_path / "m.jsonl")]
    assert code == 0 and "route: growth from" in said
    assert [r["prompt_text"][:2] for r in rows] == ["[R", "[R", "*c", "*c"]
    assert any(r["state"] == "valid" for r in rows) and "name" not in rows[0]
    assert all(contains_fragment(r["smiles"], r["prompt_text"]) for r in rows if r["state"] == "valid")


@pytest.mark.parametrize("name, text, more, problem", [
    ("f.smi", "c1cc a\nR1CC b\n", "", "none of 2 records gives a prompt"), ("f.smi", "", "", "is empty"),
    ("f.smi", "*CC\n", "--column x", "is not a table"),
])
def test_wrong_files_of_fragments(model, tmp_path, name, text, more, problem):
    (tmp_path / name).write_text(text)
    refused(call(f"sample {model} --prompts {tmp_path / name} {more} --out", tmp_path / "m.csv"), problem)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_lists_of_tokens_are_prompts_of_molecules_as_before(model, tmp_path):
    refused(call(f"sample {model} --column x"), "only with --prompts")
    for name, text in {"t.jsonl": '["C", "C", "..."]\n', "t.txt": "C C ...\n"}.items():
        (tmp_path / name).write_text(text)
        assert call(f"sample {model} -n 2 --nll 0 --no-picture --prompts {tmp_path / name} --out",
                    tmp_path / f"{name}.csv")[0] == 0
        rows = rows_of(tmp_path / f"{name}.csv")
        assert {r["prompt"] for r in rows} == {"C C ..."} and "prompt_text" not in rows[0]


def test_a_table_of_texts_keeps_its_names(tmp_path):
    (tmp_path / "seen.txt").write_text("abba\nbaab\naabb\nbbaa\nab\nba\n" * 4)
    table = dict(kind="text", file=str(tmp_path / "seen.txt"), unit="characters", max_length=12)
    _, method = recipe_from(dict(task=table, model=dict(size="nano", order="fixed", order_size="nano"))).build()
    save_method(method, tmp_path / "letters")
    (tmp_path / "p.csv").write_text("name,prompt\nx,ab\ny,b...a\nz,a1\n")
    code, _, said = call(f"sample {tmp_path / 'letters'} -n 2 --nll 0 --prompts {tmp_path / 'p.csv'} --out",
                         tmp_path / "s.csv")
    assert code == 0 and "left out: 1 " in said and "record 4 'a1'" in said
    assert [(r["name"], r["prompt_text"]) for r in rows_of(tmp_path / "s.csv")] == [
        ("x", "ab"), ("x", "ab"), ("y", "b...a"), ("y", "b...a")]


# files of SMILES

def figures(line, *more):
    code, out, err = call(line, *more)
    assert code == 0, err
    return dict(x.rsplit(maxsplit=1) for x in out.splitlines())


def test_evaluate_what_sample_wrote(table):
    path, _ = table
    without, (_, _, said) = figures("evaluate", path), call("evaluate", path)
    assert "not compared with the data: source='" in said and "is read with --task-data" in said
    found = figures("evaluate --task-data", path)
    assert {k.split()[0] for k in found.keys() - without.keys()} == {"novelty", "length_tv", "length_tv_floor"}
    assert without.items() <= found.items()
    rows = rows_of(path)
    assert found["n"] == "60"
    assert float(found["validity"]) == pytest.approx(sum(r["state"] == "valid" for r in rows) / 60, abs=5e-5)


# 4 of 6 are one molecule each, 3 of these 4 different, 1 of the 3 unknown
BY_HAND = "CCO\nOCC\nc1cc\nCCN\nCC.CC\nCCCCCl\n"


def test_evaluate_smiles_by_hand(tmp_path, known):
    (tmp_path / "m.smi").write_text(BY_HAND)
    (tmp_path / "r.toml").write_text(
        f"[task]\nkind = 'molecules'\nsource = '{known}'\nvalid_share = 0.0\ntest_share = 0.0"
    )
    found = figures("evaluate", tmp_path / "m.smi")
    assert (found["n"], found["validity"], found["uniqueness"]) == ("6", "0.6667", "0.7500") and "novelty" not in found
    assert figures(f"evaluate {tmp_path / 'm.smi'} --task", tmp_path / "r.toml")["novelty"] == "0.3333"


def test_evaluate_a_column(tmp_path, table):
    text = "name,structure\n" + "".join(f"{i},{s}\n" for i, s in enumerate(BY_HAND.split()))
    (tmp_path / "m.csv").write_text(text)
    assert figures(f"evaluate {tmp_path / 'm.csv'} --column structure")["validity"] == "0.6667"
    assert figures(f"evaluate {table[0]} --task-data --column smiles")["validity"] == (
        figures("evaluate --task-data", table[0])["validity"])


# wrong input: one line, exit code 2, nothing written

@pytest.mark.slow
def test_wrong_input(model, tmp_path):
    for name, text in {"empty.smi": "", "table.csv": "structure,name\nCC,x\n", "p.txt": "C C\n"}.items():
        (tmp_path / name).write_text(text)
    before, out = sorted(tmp_path.iterdir()), f"--out {tmp_path / 'm.csv'}"
    lines = {
        f"sample {model} {out} --fragment c1cc": "'c1cc'",
        f"sample molecules-moses-ar {out} --fragment *CC.*CN.*CO": "takes 2 fragments, this is 3",
        f"sample {model} {out} --fragment *c1ccc([Pt])cc1": "[Pt]",
        f"sample star-tiny {out} --fragment *CC": "'*CC' is outside the vocabulary",
        (
            f"sample {model} {out} --fragment *CC --prompts {tmp_path / 'p.txt'}"
        ): "--prompts: not allowed with argument --fragment",
        f"sample {model} --out /proc/m.csv": "--out /proc/m.csv: /proc is not writable",
        f"evaluate {tmp_path / 'empty.smi'}": "empty.smi: is empty",
        f"evaluate {tmp_path / 'table.csv'} --column smiles": "has the columns structure, name",
    }
    for line, expected in lines.items(): refused(call(line), expected)
    assert sorted(tmp_path.iterdir()) == before


FRAGMENT = {
    "": "empty", "C C": "white space", "*" + "C" * 40: "has 40 atoms",
    "*CC.CC": "attachment point", "*C.*N.*O": "2 fragments, this is 3",
    "*1CC1": "must hang on exactly one atom", "*CBr": "Br", "*C[N+](C)(C)C": "[N+]",
}


@pytest.mark.parametrize("fragment", FRAGMENT)
def test_wrong_fragment(model, tmp_path, fragment):
    refused(call(f"sample {model} --out {tmp_path / 'm.csv'} --fragment", fragment), FRAGMENT[fragment])
    assert not list(tmp_path.iterdir())


def test_fragment_of_a_model_without_a_task(model, tmp_path):
    bare = load(model)
    bare.method.task = None
    bare.save(tmp_path / "bare")
    refused(call(f"sample {tmp_path / 'bare'} --fragment *CC"), "--fragment: the model was saved without a task")


def test_prompts_of_a_model_whose_task_is_unknown(model, tmp_path):
    "Its prompts are enough to sample; without them the missing task is named."
    other = load(model)
    other.method.task = dict(kind="proteins")
    other.save(tmp_path / "other")
    (tmp_path / "p.txt").write_text("C C\n")
    code, out, err = call(f"sample {tmp_path / 'other'} -n 2 --max-length 6 --prompts", tmp_path / "p.txt")
    assert code == 0 and len(out.splitlines()) == 2 and "samples are not described" in err and "proteins" in err
    refused(call(f"sample {tmp_path / 'other'}"), "kind='proteins'")


FILES = {
    "empty.smi": ("", "", "empty.smi"),
    "empty.csv": ("", "", "empty.csv"),
    "header.csv": ("smiles,name\n", "", "header.csv"),
    "wrong.csv": ("structure,name\nCC,x\n", "--column smiles", "structure"),
    "unnamed.csv": ("structure,name\nCC,x\n", "", "name one of them"),
    "list.smi": ("CC\n", "--column smiles", "is not a table"),
    "m.smi": ("CC\n", "--task brackets", "the task 'brackets' scores only files of `loflexmdm sample`"),
    "m.sdf": ("CC\n", "", "not an SDF"),
}


@pytest.mark.parametrize("name", FILES)
def test_wrong_file_of_smiles(tmp_path, name):
    text, options, part = FILES[name]
    (tmp_path / name).write_text(text)
    refused(call(f"evaluate {tmp_path / name} {options}"), part)


def test_bytes_that_are_no_text_are_no_molecules(tmp_path):
    (tmp_path / "m.smi").write_bytes(b"CCO\n\xff\xfe\x00CCO\n")
    assert figures("evaluate", tmp_path / "m.smi")["valid"] == "1"


def test_column_of_a_model(model): refused(call(f"evaluate {model} --column smiles"), "--column")


def test_tokens_the_task_does_not_know(table, tmp_path):
    (tmp_path / "mols.csv").write_text(
        table[0].read_text().replace("tokens,generated\n", "tokens,generated\nC,C,valid,,,,,1.0,0.1,,[Zz],1\n")
    )
    shutil.copy(table[0].parent / "mols.csv.run.json", tmp_path)
    refused(call("evaluate", tmp_path / "mols.csv"), "'[Zz]' is outside the vocabulary")


@pytest.mark.parametrize("place", ["nowhere/m.csv", "file/m.csv", "m.mol", "."])
def test_places_that_are_none(model, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    refused(call(f"sample {model} --out", place), "--out")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


# from the data to the package's own model

@pytest.mark.slow
def test_a_model_carries_its_tokens(tmp_path, known):
    (tmp_path / "r.toml").write_text(
        f"[task]\nkind = 'molecules'\nsource = '{known}'\nvalid_share = 0.2\ntest_share = 0.2\n"
        "[model]\nsize = 'nano'\norder_size = 'nano'\n"
    )
    assert call(f"train {tmp_path / 'r.toml'} --steps 2 --out", tmp_path / "run", *SMALL)[0] == 0
    assert call(f"sample {tmp_path / 'run'} -n 6 --nll 2 --max-length 6 --out", tmp_path / "mols.jsonl")[0] == 0
    assert figures("evaluate --task-data", tmp_path / "mols.jsonl")["n"] == "6"
    assert json.loads((tmp_path / "mols.jsonl.run.json").read_text())["task"]["tokens"].split() == sorted(
        load(tmp_path / "run").vocabulary.tokens[3:]
    )


@pytest.mark.slow
@pytest.mark.skipif("molecules" not in names(), reason="the package holds no model called molecules")
def test_the_packaged_model(tmp_path):
    assert call("sample molecules -n 64 --nll 4 --out", tmp_path / "mols.csv")[0] == 0
    rows = rows_of(tmp_path / "mols.csv")
    assert sum(r["state"] == "valid" for r in rows) > 3 and (tmp_path / "mols.png").exists()
    assert call(f"sample molecules -n 8 --out {tmp_path / 'grown.csv'} --fragment", "[1*]c1ccc2c(c1)OCCO2")[0] == 0
    assert all(r["tokens"].startswith(r["prompt"]) for r in rows_of(tmp_path / "grown.csv"))


@pytest.mark.slow
@pytest.mark.skipif("molecules-moses-ar" not in names(), reason="the package holds no model called molecules-moses-ar")
def test_the_packaged_model_from_left_to_right(tmp_path):
    "From its whole distribution; of 64 samples at least 55 are valid unless the share is far below 96 %."
    assert call("sample molecules-moses-ar -n 64 --nll 0 --out", tmp_path / "mols.csv")[0] == 0
    assert sum(r["state"] == "valid" for r in rows_of(tmp_path / "mols.csv")) >= 55
    assert "top_p=1.0" in json.loads((tmp_path / "mols.csv.run.json").read_text())["sampler"]
    out = tmp_path / "grown.csv"
    assert call(f"sample molecules-moses-ar --valid 4 --unique --out {out} --fragment", "*c1ccncc1")[0] == 0
    spelled = {r["prompt"] for r in rows_of(out)}  # from either end of the ring, which trials decide
    assert len(spelled) == 1 and spelled <= {"c 1 c c ( ...", "n 1 c c c ( ..."}
    middle = "*C(=O)Nc1ccc(Cl)cc1"  # its point stands in the middle of a canonical SMILES
    out = tmp_path / "amides.csv"
    assert call(f"sample molecules-moses-ar --valid 12 --tries 24 --out {out} --fragment", middle)[0] == 0
    assert all(contains_fragment(row["smiles"], middle) for row in rows_of(out))
    several, out = "*c1ccc(*)cc1", tmp_path / "several.csv"
    assert call(f"sample molecules-moses-ar --valid 4 --tries 24 --out {out} --fragment", several)[0] == 0
    assert all(contains_fragment(row["smiles"], several) for row in rows_of(out))
    pair, out = "*c1ccccc1.*CC", tmp_path / "pair.csv"
    assert call(f"sample molecules-moses-ar --valid 4 --tries 24 --out {out} --fragment", pair)[0] == 0
    assert all(contains_fragment(row["smiles"], part) for row in rows_of(out) for part in pair.split("."))


def test_the_model_says_how_to_sample_unless_told_otherwise(tmp_path, model):
    "Settings saved with a model hold until options change them."
    careful = load(str(model))
    careful.sampling = dict(top_p=0.7, confidence="top_prob")
    model = careful.save(tmp_path / "careful")
    for options, said in (
        ("", "top_p=0.7, confidence='top_prob'"),
        ("--top-p 1 --confidence none", "top_p=1.0, confidence=None"),
    ):
        assert call(f"sample {model} -n 2 --nll 0 --force {options} --out", tmp_path / "m.csv")[0] == 0
        assert said in json.loads((tmp_path / "m.csv.run.json").read_text())["sampler"]


@pytest.mark.slow
@pytest.mark.parametrize("fragment, route", [
    ("*N1CCOCC1.*c1ccc2c(c1)OCCO2", "linking: grown from "), ("*c1ccc(*)cc1", "at its 2 points"),
    ("c1ccc2[nH]ccc2c1", "superstructure: growth at one of "), ("*[C@H](C)c1ccccc1", "stereochemistry left out"),
])
def test_one_command_for_what_is_asked_of_a_fragment_says_its_route(fragment, route, tmp_path):
    out = tmp_path / "grown.csv"
    code, _, said = call("sample molecules-moses-ar -n 6 --nll 0 --out", out, "--fragment", fragment)
    assert code == 0 and route in said and route in (tmp_path / "grown.csv.run.json").read_text()
    assert sum(row["state"] == "valid" for row in rows_of(out)) >= 3


def test_a_text_that_the_model_cannot_continue_is_refused_in_one_line():
    refused(call("sample molecules-moses-ar --fragment CC...CC"), "can only be at the end")
    refused(call("sample molecules-moses-ar --prompt-text <act:0>"), "<act:0>: is not a condition")


def test_leads_with_stereochemistry_and_charges_are_edited_without_and_the_row_says_so(tmp_path):
    leads, out = tmp_path / "leads.smi", tmp_path / "edited.csv"
    leads.write_text("C[C@H](O)c1ccccc1\nC[NH2+]Cc1ccccc1\nCCc1ccccc1\nC[C@@H]([NH3+])Cc1ccccc1\n[2H]Cc1ccccc1O\n")
    assert call("edit", stored("molecule-edits"), "--input", leads, "--out", out)[0] == 0
    told = [row["left_out"] for row in rows_of(out)]
    assert told == ["stereochemistry", "charges", "", "stereochemistry, charges", "isotopes"]
    assert not any(row["state"].startswith("skipped") for row in rows_of(out))


NO_DRAWING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("rdkit.Chem.Draw"): raise ImportError("libXrender.so.1: cannot open shared object file")
sys.meta_path.insert(0, Missing())
from loflexmdm.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_without_libraries_for_drawing_all_works_that_does_not_draw(known, tmp_path):
    "Of a machine without a window system rdkit's drawing module cannot be loaded."
    run = lambda *words: subprocess.run([sys.executable, "-c", NO_DRAWING, *words], capture_output=True, text=True)
    drawn = run("sample", "molecules-moses-ar", "-n", "2", "--seed", "1")
    assert drawn.returncode == 0 and "of 2: 2 valid" in drawn.stderr
    report = run("report", str(known), "--out", str(tmp_path / "page.html"))
    assert report.returncode == 2 and "libXrender" in report.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
@pytest.mark.parametrize("more", ["", "--salvage", "--valid 2 --tries 40"])
def test_figures_computed_by_other_processes_are_those_of_one(model, tmp_path, monkeypatch, more):
    files, here = [], []
    compute = MoleculeOutput.figures
    monkeypatch.setattr(MoleculeOutput, "figures", lambda output, rows: here.append(0) or compute(output, rows))
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for apart in (10**9, 1):
        monkeypatch.setattr(model_rows, "APART", apart)
        here.clear()
        files.append(tmp_path / f"{apart}.csv")
        n = "" if "--valid" in more else "-n 23"
        code, _, said = call(f"sample {model} {n} --batch-size 5 --seed 1 --no-picture {more} --out", files[-1])
        assert code == 0, said
        assert bool(here) == (apart > 1)
    assert files[0].read_bytes() == files[1].read_bytes() and len(rows_of(files[0])) >= 2


def test_figures_are_computed_for_files_only(model, monkeypatch):
    monkeypatch.setattr(MoleculeOutput, "figures", lambda output, rows: pytest.fail("nobody asked"))
    assert call(f"sample {model} -n 5 --seed 1")[0] == 0
    assert len(load(str(model)).sample(valid=2, seed=1, tries=40)) == 2
