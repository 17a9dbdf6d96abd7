"What every sampler, task, network and notation does, whatever it is: each registered one, plug-ins included."
import pickle

import pytest
import torch
from registered import ALL_NETWORKS, ALL_SAMPLERS, ALL_TASKS, FIRST, SECONDS, SIMULATED, VOCABULARY, WRONG, Hook, build
from registered import clean, draw, made, registered, sampler_named, spoilt, with_hook, within

from loflexmdm.molecules.notation.notations import NOTATIONS
from loflexmdm.networks.base import Backbone, blocks_alike
from loflexmdm.networks.build import check_backbone
from loflexmdm.process.states import SPECIAL_TOKENS, collate
from loflexmdm.samplers import Samples
from loflexmdm.tasks.base import SPLITS, check_prompts, task_from


@pytest.fixture(autouse=True)
def plug_ins(monkeypatch): registered(monkeypatch)


# Samplers

every_pair = pytest.mark.parametrize("name, case", SIMULATED)


def test_every_sampler_fits_a_method_and_every_method_has_a_sampler():
    assert {name for name, _ in SIMULATED} == set(ALL_SAMPLERS) and {case for _, case in SIMULATED} == set(FIRST)


@every_pair
def test_a_sampler_keeps_seeds_and_lengths(name, case):
    method, sampler = build(case).double(), sampler_named(name)
    assert pickle.loads(pickle.dumps(sampler)) == sampler
    whole = draw(method, [["a"], ["b", "c"]], 3, sampler=sampler, seed=1, max_length=6)
    parts = draw(method, [["a"], ["b", "c"]], 3, sampler=sampler, seed=1, max_length=6, batch_size=2)
    assert whole.sequences == parts.sequences and whole.free == parts.free
    assert all(2 <= len(tokens) + 1 <= 6 for tokens in whole.sequences)
    assert {t for tokens in whole.sequences for t in tokens} <= set(VOCABULARY.encode(VOCABULARY.ordinary))


@every_pair
def test_a_sampler_refuses_what_is_not_a_number(name, case):
    with within(SECONDS), pytest.raises(ValueError) as refused:
        made(spoilt(case, lambda p: torch.full_like(p, torch.nan)), 3, sampler=sampler_named(name), seed=0)
    assert len(str(refused.value).splitlines()) == 1


HOOKED = [(name, case) for name, case in SIMULATED if getattr(ALL_SAMPLERS[name], "hooked", True)]


@pytest.mark.parametrize("name, case", HOOKED)
def test_hooks_that_return_something_else_are_refused(name, case):
    method = build(case)
    for wrong, change in WRONG.items():
        for of in ("gaps",), ("tokens",):
            sampler = with_hook(sampler_named(name), Hook(change, of))
            with within(SECONDS), pytest.raises(ValueError) as refused:
                draw(method, [["a"]], 8, sampler=sampler, seed=0, min_length=min(3, 8 * ("place" in method.channels)))
            assert len(str(refused.value).splitlines()) == 1, wrong


@pytest.mark.parametrize("name, case", HOOKED)
def test_no_hook_writes_a_special_token(name, case):
    def special(v):
        raised = v.clone()
        raised[..., :len(SPECIAL_TOKENS)] = 50.0
        return raised
    sampler = with_hook(sampler_named(name), Hook(special, ("tokens",)))
    samples = draw(build(case), [["a"]], 8, sampler=sampler, seed=0)
    assert not {t for tokens in samples.sequences for t in tokens} & set(range(len(SPECIAL_TOKENS)))


# Tasks

@pytest.fixture(params=ALL_TASKS)
def task(request, tmp_path):
    "A task with its defaults; one that needs a file is given one."
    made = ALL_TASKS[request.param]()
    try: assert made.vocabulary
    except ValueError:
        (tmp_path / "data.txt").write_text("\n".join(f"{i} {k}" for i in range(20) for k in range(20)))
        made = type(made)(made.Config(file=str(tmp_path / "data.txt")))
    return made


def test_a_task_is_made_again_from_its_settings(task):
    again = task_from(task.as_dict())
    assert again.as_dict() == task.as_dict() and again.vocabulary == task.vocabulary
    assert again.max_length == task.max_length and pickle.loads(pickle.dumps(task)).as_dict() == task.as_dict()


def test_a_task_gives_examples_and_scores_them(task):
    check_prompts(task)
    for split in SPLITS:
        data = task.dataset(split)
        examples = [data[i] for i in range(4)]
        targets = [getattr(example, "target", example) for example in examples]
        assert all(len(e.tokens) <= task.max_length for e in targets) and collate(examples)
        samples = Samples([e.tokens[1:] for e in targets], [[not f for f in e.fixed[1:]] for e in targets])
        assert all(isinstance(value, int | float) for value in task.score(split, samples).values())
    with pytest.raises(ValueError): task.dataset("other")


def test_a_task_scores_no_samples_as_an_error(task):
    for split in SPLITS:
        with pytest.raises(ValueError, match="^samples: none to score$"): task.score(split, Samples([], []))
    with pytest.raises(ValueError, match="none to score"): task.score(samples=Samples([], []), split="test")


# Networks

@pytest.mark.parametrize("name", ALL_NETWORKS)
def test_a_network_is_a_backbone(name):
    cls = ALL_NETWORKS[name]
    net = cls.from_config(8, "nano", getattr(cls, "first_options", ""))
    assert isinstance(net, Backbone) and check_backbone(net, name) is net
    assert all(isinstance(block, torch.nn.Module) for block in blocks_alike(net))
    x, cond = clean("a|bc", "a|"), torch.zeros(2, net.cond)
    with torch.no_grad(): expected, again = net.eval()(x, cond), pickle.loads(pickle.dumps(net))(x, cond)
    assert expected.shape == (*x.tokens.shape, net.width) and torch.equal(expected[x.valid], again[x.valid])


# Notations

@pytest.mark.parametrize("name", NOTATIONS)
def test_a_notation_reads_what_it_writes(name):
    notation = NOTATIONS[name]
    for smiles in "CCO", "c1ccccc1CN", "CC(=O)Oc1ccccc1C(=O)O":
        text = notation.write(smiles)
        assert "".join(notation.tokens(text)) == text and notation.read(text)
    with pytest.raises(ValueError): notation.tokens("CC O\n")
