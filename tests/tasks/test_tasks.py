"Tasks: the register, round trips through JSON, splits and the errors a user meets; shared by all built-in tasks."
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

import loflexmdm

from loflexmdm.process.states import SPECIAL_TOKENS, Pair, Vocabulary
from loflexmdm.samplers import Samples
from loflexmdm.support.registries import TASKS
from loflexmdm.tasks.base import SPLITS, Task, check_prompts, exact_match, task_class, task_from
from loflexmdm.tasks.base import token_accuracy

TEXT = [f"a{'b' * (i % 7)}c{'d' * (i // 7)}" for i in range(60)]


@pytest.fixture(params=TASKS.names())
def task(request, tmp_path):
    options = dict(kind=request.param)
    if request.param in ("text", "known"):
        (tmp_path / "data.txt").write_text("\n".join(TEXT) + "\n")
        options |= dict(file=str(tmp_path / "data.txt"), unit="characters")
    if request.param == "molecule-edits": options |= dict(source="chembl", limit=200, max_length=100, valid_share=0.2)
    return task_from(options)


@pytest.mark.parametrize("split", SPLITS)
def test_examples_are_well_formed_and_stable(task, split):
    data, other = task.dataset(split), task_from(task.as_dict()).dataset(split)
    for i in range(min(len(data), 50)):
        assert data[i] == other[i]
        for e in data[i] if isinstance(data[i], Pair) else [data[i]]:
            assert len(e.tokens) == len(e.fixed) == len(e.closed) <= task.max_length
            assert e.fixed[0] and min(e.tokens[1:]) >= len(SPECIAL_TOKENS) and max(e.tokens) < len(task.vocabulary)
    with pytest.raises(IndexError): data[len(data)]


def test_prompts_belong_to_the_examples(task):
    prompts = task.prompts("test", 5)
    if prompts is None: return
    for p, e in zip(prompts, (task.dataset("test")[i] for i in range(5)), strict=True):
        assert task.vocabulary.encode(t for t in p if t is not ...) == [
            t for t, f in zip(e.tokens[1:], e.fixed[1:]) if f
        ]


def test_unknown_option_and_type(task):
    with pytest.raises(ValueError, match=f"task {task.kind}: unknown key 'nodse'"):
        task_from(task.as_dict() | dict(nodse=1))
    key = next(k for k, v in task.as_dict().items() if type(v) is int)
    with pytest.raises(ValueError, match=f"{key}='3' must be of type int"): task_from(task.as_dict() | {key: "3"})


@pytest.mark.parametrize("values", [{}, {"kind": "stars"}, {"kind": None}])
def test_unknown_kind(values):
    with pytest.raises(ValueError, match="brackets.*star.*text"): task_from(values)


def test_task_from_leaves_its_argument_alone():
    values = dict(kind="star")
    task_from(values)
    assert values == dict(kind="star") and task_class("star").kind == "star"


@pytest.mark.parametrize(
    "answer, accuracy", [("abcd", 1), ("abdc", 0.5), ("abc", 0.75), ("abcde", 0.8), ("xabc", 0), ("", 0)]
)
def test_token_accuracy(answer, accuracy):
    assert token_accuracy([answer], ["abcd"]) == accuracy and exact_match([answer], ["abcd"]) == float(answer == "abcd")


@pytest.mark.parametrize("measure", [exact_match, token_accuracy])
def test_measures_need_pairs(measure):
    for answers, truths in (([], []), (["a"], []), (["a"], ["a", "b"])):
        with pytest.raises(ValueError, match="truths"): measure(answers, truths)


# sequences of one's own

def characters(*sequences): return task_class("text")(task_class("text").Config(unit="characters"), list(sequences))


@pytest.mark.parametrize("sequences", [["3+4=7", "1+1=2"], ["one"]])
def test_single_words_are_no_sequences(sequences):
    with pytest.raises(ValueError, match=f"unit='words'.*{re.escape(repr(sequences[0]))}.*unit='characters'"):
        task_class("text")(sequences=sequences)


@pytest.mark.parametrize("sequences", [["one", "two words"], ["a", "b"], [["one"], ["two"]]])
def test_what_is_no_list_of_words_passes(sequences):
    assert sum(task_class("text")(sequences=sequences).sizes().values()) == 2


@pytest.mark.parametrize(
    "text, prompt",
    [
        ("12+...", ["1", "2", "+", ...]), ("1 2 + ...", ["1", "2", "+", ...]),
        ("...2", [..., "2"]), ("1<mask>+", ["1", "<mask>", "+"]), ("12", ["1", "2"]),
    ],
)
def test_prompts_of_characters(text, prompt): assert characters("12+3", "4+5").prompt(text) == prompt


def test_spaces_count_where_the_data_has_them():
    task = characters("a b", "b a")
    assert task.prompt("a ...") == ["a", " ", ...]
    assert task.describe(Samples([task.vocabulary.encode("a b")], [[True] * 3])) == [dict(text="a b")]


