"Texts of one's own: files in and out, tokenizers, filling gaps, defaults of a first try, models on the hub."
import gzip
import importlib
import json
import os
import random
import shutil
from collections import Counter
from itertools import combinations, product
from types import SimpleNamespace

import pytest
import torch

import loflexmdm
from loflexmdm.cli import main, train as train_command
from loflexmdm.methods.base import method_class
from loflexmdm.models import hub
from loflexmdm.models.saved import save_method
from loflexmdm.process.states import CLEAN, DROPPED, Vocabulary, collate, contract, parse_prompt
from loflexmdm.samplers import Samples
from loflexmdm.support.records import read_records
from loflexmdm.support.registries import TASKS
from loflexmdm.support.writers import write_texts
from loflexmdm.tasks.base import check_prompts, task_from
from loflexmdm.tasks.sequences import UNITS, GapRule, SequencesConfig, SequencesTask, cut_into, divide
from loflexmdm.tasks.sequences import infill_example, stretch
from loflexmdm.training.checkpoints import take_weights
from loflexmdm.training.recipes import override, recipe, recipe_from

WORDS = ["".join(random.Random(i).choices("abcd", k=3 + i % 5)) for i in range(300)]


def characters(**options): return SequencesTask(SequencesConfig(unit="characters", **options), WORDS)


# files

@pytest.mark.parametrize("name, text, column, expected", [
    ("a.fasta", ">x\nAB\nC\n>y\nD\n", "", ["ABC", "D"]), ("a.fa", "\n>x y\n a b \n", "", ["ab"]),
    ("a.jsonl", '{"s": "ab"}\n\n{"s": "c"}\n', "s", ["ab", "c"]),
    ("a.jsonl", '"ab"\n["c", "d"]\n', "", ["ab", ["c", "d"]]), ("a.jsonl", "[1, 2]", "", [["1", "2"]]),
    ("a.JSONL", '{"s": null}\n{"t": 1, "s": "x"}', "s", ["x"]),
])
def test_texts_of_records_and_objects(tmp_path, name, text, column, expected):
    (tmp_path / name).write_text(text)
    assert list(read_records(tmp_path / name, column).texts()) == expected


@pytest.mark.parametrize("name, text, column, said", [
    ("a.fasta", "", "", "no record"), ("a.fasta", "AB\n", "", "line 1: not FASTA"),
    ("a.fasta", ">x\nAB", "s", "has the columns text, name"),
    ("a.jsonl", '{"s": 1}', "s", "line 1: 1 is neither"), ("a.jsonl", '{"s": "a"}', "", "the columns s; name one"),
    ("a.jsonl", '"a"', "s", "has the columns text"), ("a.jsonl", '{"s": "a', "s", "not valid JSON"),
    ("a.jsonl", '[1.5, "a"]', "", "neither a text nor"),
])
def test_wrong_records_and_objects_give_one_line(tmp_path, name, text, column, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said) as error: list(read_records(tmp_path / name, column).texts())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.fasta"])
def test_texts_come_back(tmp_path, name):
    texts, column = ["AB", 'C"D,', "E"], "text" if name[2:] in ("csv", "jsonl") else ""
    assert list(read_records(write_texts(tmp_path / name, texts), column).texts()) == texts


def test_records_are_read_in_order(tmp_path):
    write_texts(tmp_path / "a.fasta", WORDS)
    found = read_records(tmp_path / "a.fasta")
    assert list(found.texts()) == WORDS and found.values("name")[:2] == ["sample_1", "sample_2"]


def test_frames_and_data_sets_are_read_by_column_and_missing_values_counted():
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    frame = pandas.DataFrame(dict(n=[1, 2], text=["one two", None], other=["a", "b"]))
    with pytest.raises(ValueError, match="column='smiles'.*n, text, other"):
        SequencesTask(SequencesConfig(column="smiles"), frame)
    for given in (frame, frame["text"], dict(text=["one two", None])):
        task = SequencesTask(sequences=given)
        assert sum(task.sizes().values()) == 1 and task.rejections() == {"empty": 1}
    texts = dict(text=["ACGT", "ACG", "AC"] * 7, label=list(range(21)))
    task = SequencesTask(SequencesConfig(unit="characters"), datasets.Dataset.from_dict(texts))
    assert list(task.vocabulary.ordinary) == list("ACGT") and sum(task.sizes().values()) == 21
    ids = torch.tensor([[5, 6, 7], [5, 5, 5]])
    assert list(SequencesTask(sequences=ids).vocabulary.ordinary) == ["5", "6", "7"]
    for wrong in (7, [1.5], torch.tensor([1, 2]), "one text"):
        with pytest.raises(ValueError, match="needed|neither a text|two dimensions"): SequencesTask(sequences=wrong)


