"Defaults of a first run on texts of one's own: method, batch and steps by measured pace, and what is kept."
import random
from types import SimpleNamespace

import pytest

import loflexmdm
from loflexmdm.cli.commands import parse
from loflexmdm.cli.train import recipe_of
from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.support import random_numbers
from loflexmdm.support.writers import write_texts
from loflexmdm.training import first_run, recipes
from loflexmdm.training.batches import passes
from loflexmdm.training.first_run import FEWEST_STEPS, SECONDS, Choice, Cost, Entrant, choose, describe_choice
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import ENTRANTS, entrants_for, is_small, recipe, recipe_from, complete_tables


@pytest.fixture
def lines(tmp_path):
    "A file of 400 lines of about 100 characters, for which pace is measured."
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefgh ", k=draw.randint(90, 110))) + " x" for _ in range(400)]
    return str(write_texts(tmp_path / "lines.txt", texts))


@pytest.fixture
def paces(monkeypatch):
    "Costs by method in place of measured ones, and those that were asked for."
    costs = {"ar": 0.05, "fim": 0.05, "left_to_right": 0.1, "mixture": 0.1, "other": 1.0}
    asked = []

    def cost_of(tables, entrant, device):
        model = entrant.tables.get("model", {})
        method = model.get("method")
        name = method if method in ("ar", "fim") else model.get("order", "other")
        half = tables.get("train", {}).get("precision") == "bfloat16"
        if not half: asked.append(name)
        each = costs[name] * (costs.get("bfloat16", 1.0) if half else 1.0)
        return Cost(tables.get("train", {}).get("batch_size", 16), each, each)
    monkeypatch.setattr(recipes, "cost_of", cost_of)
    return costs, asked


def tables(file, model=None, train=None, **task):
    return dict(task=dict(kind="text", file=file, unit="characters") | task, model=model or {}, train=train or {})


@pytest.mark.parametrize("seconds, chosen", [
    # passes of 320 sequences in ten minutes are 30,000 / seconds of a step / 1,000
    (dict(ar=0.05, mixture=0.1), "mixture"), (dict(ar=0.05, mixture=2.0), "ar"), (dict(ar=9.0, mixture=20.0), "ar"),
])
def test_insertion_where_it_has_the_time(lines, paces, seconds, chosen):
    paces[0].update(seconds)
    made = complete_tables(tables(lines), tell=lambda line: None)
    name = "ar" if made["model"]["method"] == "ar" else made["model"]["order"]
    assert name.startswith(chosen)
    late = chosen == "mixture"
    assert (made["model"].get("query_blocks"), made["train"].get("schedule")) == ((1, "flat") if late else (None, None))
    assert paces[1] == ["ar", "mixture"]


def test_gaps_to_fill_are_not_given_to_a_method_that_appends(lines, paces):
    paces[0].update(left_to_right=9.0, mixture=18.0)
    made = complete_tables(tables(lines, infill=0.5), tell=lambda line: None)
    assert made["model"]["method"] == "fim" and "ar" not in paces[1]
    assert complete_tables(tables(lines), tell=lambda line: None)["model"]["method"] == "ar"


@pytest.mark.parametrize("seconds, method", [(0.1, "ordered-insertion"), (9.0, "fim")])
def test_gaps_are_filled_by_insertion_where_it_has_the_time(lines, paces, seconds, method):
    paces[0].update(left_to_right=seconds)
    made = complete_tables(tables(lines, infill=0.5), tell=lambda line: None)
    assert made["model"]["method"] == method and made["model"].get("order", "left_to_right") == "left_to_right"
    assert paces[1] == ["fim", "left_to_right"]


def test_gaps_of_short_sequences_are_filled_by_insertion(tmp_path, paces):
    file = str(write_texts(tmp_path / "many.txt", [f"{n} of many short lines, that is {n}" for n in range(5000)]))
    paces[0].update(left_to_right=9.0, mixture=9.0)
    said = []
    made = complete_tables(tables(file, infill=0.5), tell=said.append)
    assert made["model"]["order"] == "left_to_right" and paces[1] == ["left_to_right"]
    assert "ordered insertion from left to right" in said[0]
    assert complete_tables(tables(file), tell=said.append)["model"]["method"] == "ar"


def test_gaps_in_a_small_file(tmp_path, paces):
    file, said = str(write_texts(tmp_path / "few.txt", ["ab", "ba", "abc"] * 20)), []
    made = recipe_from(complete_tables(tables(file, infill=0.5), tell=said.append)).as_dict()
    assert made["model"] | dict(method="ordered-insertion", order="left_to_right", query_blocks=1) == made["model"]
    assert made["train"]["schedule"] == "flat" and not paces[1]
    assert "gaps in a small file: ordered insertion from left to right" in said[0] and "--method" in said[0]
    given = tables(file, dict(method="flexmdm"), infill=0.5)
    assert complete_tables(given, tell=said.append) == given and len(said) == 1