def test_words_stay_apart():
    task = task_class("text")(sequences=["one two", "two"])
    assert task.prompt("one ...") == ["one", ...]
    assert task.describe(Samples([task.vocabulary.encode(["one"])], [[True]])) == [{}]


def test_unknown_characters_are_refused():
    with pytest.raises(ValueError, match="'\\*' is outside the vocabulary"): characters("12+3").prompt("1*")


def test_summary_counts_everything(task):
    text = task.summary()
    assert any(line.startswith("data: train ") for line in text.splitlines())
    assert f"vocabulary of {len(task.vocabulary) - 3} tokens" in text
    assert ("\nleft out: " in text) == any(task.rejections().values())
    for split, n in task.sizes().items():
        assert f"{split} without end" in text if n >= 2**40 else f"{split} {n:,}" in text


def test_summary_of_what_is_too_long():
    cls = task_class("text")
    task = cls(cls.Config(max_length=4), ["a b", "a b c", "a b c d"])
    assert task.longest == 3
    assert task.summary().splitlines()[1] == "left out: 1 of the source (1 longer than max_length)"


# what the command line shows, by default and as a task says

def test_neutral_defaults():
    task, row = task_from(dict(kind="brackets")), dict(prompt=["("], tokens=["(", ")"], generated=[0, 1])
    assert task.output.pretty(row) == "( => )" and task.output.pretty(row | dict(generated=[1, 1])) == "( )"
    assert task.output.advice([row], {}) == []
    assert task.output.picture([row]) is None
    assert task.output.bound_states(9) == 0
    assert not task.output.file_suffixes


@pytest.mark.parametrize(
    "value, message",
    [
        ("no_such_package:Task", "'no_such_package:Task' cannot be imported (ModuleNotFoundError"),
        ("math:pi", "'math:pi' defines no task kind of that name"),
    ],
)
def test_wrong_plug_ins_are_named(monkeypatch, value, message):
    monkeypatch.setattr(TASKS, "plugins", lambda: dict(chess=EntryPoint("chess", value, TASKS.group)))
    with pytest.raises(ValueError, match=re.escape(f"task kind='chess': plug-in {message}")): task_class("chess")
    assert "chess" in TASKS.names() and task_class("star").kind == "star"


@pytest.mark.parametrize("name, joined", [("star-tiny", " "), ("repair-text", ""), ("molecules", "")])
def test_samples_of_packaged_models_read_as_text(name, joined):
    model = loflexmdm.load(name)
    task = model.task
    assert task is model.task and task.kind == model.method.task["kind"]
    prompts = task.prompts("test", 2) if name == "star-tiny" else None
    made = model.edit([list("a lst")], n=2, seed=1) if name == "repair-text" else model.sample(prompts, n=2, seed=1)
    assert made.texts == list(made) == [joined.join(model.vocabulary.decode(s)) for s in made.sequences]
    assert made[0] == made.texts[0] and made[-1:] == made.texts[-1:]
    if name == "molecules":
        assert made.smiles == [d["smiles"] or None if d["state"] == "valid" else None for d in task.describe(made)]
    else: assert not hasattr(made, "smiles")


def test_a_frame_has_a_row_per_sample():
    pytest.importorskip("pandas")
    model = loflexmdm.load("molecules")
    made = model.sample(n=3, seed=0)
    frame = made.frame()
    assert list(frame.text) == made.texts and {"smiles", "state", "tokens", "generated"} <= set(frame.columns)


@pytest.mark.parametrize("settings", [
    dict(kind="key", n=3), dict(kind="key", n=2, blocks=3), dict(kind="key", n=2, blocks=3, layout="prefix"),
    dict(kind="star"), dict(kind="brackets"),
    dict(kind="brackets", condition="depth"), dict(kind="molecules"), dict(kind="molecules", condition="rings"),
    dict(kind="repair", inner="brackets"),
], ids=str)
@pytest.mark.slow
def test_prompts_agree_with_examples(settings): check_prompts(task_from(settings))


@dataclass(frozen=True)
class NoSettings:
    "No settings."


class Echo(Task):
    "Repeat the prompt. It has no name, so that no registry lists it."
    Config, vocabulary = NoSettings, Vocabulary("ab")
    def prompts(self, split="test", n=8): return [list("abba"[i % 4]) for i in range(n)]
    def correct(self, prompt, answer): return answer == prompt


def test_a_score_follows_from_what_is_correct():
    ids = [Echo.vocabulary.encode(text) for text in ("aa", "bb", "ba", "ab")]
    samples = Samples(ids, [[False, True]] * 4)
    assert Echo().score("test", samples) == dict(correct=0.5)
    with pytest.raises(ValueError, match="samples: none to score"): Echo().score("test", Samples([], []))
    unjudged = type("Unjudged", (Echo,), dict(correct=Task.correct))()
    with pytest.raises(NotImplementedError, match="Unjudged: define score, or correct"): unjudged.score("test", samples)
