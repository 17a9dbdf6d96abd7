"A model: its method and task, settings of the sampler, scores, and names of the release before."

import pytest
import torch

import loflexmdm
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.models.model import Model
from loflexmdm.models.pretrained import load
from loflexmdm.models.trained_for import trained_for
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.samplers import TauLeaping
from loflexmdm.tasks.brackets import BracketsTask


def bare(vocabulary=None) -> LoFlexMDM:
    torch.manual_seed(0)
    config = LoFlexMDMConfig(order="fixed", size="nano", states=1, max_length=9)
    return LoFlexMDM(vocabulary or Vocabulary("()[]"), config).eval()


@pytest.mark.parametrize("name, text", [
    ("molecules-leads", "Oc1ccccc1"), ("molecules-moses-ar", "CCO"), ("star-tiny", "4 1 1 7"),
])
def test_a_text_has_the_bound_of_its_tokens(name, text):
    model = loflexmdm.load(name)
    tokens = model.task.sequence(text)
    x1 = collate([prefix_example([], tokens, model.vocabulary)])
    expected = model.method.nll_bound(x1, 8, torch.Generator().manual_seed(0))
    torch.testing.assert_close(tuple(model.score(text, states=8)), expected, rtol=0, atol=0)
    torch.testing.assert_close(tuple(model.score([tokens], states=8)), expected, rtol=0, atol=0)


def test_the_settings_of_a_sampler_are_those_of_its_constructor():
    model = Model(bare(BracketsTask().vocabulary), BracketsTask())
    wanted = generate(model.method, n=5, seed=1, sampler=TauLeaping(steps=6, temperature=0.5, top_p=0.9)).sequences
    for sampler in ("tau", TauLeaping(), TauLeaping(steps=99)):
        drawn = model.sample(n=5, seed=1, sampler=sampler, steps=6, temperature=0.5, top_p=0.9)
        assert drawn.sequences == wanted and drawn.texts == list(map(drawn.__getitem__, range(5)))
    parts = model.sample_batches(n=5, seed=1, batch_size=2, sampler="tau", steps=6, temperature=0.5, top_p=0.9)
    assert [s for part in parts for s in part.sequences] == wanted


@pytest.mark.parametrize("settings, message", [
    (dict(tempreature=0.5), "tempreature=0.5: unknown setting .did you mean 'temperature'"),
    (dict(steps=4), "steps=4: only with sampler tau, not event"), (dict(sampler="taw"), "did you mean 'tau'"),
    (dict(sampler="ancestral"), "is for masked diffusion"), (dict(top_p=0.0), "top_p=0.0"), (dict(n=0), "n=0"),
    (dict(sampler=3), "sampler=3"), (dict(confidence="nonsense"), "confidence='nonsense'"),
])
def test_what_is_refused(settings, message):
    with pytest.raises(ValueError, match=message): Model(bare()).sample(**dict(n=1) | settings)


def test_every_sequence_has_its_score_or_its_reason():
    scores = Model(bare()).score([["("], ["("] * 9, ["x"]], states=4)
    assert scores.nats.isfinite().tolist() == [True, False, False] and not scores.reasons[0]
    assert scores.reasons[1] == "9 tokens; the model has 8" and "'x' is outside the vocabulary" in scores.reasons[2]


def test_texts_need_a_task():
    model = Model(bare())
    for call in (lambda: model.prompt("("), lambda: model.score("()"), lambda: model.sample("()")):
        with pytest.raises(ValueError): call()


def test_from_pretrained_takes_owner_and_name_of_the_hub_and_folders(monkeypatch, tmp_path):
    "A folder fetched from the hub is a directory with a card; owner/name without one is fetched."
    asked = []
    def from_hub(*arguments): asked.append(arguments)
    monkeypatch.setattr("loflexmdm.models.pretrained.from_hub", from_hub)
    Model.from_pretrained("owner/some.name")
    assert asked == [("owner/some.name", "cpu", None)]
    folder = Model.from_pretrained("star-tiny").save_pretrained(tmp_path / "owner" / "name")
    (folder / "README.md").write_text("---\nlibrary_name: loflexmdm\n---\n# A card\n")
    monkeypatch.chdir(tmp_path)
    assert Model.from_pretrained("owner/name").sample(n=2, seed=0).texts == load("star-tiny").sample(n=2, seed=0).texts
    assert len(asked) == 1


def test_no_connection_is_one_line(monkeypatch):
    "Fetching and uploading, where the client raises what it raises without a network."
    hub = pytest.importorskip("huggingface_hub")
    from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
    errors = HTTPError("no route\nto host"), LocalEntryNotFoundError("nothing stored"), OfflineModeIsEnabled("off")
    for error in errors:
        def fails(*arguments, error=error, **options): raise error
        monkeypatch.setattr(hub, "snapshot_download", fails)
        monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi.create_repo", fails)
        for call in (lambda: load("hf://owner/name"), lambda: load("star-tiny").push("owner/name", token="t")):
            with pytest.raises(ValueError, match="owner/name: the hub refused, or was not reached; check") as told:
                call()
            assert "\n" not in str(told.value)



@pytest.mark.parametrize("name", ["star-tiny", "molecules-leads", "lead-edits"])
def test_a_model_is_saved_and_loaded_by_the_names_of_the_hub(name, tmp_path):
    model = Model.from_pretrained(name)
    again = Model.from_pretrained(model.save_pretrained(tmp_path / "m"))
    draw = lambda m: m.edit("CC(=O)Nc1ccccc1", n=2, seed=1) if name == "lead-edits" else m.sample(n=2, seed=1)
    assert draw(again).texts == draw(model).texts


def test_notes_say_what_no_training_sequence_was_like():
    model = Model(bare(BracketsTask().vocabulary), BracketsTask())
    assert model.sample([["("]], seed=0).notes == []  # saved without a statement
    data = BracketsTask().dataset("train")
    model.method.trained_for = trained_for([data[i] for i in range(20)], model.vocabulary)
    notes = model.sample([["(", ..., ")", ...]], seed=0).notes
    assert any("2 gaps" in note for note in notes) and not model.sample([[]], n=2, seed=0).notes


def test_a_prompt_that_is_too_long_is_refused_before_others_are_prepared(monkeypatch):
    model, prepared, prepare = Model(bare(BracketsTask().vocabulary), BracketsTask()), [], Model.prompt_for
    monkeypatch.setattr(Model, "prompt_for", lambda self, p, *rest: prepared.append(p) or prepare(self, p, *rest))
    given = [["("], ["(", "["], ["["]]
    with pytest.raises(ValueError, match="max_length is 9"): model.sample([*given, ["("] * 30, ["("]], n=1)
    assert prepared == [["("] * 30]
    assert [list(source.tokens) for source in model.sample(given, n=1, seed=0).sources] == given
