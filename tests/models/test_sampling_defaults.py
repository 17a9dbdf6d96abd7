"Default settings of samplers: of a model, and the same at the command line and in Python."
import csv
import json

import pytest

from loflexmdm.models.pretrained import load
from loflexmdm.samplers.choose import settings_of
from loflexmdm.support.saved_files import names
from loflexmdm.support.registries import TASKS
from commands import call

SENTENCE = "sampling defaults of this model: "


EDITED = {
    "lead-edits": ("Cc1ccccc1OCC", "CC(C)Nc1ccccc1"),
    "repair-text": ("the cat", "a dog"),
}


def check_line(model, said):
    "The command prints the defaults of a model that has some, and nothing for others."
    assert (SENTENCE in said) == bool(model.sampling)
    for key, value in model.sampling.items(): assert f"--{key.replace('_', '-')} {value}" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(names()) - set(EDITED)))
def test_the_command_draws_what_python_draws(name, tmp_path):
    model, path = load(name), tmp_path / "s.jsonl"
    code, _, said = call(f"sample {name} -n 4 --seed 3 --nll 0 --no-picture --out {path}")
    assert code == 0, said
    samples = model.sample(n=4, seed=3)
    written = [row["tokens"] for row in map(json.loads, path.read_text().splitlines())]
    assert written == [model.vocabulary.decode(s) for s in samples.sequences]
    check_line(model, said)


@pytest.mark.parametrize("name", EDITED)
def test_the_command_edits_as_python_does(name, tmp_path):
    model, texts, path = load(name), EDITED[name], tmp_path / "out.csv"
    (tmp_path / "in.csv").write_text("text\n" + "\n".join(texts) + "\n")
    code, _, said = call(f"edit {name} --input {tmp_path / 'in.csv'} --seed 3 -n 1 --out {path}")
    assert code == 0, said
    samples = model.edit([model.task.edits.source(t) for t in texts], seed=3)
    made = [model.task.text(model.vocabulary.decode(s)) for s in samples.sequences]
    if "edits" in name: made = [smiles or "" for smiles in samples.smiles]
    written = [row["smiles" if "edits" in name else "text"] for row in csv.DictReader(open(path))]
    assert written == made
    check_line(model, said)


def test_settings_belong_to_models_and_not_to_tasks():
    assert not [name for name in TASKS.names() if hasattr(TASKS[name], "sampling")]
    for name in names():
        model = load(name)
        assert set(model.sampling) <= set(settings_of(type(model.method.default_sampler)))
        assert model.sampling == {} or name in ("molecules", "lead-edits")


@pytest.mark.slow
def test_settings_on_the_command_line_replace_those_of_the_model(tmp_path):
    code, _, said = call("sample molecules -n 2 --top-p 1 --out", tmp_path / "m.jsonl", "--nll", 0)
    assert code == 0 and SENTENCE + "--confidence top_prob\n" in said
    assert "top_p=1.0, confidence='top_prob'" in (tmp_path / "m.jsonl.run.json").read_text()
    code, _, said = call("sample molecules -n 2 --sampler tau --steps 4 --nll 0 --force --out", tmp_path / "m.jsonl")
    assert code == 0 and "--top-p 0.7, --confidence top_prob" in said
    sampler = load("molecules").method.sampler("tau", steps=4)
    assert repr(sampler) == json.loads((tmp_path / "m.jsonl.run.json").read_text())["sampler"]


@pytest.mark.slow
def test_the_card_and_info_name_them():
    _, out, _ = call("info molecules")
    assert '[sampling]\ntop_p = 0.7\nconfidence = "top_prob"' in out
    for name in names():
        card = call(f"info {name}")[1]
        for key, value in load(name).sampling.items(): assert f'`{key} = {json.dumps(value)}`' in card


def test_damaged_settings_are_refused(tmp_path):
    model = load("star-tiny")
    for wrong in (dict(steps=4), dict(top_p=2.0), dict(nonsense=1), [1]):
        with pytest.raises(ValueError, match="sampling|steps|top_p|nonsense"): model.sampling = wrong
    assert model.sampling == {}
