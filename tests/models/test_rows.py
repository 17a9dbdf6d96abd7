"Rows of samples by hand: columns, examples, bounds in blocks, quotas, and what a result writes."
import warnings
from types import SimpleNamespace

import pytest
import torch

from loflexmdm.models import rows as module
from loflexmdm.models.generated import Generated, Source
from loflexmdm.models.model import accepted_edits
from loflexmdm.models.requests import EditRequest, SampleRequest, TextPrompt
from loflexmdm.models.row_files import check_row_file, row_formats, write_rows
from loflexmdm.models.rows import Quota, Rows, Selection, bounds, check_rows, example_from, prompt_key, states_of
from loflexmdm.models.rows import with_columns, with_figures
from loflexmdm.process.states import Vocabulary
from loflexmdm.samplers import Samples
from loflexmdm.samplers.simulate import COUNTERS
from loflexmdm.tasks.base import TaskOutput

VOCABULARY = Vocabulary("abcd")


class Output(TaskOutput):
    "Texts without d are valid, and equal whatever their order; their figure is their length."
    output_suffixes, salvages = (".abc",), True
    def sample_key(self, row): return None if "d" in row["text"] else "".join(sorted(row["text"]))
    def figures(self, rows): return [dict(length=len(row["text"])) for row in rows]
    def format_rows(self, rows, suffix): return f"{suffix}: {len(rows)}"


class Task:
    "A task that writes tokens side by side and notes the prompts that it was told."
    output, results, kind = Output(), None, "toy"

    def __init__(self): self.told = []
    def text(self, tokens): return "".join(tokens)

    def describe(self, samples, **more):
        self.told.append((len(samples.sequences), more))
        return [dict(state="valid" if len(s) > 1 else "short") for s in samples.sequences]


class Method:
    "Bounds that are known: the number of free tokens, and the number of the row in its block."
    device = torch.device("cpu")
    vocabulary = VOCABULARY
    def __init__(self): self.asked = []

    def nll_bound(self, x, states, generator):
        self.asked.append((len(x.tokens), states, generator.initial_seed()))
        return x.free.sum(-1).double(), torch.arange(len(x.tokens)).double() / 3


MODEL = SimpleNamespace(task=Task(), method=Method(), vocabulary=VOCABULARY, text="".join)


def row(text, **more):
    return dict(text=text, prompt=["a", "..."], tokens=list(text), generated=[0] + [1] * (len(text) - 1)) | more


def test_an_example_is_fixed_as_its_prompt():
    known = dict(prompt=["a", "<gap>", "b", "c"], tokens=list("adbc"), generated=[0, 1, 0, 0])
    example = example_from(known, Vocabulary([*"abcd", "..."]))
    assert example.fixed == [True, True, False, True, True] and example.closed == [True, False, False, True, True]
    assert example_from(row("abb"), VOCABULARY).tokens == [2, *VOCABULARY.encode("abb")]


def test_bounds_are_estimated_in_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 2)
    method = Method()
    found = bounds([row("ab"), row("abcd"), row("abc")], method, 5, seed=7)
    assert [(f["nll_bound"], f["nll_se"]) for f in found] == [(1.0, 0.0), (3.0, .33333), (2.0, 0.0)]
    assert method.asked == [(2, 5, 7), (1, 5, 7)] and bounds([row("ab")] * 2, method, 0) == [{}, {}]
    with pytest.raises(ValueError, match="sequences times states"): bounds([row("ab")] * 2, method, 10**7)


def test_columns_come_before_the_prompt():
    assert [list(r) for r in with_columns([row("ab", n=1), dict(text="x")], [dict(b=2), dict(b=3)])] == [
        ["text", "n", "b", "prompt", "tokens", "generated"], ["text", "b"]]
    with pytest.raises(ValueError): with_columns([row("ab")], [])
    assert list(states_of([dict(state="x"), dict(state="y"), dict(state="y"), {}]).items()) == [("y", 2), ("x", 1)]


def test_conditions_that_a_task_cannot_decide():
    plain = SimpleNamespace(output=TaskOutput())
    for task in (None, plain):
        with pytest.raises(ValueError, match="salvage=True"): check_rows(SampleRequest(salvage=True), task)
        with pytest.raises(ValueError, match="valid=3"): check_rows(SampleRequest(valid=3), task)
        assert check_rows(request := SampleRequest(n=2), task) is request
    assert check_rows(request := SampleRequest(valid=3, salvage=True), MODEL.task) is request


