"Units of tokens, subwords trained on the data, texts that a tokenizer changes, and dots of the data."
import json

import pytest

import loflexmdm
from loflexmdm.cli.commands import main
from loflexmdm.process.states import Vocabulary, gap_mark, is_gap
from loflexmdm.support.writers import write_texts
from loflexmdm.tasks import sequences
from loflexmdm.tasks.base import TaskData, task_from
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask
from loflexmdm.tasks.units import many_types, usual_characters
from loflexmdm.training.recipes import recipe_from

TEXTS = [
    f"job {i} of {kind} took {i * 7 % 90}.{i % 10} ms, ünïcode 数据 {i}" for i in range(60) for kind in ("mail", "web")
]
RNA = ["((((...))))..", "(((....)))..", ".((((...)))).", "((.....))....", "(((...)))...."] * 12


# subwords

@pytest.fixture
def trained(tmp_path):
    pytest.importorskip("tokenizers")
    file = write_texts(tmp_path / "lines.txt", TEXTS)
    task = dict(kind="text", file=str(file), unit="subwords", subword_count=300)
    tables = dict(task=task, model=dict(method="ar", size="nano"), train=dict(steps=2, batch_size=4))
    return file, recipe_from(tables)


def test_subwords_give_every_text_back(trained):
    _, made = trained
    task = task_from(made.task)
    for text in [*TEXTS, "never seen: Жω\t🙂"]: assert task.text(task.sequence(text)) == text
    assert made.task["subword_merges"] and len(task.vocabulary.ordinary) <= 300
    assert recipe_from(made.as_dict()) == made


def test_a_model_of_subwords_needs_no_file(trained, tmp_path):
    file, made = trained
    made.trainer(tmp_path / "run", progress=False).fit()
    file.unlink()
    model = loflexmdm.load(tmp_path / "run")
    assert model.sample(n=3, seed=0).texts and model.score([TEXTS[0]]).nats.item() > 0
    moved = model.save(tmp_path / "moved")
    assert loflexmdm.load(moved).score([TEXTS[0]]).nats.item() == model.score([TEXTS[0]]).nats.item()


def test_subwords_of_given_sequences_and_of_files(trained):
    file, made = trained
    given = SequencesTask(SequencesConfig(unit="subwords", subword_count=300), iter(TEXTS))
    assert given.config.subword_merges == made.task["subword_merges"]
    of_file = SequencesTask(SequencesConfig(file=str(file), unit="subwords", subword_count=300))
    assert of_file.as_dict() == made.task | dict(file=str(file))
    assert of_file.splits["test"] == given.splits["test"]


def test_a_stranger_s_file_is_not_read_for_subwords(tmp_path):
    file = write_texts(tmp_path / "mine.txt", TEXTS)
    task = task_from(dict(kind="text", file=str(file), unit="subwords"), Vocabulary("ab"), data=False)
    with pytest.raises(ValueError, match="not read by default"): task.as_dict()


@pytest.mark.parametrize("options, said", [
    (dict(subword_count=10), "subword_count=10: must be at least 256"),
    (dict(unit="subwords", tokenizer="a.json"), "leave unit out"), (dict(unit="subword"), "did you mean 'subwords'"),
])
def test_wrong_settings_of_subwords(options, said):
    with pytest.raises(ValueError, match=said): SequencesConfig(**options)


def test_many_different_words_are_said(monkeypatch):
    monkeypatch.setattr(sequences, "WORD_TYPES", 50)
    told = SequencesTask(sequences=TEXTS).summary()
    assert many_types(len(SequencesTask(sequences=TEXTS).vocabulary.ordinary)) in told and "subwords" in told
    assert "subwords" not in SequencesTask(SequencesConfig(unit="characters"), TEXTS).summary()


# texts that a tokenizer changes

