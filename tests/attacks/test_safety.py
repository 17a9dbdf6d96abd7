"Files from strangers, and absurd numbers: refused in one line, before the memory is gone, and nothing else is read."
import contextlib
import gzip
import io
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import loflexmdm
from loflexmdm.cli import main
from loflexmdm.cli.evaluate import is_sample, read_samples
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.saved import save_method
from loflexmdm.molecules import task
from loflexmdm.molecules.data import prepared as data, sources
from loflexmdm.molecules.data.cleaning import REJECT_REASONS, clean
from loflexmdm.molecules.data.prepared import Molecules
from loflexmdm.molecules.data.records import read_smiles
from loflexmdm.molecules.notation.bracket_safe import decode, from_bracket_safe, renumber, reorder
from loflexmdm.molecules.notation.bracket_safe import to_bracket_safe, tokenize
from loflexmdm.molecules.scores.metrics import judge, molecule_metrics
from loflexmdm.process.states import Vocabulary
from loflexmdm.reports.comparison import Comparison, table
from loflexmdm.support.atomic_files import file_digest, add_digest
from loflexmdm.support.data_digests import check_data, data_digests
from loflexmdm.support.limits import BATCH, EXPANSION, LIMITS, LINE, PROCESSES, ROWS, SMILES, STEPS
from loflexmdm.support.limits import TOKENS, clip, visible
from loflexmdm.support.notebook import cell, code_span
from loflexmdm.support.readers import checked_lines, parse_json, read_jsonl, read_toml
from loflexmdm.support.records import read_records, table_rows
from loflexmdm.support.registries import Registry
from loflexmdm.tasks import sequences, star_graphs
from loflexmdm.tasks.base import task_from
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.log import JsonLines
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import read_tables

WILD = [None, 3, ["brackets"], {"a": 1}, {"a": {"a": []}}, True, "x", math.nan]
DEEP = "[" * 10**5


def call(*argv):
    "A command line in this process: exit code, stdout, the last line of stderr."
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err): code = main([str(a) for a in argv])
    return code, out.getvalue(), (err.getvalue().splitlines() or [""])[-1]


def refused(result, *parts):
    code, _, said = result
    assert code == 2 and said.startswith("loflexmdm: ") and len(said) < 1200, result
    for part in parts: assert part in said, said


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "A small model with a learned order."
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LoFlexMDMConfig(size="nano", order_size="nano", max_length=8)
        model = LoFlexMDM(Vocabulary("abc"), config, dict(kind="text", file="/etc/passwd"))
    return save_method(model, tmp_path_factory.mktemp("model") / "m")


@pytest.fixture
def model(made, tmp_path): return Path(shutil.copytree(made, tmp_path / "m"))


def edit(path, change):
    "Change a JSON file, with a digest that fits."
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(add_digest(content)))


# ---- one line for whatever a file holds

@pytest.mark.slow
@pytest.mark.parametrize("key", ["format", "method", "vocabulary", "config", "task", "dtype"])
def test_descriptions_of_models_with_wrong_types(model, key):
    for value in WILD:
        if key == "task" and value is None: continue
        edit(model / "config.json", lambda c, v=value: c.update({key: v}))
        for command in ("sample", "info", "cite"):
            code, _, said = call(command, model)
            assert code == 2 and said.startswith("loflexmdm: ") or command == "cite" or key == "task", (value, said)


@pytest.mark.parametrize("name", [["a"], {}, 3, None, "x" * 10**7])
def test_a_name_that_is_none_is_refused_in_few_words(name):
    with pytest.raises(ValueError, match="method=") as e: Registry("method", (), "nothing")[name]
    assert len(str(e.value)) < 400


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 10**5, "1" * 5000, "{", "nul", '"\\ud800'])
def test_json_that_is_none(text):
    with pytest.raises(ValueError, match="^here: not valid JSON"): parse_json(text, "here")


