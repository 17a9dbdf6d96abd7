"Prompts, sampling, saving and loading, whatever the method."
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import loflexmdm
from loflexmdm.methods.base import Method, horizon, method_class
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.sampling import Request, encode_prompts, generate
from loflexmdm.models.saved import _describes_a_model, load_method, load_weights, save_method
from loflexmdm.models import pretrained
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers import Ancestral, EventDriven, TauLeaping
from loflexmdm.support.atomic_files import atomic_directory, file_digest, read_digests, add_digest
from loflexmdm.support.configs import config_from
from loflexmdm.support.notebook import seeded
from loflexmdm.support.registries import METHODS
from loflexmdm.support.saved_files import models_directory, read_config

VOCABULARY = Vocabulary("abc")


@dataclass(frozen=True)
class PoissonConfig:
    rate: float = 2.0
    max_length: int = 24


class Poisson(Method):
    "Inserts at the last open gap with intensity rate x exp(-tau): a Poisson number of tokens."
    name, Config, tau_max = "poisson (test)", PoissonConfig, 20.0

    def __init__(self, vocabulary, config=PoissonConfig(), task=None):
        super().__init__(vocabulary, config, task)
        self.logits = torch.nn.Parameter(torch.zeros(len(vocabulary) - 3))

    def at(self, x, tau):
        last = x.open & (x.open.flip(-1).cumsum(-1).flip(-1) == 1)
        return Intensities(
            self.config.rate * torch.exp(-tau)[:, None] * last,
            x.masked.float(),
            F.pad(self.logits, (3, 0), value=-torch.inf).expand(*x.tokens.shape, -1),
        )


@pytest.fixture
def model():
    return Poisson(VOCABULARY)


@pytest.fixture(scope="module", autouse=True)
def unregister():
    yield
    for cls in (Poisson, Written): METHODS.classes.pop(cls.name, None)


# intensities

class Halved(FlexMDM):
    "As plug-ins wrote it before there was `at`: on top of a method of the package."

    def intensities(self, x, t=None, *, tau=None):
        out = super().intensities(x, t, tau=tau)
        return out._replace(insert=out.insert / 2)


class Written(Poisson):
    "As plug-ins wrote it before there was `at`: the whole of it."
    name, at = "written (test)", Method.at

    def intensities(self, x, t=None, *, tau=None): return Poisson.at(self, x, tau)


def test_a_plug_in_may_still_define_intensities(pico, model):
    "Loss, bound and samples read what it defines."
    config, x = FlexMDMConfig(size="pico", max_length=8), collate([parse_prompt("ab", VOCABULARY)] * 2)
    plain, halved = FlexMDM(VOCABULARY, config), Halved(VOCABULARY, config)
    halved.load_state_dict(plain.state_dict())
    t = torch.tensor([0.2, 0.7])
    for at in (dict(t=t), dict(tau=t)):
        torch.testing.assert_close(halved.intensities(x, **at).insert, plain.intensities(x, **at).insert / 2)
    assert halved.loss(x, seeded(0)).loss != plain.loss(x, seeded(0)).loss

    written = Written(VOCABULARY)
    same = dict(n=4, seed=0, sampler=TauLeaping(steps=8))
    assert generate(written, **same).sequences == generate(model, **same).sequences
    with pytest.raises(ValueError, match=r"written \(test\) has no clock .* sample with EventDriven"): written.at(x, t)


def test_a_method_without_intensities_says_so(model):
    "However it is called: nothing recurses."
    class Bare(Method):
        def intensities(self, x, t=None, *, tau=None): return super().intensities(x, t, tau=tau)
    Bare.name, bare = "bare", Bare(VOCABULARY, PoissonConfig())
    for call in (bare.intensities, bare.at, Method.intensities.__get__(bare)):
        with pytest.raises(ValueError, match="bare has no clock and no rates"): call(None, torch.ones(1))


# prompts and sampling

def test_prefix_and_infilling_prompts():
    x = encode_prompts([["a", "b"], ["a", ..., "b"], [..., "c", ...], []], 2, VOCABULARY, 24)
    assert x.open[::2].tolist() == [
        [False, False, True], [False, True, False], [True, True, False], [True, False, False],
    ]
    assert torch.equal(x.tokens[::2], x.tokens[1::2]) and (x.fixed == x.valid).all()


