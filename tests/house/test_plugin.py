"""Another package's task, network, method, sampler, channel and verb, installed outside the tree and used in other
processes; and one line for each way in which such a package can be wrong."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import forks
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "plugin"
MODULES = sorted((SOURCE / "loflexmdm_toy").glob("toy_*.py"))
PAGE = ROOT / "nbs" / "how_to" / "add_your_own.ipynb"
RECIPE = """
[task]
kind = "sorting"
digits = 3

[train]
steps = 6
batch_size = 8
warmup = 1
log_every = 2
valid_every = 3
valid_size = 8
valid_samples = 2
save_every = 3

[model]
method = "any-order"
network = "gru"
size = "nano"
"""
EXIT = "import sys; sys.exit(0)"
BROKEN = dict(broken_import="import no_such_library", broken_exit=EXIT, broken_name="", broken_shape='''
from torch import nn
from loflexmdm.networks.base import network

@network
class Narrow(nn.Module):
    name = "narrow"

    def __init__(self, vocabulary_size):
        super().__init__()
        self.width, self.cond, self.token = 8, 8, nn.Embedding(vocabulary_size, 8)

    @classmethod
    def from_config(cls, vocabulary_size, size, options=""): return cls(vocabulary_size)

    def forward(self, x, cond): return self.token(x.tokens)[..., :4]
''')
OFFERED = """
[loflexmdm.methods]
failing = broken_import
leaving = broken_exit
[loflexmdm.tasks]
failing = broken_import
nameless = broken_name
[loflexmdm.samplers]
failing = broken_import
leaving = broken_exit
[loflexmdm.networks]
narrow = broken_shape
[loflexmdm.verbs]
broken = broken_import
report = broken_import
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A directory with the installed package in `site`, a broken one in `broken`, and a recipe."
    path = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, path / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
           "--disable-pip-version-check", "--target", path / "site", path / "source"]
    subprocess.run(list(map(str, pip)), check=True, capture_output=True)
    info = path / "broken" / "loflexmdm_broken-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loflexmdm-broken\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(OFFERED)
    for name, text in BROKEN.items(): (path / "broken" / f"{name}.py").write_text(text)
    (path / "toy.toml").write_text(RECIPE)
    return path