@pytest.mark.parametrize("text", ["a = " + DEEP, "a.a" + ".a" * 10**5 + " = 1", "a = ", "a = " + "1" * 5000])
def test_toml_that_is_none(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(ValueError, match="r.toml: not valid TOML"): read_tables(tmp_path / "r.toml")
    with pytest.raises(ValueError, match="r.toml: not valid TOML"): read_toml(tmp_path / "r.toml")


@pytest.mark.parametrize("row", [
    None, 3, [], {}, dict(prompt=None, tokens=["("], generated=[1]), dict(prompt=[], tokens=None, generated=[1]),
    dict(prompt=[], tokens=["("], generated=[None]), dict(prompt=[], tokens=["("], generated=[math.inf]),
    dict(prompt=3, tokens=["("], generated=[1]), dict(prompt=[], tokens=5, generated=5),
    dict(prompt=[], tokens=[["("]], generated=[1]), dict(prompt=[], tokens=["("], generated=[2]),
])
def test_rows_that_are_no_samples(tmp_path, row):
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match="sample 1: needs the keys"): read_samples(tmp_path / "s.jsonl")


def test_a_row_that_is_a_sample():
    assert is_sample(dict(prompt=["..."], tokens=["(", 1], generated=[0, 1]))
    assert is_sample(dict(prompt=[], tokens=["("], generated=["1"]))


@pytest.mark.parametrize("value", [v for v in WILD if v is not None])
def test_what_identifies_data_is_checked(value):
    now = data_digests([1, 2], [3], dict(a=1))
    assert not check_data(now, now, "run")
    for then in (value, now | dict(train=value), now | dict(valid=value)):
        with pytest.raises(ValueError, match=r"^run: damaged \(.*does not identify data"): check_data(then, now, "run")


@pytest.mark.parametrize("part", ["rows", "curves", "settings", None])
@pytest.mark.parametrize("value", WILD)
def test_comparisons_that_are_none(tmp_path, part, value):
    found = dict(rows=[], curves=[], settings={}) | {part: value} if part else value
    (tmp_path / "r.json").write_text(json.dumps(found))
    if part == "settings" and isinstance(value, dict): assert Comparison.read(tmp_path / "r.json").settings == value
    else:
        with pytest.raises(ValueError, match="holds no comparison"): Comparison.read(tmp_path / "r.json")


def test_a_changed_comparison_is_noticed(tmp_path):
    path = Comparison([], [], dict(steps=3)).write(tmp_path / "r.json")
    assert Comparison.read(path).settings == dict(steps=3)
    path.write_text(path.read_text().replace("3", "4", 1))
    with pytest.raises(ValueError, match="changed or damaged"): Comparison.read(path)


def test_lines_of_a_log_that_are_none(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": null}\n[1]\n{"step": 2}\n')
    log = JsonLines(tmp_path / "metrics.jsonl")
    assert log.rows() == [dict(step=1), dict(step=None)]
    log.truncate(9)
    assert log.rows() == [dict(step=1)]


def test_a_directory_called_like_a_checkpoint_is_none(tmp_path):
    for name in ("step_000002", "step_000003", "step_x", "step_", "step_²"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        if name != "step_000003": (tmp_path / "checkpoints" / name / "state.json").write_text("{}")
    assert [p.name for p in checkpoints(tmp_path)] == ["step_000002"]


@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, math.inf])
def test_a_rate_by_which_times_are_divided(model, value):
    tensors = load_file(model / "model.safetensors")
    tensors["slowest"] = torch.tensor(value)
    save_file(tensors, model / "model.safetensors")
    digests = {"model.safetensors": file_digest(model / "model.safetensors")}
    edit(model / "config.json", lambda c: c["files"].update(digests))
    with pytest.raises(ValueError, match="slowest=.*must be positive and at most 1"): loflexmdm.load(model)


# ---- long lines, large files, absurd numbers

def test_cells_are_as_long_as_lines_may_be(tmp_path):
    (tmp_path / "t.csv").write_text("t\n" + "ab " * 10**5 + "\n")
    assert [len(row[0]) for _, row in table_rows(tmp_path / "t.csv", ",")] == [1, 300_000]
    assert [len(text) for text in read_records(tmp_path / "t.csv", "t").texts()] == [299_999]  # no space at its end


