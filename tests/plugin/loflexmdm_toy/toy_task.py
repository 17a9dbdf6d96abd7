# toy_task.py
import random
from typing import Annotated

from pydantic import Field

from loflexmdm.process.states import Vocabulary, prefix_example
from loflexmdm.process.streams import UNLIMITED
from loflexmdm.support.configs import config
from loflexmdm.tasks.base import Examples, Task, TaskOutput, check_split


@config
class SortingConfig:
    "Digits in random order, and the same digits sorted."
    digits: Annotated[int, Field(ge=1, le=50)] = 4  # in each prompt
    seed: int = 0  # of the data


class SortingOutput(TaskOutput):
    "Rows on the terminal, such as `312 -> 123 (correct)`."
    def pretty(self, row): return f"{''.join(row['prompt']).strip('=')} -> {row['answer']} ({row['state']})"


class SortingTask(Task):
    "Sort the digits of the prompt: `3 1 2 =` is continued by `1 2 3`."
    kind, Config = "sorting", SortingConfig
    vocabulary = Vocabulary("0123456789=")
    output = SortingOutput()
    prompt_help = "DIGITS", "digits to sort, such as 312"

    @property
    def max_length(self): return 2 * self.config.digits + 2

    def digits(self, split, i):
        "The digits to sort in example number `i` of a split."
        rng = random.Random(f"{self.config.seed} {check_split(split)} {i}")
        return rng.choices("0123456789", k=self.config.digits)

    def dataset(self, split="train"):
        size = UNLIMITED if check_split(split) == "train" else 500
        example = lambda digits: prefix_example([*digits, "="], sorted(digits), self.vocabulary)
        return Examples(size, lambda i: example(self.digits(split, i)))

    def prompts(self, split="test", n=8): return [[*self.digits(split, i), "="] for i in range(n)]

    def prompt(self, text):
        if not set(text) <= set("0123456789"): raise ValueError(f"prompt {text!r}: must be digits")
        return [*text, "="]

    def correct(self, prompt, answer): return list(answer) == sorted(prompt[:-1])

    def describe(self, samples, prompt_text=""):
        texts = ["".join(self.vocabulary.decode(ids)).partition("=") for ids in samples.sequences]
        states = ["correct" if self.correct(f"{digits}=", answer) else "wrong" for digits, _, answer in texts]
        return [dict(answer=answer, state=state) for (_, _, answer), state in zip(texts, states)]