@pytest.mark.parametrize("model, train, kept", [
    (dict(method="ar"), {}, dict(method="ar")), (dict(order="uniform"), {}, dict(order="uniform")),
    (dict(method="loflexmdm", order="fixed"), {}, dict(method="loflexmdm")), ({}, dict(steps=7), dict(steps=7)),
    (dict(size="tiny"), dict(batch_size=5, lr=1e-4), dict(size="tiny", batch_size=5, lr=1e-4)),
    ({}, dict(valid_every=9, valid_size=3, schedule="cosine"), dict(valid_every=9, valid_size=3, schedule="cosine")),
])
def test_what_is_named_is_kept(lines, paces, model, train, kept):
    made = recipe_from(complete_tables(tables(lines, model, train), tell=lambda line: None)).as_dict()
    flat = made["model"] | made["train"]
    assert {key: flat[key] for key in kept} == kept


def test_nothing_is_measured_where_nothing_is_open(lines, paces, tmp_path):
    complete = tables(lines, dict(method="ar"), dict(steps=3, batch_size=2))
    assert complete_tables(complete) == complete
    few = tables(str(write_texts(tmp_path / "few.txt", ["ab", "ba", "abc"] * 20)))
    assert complete_tables(few) == few and complete_tables(dict(task=dict(kind="star"))) == dict(task=dict(kind="star"))
    assert paces[1] == []
    assert is_small(800, 12) and is_small(1, 40) and not is_small(160_000, 114) and not is_small(1, 64)


@pytest.mark.parametrize("ratio, given, device, chosen", [
    (0.8, {}, "cpu", "bfloat16"), (0.95, {}, "cpu", None), (0.8, dict(precision="float32"), "cpu", "float32"),
    (0.8, {}, "cuda", None),
])
def test_bfloat16_where_it_is_faster_on_a_processor(lines, paces, ratio, given, device, chosen):
    paces[0].update(bfloat16=ratio, ar=0.5, mixture=60.0)
    said = []
    train = complete_tables(tables(lines, train=given), device, said.append)["train"]
    assert train.get("precision") == chosen and any("1.25 times" in line for line in said) == (chosen == "bfloat16")
    assert train["steps"] == round(SECONDS / (0.5 * (ratio if chosen == "bfloat16" else 1.0)))


def test_several_processes_measure_nothing(lines, paces, monkeypatch):
    monkeypatch.setattr(recipes, "current_launch", lambda: random_numbers.Launch(0, 2, 0))
    assert complete_tables(tables(lines)) == tables(lines) and not paces[1]


