"One request: the shell, Python, the app and its API give equal rows, and every setting is an option."
import json
from dataclasses import fields

import pytest

from loflexmdm.cli.answers import Answers
from loflexmdm.cli.commands import full_parser
from loflexmdm.models.pretrained import load
from loflexmdm.models.requests import EditRequest, SampleRequest
from loflexmdm.support.registries import TASKS
from commands import call, refused

REQUESTS = [
    ("molecules-moses-ar", None, dict(n=3)),
    ("molecules-moses-ar", "*c1ccncc1", dict(valid=3, unique=True, seed=1)),
    ("molecules-moses-ar", "*c1ccncc1.*N1CCOCC1", dict(n=3, seed=2)),
    ("molecules-leads", "*c1ccncc1", dict(n=6, temperature=0.2, seed=2)),
    ("molecules-leads", "*c1ccncc1", dict(n=6, temperature=0.2, unique=False, seed=2)),
    ("molecules-moses-ar", "c1ccc2[nH]ccc2c1", dict(n=4, seed=3, top_p=0.9)),
    ("molecules-leads", "*CCc1cccc(C*)c1", dict(n=3, close=True, ring_size="12-16")),
    ("molecules-leads", "*c1ccccc1", dict(valid=2, tries=40, temperature=0.8)),
    ("molecules-leads", "CC(=O)N...c1ccccc1", dict(n=3, max_length=40)),
    ("molecules-moses-ar", None, dict(n=3, rule="contains:F & valid", seed=4)),
    ("molecules-leads", "CC(=O)N...{4,6}c1ccccc1", dict(n=2, rule="excludes:S", max_length=40)),
    ("star-tiny", None, dict(n=3, sampler="tau", steps=8)),
    ("star-tiny", None, dict(n=3, nll=4, seed=5)),
    ("star-medium-ordered", "4 1  12 4  0 5  1 9  4 7  3 4  7 19  4 0  9 2    3 5", dict(n=2, nll=4)),
]


def line_of(model, prompt, settings):
    "The words of the command line of a request."
    flags = {"n": "-n"}
    words = ["sample", model] + ([] if prompt is None else ["--prompt-text", prompt])
    for name, value in settings.items():
        words.append(flags.get(name, "--" + name.replace("_", "-")))
        if value is False: words[-1] = words[-1].replace("--", "--no-", 1)
        elif value is not True: words.append(str(value))
    return words


@pytest.mark.slow
@pytest.mark.parametrize("model, prompt, settings", REQUESTS)
def test_shell_python_and_app_give_equal_rows(model, prompt, settings, tmp_path):
    settings = dict(seed=0, nll=0) | settings
    code, _, said = call(*line_of(model, prompt, settings), "--no-picture", "--out", tmp_path / "s.jsonl")
    assert code == 0, said
    shell = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert shell == load(model).sample(prompt, **settings).rows()
    *_, app = Answers([model]).sample(model, prompt, **settings)
    plain = [{k: v for k, v in row.items() if not isinstance(v, list)} for row in shell]
    assert app.rows == [dict(input=0, **row) for row in plain]


@pytest.mark.slow
def test_what_is_drawn_of_fragments_differs_in_the_order_first_seen():
    model, cold, pair = load("molecules-leads"), dict(seed=2, temperature=0.5), ["*c1ccncc1.*N1CCOCC1", "*c1ccncc1"]
    once, every = ([row["smiles"] or row["text"] for row in model.sample(pair[0], n=n, unique=u, **cold).rows()]
                   for n, u in ((6, None), (40, False)))
    assert once == [*dict.fromkeys(every)][:6] and len({*every[:6]}) < 6
    several = model.sample([*pair, pair[0]], n=3, **cold).rows()
    assert [row["prompt_text"] for row in several] == [pair[0]] * 6 + [pair[1]] * 3
    assert len({row["smiles"] or row["text"] for row in several}) == 9
    with pytest.warns(UserWarning, match="only . of 6 different sequences in 6 draws"):
        assert len(model.sample(pair[0], n=6, tries=6, **cold)) < 6


@pytest.mark.parametrize("command, cls, model", [
    ("sample", SampleRequest, "molecules-leads"), ("edit", EditRequest, "lead-edits"),
])
def test_every_setting_is_an_option(command, cls, model):
    parser = full_parser([command, model])[1].choices[command]
    found = {a.dest.partition(".")[2] for a in parser._actions if a.dest.startswith("request.")}
    task = load(model).task
    further = task.prompt_options if command == "sample" else task.edits.goals
    assert found == ({f.name for f in fields(cls)} - set(cls.hidden)) | {f.name for f in fields(further)}


def test_options_of_a_task_are_no_settings_of_requests_or_samplers():
    own = {f.name for f in fields(SampleRequest)} | {f.name for f in fields(EditRequest)}
    for cls in TASKS.usable().values():
        for further in (cls.prompt_options, cls.edits.goals):
            assert further is None or not own & {f.name for f in fields(further)}


def test_an_option_of_another_task_is_refused():
    refused(call("sample star-tiny --close"), "unknown argument --close")
    with pytest.raises(ValueError, match="close=True: unknown setting"): load("star-tiny").sample(close=True)


@pytest.mark.parametrize("model, words, message", [
    ("molecules-moses-ar", ["--rule", "contains:F & excludes:F"], "rule: no sequence satisfies it"),
    ("molecules-moses-ar", ["--rule", "contians:F"], "did you mean 'contains'"),
    ("molecules-moses-ar", ["--rule", "regex:((C{50}){50}){50}"], "states of a rule or more"),
])
def test_bad_rules_are_refused_in_a_line(model, words, message):
    refused(call("sample", model, "-n", 2, *words), message)


@pytest.mark.parametrize("settings, message", [
    (dict(ring_size="12"), "ring_size='12': only with close"), (dict(close=True), "close=True: is for a fragment"),
    (dict(salts="largest"), "salts='largest': is for a fragment"),
])
def test_options_that_need_a_fragment(settings, message):
    with pytest.raises(ValueError, match=message): load("molecules-leads").sample(n=1, **settings)


def test_texts_are_taken_wherever_sample_takes_them():
    model, repair = load("molecules-leads"), load("repair-text")
    fillings = model.score_fillings("CC(=O)N...c1ccccc1", ["CC", "C"], states=4)
    tokens = model.score_fillings([*"CC(=O)N", ..., *"c1ccccc1"], [[["C", "C"]], [["C"]]], states=4)
    assert fillings.nats.tolist() == tokens.nats.tolist()
    text = repair.edit("retrun the numebr", seed=0, n=2)
    tokens = repair.edit([repair.task.edits.source("retrun the numebr")] * 2, seed=0)
    assert text.texts == tokens.texts and len(text.rows()) == 2 and {"state", "edits"} <= text.rows()[0].keys()


def test_equal_edits_are_kept_once():
    model = load("lead-edits")
    every, once = (model.edit("CCOc1ccccc1", n=12, seed=0, unique=unique).rows() for unique in (False, True))
    result = model.task.edits.result
    assert len(every) == 12 and list(map(result, once)) == list(dict.fromkeys(map(result, every)))