@pytest.mark.parametrize(
    "prompts, n, named",
    [
        ([], 1, "prompts"), ("ab", 1, "prompts"), ([["z"]], 1, "'z'"), ([["<mask>"]], 1, "fixed length"),
        ([["<pad>"]], 1, "special"), ([5], 1, "prompt 5"),
        (["a b"], 1, "prompt 'a b': must be a list of tokens.*text.split"),
        ([["a"] * 24], 1, "max_length is 24"), (None, 0, "n=0"), (None, -1, "n=-1"), (None, 1.5, "n=1.5"),
    ],
)
def test_bad_prompts(model, prompts, n, named):
    with pytest.raises(ValueError, match=named): generate(model, prompts, n)


@pytest.mark.parametrize(
    "kwargs, named",
    [
        (dict(sampler="event"), "sampler='event'"),
        (
            dict(sampler=Ancestral()),
            "sampler=Ancestral: is for masked diffusion; "
            ".* takes EventDriven or Tau",
        ),
        (dict(batch_size=0), "batch_size=0"),
        (dict(max_length=0), "max_length=0"),
        (dict(min_length=5, max_length=4), "min_length=5"),
        (dict(min_length=-1), "min_length=-1"),
    ],
)
def test_bad_limits(model, kwargs, named):
    with pytest.raises(ValueError, match=named): generate(model, n=1, **kwargs)


def test_prompts_stay_and_special_tokens_do_not_appear(model):
    out = generate(model, [["c", "c"], ["a", ..., "b"]], n=50, generator=seeded(0))
    kept = [
        [VOCABULARY.tokens[t] for t, f in zip(s, free, strict=True) if not f]
        for s, free in zip(out.sequences, out.free, strict=True)
    ]
    assert kept == [["c", "c"]] * 50 + [["a", "b"]] * 50
    assert all(t > 2 for s in out.sequences for t in s)


def test_the_length_law(model):
    out = generate(model, n=2000, sampler=EventDriven(), generator=seeded(3))
    lengths = torch.tensor([len(s) for s in out.sequences]).double()
    # mu_4 - sigma^4 of a Poisson
    z = (lengths.mean() - 2) / (2 / 2000) ** 0.5, (lengths.var() - 2) / ((2 + 2 * 4) / 2000) ** 0.5
    assert max(abs(v) for v in z) < 4


def test_lengths_are_limited_and_reported(model):
    short, long = (
        generate(model, n=60, max_length=2, generator=seeded(4)),
        generate(model, n=60, min_length=5, generator=seeded(4)),
    )
    assert max(map(len, short.sequences)) == 1 and short.overflow >= short.overflowing > 0
    assert min(map(len, long.sequences)) == 4 and long.forced > 0


def test_global_random_state_and_mode_are_left_alone(model):
    before = torch.get_rng_state()
    a, b = generate(model, n=30).sequences, generate(model, n=30).sequences
    assert a != b and torch.equal(before, torch.get_rng_state()) and model.training


# saving

def test_round_trip(model, tmp_path):
    with torch.no_grad(): model.logits[:] = torch.tensor([1.0, -0.5, 2.0])
    model.task = {"kind": "text"}
    again = load_method(save_method(model, tmp_path / "deep" / "model", README_md="# card"))
    assert (again.config, again.vocabulary, again.task, again.training) == (
        model.config, model.vocabulary, model.task, False,
    )
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert (tmp_path / "deep" / "model" / "README.md").read_text() == "# card"
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["model"]


def test_permissions_follow_the_umask(model, tmp_path):
    old = os.umask(0o027)
    try: path = save_method(model, tmp_path / "model")
    finally: os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o750
    assert {f.stat().st_mode & 0o777 for f in path.iterdir()} == {0o640}


def test_an_error_leaves_what_was_there(model, tmp_path):
    save_method(model, tmp_path / "model")
    with pytest.raises(RuntimeError):
        with atomic_directory(tmp_path / "model") as d:
            (d / "config.json").write_text("half")
            raise RuntimeError
    assert load_method(tmp_path / "model").config == model.config and len(list(tmp_path.iterdir())) == 1