def texts(rows): return [r["text"] for r in rows]


def test_a_quota_of_one_prompt():
    assert Quota.of(SampleRequest(n=3), None) is None
    assert Quota.of(SampleRequest(valid=3), MODEL.task, [("one", "prompt")]).prompts == {(): 1}
    quota = Quota.of(SampleRequest(valid=2, unique=True), MODEL.task)
    assert quota == Quota(2, True, MODEL.task) and quota.total == 2
    rows = Rows(MODEL, 9, quota)
    assert not rows.complete and rows.needs({}, "a")
    rows.extend([row("ad"), row("ab"), row("ba")])
    assert not rows.complete and texts(rows.drawn) == ["ab"]
    rows.extend([row("aa"), row("abc")])
    assert rows.complete and texts(rows.drawn) == texts(rows.result()) == ["ab", "aa"] and len(rows.rows) == 5
    assert quota.shortfall(2, 9) == "" and quota.shortfall(1, 1234) == (
        "only 1 of 2 different valid sequences in 1,234 draws; tries allows more draws")
    with pytest.raises(ValueError, match="valid=2: none of 9 draws is valid"): quota.shortfall(0, 9)
    assert Quota(2, False, MODEL.task).shortfall(1, 9).startswith("only 1 of 2 valid sequences")
    again = Selection(Quota(3, False, MODEL.task), [row("ab"), row("ba"), row("d"), row("b")])
    assert again.places == [0, 1, 3] and again.complete


def test_different_texts_need_not_be_valid():
    quota = Quota.of(SampleRequest(n=2, unique=True), MODEL.task)
    rows = Rows(MODEL, 9, quota)
    assert not quota.valid
    rows.extend([row("ad"), row("ad"), row("ab"), row("ba")])
    assert texts(rows.drawn) == ["ad", "ab"] and Quota(2, True, None, False).key_of(row("x")) == "x"
    assert Quota(2, True, None, False).shortfall(1, 3).startswith("only 1 of 2 different sequences")


def test_a_quota_of_each_prompt():
    named = [dict(name=n, prompt_text=t) for n, t in (("x", "a"), ("y", "b"))]
    keys = [prompt_key(named[0], []), prompt_key(named[1], []), prompt_key({}, ["c", ...], VOCABULARY), ("c", "...")]
    assert keys == [("x", "a"), ("y", "b"), ("c", "..."), ("c", "...")]
    quota = Quota.of(SampleRequest(valid=1), MODEL.task, keys)
    assert quota.total == 4 and quota.prompts[("c", "...")] == 2
    rows = Rows(MODEL, 9, quota)
    of_c = lambda text: row(text, prompt=["c", "..."])
    rows.extend([row("b", **named[1]), of_c("cb"), row("ba", **named[1]), of_c("cd")])
    assert rows.needs(named[0], []) and not rows.needs(named[1], []) and rows.needs({}, ["c", ...])
    rows.extend([of_c("ca"), row("a", **named[0])])
    assert rows.complete and not rows.needs({}, ["c", ...])
    assert texts(rows.drawn) == ["b", "cb", "ca", "a"] and texts(rows.result()) == ["b", "cb", "ca", "a"]


def part(*sequences, calls=1):
    return generated([VOCABULARY.encode(s) for s in sequences], calls)


def generated(sequences, calls=1, model=MODEL, **more) -> Generated:
    sources = more.pop("sources", [Source(["a", ...])] * len(sequences))
    free = [[False] + [True] * (len(s) - 1) for s in sequences]
    return Generated(sequences, free, calls, 2, model=model, sources=sources, **more)


