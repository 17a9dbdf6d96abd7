"Data that changed between training and resuming, files that moved, and models used away from their data."
import contextlib
import io
import json
import shutil
import warnings

import pytest
import torch

import loflexmdm
from loflexmdm.cli import main
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.molecules.data.prepared import prepare
from loflexmdm.support.atomic_files import add_digest
from loflexmdm.support.data_digests import probes
from loflexmdm.tasks.base import task_from
from loflexmdm.tasks.sequences import SequencesTask
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import read_tables, recipe
from loflexmdm.training.trainer import Trainer

SUMS = [f"{a}+{b}={a + b}" for a in range(12) for b in range(12)]
QUICK = "--steps 4 --save-every 2 --batch-size 4 --warmup 0 --valid-every 99 --valid-size 4 --valid-samples 2".split()


def call(line, *more):
    "Exit code and what was said."
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main([*line.split(), *map(str, more)]), out.getvalue() + err.getvalue()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "A folder with sums, a recipe beside them that names them by a relative path, and a run of two steps of four."
    place = tmp_path_factory.mktemp("whole")
    (place / "data").mkdir()
    (place / "data/sums.txt").write_text("\n".join(SUMS) + "\n")
    task = "[task]\nkind = 'text'\nfile = 'data/sums.txt'\nunit = 'characters'\nmax_length = 9\n"
    (place / "my.toml").write_text(task + "[model]\nsize = 'nano'\norder = 'fixed'\n")
    code, said = call(f"train {place}/my.toml --out {place}/run", *QUICK)
    assert code == 0, said
    shutil.rmtree(checkpoints(place / "run")[-1])
    return place


@pytest.fixture
def place(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "place")
    saved = json.loads((tmp_path / "place/run/run.json").read_text())
    saved["recipe"]["task"]["file"] = str(tmp_path / "place/data/sums.txt")
    (tmp_path / "place/run/run.json").write_text(json.dumps(add_digest(saved)))
    return tmp_path / "place"


