"""The 8 x 8 images of scikit-learn as sequences of 64 levels, with the class as a condition: a task, `kind = "digits"`.

Scripts that import this module can train on it. The images are from the UCI repository (Optical Recognition of
Handwritten Digits, CC BY 4.0); 1,797 of them, and scikit-learn brings them (`pip install scikit-learn`)."""
import math
import random
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from loflexmdm.process.states import ANY, Vocabulary, prefix_example
from loflexmdm.samplers import Samples
from loflexmdm.support.configs import Count, Natural, config
from loflexmdm.tasks.base import Examples, Task, check_split

SIDE = 8  # rows, and pixels per row
LEVELS = 17  # grey levels
CLASSES = 10
_NEEDED = "the digits need the package scikit-learn: pip install scikit-learn"


class Images(NamedTuple):
    "Images and their classes."
    levels: Int[Tensor, "images pixels"]  # 0 to 16, row by row
    classes: Int[Tensor, " images"]  # 0 to 9


def checked_images(levels: Float[Tensor, "images pixels"], classes: Int[Tensor, " images"]) -> Images:
    """Check images and classes; return them as integers. ValueError for images of another size, levels outside 0 to
    16, or other classes."""
    if levels.dim() != 2 or levels.shape[1] != SIDE**2:
        raise ValueError(f"images of shape {tuple(levels.shape[1:])}: must be {SIDE} x {SIDE}, as {SIDE**2} levels")
    if len(classes) != len(levels):
        raise ValueError(f"{len(classes)} classes for {len(levels)} images")
    _check_range("level", levels, LEVELS - 1)
    _check_range("class", classes, CLASSES - 1)
    return Images(levels.long(), classes.long())


def _check_range(name: str, values: Float[Tensor, "..."], top: int):
    "Check that all values are integers from 0 to `top`. ValueError otherwise."
    wrong = (values != values.long()) | (values < 0) | (values > top)
    if bool(wrong.any()):
        raise ValueError(f"{name} {values[wrong][0].item()}: must be a whole number in 0..{top}")


def load_images() -> Images:
    "Load the 1,797 images of scikit-learn. ImportError without that package."
    try: from sklearn.datasets import load_digits
    except ImportError: raise ImportError(_NEEDED) from None
    found = load_digits()
    return checked_images(torch.as_tensor(found.data), torch.as_tensor(found.target))


@config
class DigitsConfig:
    "Settings of the splits."
    valid_size: Count = 100  # images for validation
    test_size: Count = 297  # images for testing; the rest is for training
    seed: Natural = 42  # seed of the split


class DigitsTask(Task):
    "8 x 8 images of digits as 64 levels, conditioned on a class such as <digit:3>."
    kind, Config = "digits", DigitsConfig
    vocabulary = Vocabulary([*map(str, range(LEVELS)), *(f"<digit:{c}>" for c in range(CLASSES)), ANY])
    max_length = 2 + SIDE**2
    prompt_help = ("DIGIT", "digit to draw, 0 to 9, or any")

    @cached_property
    def images(self) -> Images:
        "All images. ImportError without scikit-learn."
        return load_images()

    @cached_property
    def split(self) -> dict[str, list[int]]:
        "Image indices of each split. ValueError if none is left for training."
        n = len(self.images.levels)
        valid = self.config.valid_size
        held = valid + self.config.test_size
        if held >= n:
            raise ValueError(f"valid_size + test_size = {held}: must be below {n}, the number of images")

        order = random.Random(f"{self.config.seed} digits").sample(range(n), n)
        return dict(valid=order[:valid], test=order[valid:held], train=order[held:])

    def dataset(self, split: str = "train") -> Examples:
        "Return the images of a split as examples, with the class given."
        rows = self.split[check_split(split)]
        levels = self.images.levels[rows].tolist()
        classes = self.images.classes[rows].tolist()
        image = lambda i: list(map(str, levels[i]))
        return Examples(len(rows), lambda i: prefix_example([f"<digit:{classes[i]}>"], image(i), self.vocabulary))

    def prompts(self, split: str = "test", n: int = 8) -> list[list[str]]:
        "Return the classes of a split's first `n` images, cyclically."
        rows = self.split[check_split(split)]
        classes = self.images.classes[rows].tolist()
        return [[f"<digit:{classes[i % len(rows)]}>"] for i in range(n)]

    def prompt(self, text: str) -> list[str]:
        "Parse a digit, or any. ValueError for anything else."
        if text == "any": return [ANY]
        if text not in map(str, range(CLASSES)):
            raise ValueError(f"prompt {text!r}: must be 0 to {CLASSES - 1}, or any")
        return [f"<digit:{text}>"]

    def image_of(self, sequence: Sequence[int]) -> Int[Tensor, " pixels"] | None:
        "Return the levels of a generated sequence (ids without start token). None if it is not a complete image."
        words = self.vocabulary.decode(sequence)[1:]
        whole = len(words) == SIDE**2 and all(w.isdigit() for w in words)
        return torch.tensor(list(map(int, words))) if whole else None

    def nearest_class(self, levels: Int[Tensor, "images pixels"]) -> Int[Tensor, " images"]:
        "Return the class of the nearest training image, in squared distance."
        rows = self.split["train"]
        apart = torch.cdist(levels.double(), self.images.levels[rows].double())
        return self.images.classes[rows][apart.argmin(-1)]

    def score(self, split: str, samples: Samples) -> dict[str, float]:
        """Compute complete and asked (fractions). complete: samples that are complete images; asked: conditioned
        samples whose nearest training image has the requested class. ValueError if there are none."""
        images = [self.image_of(s) for s in samples.sequences]
        complete = sum(image is not None for image in images)

        # <any> requests no class: such samples are excluded
        first = [self.vocabulary.tokens[s[0]] for s in samples.sequences]
        classes = [int(t[7:-1]) if t.startswith("<digit:") else None for t in first]
        asked = [(image, c) for image, c in zip(images, classes, strict=True) if c is not None]
        return dict(complete=complete / len(images), asked=self._of_class(asked) / max(len(asked), 1))

    def _of_class(self, asked: Sequence[tuple[Tensor | None, int]]) -> int:
        "Count complete images that are nearest to their class."
        whole = [(image, c) for image, c in asked if image is not None]
        if not whole: return 0
        images, classes = zip(*whole)
        nearest = self.nearest_class(torch.stack(images))
        return int((nearest == torch.tensor(classes)).sum())


def bits_per_dimension(nats: float) -> float:
    "Convert a bound on -log p of an image to bits per pixel."
    return nats / (SIDE**2 * math.log(2))


def independent_bits(task: DigitsTask, by_class: bool = False, smooth: float = 0.1) -> float:
    "Compute bits per pixel of test images under independent pixels. Frequencies are those of training, smoothed."
    levels, classes = task.images
    train, test = task.split["train"], task.split["test"]
    nats = 0.0
    for c in range(CLASSES):
        # `by_class`: frequencies within the class
        rows = levels[train][classes[train] == c] if by_class else levels[train]
        counts = torch.nn.functional.one_hot(rows, LEVELS).sum(0) + smooth
        log_p = (counts / counts.sum(-1, keepdim=True)).log()
        shown = levels[test][classes[test] == c]
        nats -= float(log_p[torch.arange(SIDE**2), shown].sum())
    return bits_per_dimension(nats / len(test))