def test_the_steps_are_those_of_ten_minutes(lines, paces):
    paces[0].update(ar=0.5, mixture=60.0)
    made = complete_tables(tables(lines), tell=lambda line: None)["train"]
    assert made["steps"] == SECONDS / 0.5 and made["batch_size"] == 16 and made["valid_every"] == 120
    paces[0].update(ar=60.0)  # even if they take longer
    assert complete_tables(tables(lines), tell=lambda line: None)["train"]["steps"] == FEWEST_STEPS
    paces[0].update(ar=1e-6)  # and no more than a hundred passes
    n = recipe_from(tables(lines)).build()[0].sizes()["train"]
    assert complete_tables(tables(lines), tell=lambda line: None)["train"]["steps"] == -(-100 * n // 16)


def test_python_and_the_shell_choose_alike(lines, paces, capsys):
    paces[0].update(ar=0.5, mixture=9.0)
    from_shell = recipe_of(parse(["train", lines, "--unit", "characters", "--out", "x"]))
    said = capsys.readouterr().err
    assert recipe(lines, unit="characters") == from_shell == loflexmdm.recipe(lines, unit="characters")
    assert from_shell.model["method"] == "ar" and from_shell.train.steps == SECONDS / 0.5
    assert "chosen by measured pace: autoregression" in said and "--method ordered-insertion" in said
    assert recipe_from(from_shell.as_dict()) == from_shell  # as a resumed run reads it


def test_a_file_is_a_recipe(tmp_path, capsys):
    words = str(write_texts(tmp_path / "words.txt", ["one two", "two one", "one one", "two two"] * 5))
    assert recipe(words).task["unit"] == "words" and "unit=words" in capsys.readouterr().err
    assert recipe(words, unit="characters").task["unit"] == "characters" and not capsys.readouterr().err
    table = tmp_path / "table.csv"
    table.write_text("n,word\n" + "".join(f"{n},ab{n % 7}\n" for n in range(40)))
    assert recipe(table, column="word").task["unit"] == "characters"
    with pytest.raises(ValueError, match="column"): recipe(table)
    (tmp_path / "mine.smi").write_text("CCO\n")
    with pytest.raises(ValueError, match="loflexmdm train molecules-moses-ar --source"): recipe(tmp_path / "mine.smi")
    with pytest.raises(ValueError, match="nor a file of texts"): recipe(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="wrds.txt: no such file .did you mean 'words.txt'"):
        recipe(tmp_path / "wrds.txt")


def test_a_model_to_start_from_gives_the_method(lines, paces, tmp_path):
    first = recipe_from(tables(lines, dict(method="ar"), dict(steps=1, batch_size=2)))
    first.trainer(tmp_path / "run", progress=False).fit()
    made = complete_tables(tables(lines, train=dict(start_from=str(tmp_path / "run"))), tell=lambda line: None)
    assert made["model"]["method"] == "ar" and paces[1] == ["ar"]


@pytest.mark.slow
def test_real_steps_are_measured(lines, capsys):
    made = recipe(lines, unit="characters", method="ar", size="nano")
    assert made.train.batch_size >= 4 and FEWEST_STEPS <= made.train.steps <= 100 * 400 / made.train.batch_size
    assert "of one core" in capsys.readouterr().err


def test_entrants_that_contradict_a_setting_are_left_out():
    text = dict(task=dict(kind="text"))
    ar, fim, forward, mixture = ENTRANTS
    assert entrants_for(text) == [ar, mixture] and entrants_for(text, infill=0.1) == [fim, forward]
    assert entrants_for(text, infill=0.1, longest=96) == [forward]
    with_order = lambda order: text | dict(model=dict(order=order))
    for entrant in (forward, mixture):
        named = with_order(entrant.tables["model"]["order"])
        assert entrants_for(named, infill=0.1) == entrants_for(named) == [entrant]
    assert [e.tables for e in entrants_for(with_order("learned"))] == [{}]
    assert entrants_for(text | dict(model=dict(method="ordered-insertion"))) == [mixture]
    assert [e.name for e in entrants_for(text | dict(model=dict(method="mdm")))] == ["method=mdm"]
    assert entrants_for(text | dict(model=dict(method="ar")), infill=0.5) == list(ENTRANTS[:1])


def test_the_load_of_the_machine_is_said():
    entrant = Entrant("a", "--method a", {})
    [line] = describe_choice(Choice(entrant, Cost(4, 0.1, 0.4)), 3000, 100)
    assert "about 5 min of one core (20 min at the machine's present load)" in line
    assert "load" not in describe_choice(Choice(entrant, Cost(4, 0.1, 0.11)), 3000, 100)[0]
    for size, told in ((4, "10 min for as many sequences: "), (8, "5 min for as many sequences in steps of 8: ")):
        choice = Choice(entrant, Cost(4, 0.1, 0.1), entrant, Cost(size, 0.2, 0.2))
        assert f"alternative: a, {told}--method a" in describe_choice(choice, 3000, 100)[1]
    assert choose([entrant], lambda e: Cost(4, 0.1, 0.1), 10).other is None


def test_the_passes_that_are_said_are_those_of_the_run(tmp_path, capsys):
    "A learned order sees a sequence in two orders each time, so that 50 passes count as 100."
    words = str(write_texts(tmp_path / "words.txt", ["ab", "ba", "abc"] * 160))
    made = recipe_of(parse(["train", words, "--unit", "characters", "--order", "learned", "--out", "x"]))
    n = recipe_from(made.as_dict()).build()[0].sizes()["train"]
    [said] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("steps=")]
    over = passes(made.train, n)
    assert f"steps={made.train.steps}: 50" in said and "each sequence in 2 orders" in said
    assert said.split()[1] == over.split(": ")[1].split()[0]  # as the run says it
    recipe_of(parse(["train", words, "--unit", "characters", "--method", "ar", "--out", "x"]))
    assert "100 passes over the data; at least 500 steps" in capsys.readouterr().err


def test_a_value_out_of_range_is_refused_before_data_is_read(lines, paces, monkeypatch):
    monkeypatch.setattr(recipes, "read_records", lambda *args, **kwargs: pytest.fail("read"))
    for wrong in (dict(steps=0), dict(batch_size=-1), dict(size="large"), dict(unit="rows")):
        with pytest.raises(ValueError, match=next(iter(wrong))): recipe(lines, **wrong)
    assert not paces[1]