def test_parts_are_taken_until_there_are_enough():
    rows = Rows(MODEL, 3)
    taken = list(rows.take([part("ab", "ac", calls=4), part("ad", "aa", calls=2), part("a")]))
    assert len(taken) == 2 and rows.batches == 2 and rows.complete and texts(rows.drawn) == ["ab", "ac", "ad", "aa"]
    assert rows.counters["network_calls"] == 6 and rows.counters.keys() == COUNTERS.keys()
    assert list(rows.take([part("a")])) == []
    with_bounds = Rows(MODEL, 2)
    with_bounds.extend([row("ab"), row("abcd")])
    assert [r["nll_bound"] for r in with_bounds.result(3)] == [1.0, 3.0]
    assert [r["length"] for r in with_bounds.result(figures=True)] == [2, 4] and "length" not in with_bounds.result()[0]
    assert with_bounds.result() == with_bounds.rows is not with_bounds.result()


def test_figures_of_many_rows_are_computed_by_other_processes(monkeypatch):
    pools = []

    class Pool:
        def __init__(self, processes, way, initializer, initargs): pools.append((processes, way, initargs))
        def __enter__(self): return self
        def __exit__(self, *args): pass
        def map(self, call, parts): return [Output().figures(p) for p in parts]
    monkeypatch.setattr(module, "worker_pool", Pool)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 3)
    few, many = [row("ab")] * 63, [row("a" * (1 + i % 7)) for i in range(64)]
    assert with_figures(few, None) == few and [r["length"] for r in with_figures(few, MODEL.task)] == [2] * 63
    assert not pools
    assert [r["length"] for r in with_figures(many, MODEL.task)] == [1 + i % 7 for i in range(64)]
    assert [pool[:2] for pool in pools] == [(3, "fork")]
    assert with_figures(many, SimpleNamespace(output=TaskOutput())) == many
    monkeypatch.setattr(module.os, "cpu_count", lambda: None)
    assert with_figures(many, MODEL.task)[1]["length"] == 2 and len(pools) == 1


def test_rows_of_a_result():
    sources = [Source(["a", ...], "a.", dict(name="x")), Source(["a", ...], "a."), Source(["b"])]
    task = Task()
    model = SimpleNamespace(**vars(MODEL) | dict(task=task))
    found = generated([VOCABULARY.encode(t) for t in ("ab", "a", "bc")], model=model, sources=sources, salvage=True)
    assert found.texts == list(found) == ["ab", "a", "bc"] and found[1:] == ["a", "bc"]
    assert found.fillings == [["b"], [""], ["c"]]
    rows = found.rows()
    written = dict(prompt=["a", "..."], tokens=["a", "b"], generated=[0, 1])
    assert rows[0] == dict(name="x", text="ab", state="valid", length=2) | written
    assert task.told == [(2, dict(salvage=True, prompt_text="a.")), (1, dict(salvage=True))]
    assert [r["state"] for r in rows] == ["valid", "short", "valid"] and "length" not in found.rows(figures=False)[0]
    bounded = found.with_bounds(4, 3)
    assert found.with_bounds(0) is found and [r["nll_bound"] for r in bounded.rows()] == [1.0, 0.0, 1.0]
    picked = bounded.pick([2, 0])
    assert picked.texts == ["bc", "ab"] and [b["nll_bound"] for b in picked.bounds] == [1.0, 1.0]
    assert picked.network_calls == 1
    assert picked.sources == [sources[2], sources[0]] and not picked.pick([0]).trajectories
    both = Generated.merge([found, picked], MODEL)
    assert both.texts == [*found.texts, *picked.texts] and both.network_calls == 2 and len(both.sources) == 5
    assert Generated.merge([], MODEL).texts == []
    assert Generated.of(Samples([[3]], [[True]]), MODEL, routes=["r"]).routes == ["r"]


def test_rows_without_a_task_and_of_edits():
    model = SimpleNamespace(task=None, vocabulary=VOCABULARY, text=" ".join)
    bare = generated([VOCABULARY.encode("ab")], model=model, sources=())
    assert bare.rows() == [dict(text="a b", prompt=[], tokens=["a", "b"], generated=[0, 1])]
    asked = []
    edits = SimpleNamespace(describe=lambda sources,
        samples: asked.append(sources) or [dict(state="edited", text="new")])
    task = SimpleNamespace(edits=edits, output=Output())
    edited = generated([VOCABULARY.encode("ab")], model=SimpleNamespace(**vars(MODEL) | dict(task=task)), edited=True,
                       sources=[Source(["a"])])
    assert edited.rows()[0]["text"] == "new" and "length" not in edited.rows()[0] and asked[0] == [["a"]]


