"Settings: what is refused and how it is said, and the schema of recipes."
import json
import pickle
import subprocess
import sys
import tomllib
import warnings
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from pathlib import Path

import forks
import pytest

from loflexmdm.methods.flexmdm import FlexMDMConfig
from loflexmdm.methods.gen_md4 import GenMD4Config
from loflexmdm.methods.lo_flexmdm import LoFlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig
from loflexmdm.methods.papl import PAPLConfig
from loflexmdm.support.configs import Count, Positive, allowed_range, comments_of, config, config_from
from loflexmdm.support.configs import config_schema, one_of
from loflexmdm.support.registries import METHODS, TASKS
from loflexmdm.tasks.brackets import BracketsConfig
from loflexmdm.tasks.sequences import SequencesConfig
from loflexmdm.tasks.star_graphs import StarConfig
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import PRESETS, SCHEMA, presets
from loflexmdm.training.recipes import recipe_schema

# the package's own: other tests enter methods of their own
PARTS = [part for table in (METHODS, TASKS) for part in table.usable().values()
         if part.__module__.startswith("loflexmdm.")]
CLASSES = [TrainConfig, *(part.Config for part in PARTS)]
NAN, INF = float("nan"), float("inf")
REFUSED = [
    (LoFlexMDMConfig, dict(size="huge"), "size='huge': choose one of nano, micro, tiny,"),
    (LoFlexMDMConfig, dict(order_size="tny"), "order_size='tny' (did you mean 'tiny'?): choose one of nano,"),
    (LoFlexMDMConfig, dict(order="learnt"), "order='learnt' (did you mean 'learned'?): choose one of learned, fixed"),
    (LoFlexMDMConfig, dict(a=NAN), "a=nan: must be positive and finite"),
    (LoFlexMDMConfig, dict(b_range=1), "b_range=1: must exceed 1 and be finite"),
    (LoFlexMDMConfig, dict(states=1), "states=1: a learned order needs at least 2"),
    (LoFlexMDMConfig, dict(order="fixed", states=0), "states=0: must be at least 1"),
    (LoFlexMDMConfig, dict(regulariser=INF), "regulariser=inf: must be finite and not negative"),
    (TrainConfig, dict(steps=0), "steps=0: must be at least 1"),
    (TrainConfig, dict(steps=True), "steps=True must be of type int"),
    (TrainConfig, dict(lr=0), "lr=0: must be positive and finite"),
    (TrainConfig, dict(ema=1.0), "ema=1.0: must lie in [0, 1)"),
    (TrainConfig, dict(clip=NAN), "clip=nan: must be positive"),
    (TrainConfig, dict(optimiser="sgd"), "optimiser='sgd': choose one of adamw, muon"),
    (TrainConfig, dict(step=3), "unknown key 'step' (did you mean 'steps'?); known: steps, batch_size"),
    (FlexMDMConfig, dict(insertion="shifted:1e-4"), "insertion: schedule 'shifted:1e-4': goes from"),
    (MaskedConfig, dict(schedule="sine"), "schedule 'sine': choose one of cosine"),
    (PAPLConfig, dict(max_length=1), "max_length=1: must be at least 2"),
    (PAPLConfig, dict(mixture="eq8"), "mixture='eq8' (did you mean 'eq7'?): choose one of eq7, interpolate"),
    (GenMD4Config, dict(w_range=INF), "w_range=inf: must exceed 1 and be finite"),
    (BracketsConfig, dict(kinds=5), "kinds=5: must lie in 1..4"),
    (StarConfig, dict(arm_min=4), "arm_min=4, arm_max=3: need arm_min <= arm_max"),
    (SequencesConfig, dict(valid_share=0.5, test_share=0.5),
     "valid_share=0.5, test_share=0.5: their sum must be below 1"),
]


@pytest.mark.parametrize("cls, values, line", REFUSED, ids=lambda v: None if isinstance(v, type) else str(v)[:30])
def test_one_line_says_what_is_wrong(cls, values, line):
    for make, before in ((lambda: cls(**values), ""), (lambda: config_from(cls, values, "model"), "model: ")):
        with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError) as told: make()
        assert str(told.value).startswith(before + line)
        assert "\n" not in str(told.value) and type(told.value) is ValueError


def test_an_unknown_key_is_told_before_a_wrong_value():
    with pytest.raises(ValueError, match="unknown key 'stpes'"): TrainConfig(lr=-1.0, stpes=3)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_it_is_still_a_frozen_dataclass(cls):
    made = cls()
    assert made == config_from(cls, asdict(made)) == pickle.loads(pickle.dumps(made)) == replace(made)
    assert hash(made) == hash(cls())
    assert repr(made).startswith(f"{cls.__name__}({fields(cls)[0].name}=")
    with pytest.raises(FrozenInstanceError): setattr(made, fields(cls)[0].name, 1)
    assert comments_of(cls).keys() == {f.name for f in fields(cls)}
    for f in fields(cls):
        with pytest.raises(ValueError, match=f"{f.name}="): cls(**{f.name: None})