def test_a_line_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.setenv(LINE.variable, "1000")
    (tmp_path / "t.txt").write_text("short\n" + "x" * 2000 + "\n")
    for read in (checked_lines, read_smiles):
        with pytest.raises(ValueError, match=r"t.txt, line 2: .*at most 1,000 .*LOFLEXMDM_MAX_LINE"):
            list(read(tmp_path / "t.txt"))
    monkeypatch.setenv(LINE.variable, "5000")
    assert len(list(checked_lines(tmp_path / "t.txt"))) == 2


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_a_file_without_end(tmp_path, monkeypatch):
    monkeypatch.setenv(LINE.variable, "100000")
    (long := tmp_path / "long.txt").write_bytes(b"\0" * 200_000)
    for read in (checked_lines, read_jsonl):
        with pytest.raises(ValueError, match="/dev/zero: is a pipe or device"): list(read("/dev/zero"))
        with pytest.raises(ValueError, match="long.txt, line 1: "): list(read(long))
    monkeypatch.setenv("LOFLEXMDM_MAX_DESCRIPTION", "100000")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (long := tmp_path / "long.toml").write_bytes(b"\0" * 200_000)
    with pytest.raises(ValueError, match="zero.toml: is a pipe or device"): read_tables(tmp_path / "zero.toml")
    with pytest.raises(ValueError, match="long.toml: 100,001 bytes of JSON or TOML"): read_tables(long)