def test_files_of_rows(tmp_path):
    found = part("ab", "abc")
    assert found.save(tmp_path / "a.abc").read_text() == ".abc: 2"
    assert found.save(tmp_path / "a.txt").read_text() == "ab\nabc\n"
    assert found.save(tmp_path / "a.csv").read_text().splitlines()[1] == "ab,valid,2,a ...,a b,0 1"
    with pytest.raises(ValueError, match="must end in one of .jsonl"): found.save(tmp_path / "a.xyz")
    spaced = SimpleNamespace(text=" ".join, output=TaskOutput())
    for task in (None, spaced):
        with pytest.raises(ValueError, match="spaces do not fit .fasta"): check_row_file(tmp_path / "a.fasta", task)
    check_row_file(tmp_path / "a.fasta", MODEL.task)
    assert row_formats(None)[:2] == (".jsonl", ".csv") and ".abc" in row_formats(MODEL.task)
    assert ".abc" not in row_formats(None)
    with pytest.warns(UserWarning, match="a.fasta: 1 empty sequences left out"):
        assert write_rows(tmp_path / "a.fasta", [dict(text=""), dict(text="W")]).read_text() == ">sample_1\nW\n"
    with pytest.warns(UserWarning, match="2 cells begin with"):
        write_rows(tmp_path / "b.csv", [dict(text="=1", x="-z", y="-1")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_rows(tmp_path / "b.tsv", [dict(text="=1")])
        assert write_rows(tmp_path / "b.txt", [dict(text=""), dict(text="x")]).read_text() == "\nx\n"


def test_edits_that_are_accepted():
    objection = lambda r, **goals: r["bad"] * goals["much"]
    edits = SimpleNamespace(gain=lambda r: r["gain"], result=lambda r: r["text"], objection=objection)
    cases = [("a", 1, ""), ("a", 2, ""), ("b", .5, ""), ("c", None, ""), ("d", 3, "no")]
    rows = [dict(text=t, gain=g, bad=b) for t, g, b in cases]
    task, leads = SimpleNamespace(edits=edits), list("xxyyy")
    accept = lambda known=None, **request: accepted_edits(rows, leads, EditRequest(**request), task, known)
    assert accept() == [0, 1, 2, 3, 4] and accept(gain=1) == [0, 1, 4] and accept(gain=1, unique=True) == [0, 4]
    assert accept(options=dict(much=1)) == [0, 1, 2, 3] and accept(options=dict(much=0)) == [0, 1, 2, 3, 4]
    known = {("x", "a")}
    assert accept(known, unique=True) == [2, 3, 4] and known == {("x", "a"), ("y", "b"), ("y", "c"), ("y", "d")}


def test_how_many_sequences_a_request_draws():
    assert SampleRequest(n=5).draws == 5 and SampleRequest().draws == 1 and SampleRequest(valid=3, tries=7).draws == 7
    assert SampleRequest(valid=3).draws == 300 and SampleRequest(n=3, unique=True).draws == 60
    with pytest.raises(ValueError, match="n=2: not with valid=3"): SampleRequest(n=2, valid=3)
    once, often = SimpleNamespace(distinct=True), SimpleNamespace(distinct=False)
    assert SampleRequest(n=4).decide([once, often]) == SampleRequest(n=4, unique=False)
    assert SampleRequest(n=4).decide([once, once]) == SampleRequest(n=4, unique=True, tries=80, batch_size=8)
    assert SampleRequest(valid=20).decide([often]) == SampleRequest(valid=20, unique=False, tries=2000, batch_size=40)
    assert SampleRequest(valid=2, batch_size=9).decide([once]).batch_size == 9
    assert SampleRequest(valid=2).decide([once]).batch_size == 32
    with pytest.raises(ValueError, match="tries=3: only with valid or unique"): SampleRequest(n=2,
        tries=3).decide([often])


def test_a_prompt_keeps_its_text_while_its_tokens_are_the_same():
    prompt = TextPrompt(["a", ...], "a.")
    assert prompt == ["a", ...] and prompt.text == "a."
    prompt.append("b")
    assert prompt.text is None
    prompt.pop()
    assert prompt.text == "a."
