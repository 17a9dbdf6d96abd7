"Every command that reads a file prints the same line on its records: read, kept, left out by reason."
import csv
import re
from collections import Counter

import pytest

from loflexmdm.cli.commands import find_commands, full_parser
from commands import SMALL, call, refused, status_of

MOLECULES = """name,smiles,pIC50
ethylbenzene,CCc1ccccc1,5.1
amphetamine,CC(N)Cc1ccccc1.Cl,6.1
mapped,[CH3:1][CH2:2]OC(=O)c1ccccc1,5
labelled,[13CH3]OC(=O)CCc1ccccc1,4
broken,xxx,3
,,5
amide,CNC(=O)Cc1ccccc1,7
"""
OF_MOLECULES = dict(
    train="train molecules --size nano --steps 1 --valid-share 0.4 --test-share 0 --out run --source",
    sample="sample molecules-leads -n 1 --prompts", edit="edit lead-edits -n 1 --input",
    evaluate="evaluate", optimize="optimize --objective qed --way ranked --budget 9 --start", report="report",
)
LINE = re.compile(
    r"read: (\S*): table \(','\), column smiles: 7 records, (\d) kept; left out: ((\d [^;,]+,? ?)+)((; [a-z ]+: \d)*)\n"
)


def reads_molecules(name):
    "True if a command, here on molecules, has the option --salts."
    words = [name, *OF_MOLECULES.get(name, "").split()[1:2]]
    _, commands = full_parser(words)
    return any("--salts" in action.option_strings for action in commands.choices[name]._actions)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.csv").write_text(MOLECULES)
    return tmp_path


def test_the_commands_below_are_all_that_read_molecules():
    assert {name for name in find_commands() if reads_molecules(name)} == {*OF_MOLECULES}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_MOLECULES)
@pytest.mark.parametrize("salts", ["refuse", "largest"])
def test_molecules_are_counted_alike(name, salts):
    code, text = status_of(f"{OF_MOLECULES[name]} m.csv --salts {salts}")
    found = LINE.search(text)
    assert code == 0 and found, text
    lost = sum(int(n) for n in re.findall(r"(\d) ", found[3]))
    assert int(found[2]) + lost == 7 and int(found[2]) == (5 if salts == "largest" else 4), text
    assert "1 empty" in found[3] and len(found[3].split(", ")) == (2 if salts == "largest" else 3)
    changes = ["salt removed: 1"] * (salts == "largest") + ["atom map removed: 1", "isotopes kept: 1"]
    assert found[5].removeprefix("; ").split("; ") == changes, text


TEXTS = "a b c\n\nb a\nc a b\na c\nb c a\n" * 3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    "A model of words, trained for two steps."
    folder = tmp_path_factory.mktemp("words")
    (folder / "w.txt").write_text(TEXTS)
    assert call(f"train {folder / 'w.txt'} --steps 2 --out {folder / 'run'}", *SMALL)[0] == 0
    return folder / "run" / "best"


def test_texts_are_counted_alike(model, place):
    (place / "w.txt").write_text(TEXTS)
    line = "w.txt: lines: 18 records, 15 kept; left out: 3 empty"
    for command in (f"sample {model} -n 1 --prompts w.txt", f"evaluate w.txt --model {model}",
                    "edit repair-text -n 1 --input w.txt", "train w.txt --steps 1 --out run"):
        code, text = status_of(command, *SMALL * command.startswith("train"))
        [read] = [x for x in text.splitlines() if x.startswith("read: ")]
        assert code == 0 and re.fullmatch(rf"read: \S*{re.escape(line)}(; [34] different.*)?", read), text


def test_samples_are_counted(model, place):
    assert call(f"sample {model} -n 2 --nll 0 --out s.jsonl")[0] == 0
    said = status_of("evaluate s.jsonl --task-data")[1]
    assert "read: s.jsonl: json lines, column tokens: 2 records, 2 kept\n" in said


def test_salts_of_texts_are_refused(model, place):
    (place / "w.txt").write_text(TEXTS)
    refused(call(f"evaluate w.txt --model {model} --salts largest"), "--salts largest: not for the task")


def rows_by(path, key):
    "How many rows of a CSV have each value of a column."
    with open(path, newline="") as f: return Counter(row[key] for row in csv.DictReader(f))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["molecules-leads", "molecules-moses-ar"])
def test_every_prompt_of_a_file_gets_its_valid_samples(place, model):
    (place / "f.smi").write_text("*c1ccccc1 a\n*CCO b\n*N1CCOCC1 c\n")
    more = "--valid 3 --unique --no-picture --nll 0"
    code, text = status_of(f"sample {model} --prompts f.smi {more} --out v.csv")
    assert code == 0 and rows_by("v.csv", "name") == dict(a=3, b=3, c=3) and rows_by("v.csv", "state") == dict(valid=9)
    again = status_of(f"sample {model} --prompts f.smi {more} --out w.csv --batch-size 2")
    assert again[0] == 0 and (place / "w.csv").read_text() == (place / "v.csv").read_text()


def test_every_prompt_of_tokens_gets_its_valid_samples(place):
    (place / "p.txt").write_text("C C ( = O ) ...\nc 1 ...\n")
    code, text = status_of("sample molecules-leads --prompts p.txt --valid 2 --no-picture --nll 0 --out v.csv")
    assert code == 0 and sorted(rows_by("v.csv", "prompt").values()) == [2, 2], text


@pytest.mark.slow
def test_too_few_valid_samples_are_said(place):
    (place / "f.smi").write_text("*c1ccccc1 a\n*CCO b\n")
    code, text = status_of("sample molecules-leads --prompts f.smi --valid 40 --tries 40 --nll 0 --out v.csv")
    assert code == 0 and "of 80 different valid sequences in 80 draws" in text


def test_the_size_of_a_first_run_is_said(place):
    (place / "w.txt").write_text(TEXTS)
    line = "train w.txt --steps 1 --out"
    said = [status_of(f"{line} {run}", *SMALL)[1] for run in ("run", "run2 --size micro")]
    assert ["size=nano: for files of any size; --size NAME" in text for text in said] == [True, False]