@pytest.fixture
def unknowing(tmp_path):
    "A tokenizer of five words, and [UNK] for all else."
    library = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0} | {word: i for i, word in enumerate("a b c d e".split(), 1)}
    made = library.Tokenizer(library.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "unknowing.json"))
    return str(tmp_path / "unknowing.json")


@pytest.mark.parametrize("from_file", [False, True])
def test_a_tokenizer_that_changes_texts_is_refused(unknowing, tmp_path, from_file):
    texts = ["a b c", "b c d", "c d e", "d e a"] * 5 + ["a b Q7"] * 5
    def task(**options):
        if from_file: options |= dict(file=str(write_texts(tmp_path / "texts.txt", texts)))
        made = SequencesTask(SequencesConfig(tokenizer=unknowing, **options), None if from_file else texts)
        made.sizes()
        return made
    with pytest.raises(ValueError, match="5 of 25 texts do not survive the tokenizer.*becomes 'a b .UNK.*subwords"):
        task()
    assert "5 of 25 texts do not survive" in task(may_change=0.2).summary()
    texts = texts[:20]
    assert "survive" not in task().summary()


# dots of the data

def rna(): return SequencesTask(SequencesConfig(unit="characters"), RNA)


@pytest.mark.parametrize("text, prompt", [
    ("((...))", list("((...))")), ("((<gap>))", [*"((", ..., *"))"]), ("..", [*".."]), ("<gap>...", [..., *"..."]),
    ("((<mask>))", [*"((", "<mask>", *"))"]),
])
def test_dots_of_the_data_are_tokens(text, prompt): assert rna().prompt(text) == prompt


def test_dots_are_gaps_where_the_data_has_none():
    task = SequencesTask(SequencesConfig(unit="characters"), ["ab", "ba", "aab"] * 5)
    assert task.prompt("a...") == ["a", ...] == task.prompt("a<gap>") and (task.gap, rna().gap) == ("...", "<gap>")


def test_three_dots_that_are_a_word():
    task = SequencesTask(sequences=["wait ... what", "what ... wait", "wait wait"] * 5)
    assert task.prompt("wait ... <gap>") == ["wait", "...", ...] and task.gap == "<gap>"
    assert is_gap("...", Vocabulary("ab")) and not is_gap("...", task.vocabulary)
    assert gap_mark(task.vocabulary) == "<gap>" and not is_gap("..", task.vocabulary)


def test_the_command_says_how_it_reads_a_prompt(tmp_path, capsys):
    file = write_texts(tmp_path / "rna.txt", RNA)
    task = dict(kind="text", file=str(file), unit="characters")
    model = dict(method="ordered-insertion", order="left_to_right", size="nano")
    recipe_from(dict(task=task, model=model, train=dict(steps=2, batch_size=4))).trainer(
        tmp_path / "run", progress=False).fit()
    assert main(["sample", str(tmp_path / "run"), "--prompt-text", "((...))", "-n", "1"]) == 0
    said = capsys.readouterr().err
    assert "... is part of the data here, <gap> marks a gap" in said and "7 tokens given" in said
    (tmp_path / "prompts.txt").write_text("((<gap>))\n((...))\n")
    out = tmp_path / "made.jsonl"
    line = ["--prompts", str(tmp_path / "prompts.txt"), "-n", "2", "--out", str(out)]
    assert main(["sample", str(tmp_path / "run"), *line]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 4 and rows[0]["text"].startswith("((") and rows[2]["text"].startswith("((...))")
    said = capsys.readouterr().err
    assert "prompts.txt: lines: 2 records, 2 kept" in said and "((<gap>))" in said


def test_the_usual_length_is_that_of_nine_tenths():
    texts = lambda n: ["x" * k for k in range(n, 0, -1)]
    assert [usual_characters(texts(n)) for n in (1, 2, 10, 11, 21)] == [1, 1, 9, 10, 19]


def test_the_longest_sequence_is_without_its_start_token():
    assert type("Data", (TaskData,), dict(max_length=7))().longest == 6