@pytest.mark.parametrize("once, each, given, chosen", [
    (0.023, 0.0003, None, 64), (0.0, 0.001, None, 16), (0.0, 0.4 / 16, None, 8), (1.0, 0.0, None, 4),
    (0.02, 0.0, None, 128), (0.023, 0.0003, 5, 5),
])
def test_the_batch_is_doubled_where_that_is_cheap_and_leaves_enough_steps(monkeypatch, once, each, given, chosen):
    built = []
    monkeypatch.setattr(first_run, "step_cost", lambda size: Cost(size, once + each * size, 0.0))
    assert first_run.batch_cost(lambda size: built.append(size) or size, given).batch_size == chosen
    assert built == ([given] if given else [4 * 2 ** k for k in range(len(built))]) and max(built) <= 2 * chosen


class Timed:
    "A trainer whose steps take known seconds, and notes the lengths of its batches."
    device = "cpu"

    def __init__(self, lengths, seconds=(), **options):
        self.data = [prefix_example((), "a" * n, Vocabulary("a")) for n in lengths]
        self.config, self.seen = TrainConfig(steps=9, **options), []
        self.seconds, self.processes = iter(seconds), SimpleNamespace(batches=lambda *asked: iter([asked] * 9))

    def train_step(self, batches): self.seen.append(next(batches))


def test_typical_batches_are_of_the_middle_and_of_both_sides():
    "Two to warm up, then those at a sixth, a half and five sixths of the order of length."
    trainer = Timed(random.Random(0).sample(range(1, 61), 60), batch_size=6, accumulate=2, group_by_length=True)
    found = [sorted((b.lengths - 1).tolist()) for b in first_run.typical_batches(trainer)]
    assert found[::2] == found[1::2]
    assert [b[0] for b in found[::2]] == [28, 28, 8, 28, 48] and all(b == [*range(b[0], b[0] + 6)] for b in found)
    few = Timed([3, 1, 2], batch_size=8, accumulate=1, group_by_length=True)
    assert [sorted((b.lengths - 1).tolist()) for b in first_run.typical_batches(few)] == [[1, 2, 3]] * 5
    alike = Timed([2] * 9, batch_size=2, group_by_length=False)
    assert next(first_run.typical_batches(alike))[1:] == (alike.config, 0, "cpu")


def test_the_cost_of_a_step_is_the_mean_of_the_timed_ones(monkeypatch):
    times = lambda *own: monkeypatch.setattr(first_run, "step_times", lambda trainer: pairs(own))
    def pairs(own): yield from ((t, 2 * t) for t in own)
    trainer = Timed([1], batch_size=6)
    times(9.0, 1.0, 1.0, 1.0, 1.5)
    assert first_run.step_cost(trainer) == Cost(6, 9.0, 18.0), "one that is slow is enough"
    times(1.0, 1.0, .3, .6, .6, 7.0)
    assert first_run.step_cost(trainer) == Cost(6, pytest.approx(.5), pytest.approx(1.0))
    times(1.0, 1.0, .5, 2.5, .5)
    assert first_run.step_cost(trainer) == Cost(6, pytest.approx(1.5), pytest.approx(3.0))
    times(2.0, 2.0, 2.0, 2.0, 2.0, 9.0)
    assert first_run.step_cost(trainer) == Cost(6, 2.0, 4.0)


def test_own_time_is_never_more_than_that_of_the_clock(monkeypatch):
    clock, own = iter([0.0, 2.0, 5.0, 6.0]), iter([0.0, 1.0, 5.0, 9.0])
    monkeypatch.setattr(first_run.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(first_run.time, "process_time", lambda: next(own))
    trainer = Timed([2] * 9, batch_size=2, group_by_length=False)
    found = first_run.step_times(trainer)
    assert [next(found), next(found)] == [(1.0, 2.0), (1.0, 1.0)] and len(trainer.seen) == 2


@pytest.mark.parametrize("given, seconds, size", [
    (5, {5: 9.0}, 5), (None, {4: 9.0}, 4), (None, {4: .1, 8: .2}, 8),
    (None, {4: .1, 8: .11, 16: .12, 32: .16, 64: .3}, 32),
    (None, {4: .1, 8: .11, 16: .12, 32: .169}, 16), (None, {4 * 2**k: .01 for k in range(7)}, 128),
])
def test_a_batch_is_doubled_while_there_are_steps_enough_and_it_is_cheap(monkeypatch, given, seconds, size):
    monkeypatch.setattr(first_run, "step_cost", lambda n: Cost(n, seconds[n], seconds[n]))
    assert first_run.batch_cost(lambda n: n, given).batch_size == size