LINES = """
import contextlib, io, json, sys
from loflexmdm.cli import main
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try: code = main(line.split())
        except SystemExit as e: code = e.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def python(place, *argv, sites=("site",), text="", run=forks.run):
    "A process of its own in `place`, to which the packages of `sites` are visible: exit code, stdout, stderr."
    paths = [str(ROOT), *(str(place / s) for s in sites)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1", COLUMNS="110")
    done = run(argv, cwd=place, env=environment, input=text)
    return done.returncode, done.stdout, done.stderr


def call(place, line, run=forks.run):
    "Stdout of a command line, which must succeed, in a process of its own."
    code, out, err = python(place, "-m", "loflexmdm.cli", *line.split(), run=run)
    assert code == 0, err
    return out


def results(place, lines, sites=("site",)):
    "Exit code, stdout and stderr of each of several command lines, one after the other in one process."
    code, out, err = python(place, "-c", LINES, sites=sites, text=json.dumps(lines))
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def told(place, *lines, sites=("site",)):
    "Stdout of each of several command lines, which must succeed."
    found = results(place, lines, sites)
    assert not any(code for code, _, _ in found), found
    return [out for _, out, _ in found]


def refused(place, expected, sites=("site",)):
    "For each command line in `expected`: exit code 2, and nothing but one line, with every part in it."
    for (line, parts), (code, out, err) in zip(expected.items(), results(place, list(expected), sites)):
        lines = [x for x in err.splitlines() if not x.startswith(("loflexmdm 0", "weights: ", "device: ", "command: "))]
        assert code == 2 and not out and len(lines) == 1 and lines[0].startswith("loflexmdm: "), (line, code, out, err)
        for part in parts: assert part in lines[0], lines[0]


@pytest.fixture(scope="module")
def run(place):
    "A finished training run of the toy method and network on the toy task."
    call(place, "train toy.toml --out run --device cpu", forks.start)
    return "run"


def test_the_package_is_not_importable_from_the_tree():
    code = python(ROOT / "tests", "-c", "import loflexmdm_toy", sites=(), run=forks.start)[0]
    assert code != 0


@pytest.mark.slow
def test_info_help_and_cite_know_plug_ins(place, run):
    lines = ("info", "info in-steps", "info toy.toml", f"sample {run} --help", "train toy.toml --help",
             "cite any-order", f"cite {run}", f"info {run}")
    names, sampler, recipe, sampling, training, *papers, model = told(place, *lines)
    listed = dict(line.split(":", 1) for line in names.splitlines() if not line.startswith(" "))
    expected = dict(methods="any-order", samplers="in-steps", tasks="sorting", networks="gru", schedules="gentle")
    for kind, name in expected.items(): assert {name} < set(listed[kind].split())
    assert "sampler, loflexmdm_toy.toy_sampler.InSteps" in sampler
    assert "pace = 2  # masks that become tokens per network call" in sampler
    assert 'network = "gru"' in recipe
    pace = "--pace INT masks that become tokens per network call [2], with --sampler in-steps"
    assert pace in " ".join(sampling.split())
    assert "--prompt-text DIGITS" in sampling
    assert "--digits INT in each prompt [3]" in " ".join(training.split())
    start = "% method any-order: a network trained for all orders at once\n@inproceedings{uria2014"
    for text in papers: assert text.startswith(start)
    assert f"{run}: any-order" in model and 'network = "gru"' in model and "trained: 6 steps" in model


@pytest.mark.slow
def test_a_verb_of_a_plug_in_is_a_command(place):
    listed, page, counted = told(place, "--help", "count --help", "count banana --letter a")
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("    ")]
    assert names.index("link") < names.index("count") and "count letters" in listed
    assert "--letter LETTER" in page and "loflexmdm count abc --letter b" in page and counted == "3\n"
    refused(place, {
        "count": ["the following arguments are required: TEXT"],
        "count banana --lettre a": ["unknown argument --lettre (did you mean '--letter'?)"],
    })
    refused(place, {"count banana": ["'count'", " link,"]}, sites=())


@pytest.mark.slow
def test_a_verb_that_cannot_be_used_is_named_and_stops_nothing_else(place):
    both = "site", "broken"
    refused(place, {"broken now": ["command='broken': plug-in 'broken_import' of loflexmdm-broken cannot be imported"]},
            both)
    listed, page, counted = told(place, "--help", "report --help", "count banana", sites=both)
    assert "broken" not in listed and "pictures" in page and counted == "6\n"  # nobody takes the name of a verb here


@pytest.mark.slow
def test_a_model_of_plug_ins_is_sampled_in_another_process(place, run):
    rows = call(place, f"sample {run} -n 4", forks.start).splitlines()
    found = [re.fullmatch(r"(\d{3}) -> (\d*) \((correct|wrong)\)", row).groups() for row in rows]
    verdict = lambda digits, answer: "correct" if answer == "".join(sorted(digits)) else "wrong"
    assert len(found) == 4 and all(state == verdict(digits, answer) for digits, answer, state in found)
    call(place, f"sample {run} -n 4 --sampler in-steps --pace 3 --nll 2 --out samples.jsonl")
    written = [json.loads(line) for line in (place / "samples.jsonl").read_text().splitlines()]
    assert len(written) == 4 and {"answer", "state", "nll_bound", "tokens"} <= set(written[0])
    info = json.loads((place / "samples.jsonl.run.json").read_text())
    assert info["counters"]["network_calls"] == 1 and "pace=3" in info["sampler"]


@pytest.mark.slow
def test_training_of_plug_ins_resumes(place):
    "A run whose last checkpoint is lost ends where it did before."
    call(place, "train toy.toml --out lost --device cpu")
    last, = (place / "lost").glob("**/step_*6")
    whole = (last / "model.safetensors").read_bytes()
    shutil.rmtree(last)
    call(place, "resume lost")
    assert (last / "model.safetensors").read_bytes() == whole


@pytest.mark.slow
def test_plug_ins_are_evaluated(place, run):
    lines = f"evaluate {run} -n 8 --nll 2 --sampler in-steps --pace 1", f"sample {run} --prompt-text 21 -n 1"
    figures, sample = told(place, *lines)
    figures = {line.split()[0]: float(line.split()[1]) for line in figures.splitlines()}
    assert 0 <= figures["correct"] <= 1 and figures["nll_bound"] > 0 and figures["network_calls"] == 3
    assert sample.startswith("21 -> ")


@pytest.mark.slow
def test_plug_ins_are_compared_with_our_methods(place):
    call(place, "compare toy.toml --methods any-order,mdm --seeds 1 --steps 2 --log-every 1 --calls 2 -n 4 --nll 2 "
                "--out compared")
    rows = json.loads((place / "compared" / "results.json").read_text())["rows"]
    assert {r["method"] for r in rows} == {"any-order", "mdm"}
    for method in ("any-order", "mdm"):
        scores = [r["scores"] for r in rows if (r["method"], r["sampler"]) == (method, "InSteps()")]
        assert len(scores) == 1 and "correct" in scores[0]
    config = json.loads(next((place / "compared" / "mdm").glob("**/config.json")).read_text())["config"]
    assert config["network"] == "gru"  # the recipe's, for all


CHANNEL = """
import torch
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import Vocabulary, collate, parse_prompt
from loflexmdm.samplers import EventDriven, Limits, simulate
from loflexmdm_toy import toy_channel
rates = lambda x, tau: Intensities(others=dict(duplicate=torch.ones(x.tokens.shape)))
start = collate([parse_prompt(["a", ...], Vocabulary("ab"))] * 4000)
limits = Limits(tau_max=1.0, max_length=100, channels=("duplicate",))
grown = simulate(rates, start, EventDriven(), range(4000), limits).sequences
lengths = torch.tensor([len(s) for s in grown]).double()
assert all(set(s) == {start.tokens[0, 1].item()} for s in grown)
share = torch.exp(torch.tensor(-1.0))  # the length of a Yule process is geometric
for n in (1, 2, 3):
    p = share * (1 - share)**(n - 1)
    print(float(((lengths == n).double().mean() - p) / (p * (1 - p) / len(lengths))**0.5))