def test_a_path_is_a_file(tmp_path):
    (tmp_path / "a.fas").write_text(">a\nWVF\n>b\nDYA\n")
    task = SequencesTask(SequencesConfig(unit="characters"), tmp_path / "a.fas")
    assert sorted("".join(s) for rows in task.splits.values() for s in rows) == ["DYA", "WVF"]
    assert "a.fas: fasta: 2 records, 2 kept; 6 different tokens 'ADFVWY'; length: median 3, longest 3" in task.summary()


# lengths

def test_rows_far_longer_than_the_rest_are_named_with_what_leaves_them_out(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(WORDS[:150] + ["", "ab" * 2500] + WORDS[150:] + ["cd" * 2000]))
    options = dict(file=str(path), unit="characters")
    *_, told = SequencesTask(SequencesConfig(**options)).summary().split("\n")
    assert told.startswith("much longer than the rest")
    assert "row 152 (5,000), row 303 (4,000); 2 of 302 sequences" in told
    assert "--task-max-length 8 " in told
    shorter = SequencesTask(SequencesConfig(**options, max_length=8))
    assert shorter.sizes() == characters().sizes() and "much longer" not in shorter.summary()


# filling gaps

@pytest.mark.parametrize("n", [1, 4])
def test_every_stretch_is_equally_likely(n):
    draw, p, N = random.Random(1), 2 / ((n + 1) * (n + 2)), 20_000
    found = Counter(stretch(n, draw) for _ in range(N))
    assert len(found) == round(1 / p)
    assert max(abs(c - N * p) / (N * p * (1 - p)) ** 0.5 for c in found.values()) < 4.5


def test_an_example_without_its_free_tokens_is_its_prompt():
    task = characters(infill=1.0)
    data = task.dataset("test")
    for i, prompt in enumerate(task.prompts("test", 20)):
        x1 = collate([data[i]])
        start = contract(x1, torch.where(x1.free, DROPPED, CLEAN))
        asked = collate([parse_prompt(prompt, task.vocabulary)])
        for a, b in zip(start[:3], asked[:3], strict=True): assert torch.equal(a, b), prompt


def test_the_share_of_gaps_and_the_score():
    task, n = characters(infill=0.5), 2000
    ends = GapRule("ends")
    for rule, whole in ((GapRule(), 1 / 5), (ends, 1 / 15)):  # one of five numbers, or of fifteen stretches
        draw, p = random.Random(0), 0.5 * (1 - whole)
        made = [infill_example(tuple("abcd"), 0.5, draw, task.vocabulary, rule) for _ in range(n)]
        gaps = sum(any(e.fixed[1:]) for e in made)
        assert abs(gaps - n * p) < 4.5 * (n * p * (1 - p)) ** 0.5
    for split in ("train", "valid", "test"): check_prompts(task, split)
    data, k = task.dataset("test"), 12
    truth = Samples([data[i].tokens[1:] for i in range(k)], [[True]] * k)
    wrong = Samples([t[:-1] + [3 + (t[-1] == 3)] for t in truth.sequences], [[True]] * k)
    assert task.score("test", truth)["restored"] == 1 and task.score("test", wrong)["restored"] == 0
    assert "restored" not in characters().score("test", truth) and characters().prompts("test") is None


def test_training_passes_have_every_sequence_and_other_gaps():
    task = characters(infill=1.0, infill_by="ends")
    data, n = task.dataset(), len(task.splits["train"])
    first, second = ([data[e * n + k] for k in range(n)] for e in (0, 1))
    assert sorted(e.tokens for e in first) == sorted(e.tokens for e in second) and first != second
    assert [data[i] for i in range(5)] == [task.dataset()[i] for i in range(5)]
    valid = [characters(infill=1.0, infill_by="ends").dataset("valid")[i] for i in range(3)]
    assert [task.dataset("valid")[i] for i in range(3)] == valid