def test_other_files_are_not_deleted(model, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years")
    for path in (tmp_path / "thesis", tmp_path, tmp_path / "thesis" / "chapter.tex"):
        with pytest.raises(ValueError, match="thesis|holds other files"): save_method(model, path)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years"


KILLED = """
import sys, torch
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.saved import save_method
from loflexmdm.process.states import Vocabulary
models = [LoFlexMDM(Vocabulary("ab"), LoFlexMDMConfig(order="fixed", states=1, size="nano", max_length=n)) for n in \
(8, 9)]
for m in models: torch.nn.init.constant_(m.token.out.bias, m.config.max_length)
while True:
    for m in models: save_method(m, sys.argv[1]); print("saved", flush=True)
"""


@pytest.mark.slow
def test_kill_in_the_middle_leaves_a_whole_model(tmp_path):
    for delay in (0.0, 0.003, 0.011):
        child = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "model"], stdout=subprocess.PIPE)
        for _ in range(3): child.stdout.readline()
        time.sleep(delay)
        child.kill(), child.wait(), child.stdout.close()
        found = pretrained.load(tmp_path / "model")
        assert found.method.token.out.bias[0].item() == found.config.max_length in (8, 9)


def limited(path):
    "Save in a child process that cannot write more than 1 kB to a file; True if that failed as it should."
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try: save_method(LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order="fixed", states=1, size="nano")), path)
        except Exception: os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_full_disk_leaves_the_old_model(model, tmp_path):
    save_method(model, tmp_path / "model")
    assert limited(tmp_path / "model")
    assert load_method(tmp_path / "model").config == model.config and len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="mounting a small disk takes root")
def test_full_tmpfs_leaves_the_old_model(model, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        save_method(model, disk / "model")
        with pytest.raises(Exception, match="(?i)space|os error 28"):
            save_method(LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order="fixed", states=1, size="nano")), disk / "model")
        assert load_method(disk / "model").config == model.config and len(list(disk.iterdir())) == 1
    finally: subprocess.run(["umount", disk], check=True)


# loading

def edited(path, **edit):
    "Write config.json anew with some entries changed (..., removed) and a digest that fits."
    meta = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(add_digest({k: v for k, v in (meta | edit).items() if v is not ...})))


@pytest.mark.parametrize(
    "edit, named",
    [
        (dict(format=2), "format 2 is newer"),
        (dict(format="x"), "format='x'"),
        (dict(format=0), "format=0"),
        (dict(method="diffuse"), "method='diffuse'"),
        (dict(method=...), "'method' is missing"),
        (dict(vocabulary="abc"), "vocabulary must be a list"),
        (dict(vocabulary=["a", "a", "b"]), "each token may appear once"),
        (dict(vocabulary=list("abcd")), "weights of another model"),
        (dict(config={"speed": 1}), "unknown key 'speed'"),
        (dict(config={"rate": "1"}), "rate='1' must be of type float"),
        (dict(config=3), "must be a table"),
    ],
)
def test_damaged_configs(model, tmp_path, edit, named):
    path = save_method(model, tmp_path / "model")
    edited(path, **edit)
    with pytest.raises(ValueError, match=named): load_method(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\xff"])
def test_config_that_is_no_description(model, tmp_path, text):
    path = save_method(model, tmp_path / "model")
    (path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="config.json"): read_config(path)


@pytest.mark.parametrize("damage", [lambda b: b[:-2], lambda b: b"", lambda b: b"x" * 300, lambda b: b[:4]])
def test_damaged_weights(model, tmp_path, damage):
    path = save_method(model, tmp_path / "model") / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="damaged weights file"): load_weights(model, path)


def test_missing_files(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json is missing"): load_method(tmp_path)
    path = save_method(model, tmp_path / "model")
    (path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors: no such file"): load_method(path)


def test_whole_numbers_pass_as_floats():
    config = config_from(PoissonConfig, {"rate": 3})
    assert config == PoissonConfig(3.0) and type(config.rate) is float
    with pytest.raises(ValueError, match="max_length=True"): config_from(PoissonConfig, {"max_length": True})


# by name

@pytest.fixture
def nano():
    return LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order="fixed", states=1, size="nano", max_length=8))


def test_which_weights_a_directory_stands_for(nano, tmp_path):
    run = tmp_path / "run"
    for step, value in ((20, 2.0), (100, 3.0)):
        d = save_method(nano, run / "checkpoints" / f"step_{step:06d}")
        torch.nn.init.constant_(nano.token.out.bias, value)
        shutil.copy(save_method(nano, tmp_path / "other") / "model.safetensors", d / "ema.safetensors")
    found = lambda path: pretrained.load(path).method.token.out.bias[0].item()
    assert found(run) == 3.0 and found(str(run / "checkpoints" / "step_000020")) == 2.0
    torch.nn.init.constant_(nano.token.out.bias, 4.0)
    save_method(nano, run / "best")
    assert found(run) == 4.0
    shutil.rmtree(run / "best"), (run / "checkpoints" / "step_000100" / "ema.safetensors").unlink()
    assert found(run) == 2.0  # an incomplete checkpoint is passed over