def test_a_plain_dataclass_of_another_package():
    @dataclass
    class Plain:
        rate: float
        steps: int = 3

    made = config_from(Plain, dict(rate=2), "task toy")
    assert type(made) is Plain and made == Plain(2.0, 3) and type(made.rate) is float
    with pytest.raises(ValueError, match="^task toy: rate is missing$"): config_from(Plain, {}, "task toy")
    with pytest.raises(ValueError, match="^config: steps='3' must be of type int$"):
        config_from(Plain, dict(rate=1.0, steps="3"))


def test_subclasses_check_what_they_inherit():
    names = ["a", "b"]

    @config
    class Base:
        count: Count = 1  # of things

        def __post_init__(self):
            if self.count == 13: raise ValueError("count=13: unlucky")

    @config
    class Child(Base):
        name: one_of(names) = "a"  # of the thing
        rate: Positive = 1.0

    wrong = {"count=0: must": dict(count=0), "count=13: unlucky": dict(count=13)}
    wrong["name='c': choose one of a, b"] = dict(name="c")
    for line, values in wrong.items():
        with pytest.raises(ValueError, match=line): Child(**values)
    names.append("c")
    made = Child(name="c", count=4)
    assert (made.name, made.count) == ("c", 4)
    with pytest.raises(ValueError, match="count=0"): Child(0)
    with pytest.raises(ValueError, match="Child: Unexpected positional"): Child(1, "a", 1.0, 7)


RANGES = {
    "must be finite": dict(allow_inf_nan=False), "must be below 3": dict(lt=3), "must be at most 3": dict(le=3),
    "must be positive": dict(gt=0), "must be positive and finite": dict(gt=0, allow_inf_nan=False),
    "must not be negative": dict(ge=0), "must be finite and not negative": dict(ge=0, allow_inf_nan=False),
    "must exceed 2": dict(gt=2), "must exceed 2 and be finite": dict(gt=2, allow_inf_nan=False),
    "must be at least 2": dict(ge=2), "must be at least 2 and be finite": dict(ge=2, allow_inf_nan=False),
    "must lie strictly between 0 and 1": dict(gt=0, lt=1), "must lie in [0, 1)": dict(ge=0, lt=1),
    "must lie in (0, 1]": dict(gt=0, le=1), "must lie in [0, 1]": dict(ge=0, le=1),
}


@pytest.mark.parametrize("said", RANGES)
def test_what_bounds_allow_is_said_in_words(said): assert allowed_range(RANGES[said], float) == said


def test_bounds_of_whole_numbers(): assert allowed_range(dict(ge=1, le=4), int) == "must lie in 1..4"


# the schema

@pytest.mark.slow
def test_the_schema_in_the_package_is_current_and_presets_name_it():
    # in a process of its own: other tests define methods and tasks, which the schema would list
    code = "import json; from loflexmdm.training.recipes import recipe_schema; print(json.dumps(recipe_schema()))"
    made = forks.run(["-c", code]).stdout
    assert json.loads(SCHEMA.read_text()) == json.loads(made), "run make update"
    for name in presets():
        head = (PRESETS / f"{name}.toml").read_text().splitlines()[0]
        assert head.startswith("#:schema ") and (Path(str(PRESETS)) / head.split()[1]).resolve() == Path(str(SCHEMA))


@pytest.mark.slow
def test_the_schema_accepts_presets_and_refuses_what_recipes_refuse():
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft7Validator(recipe_schema())
    for name in presets(): check.validate(tomllib.loads((PRESETS / f"{name}.toml").read_text()))
    table = dict(kind="brackets")
    models, trains = (dict(size="huge"), dict(method="ar", order="fixed")), (dict(steps=0), dict(step=1))
    wrong = [dict(task=table | dict(kinds=5)), dict(task=dict(kind="bracket"))]
    wrong += [dict(task=table, model=model) for model in models] + [dict(task=table, train=train) for train in trains]
    for tables in wrong: assert not check.is_valid(tables), tables


def test_every_setting_is_described():
    for cls in CLASSES:
        for key, entry in config_schema(cls)["properties"].items(): assert entry.get("description"), (cls.__name__, key)


def test_importing_configs_does_not_wait_for_torch():
    script = "import sys, loflexmdm.support.configs; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