@pytest.mark.parametrize("prompt, most", [("a.b", 1), (".", 1), ("a.", 1), (".a.", 2), ("a.b", 2), ("a.b.", 2)])
def test_prompts_are_tied_to_no_length(prompt, most):
    "Sequences that fit a prompt have their shares, by the number of ways to fill it; by ends they have not."
    texts = [tuple(text) for text in ("ab", "ab", "ab", "aab", "abb", "aabb", "abab", "abab")]
    draw, found, exact = random.Random(3), Counter(), Counter()
    for text in texts:
        for given in range(len(text) + 1):
            for slots in combinations(range(given + 1), prompt.count(".")):
                for cuts in product(range(len(text) - given + 1), repeat=len(slots)):
                    if sum(cuts) == len(text) - given: exact[written(*cut_into(text, slots, cuts))] += 1
    exact = {parts: count for (made, parts), count in exact.items() if made == prompt}
    for _ in range(20_000):
        made, parts = written(*GapRule(most=most, longest=4).cut(draw.choice(texts), draw, lambda d: d.choice(texts)))
        if made == prompt: found[parts] += 1
    total, ways = found.total(), sum(exact.values())
    assert set(found) == set(exact) and total > 300
    for parts, count in exact.items():
        p = count / ways
        assert p == 1 or abs(found[parts] - total * p) < 4.5 * (total * p * (1 - p)) ** 0.5, parts


def written(prompt, fillings):
    "Return a prompt with a dot for each gap, and its fillings."
    return "".join("." if t is ... else t for t in prompt), tuple(map("".join, fillings))


def test_parts_of_a_number_are_equally_likely():
    draw, n = random.Random(0), 12_000
    found = Counter(tuple(divide(3, 3, draw)) for _ in range(n))
    assert len(found) == 10 and max(abs(c - n / 10) for c in found.values()) < 4.5 * (n * 0.09) ** 0.5
    assert divide(5, 1, draw) == [5] and divide(0, 2, draw) == [0, 0]


def test_several_gaps_by_ends_are_refused_and_the_rule_is_told():
    with pytest.raises(ValueError, match="infill_gaps=2: several gaps need infill_by='length'"):
        SequencesConfig(infill_by="ends", infill_gaps=2)
    assert "gaps in 50% of sequences: number of given tokens first" in characters(infill=0.5).summary()
    gaps = [characters(infill=1.0, infill_gaps=3).prompts("test", 40)]
    assert max(prompt.count(...) for prompts in gaps for prompt in prompts) > 1


def test_another_rule_of_gaps_is_other_data():
    "A run that began with one rule is not resumed with another."
    identities = [characters(infill=1.0, infill_by=by).dataset().identity for by in ("length", "ends")]
    assert identities[0] != identities[1]


# tokenizers