def test_names_that_lead_nowhere(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="without checkpoints"): pretrained.load(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="no saved model"): pretrained.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such directory"): pretrained.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="'star-huge' is neither"): pretrained.load("star-huge")
    with pytest.raises(ValueError, match="did you mean 'star-tiny'"): pretrained.load("star-tinny")
    with pytest.raises(ValueError, match="mine.toml: is a recipe"): pretrained.load("mine.toml")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"): pretrained.load(tmp_path, device="cuda")


@pytest.mark.parametrize("name", pretrained.names())
def test_packaged_models_sample(name):
    method = loflexmdm.load(name)
    edits = method.method.name in ("editflow", "ordered-edits")  # which start from given sequences
    if edits: assert len(method.edit([["c", "c"]], n=2, generator=seeded(0))) == 2
    else: assert len(method.sample(n=2, generator=seeded(0))) == 2
    directory = models_directory() / name
    assert (directory / "README.md").is_file()
    saved = read_digests(read_config(directory))  # a card that was changed has a digest of its own
    assert {file: file_digest(directory / file) for file in saved} == saved


@pytest.mark.slow
def test_import_is_light():
    code = (
        "import sys, loflexmdm; assert 'torch' not in sys.modules; assert 'load' in dir(loflexmdm); "
        "loflexmdm.load; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"): loflexmdm.__getattr__("nothing")


@pytest.mark.usefixtures("pico")
@pytest.mark.parametrize("name", ["loflexmdm", "flexmdm", "loinsert"])
def test_bounds_end_at_the_horizon(name, monkeypatch):
    "A constant intensity, 1 in each gap of a new model, counts up to the horizon and no further."
    cls = method_class(name)
    own = dict(max_length=6) | (dict(order="fixed", states=1) if name == "loflexmdm" else {})
    made = cls(Vocabulary("ab"), cls.Config(size="pico", **own))
    x1, g = collate([prefix_example("", "ab", made.vocabulary)]), torch.Generator().manual_seed(0)
    late = lambda factor: (torch.full((1,), factor * horizon(made)), torch.ones(1))
    monkeypatch.setattr(made, "proposal", lambda *_: late(1.01))
    assert float(made.nll_bound(x1, 2, g)[0]) == 0
    monkeypatch.setattr(made, "proposal", lambda *_: late(0.99))
    assert float(made.nll_bound(x1, 2, g)[0]) > 1


@pytest.mark.parametrize("least, most, limit", [(0, None, 6), (6, None, 6), (0, 9, 6), (4, 4, 4), (0, 1, 1)])
def test_lengths_that_a_model_can_make(least, most, limit):
    assert Request(min_length=least, max_length=most).limit(SimpleNamespace(max_length=6)) == limit


@pytest.mark.parametrize("least, most, batch, message", [
    (7, None, 1, "min_length=7: must lie in 0..max_length=6"), (5, 4, 1, "min_length=5: must lie in 0..max_length=4"),
    (-1, None, 1, "min_length=-1"), (0, 0, 1, "max_length=0: must be at least 1"), (0, None, 0, "batch_size=0"),
])
def test_lengths_that_it_cannot(least, most, batch, message):
    request = Request(min_length=least, max_length=most, batch_size=batch)
    with pytest.raises(ValueError, match=message): request.limit(SimpleNamespace(max_length=6))


@pytest.mark.parametrize("text, is_one", [
    ('{"format": 1, "method": "ar", "vocabulary": [], "config": {}, "more": 0}', True),
    ('{"format": 1, "method": "ar", "vocabulary": []}', False), ("[]", False), ("3", False), ("{", False),
    ('["format", "method", "vocabulary", "config"]', False),
])
def test_which_config_is_that_of_a_model(tmp_path, text, is_one):
    (tmp_path / "config.json").write_text(text)
    assert _describes_a_model(tmp_path / "config.json") == is_one
    assert not _describes_a_model(tmp_path / "none.json")
