"A model as a pipeline of diffusers, where that package is installed."
import pytest
import torch

from loflexmdm.models.diffusers_pipeline import diffusion_pipeline, pipeline_class
from loflexmdm.models.pretrained import load
from loflexmdm.samplers import TauLeaping
from loflexmdm.support.saved_files import names
from stored_models import stored

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")


def seeded(): return torch.Generator().manual_seed(3)


def test_the_pipeline_draws_what_the_sampler_draws():
    model, seen = load(stored("star-tiny-fixed")), []
    pipe = diffusion_pipeline(model, num_inference_steps=4)
    pipe.set_progress_bar_config(disable=True)
    assert isinstance(pipe, diffusers.DiffusionPipeline) and isinstance(pipe.scheduler, diffusers.SchedulerMixin)
    prompts = model.prompts("test", 3)
    out = pipe(prompts, 2, 8, seeded(), callback_on_step_end=lambda pipe, i, tau, kept: seen.append(float(tau)))
    expected = model.sample(prompts, n=2, sampler=TauLeaping(steps=8), generator=seeded())
    assert out.sequences.sequences == expected.sequences and out.texts == expected.texts
    assert len(seen) == 8 and seen == sorted(seen)
    assert pipe(prompts, 2, 8, seeded(), return_dict=False)[1] == out.texts


def test_prompts_may_be_texts_and_the_pipeline_moves_to_a_device():
    model = load(stored("star-tiny-fixed"))
    pipe = diffusion_pipeline(model, num_inference_steps=4).to("cpu")
    pipe.set_progress_bar_config(disable=True)
    tokens = model.prompts("test", 2)
    texts = [" ".join(t for t in prompt if t is not ...) for prompt in tokens]
    assert pipe(texts, 2, 8, seeded()).texts == pipe(tokens, 2, 8, seeded()).texts
    assert pipe(texts[0], 2, 8, seeded()).texts == pipe(tokens[:1], 2, 8, seeded()).texts


def test_settings_of_the_scheduler_are_saved(tmp_path):
    pipe = diffusion_pipeline(load(stored("star-tiny-fixed")), num_inference_steps=6, top_p=0.9)
    pipe.scheduler.save_pretrained(tmp_path)
    again = type(pipe.scheduler).from_pretrained(tmp_path)
    assert again.config.top_p == 0.9 and again.sampler == TauLeaping(steps=6, top_p=0.9)


def test_wrong_settings_are_refused():
    model = load(stored("star-tiny-fixed"))
    with pytest.raises(ValueError, match="steps=1"): diffusion_pipeline(model, num_inference_steps=1)


def test_methods_that_steps_cannot_simulate_are_refused_by_name():
    "Every packaged model is a pipeline, or its method is named with those that fit."
    for name in names():
        model = load(name)
        if TauLeaping.fits(model.method.channels):
            diffusion_pipeline(model)
            continue
        with pytest.raises(ValueError, match=f"model: {model.method.name} has events of .* a model of .*flexmdm"):
            diffusion_pipeline(model)
        with pytest.raises(ValueError, match=model.method.name): pipeline_class().from_pretrained(name)


@pytest.mark.parametrize("name", ["star-tiny", "molecules", "key-adder"])
def test_a_saved_pipeline_draws_the_same(name, tmp_path):
    pipe = diffusion_pipeline(load(name), num_inference_steps=4, top_p=0.9)
    pipe.save_pretrained(tmp_path / "p")
    again = type(pipe).from_pretrained(tmp_path / "p")
    assert again.scheduler.config.top_p == 0.9
    prompts = None if name == "molecules" else load(name).prompts("test", 2)
    drawn = [p(prompts, 2, generator=seeded()).texts for p in (pipe, again)]
    assert drawn[0] == drawn[1]


def test_no_steps_are_refused():
    pipe = diffusion_pipeline(load("star-tiny"))
    with pytest.raises(ValueError, match="steps"): pipe(num_samples=1, num_inference_steps=0)
