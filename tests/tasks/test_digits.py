"Images of digits as sequences, and how samples of them are judged."
import sys
from pathlib import Path

import pytest
import torch

from loflexmdm.process.states import ANY
from loflexmdm.samplers import Samples

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from digits_task import DigitsConfig, DigitsTask, bits_per_dimension, checked_images  # noqa: E402

pytest.importorskip("sklearn", reason="the digits need scikit-learn")


@pytest.fixture(scope="module")
def task(): return DigitsTask()


def test_an_image_comes_back_from_its_sequence(task):
    data = task.dataset("valid")
    assert len(data) == 100
    for i, row in enumerate(task.split["valid"][:20]):
        example = data[i]
        assert torch.equal(task.image_of(example.tokens[1:]), task.images.levels[row])
        assert example.fixed[:2] == [True, True] and not any(example.fixed[2:]) and len(example.tokens) == 66
        assert task.vocabulary.tokens[example.tokens[1]] == f"<digit:{int(task.images.classes[row])}>"


def test_splits_are_apart_and_follow_the_seed(task):
    rows = [i for split in task.split.values() for i in split]
    assert sorted(rows) == list(range(1797))
    assert DigitsTask(DigitsConfig(seed=1)).split != task.split == DigitsTask().split
    with pytest.raises(ValueError, match="valid_size [+] test_size = 1797"):
        DigitsTask(DigitsConfig(valid_size=1000, test_size=797)).dataset("train")


def test_scores(task):
    data = task.dataset("test")
    ids = [data[i].tokens[1:] for i in range(4)]
    other = (int(task.images.classes[task.split["test"][3]]) + 1) % 10
    wrong = [task.vocabulary.index[f"<digit:{other}>"], *ids[3][1:]]
    unknown, cut = [task.vocabulary.index[ANY], *ids[0][1:]], ids[1][:-1]
    made = Samples([ids[0], cut, wrong, unknown], [[True] * 65] * 4)
    assert task.score("test", made) == dict(complete=0.75, asked=pytest.approx(1 / 3))
    with pytest.raises(ValueError, match="none to score"): task.score("test", Samples([], []))


def test_prompts(task):
    assert task.prompt("7") == ["<digit:7>"] and task.prompt("any") == [ANY]
    assert len(task.prompts("test", 300)) == 300
    for text in ("10", "x", ""):
        with pytest.raises(ValueError, match="must be 0 to 9, or any"): task.prompt(text)


@pytest.mark.parametrize(
    "levels, classes, message",
    [
        (torch.zeros(2, 49), torch.zeros(2), "must be 8 x 8"), (torch.zeros(2, 8, 8), torch.zeros(2), "must be 8 x 8"),
        (torch.full((1, 64), 17.0), torch.zeros(1), "level 17.0: must be a whole number in 0..16"),
        (torch.full((1, 64), -1.0), torch.zeros(1), "level -1.0"),
        (torch.full((1, 64), 0.5), torch.zeros(1), "level 0.5"),
        (torch.zeros(1, 64), torch.tensor([10]), "class 10: must be a whole number in 0..9"),
        (torch.zeros(2, 64), torch.zeros(1), "1 classes for 2 images"),
    ],
)
def test_other_images_are_refused(levels, classes, message):
    with pytest.raises(ValueError, match=message): checked_images(levels, classes)


def test_bits():
    assert bits_per_dimension(64 * 0.6931471805599453) == pytest.approx(1.0)