@pytest.mark.parametrize("line, size", [(b"C" * 1000, 5 * 10**6), (b"", 5 * 10**5)])
@pytest.mark.slow
def test_a_file_that_unpacks_to_far_more(tmp_path, monkeypatch, line, size):
    monkeypatch.setattr("loflexmdm.support.readers.ALWAYS", size // 5)
    with gzip.open(tmp_path / "m.smi.gz", "wb") as f: f.write((line + b"\n") * (size // (len(line) + 1)))
    with pytest.raises(ValueError, match=f"times its size when unpacked.*{EXPANSION.variable}"):
        list(read_smiles(tmp_path / "m.smi.gz"))
    monkeypatch.setenv(EXPANSION.variable, "5000")
    assert len(list(read_smiles(tmp_path / "m.smi.gz"))) > 1000


@pytest.mark.parametrize("spoil", [
    lambda b: b[:len(b) // 2], lambda b: b[:30] + b"\xff\xff\xff" + b[33:], lambda b: b"\x1f",
])
def test_a_damaged_packed_file(tmp_path, spoil):
    packed = gzip.compress("\n".join(map(str, range(10**4))).encode())
    (tmp_path / "t.txt.gz").write_bytes(spoil(packed))
    with pytest.raises(ValueError, match="t.txt.gz: cannot be unpacked"): list(checked_lines(tmp_path / "t.txt.gz"))


@pytest.mark.parametrize("key, limit", [
    ("steps", STEPS), ("warmup", STEPS), ("workers", PROCESSES), ("batch_size", BATCH), ("accumulate", BATCH),
    ("valid_samples", BATCH), ("valid_size", ROWS),
])
def test_numbers_of_training_have_limits(key, limit, monkeypatch):
    assert getattr(TrainConfig(**{key: limit.most}), key) == limit.most
    for n in (limit.most + 1, 10**19, 10**300):
        with pytest.raises(ValueError, match=f"{key}: .*at most {limit.most:,}.*{limit.variable}"):
            TrainConfig(**{key: n})
    monkeypatch.setenv(limit.variable, str(limit.most + 1))
    TrainConfig(**{key: limit.most + 1})


@pytest.mark.parametrize("settings", [
    dict(kind="star", nodes=10**12), dict(kind="star", valid_size=10**12), dict(kind="brackets", train_size=10**19),
    dict(kind="key", n=10**9), dict(kind="repair", errors=10**12),
])
def test_numbers_of_tasks_have_limits(settings):
    with pytest.raises(ValueError, match="at most .* are allowed; set LOFLEXMDM_MAX"): task_from(settings)


def test_numbers_of_sampling_have_limits(made):
    method = loflexmdm.load(made)
    with pytest.raises(ValueError, match=f"n: .*{ROWS.variable}"): method.sample(n=10**9)
    refused(call("sample", made, "-n", 10**19), "more than 10^15")
    with pytest.raises(ValueError, match=f"max_length: .*{TOKENS.variable}"):
        LoFlexMDM(Vocabulary("abc"), LoFlexMDMConfig(size="nano", max_length=10**9))


@pytest.mark.parametrize("text", ["0", "-3", "many", "1e6", "9" * 30, "²"])
def test_a_limit_is_a_positive_whole_number(monkeypatch, text):
    monkeypatch.setenv(TOKENS.variable, text)
    with pytest.raises(ValueError, match=f"{TOKENS.variable}=.*must be a positive whole number"): TOKENS.check(1, "n")
    assert len({limit.variable for limit in LIMITS}) == len(LIMITS)


def test_messages_stay_short(made, tmp_path):
    (tmp_path / "p.jsonl").write_text(json.dumps(["x" * 10**7]))
    refused(call("sample", made, "--prompts", tmp_path / "p.jsonl"), "line 1: token 'xxx", "10,000,000 characters")
    assert len(clip(["x" * 10**6])) < 300 and clip(10**5000) == "a number of 16,610 bits"


# ---- molecules

NUMBER = "<" + "9" * 5000 + ">"


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("text", [f"{NUMBER}C", f"C{NUMBER}.C{NUMBER}", "C%(" + "9" * 5000 + ")C", "C" * 10**5])
def test_texts_that_are_no_molecules(text, salvage):
    assert from_bracket_safe(text, salvage=salvage) is None
    assert renumber(text).startswith(text[:1]) and reorder(text, 0)
    assert decode("C" * 10**5).reason == "too long" == clean("C" * 10**5) == judge(["C" * 10**5])[0].reason
    assert "too long" in REJECT_REASONS


def test_long_smiles_are_refused_until_they_are_allowed(monkeypatch):
    with pytest.raises(ValueError, match=f"more than {SMILES.most:,} characters.*{SMILES.variable}") as e:
        to_bracket_safe("C" * 10**7)
    assert len(str(e.value)) < 400
    assert to_bracket_safe("C" * 300)
    monkeypatch.setenv(SMILES.variable, "299")
    with pytest.raises(ValueError, match="more than 299 characters"): to_bracket_safe("C" * 300)
    with pytest.raises(ValueError, match="no token covers") as e: tokenize("C" * 10**6 + "ü")
    assert len(str(e.value)) < 400


@pytest.mark.parametrize("command", ["sample", "info", "evaluate", "resume", "edit"])
def test_a_name_that_is_too_long_for_the_system_is_cut(command): refused(call(command, "a" * 5000))


@pytest.mark.parametrize("option", ["--nll=10000000000000000000", "--nll=10000001", "--sampler=tau --steps=1000000000"])
def test_more_states_and_steps_than_memory_holds(made, option):
    refused(call("sample", made, "-n", 1, *option.split()), "LOFLEXMDM_MAX_")


def test_figures_of_a_stream_are_those_of_a_list(monkeypatch):
    smiles = ["CCO", "OCC", None, "x", "c1ccccc1", "", "CC.CC", "CCO", "CCN", "C" * 20_000] * 3
    whole = molecule_metrics(smiles, ["CCO"])
    monkeypatch.setattr("loflexmdm.molecules.scores.metrics.JUDGED", 4)
    assert molecule_metrics(iter(smiles), ["CCO"]) == whole and whole.valid == 15 and whole.unique == 3
    with pytest.raises(ValueError, match="must hold at least one"): molecule_metrics(iter([]))


# ---- a model reads nothing but its directory

@pytest.mark.slow
def test_a_model_from_a_stranger_reads_no_file(made, monkeypatch, tmp_path):
    def never(*args, **options): raise AssertionError(f"read: {args}")
    monkeypatch.setattr(sequences, "sequence_data", never)
    method = loflexmdm.load(made)
    samples = method.sample(n=2, seed=0)
    assert len(samples.texts) == 2 and method.task.describe(samples)
    for command in ("sample", "info", "cite"): assert call(command, made)[0] == 0
    code, figures, said = call("evaluate", made, "-n", 4)
    assert code == 0 and "unique" in figures and "length_tv" not in figures
    assert said.endswith("not compared with the data: file='/etc/passwd' is read with --task-data")
    refused(call("evaluate", made, "-n", 4, "--nll", 2), "file='/etc/passwd': named by the model", "--task-data")
    call("sample", made, "-n", 4, "--out", tmp_path / "s.jsonl")
    assert "unique" in call("evaluate", tmp_path / "s.jsonl")[1]
    with pytest.raises(ValueError, match=r"with_data\(\)"): method.task.dataset("test")
    with pytest.raises(AssertionError, match="read"): method.task.with_data().dataset("test")
    with pytest.raises(AssertionError, match="read"): call("evaluate", made, "--task-data")


FOREIGN = [
    dict(kind="molecules", source="/etc/passwd.smi"), dict(kind="molecules", source="hub:stranger/data"),
    dict(kind="molecules", source="hub:stranger/data", condition="qed"),
    dict(kind="molecules", tokenizer="/etc/passwd"),
    dict(kind="star", file="/etc/{split}"), dict(kind="molecule-edits", source="hub:stranger/data"),
    dict(kind="repair", inner="text", settings='file = "/etc/passwd"'),
    dict(kind="repair", inner="molecules", settings='source = "hub:x/y", tokenizer = "/etc/passwd"'),
]


@pytest.mark.parametrize("settings", FOREIGN)
def test_no_task_of_a_model_reads_what_it_names(settings, monkeypatch, made):
    def never(*args, **options): raise AssertionError(f"read: {args}")
    for module, name in ((task, "prepare"), (task, "read_tokenizer"), (sources, "open_stream"), (data, "hub_commit"),
                         (star_graphs, "read_graphs"), (sequences, "sequence_data")):
        monkeypatch.setattr(module, name, never)
    monkeypatch.setattr("loflexmdm.molecules.data.matched_pairs.prepare_pairs", never)
    words = task_from(settings, Vocabulary("CNO"), data=False)
    for ask in (lambda: words.dataset("test"), lambda: words.prompts("test", 2) or words.dataset("test")):
        with pytest.raises(ValueError, match="not read by default; allow it with --task-data"): ask()
    with pytest.raises(AssertionError, match="read"): words.with_data().dataset("test")


@pytest.mark.parametrize("value", ["/etc/passwd", "../x", "a/b", "."])
def test_a_network_of_a_saved_model_names_no_file(model, value):
    edit(model / "config.json", lambda c: c["config"].update(network="hugging_face", network_config=value))
    with pytest.raises(ValueError, match="network_config=.*a saved model reads no other files"): loflexmdm.load(model)


# ---- what a terminal and a notebook show

EVIL = ["`<img src=x onerror=alert(1)>", "a|b", "\\|<b>", "x\n\n<script>", "[a](javascript:1)", "`` `", "\x1b[2J"]


@pytest.mark.parametrize("text", EVIL)
def test_text_from_data_stays_text(text):
    shown = code_span(text)
    assert shown.count("`") == 2 and shown[0] == shown[-1] == "`" and "\n" not in shown and "\x1b" not in shown
    assert shown.count("|") == shown.count("\\|") and "\\\\|" not in shown
    found = Molecules(["CC"], ["CC"], data.Counter(unparsable=1), None, {"unparsable": [(1, text)]})
    rows = found._repr_markdown_().splitlines()
    assert len(rows) == 4 and all(row.replace("\\|", "").count("|") == 5 for row in rows)
    plain = cell(text)
    assert "<" not in plain and "](" not in plain and "\n" not in plain and plain.count("|") == plain.count("\\|")


def test_a_comparison_from_a_stranger_shows_text(tmp_path):
    row = json.loads((Path(__file__).parents[2] / "experiments/results/comparison.json").read_text())["rows"][0]
    shown = table([row | dict(method="<img src=x>", sampler="`<b>")])
    assert "<img" not in shown and "`<b>" not in shown


def test_a_terminal_is_not_commanded(model):
    edit(model / "config.json", lambda c: c.update(vocabulary=["\x1b[2J", "\u202e", "a"]))
    code, out, _ = call("sample", model, "-n", 8)
    assert code == 0 and "\x1b" not in out and "\u202e" not in out
    assert "\x1b" not in call("info", model)[1] and visible("a\tb\n\x07") == "a\tb\n\\x07"
    assert "\x1b" not in repr(loflexmdm.load(model).vocabulary)