CHANGES = dict(
    added=(lambda rows: [*rows, "7+7=14"], "sums.txt: 144 rows then, 145 rows now"),
    halved=(lambda rows: rows[::2], "sums.txt: 144 rows then, 72 rows now"),
    reversed=(lambda rows: rows[::-1], "sums.txt: 144 rows then and now, but different ones or in another order"),
    one=(lambda rows: ["9+0=8" if r == "9+0=9" else r for r in rows], "sums.txt: 144 rows then and now, but different"),
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("saved", [True, False], ids=["checkpoint", "no-checkpoint"])
def test_a_run_is_not_resumed_on_changed_data(place, change, saved):
    make, message = CHANGES[change]
    before = (place / "run/run.json").read_bytes()
    if not saved: shutil.rmtree(place / "run/checkpoints")
    (place / "data/sums.txt").write_text("\n".join(make(SUMS)) + "\n")
    code, said = call(f"resume {place}/run")
    assert code == 2 and message in said.splitlines()[-1] and "--changed-data" in said
    assert (place / "run/run.json").read_bytes() == before
    code, said = call(f"resume {place}/run --changed-data")
    assert code == 0, said
    sessions = json.loads((place / "run/run.json").read_text())["sessions"]
    assert "changed_data" not in sessions[0] and message in " ".join(sessions[-1]["changed_data"])


def test_what_changes_no_sequence_is_no_change(place):
    (place / "data/sums.txt").write_bytes(("\r\n".join(SUMS) + "\r\n\r\n").encode("utf-8-sig"))
    assert call(f"resume {place}/run")[0] == 0


@pytest.mark.parametrize("key, value", [("seed", 7), ("test_size", 99), ("arm_max", 3)])
def test_settings_changed_by_hand_are_noticed(tmp_path, key, value):
    run = tmp_path / "run"
    assert call(f"train star-tiny --out {run} --size nano --order-size nano", *QUICK)[0] == 0
    shutil.rmtree(checkpoints(run)[-1])
    saved = json.loads((run / "run.json").read_text())
    was = saved["recipe"]["task"][key]
    saved["recipe"]["task"][key] = value
    (run / "run.json").write_text(json.dumps(add_digest(saved)))
    code, said = call(f"resume {run}")
    if was == value: assert code == 0, said
    else: assert code == 2 and f"task.{key}: {was} then, {value} now" in said


def test_the_trainer_notices_without_the_command_line(tmp_path):
    task = SequencesTask(sequences=[" ".join(s) for s in SUMS])
    def trainer(task, **options):
        torch.manual_seed(0)
        model = LoFlexMDM(task.vocabulary, LoFlexMDMConfig(order="fixed", size="nano", max_length=task.max_length))
        config = TrainConfig(steps=2, batch_size=2, save_every=1, valid_size=2, valid_samples=2)
        data, valid = task.dataset(), task.dataset("valid")
        return Trainer(model, data, config, tmp_path / "run", valid, progress=False, **options)
    trainer(task).fit()
    shutil.rmtree(checkpoints(tmp_path / "run")[-1])
    other = SequencesTask(sequences=[" ".join(s) for s in SUMS[::-1]])
    message = r"step_000001: the data has changed since the run began.*sequences: 144 rows then and now"
    with pytest.raises(ValueError, match=message):
        trainer(other).fit(resume=True)
    trainer(other, changed_data=True).fit(resume=True)


def test_every_row_of_a_file_counts_not_only_those_looked_at(tmp_path):
    rows = [f"{i} x" for i in range(5000)]
    task = SequencesTask(sequences=rows)
    train = task.splits["train"]
    changed = next(i for i in range(len(train)) if i not in probes(len(train)))
    other = [r if r != " ".join(train[changed]) else "1 x" for r in rows]
    digests = [SequencesTask(sequences=rows).dataset().source["digest"] for rows in (rows, other)]
    assert digests[0] != digests[1]


# files and models away from them

def test_paths_are_from_the_recipe(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_tables("place/my.toml")["task"]["file"] == str(place / "data/sums.txt")
    assert recipe(place / "my.toml").task["file"] == str(place / "data/sums.txt")
    (tmp_path / "other.txt").write_text("1+1=2\n" * 9)
    assert recipe(place / "my.toml", file="other.txt").task["file"] == str(tmp_path / "other.txt")


def test_paths_from_the_working_directory_are_found_with_a_warning(place, tmp_path, monkeypatch):
    (place / "data/sums.txt").rename(tmp_path / "here.txt")
    (place / "my.toml").write_text((place / "my.toml").read_text().replace("data/sums.txt", "here.txt"))
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="'here.txt': was found in the working directory"):
        assert read_tables(place / "my.toml")["task"]["file"] == str(tmp_path / "here.txt")


def test_a_run_goes_on_from_another_directory_and_after_a_move(place, tmp_path, monkeypatch):
    moved = place.rename(tmp_path / "moved")
    (moved / "elsewhere").mkdir()
    monkeypatch.chdir(moved / "elsewhere")
    code, said = call("resume ../run")
    assert code == 0, said
    assert json.loads((moved / "run/run.json").read_text())["recipe"]["task"]["file"] == str(moved / "data/sums.txt")


@pytest.fixture
def away(whole):
    "The whole folder, its data gone for as long as a test takes."
    (whole / "data").rename(whole / "gone")
    yield whole
    (whole / "gone").rename(whole / "data")


FAST = "-n 2 --seed 1 --sampler tau --steps 4"


def test_a_missing_file_is_named_where_it_is_needed(away):
    place = away
    code, said = call(f"resume {place}/run")
    last = said.splitlines()[-1]
    assert code == 2 and f"task.file: no such file: {place}/data/sums.txt" in last and last.startswith("loflexmdm: ")
    code, said = call(f"evaluate {place}/run {FAST} --task-data")
    assert code == 2 and "needs the data of the task" in said.splitlines()[-1]


def test_a_model_is_sampled_without_its_data(away, tmp_path):
    place, out = away, tmp_path / "s.jsonl"
    code, said = call(f"sample {place}/run {FAST} --out {out}")
    assert code == 0, said
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 2 and all(row["text"] == "".join(row["tokens"]) for row in rows)
    code, said = call(f"sample {place}/run {FAST} --prompt-text 1+...")
    assert code == 0 and call(f"info {place}/run")[0] == 0, said
    method = loflexmdm.load(place / "run")
    task = task_from(method.method.task, method.vocabulary)
    assert task.prompt("1+...") == ["1", "+", ...] and task.vocabulary == method.vocabulary
    with pytest.raises(FileNotFoundError, match="sums.txt.*no such file"): task.dataset()


def test_data_of_another_vocabulary_than_the_model_is_refused(place):
    method = loflexmdm.load(place / "run")
    (place / "data/sums.txt").write_text("a-b\n" * 9)
    task = task_from(method.method.task | dict(file=str(place / "data/sums.txt")), method.vocabulary)
    with pytest.raises(ValueError, match="vocabulary differs from the model's"): task.sizes()


# cached molecules

def test_any_bit_that_flips_in_a_cached_file_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "a.smi").write_text("CCO\nCCN\nc1ccccc1\nCC(C)O\n")
    first = prepare(tmp_path / "a.smi", cache=tmp_path)
    good, texts = first.where.read_bytes(), list(first.texts)
    for i in range(25):
        bad = bytearray(good)
        bad[len(good) * i // 25] ^= 1 << i % 8
        first.where.write_bytes(bad)
        with pytest.warns(UserWarning, match="damaged; the molecules are encoded again"):
            assert list(prepare(tmp_path / "a.smi", cache=tmp_path).texts) == texts
        assert first.where.read_bytes() == good


def test_a_cached_file_is_hashed_once_in_a_process_and_is_made_again_without_its_digest(tmp_path, monkeypatch):
    from loflexmdm.molecules.data import prepared as data
    (tmp_path / "a.smi").write_text("CCO\nCCN\n")
    where = prepare(tmp_path / "a.smi", cache=tmp_path).where
    hashed = []
    monkeypatch.setattr(data, "file_digest", lambda path, of=data.file_digest: hashed.append(path) or of(path))
    for _ in range(3): assert data.load_molecules(where) is not None
    assert hashed.count(where) <= 1
    data.digest_beside(where).unlink()
    data._whole.clear()
    assert data.load_molecules(where) is None
    assert prepare(tmp_path / "a.smi", cache=tmp_path).where == where and data.digest_beside(where).is_file()