"""


@pytest.mark.slow
def test_a_channel_of_a_plug_in_has_its_exact_distribution(place):
    code, out, err = python(place, "-c", CHANNEL)
    assert code == 0, err
    assert all(abs(float(z)) < 4 for z in out.split()) and len(out.split()) == 3, out


# What can be wrong

@pytest.mark.slow
def test_unknown_names_and_wrong_values_are_refused(place, run):
    (place / "unknown.toml").write_text('[task]\nkind = "sortin"\n')
    refused(place, {
        "train toy.toml --method any-ordr --out x": ["method='any-ordr' (did you mean 'any-order'?)", "papl"],
        "train toy.toml --network gruu --out x": ["network='gruu' (did you mean 'gru'?)", "transformer"],
        f"sample {run} --sampler in-step": ["in-steps"],
        "train unknown.toml --out x": ["task kind='sortin' (did you mean 'sorting'?)"],
        "train toy.toml --digits 0 --out x": ["digits=0: must lie in 1..50"],
        f"sample {run} --sampler in-steps --pace 0": ["pace=0: must be at least 1"],
        f"sample {run} --pace 3": ["pace=3: only with sampler in-steps"],
        "sample star-tiny --sampler in-steps": ["is for masked diffusion; choose"],
        f"sample {run} --prompt-text x": ["prompt 'x': must be digits"],
        "info any-ordr": ["did you mean 'any-order'?"],
    })


@pytest.mark.slow
def test_a_plug_in_that_cannot_be_used_is_named_and_stops_nothing_else(place, run):
    failure = "plug-in 'broken_import' of loflexmdm-broken cannot be imported"
    (place / "nameless.toml").write_text('[task]\nkind = "nameless"\n')
    shape = "expected hidden states (batch, length, width) = (2, 6, 8), got (2, 6, 4)"
    both = "site", "broken"
    refused(place, {
        "train toy.toml --method failing --out x": [f"method='failing': {failure}", "no_such_library"],
        f"sample {run} --sampler failing": [f"sampler='failing': {failure}"],
        "info failing": [failure],
        "train toy.toml --method leaving --out x": [
            "method='leaving': plug-in 'broken_exit' of loflexmdm-broken cannot be imported (SystemExit: 0)",
        ],
        f"sample {run} --sampler leaving": ["sampler='leaving': plug-in 'broken_exit'"],
        "train nameless.toml --out x": ["defines no task kind of that name", "loflexmdm-broken"],
        "train toy.toml --network narrow --out x": ["network='narrow'", shape],
    }, both)
    compared = "compare toy.toml --methods any-order --seeds 1 --steps 2 --calls 2 -n 4 --nll 2 --out beside"
    listed, sampled, _ = told(place, "info", f"sample {run} -n 2", compared, sites=both)
    assert "failing" in listed and len(sampled.splitlines()) == 2


@pytest.mark.slow
def test_without_the_package_its_models_are_refused(place, run):
    refused(place, {f"sample {run}": ["method='any-order'", "choose one of ar"]}, sites=())


@pytest.mark.slow
def test_a_model_of_a_newer_version_is_refused(place, run):
    saved = json.loads((place / run / "best" / "config.json").read_text())
    saved.pop("digest")
    changed = dict(format=dict(format=99), key=dict(config=saved["config"] | dict(depth=3)))
    for name, values in changed.items():
        shutil.copytree(place / run / "best", place / name)
        (place / name / "config.json").write_text(json.dumps(saved | values))
    refused(place, {"sample format": ["format 99 is newer than this version reads (1); upgrade loflexmdm"],
                    "sample key": ["unknown key 'depth'", "network"]})


# The page has the same files

def cells():
    return ["".join(cell["source"]) for cell in json.loads(PAGE.read_text())["cells"]]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_the_page_has_the_module(path):
    found = [source for source in cells() if source.startswith(f"# {path.name}\n")]
    assert found == [path.read_text().rstrip("\n")]


def test_the_page_has_no_other_module_and_the_entry_points():
    named = {source.split("\n")[0][2:] for source in cells() if re.match(r"# \w+\.py\n", source)}
    assert named == {path.name for path in MODULES}
    fence = re.search(r"```toml\n(.*?)\n```", "\n".join(cells()), re.S)[1]
    assert fence in (SOURCE / "pyproject.toml").read_text() and fence.count("[project.entry-points.") == 6