@pytest.fixture
def tokenizer(tmp_path):
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    special = ["<pad>", "<mask>", "<any>", "<depth:3>"]
    trainer = library.trainers.BpeTrainer(vocab_size=40, special_tokens=special, show_progress=False)
    made.train_from_iterator([w + " " + w for w in WORDS], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def test_a_tokenizer_gives_vocabulary_prompts_and_texts(tokenizer):
    task = SequencesTask(SequencesConfig(tokenizer=tokenizer), [w + " " + w for w in WORDS])
    assert not {"<pad>", "<mask>", "<any>", "<depth:3>"} & set(task.vocabulary.tokens[3:])
    assert not task.vocabulary.conditions
    row = task.splits["train"][0]
    assert task.text(row) in {w + " " + w for w in WORDS}
    assert ... in task.prompt("ab...") and task.prompt("...")[0] is ...
    again = task_from(task.as_dict(), task.vocabulary)
    assert again.text(row) == task.text(row)
    with pytest.raises(ValueError, match="leave unit out"): SequencesConfig(tokenizer=tokenizer, unit="characters")


def saved_with_a_tokenizer(tokenizer, directory):
    "Save an untrained model whose texts are cut by a tokenizer file."
    task = SequencesTask(SequencesConfig(tokenizer=tokenizer), [w + " " + w for w in WORDS])
    cls = method_class("ordered-insertion")
    return save_method(cls(task.vocabulary, cls.first_config(), task.as_dict()), directory)


def test_a_saved_model_takes_its_tokenizer_along(tokenizer, tmp_path):
    saved_with_a_tokenizer(tokenizer, tmp_path / "first")
    os.remove(tokenizer)
    shutil.move(tmp_path / "first", tmp_path / "moved")
    model = loflexmdm.load(tmp_path / "moved")
    assert model.task.text(model.task.prompt(WORDS[0])) == WORDS[0]

    # saved again, over itself and elsewhere, from another working directory
    for place in ("moved", "second"): loflexmdm.load(tmp_path / "moved").save(tmp_path / place)
    assert (tmp_path / "second" / "tokenizer.json").read_bytes() == (tmp_path / "moved" / "tokenizer.json").read_bytes()
    assert json.loads((tmp_path / "second" / "config.json").read_text())["task"]["tokenizer"] == "tokenizer.json"
    with open(tmp_path / "second" / "tokenizer.json", "a") as f: f.write(" ")
    with pytest.raises(ValueError, match=r"second/tokenizer\.json: damaged"): loflexmdm.load(tmp_path / "second")
    os.remove(tmp_path / "second" / "tokenizer.json")
    with pytest.raises(FileNotFoundError, match=r"second/tokenizer\.json: no such file"): loflexmdm.load(tmp_path / "second")


def test_a_tokenizer_that_is_gone_is_missed(tokenizer, tmp_path):
    os.rename(tokenizer, tmp_path / "elsewhere.json")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json': no such file"):
        SequencesTask(SequencesConfig(tokenizer=tokenizer), WORDS)
    os.rename(tmp_path / "elsewhere.json", tokenizer)
    saved = saved_with_a_tokenizer(tokenizer, tmp_path / "m")
    os.remove(tokenizer)
    method = loflexmdm.load(saved).method
    method.task["tokenizer"] = tokenizer
    with pytest.warns(UserWarning, match="saved without its tokenizer"): save_method(method, tmp_path / "without")


@pytest.mark.parametrize("name", TASKS)
def test_a_tokenizer_replaces_the_unit_of_each_task(name, tokenizer):
    Config = TASKS[name].Config
    if not {"tokenizer", "unit"} <= {*Config.__dataclass_fields__}: return
    assert Config(tokenizer=tokenizer).unit == Config.unit
    other = next(unit for unit in UNITS if unit != Config.unit)
    with pytest.raises(ValueError, match="leave unit out"): Config(tokenizer=tokenizer, unit=other)


# training further, and defaults

def test_the_vocabulary_of_a_model_is_kept(tmp_path):
    task = characters()
    run = recipe_from(dict(task=dict(kind="text", file=str(write_texts(tmp_path / "a.txt", WORDS)), unit="characters")))
    save_method(run.build()[1], tmp_path / "base")
    few = write_texts(tmp_path / "few.txt", ["ab", "ba", "aab", "bba"] * 9)
    kept = task_from(dict(kind="text", file=str(few), unit="characters", vocabulary_from=str(tmp_path / "base")))
    assert kept.vocabulary == task.vocabulary and kept.paths(kept.as_dict()) == ["file", "vocabulary_from"]
    other = write_texts(tmp_path / "other.txt", ["xyz"] * 9)
    options = dict(kind="text", file=str(other), unit="characters", vocabulary_from=str(tmp_path / "base"))
    with pytest.raises(ValueError, match="lacks 3 tokens of the data: 'x' 'y' 'z'"): task_from(options).sizes()
    with pytest.raises(FileNotFoundError, match="vocabulary_from"):
        task_from(options | dict(vocabulary_from=str(tmp_path / "none"))).sizes()


def test_a_saved_model_is_a_recipe_to_train_it_further(tmp_path):
    file = str(write_texts(tmp_path / "a.txt", WORDS))
    run = recipe_from(dict(task=dict(kind="text", file=file, unit="characters")))
    task, method = run.build()
    save_method(method, tmp_path / "base")
    few = str(write_texts(tmp_path / "few.txt", ["a", "aa", "aaa", "aaaa"] * 9))  # fewer letters than the model knows
    further = recipe(tmp_path / "base", file=few, steps=1)
    assert further.model == run.model and further.train.start_from == str(tmp_path / "base")
    same, tuned = further.build()
    assert same.vocabulary == task.vocabulary
    assert take_weights(tuned, further.train.start_from) == []  # all of the model's
    for a, b in zip(tuned.state_dict().values(), method.state_dict().values()): torch.testing.assert_close(a, b)


def test_a_model_without_a_task_is_not_a_recipe(tmp_path):
    method = method_class("ar")(Vocabulary("ab"), method_class("ar").Config(size="nano"))
    save_method(method, tmp_path / "bare")
    with pytest.raises(ValueError, match="was saved without a task"): recipe(tmp_path / "bare")


def test_a_first_model_of_own_data_is_small(tmp_path):
    file = str(write_texts(tmp_path / "a.txt", WORDS))
    tables = dict(task=dict(kind="text", file=file, unit="characters"))
    first = recipe_from(tables)
    assert (first.model["method"], first.model["order"], first.model["orders"]) == ("ordered-insertion", "mixture", 1)
    assert (first.model["size"], first.model["order_size"], first.train.batch_size) == ("nano", "nano", 32)
    assert (first.train.optimiser, first.train.steps) == ("muon", 741) and recipe_from(first.as_dict()) == first


def test_a_key_of_one_method_alone_chooses_it(tmp_path):
    file = str(write_texts(tmp_path / "a.txt", WORDS))
    tables = dict(task=dict(kind="text", file=file, unit="characters"))
    fixed = recipe_from(tables | dict(model=dict(order="fixed")))
    assert (fixed.model["method"], fixed.model["states"], fixed.train.lr) == ("loflexmdm", 1, 6e-3)
    by_states = recipe_from(override(tables, states=3))
    assert (by_states.model["method"], by_states.model["states"]) == ("loflexmdm", 3)
    ordered = recipe_from(override(tables, order="left_to_right"))
    assert (ordered.model["method"], ordered.model["slope"]) == ("ordered-insertion", 0.0)
    for named in dict(order="learned"), dict(slope=2.0):
        learned = recipe_from(tables | dict(model=named)).model
        assert (learned["order"], learned["slope"], learned["orders"]) == ("learned", named.get("slope", 1.0), 2)
    with pytest.raises(ValueError, match="unknown key 'stats'"): override(tables, stats=3)

    # a learned order of LoFlexMDM
    learned = dict(method="loflexmdm", order="learned", size="tiny")
    learned = recipe_from(tables | dict(model=learned, train=dict(optimiser="adamw")))
    assert (learned.model["states"], learned.model["size"], learned.train.lr) == (2, "tiny", 1e-3)
    assert (learned.model["unmask"], learned.model["regulariser"]) == ("trainable", 1.0)
    given = recipe_from(tables | dict(model=dict(order="learned", unmask="frozen")))
    assert (given.model["method"], given.model["unmask"], given.model["readings"]) == ("loflexmdm", "frozen", "event")


def test_the_first_model_of_every_method_is_small(tmp_path):
    file = str(write_texts(tmp_path / "a.txt", WORDS))
    tables = dict(task=dict(kind="text", file=file, unit="characters"))
    for method in ("mdm", "ar", "flexmdm", "papl"):
        assert recipe_from(tables | dict(model=dict(method=method))).model["size"] == "nano"
    assert recipe_from(dict(task=dict(kind="star"))).model["size"] == "tiny"
    # who has no order to give has its own number of states
    assert recipe_from(tables | dict(model=dict(method="genmd4"))).model["states"] == 2


# the hub

def test_a_model_goes_to_the_hub_and_back(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    hub_mixin = pytest.importorskip("huggingface_hub.hub_mixin")

    class Api:
        def __init__(self, token=None): pass
        def create_repo(self, repo_id, **options): return type("Repo", (), dict(repo_id=repo_id))
        def upload_folder(self, repo_id, folder_path, **options):
            shutil.copytree(folder_path, tmp_path / repo_id)
            return "done"
    monkeypatch.setattr(hub_mixin, "HfApi", Api)
    monkeypatch.setattr(hub_mixin, "hf_hub_download", lambda repo_id, filename, **_: str(tmp_path / repo_id / filename))
    seen = []
    fetch = lambda name, revision=None, **_: (seen.append(revision), str(tmp_path / name))[1]
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    model = loflexmdm.load("star-tiny")
    assert model.push("me/star", about="Paths.") == "done"
    again = loflexmdm.load("hf://me/star@v1")
    assert seen == ["v1"] and again.method.task == model.method.task
    assert "Paths." in (tmp_path / "me/star/README.md").read_text()
    torch.testing.assert_close(again.method.state_dict(), model.method.state_dict(), rtol=0, atol=0)
    assert json.loads((tmp_path / "me/star/config.json").read_text())["format"] == 1


@pytest.mark.parametrize("name", ["", "a/b/c", "a b", "-x"])
def test_a_name_that_cannot_be_one_asks_nobody(name):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ValueError, match="owner/name"): hub.fetch(name)


def test_rows_lengths_and_outliers_are_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    def measure(tables, device): raise ValueError("the measurement begins")
    monkeypatch.setattr(train_command, "complete_tables", measure)
    (tmp_path / "a.txt").write_text("\n".join([*(f"line {i} of it" for i in range(400)), "ab " * 20_000]))
    assert main(["train", str(tmp_path / "a.txt"), "--out", str(tmp_path / "run"), "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert "data: train " in told and "much longer than the rest" in told and "row 401" in told
    assert told.splitlines()[-1] == "loflexmdm: the measurement begins"


def test_a_text_with_an_unknown_token_is_refused():
    task = characters()
    assert task.sequence("".join(task.vocabulary.ordinary[:2])) == [*task.vocabulary.ordinary[:2]]
    with pytest.raises(ValueError, match="outside the vocabulary"): task.sequence("\u2603")


def test_files_that_are_read_whole_are_limited_in_size(tmp_path, monkeypatch):
    "Unless only some of their sequences are prepared, as of a stream; a packed file counts four times."
    module = importlib.import_module("loflexmdm.tasks.sequences")
    (tmp_path / "a.txt").write_text("ab\n" * 10)
    monkeypatch.setenv("LOFLEXMDM_MAX_TEXT", "29")
    settings = dict(file=str(tmp_path / "a.txt"), unit="characters")
    with pytest.raises(ValueError, match="30 bytes of text"): module.sequence_data(module.SequencesConfig(**settings))
    few = module.sequence_data(module.SequencesConfig(**settings, stream=True))
    assert few.lengths.total() <= 10
    monkeypatch.setenv("LOFLEXMDM_MAX_TEXT", "30")
    assert module.sequence_data(module.SequencesConfig(**settings)).lengths.total() == 10
    with gzip.open(tmp_path / "b.txt.gz", "wt") as f: f.write("ab\n" * 10)
    packed, size = dict(file=str(tmp_path / "b.txt.gz"), unit="characters"), (tmp_path / "b.txt.gz").stat().st_size
    monkeypatch.setenv("LOFLEXMDM_MAX_TEXT", str(4 * size - 1))
    with pytest.raises(ValueError, match="bytes of text"): module.sequence_data(module.SequencesConfig(**packed))
    monkeypatch.setenv("LOFLEXMDM_MAX_TEXT", str(4 * size))
    assert module.sequence_data(module.SequencesConfig(**packed)).lengths.total() == 10


def test_marks_stand_as_they_are_among_texts_of_a_tokenizer(monkeypatch):
    module = importlib.import_module("loflexmdm.tasks.sequences")
    task = SequencesTask(SequencesConfig(unit="words"), sequences=["a b", "b c"])
    monkeypatch.setattr(module, "tokenizer_of",
        lambda config: SimpleNamespace(join=lambda tokens: "|".join(tokens).upper()))
    assert task.text(["a", "b", "...", "c", "<mask>", "a"]) == "A|B...C<mask>A"
