"Random commands, files and checkpoints: each is accepted, or refused in one line."
import gzip
import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from safetensors.torch import load_file, save_file

from campaigns.attacks import Tally, isolated_each, what_went_wrong
from campaigns.jobs import Job, commands_like, resume
from loflexmdm.cli import commands
from loflexmdm.molecules.data.records import read_smiles
from loflexmdm.molecules.notation.bracket_safe import decode, reorder, tokenize
from loflexmdm.support.atomic_files import file_digest, read_digests, add_digest
from loflexmdm.support.records import read_records
from loflexmdm.training.recipes import read_tables, recipe_from

WORDS = [
    "", "-1", "0", "1", "2", "3", "nan", "inf", "-inf", "1e308", "1e400", "10000000000", "9" * 30, "9" * 5000, "x", "é",
    "\x1b[31m", "\u202e", "a" * 5000, "../..", "/dev/null", "/etc/passwd", "0x10", "--", "None", "none", "true", "1,2",
    ",", "brackets", "loflexmdm", "hub:x/y", "{", "[]", "null",
]
VALUES = [
    None, True, False, 0, -1, 1, 2**63, 10**30, 0.0, -0.5, 1e308, float("nan"), float("inf"), "", "x", "é" * 50, [], {},
    [None], {"a": {}}, [[]], "hub:a/b", "/etc/passwd", ["x", "x"], {"kind": None}, [[[[[[]]]]]],
]
SCRAPS = [
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"'", b"\n", b"\r", b",", b"\t", b"null", b"NaN", b"1e999", b"[" * 3000,
    b"{" * 50, b"9" * 5000, b"a." * 1500, b"\x1b[2J", "\u2028é\U0001f600".encode(), b"<9999999999>", b"%(9)", b"...",
    b"<mask>", b"<pad>", b"C" * 6000, b"x" * 200_000,
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    "The bytes with one to four changes: some flipped, cut out, doubled or put in."
    for _ in range(rng.randint(1, 4)):
        i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        kind = rng.randrange(5)
        if kind == 0 and data: data = data[:i] + bytes([rng.randrange(256)]) + data[i + 1:]
        elif kind == 1: data = data[:i] + data[min(j, i + 40):]
        elif kind == 2: data = data[:j] + data[i:j][:2000] + data[j:]
        elif kind == 3: data = data[:i] + rng.choice(SCRAPS) + data[i:]
        else: data = data[:i]
    return data


def places(value, at=()) -> list[tuple]:
    "The paths of all values in JSON."
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [p for k, v in items for p in places(v, (*at, k))]


def mutated_json(content: dict, rng: random.Random) -> dict:
    "JSON with one to three values replaced or removed."
    content = json.loads(json.dumps(content))
    for _ in range(rng.randint(1, 3)):
        *above, last = rng.choice(places(content))
        inner = content
        for key in above: inner = inner[key]
        if rng.random() < 0.2: inner.pop(last)
        else: inner[last] = rng.choice([*VALUES, *WORDS[:10]])
        if not content: break
    return content


def fuzzed_command(rng: random.Random, d: Path) -> Callable:
    "A command with a few options of its own and wild values."
    name = rng.choice(["sample", "evaluate", "info", "cite", "train", "resume", "edit", "compare"])
    target = rng.choice([str(d / "model"), str(d / "p.jsonl"), *WORDS])
    parser = commands.Parser(prog="loflexmdm", epilog="")
    commands.find_commands()[name].arguments(parser, [])
    options = [o for a in parser._actions for o in a.option_strings if o.startswith("-") and o not in ("-h", "--help")]
    words = [w for o in rng.sample(options, min(len(options), rng.randint(0, 4))) for w in (o, rng.choice(WORDS))]
    if name in ("train", "compare"): words = [w for w in words if w != "--out"]  # runs that are good take long
    argv = [name, target, *words]
    if rng.random() < 0.2: rng.shuffle(argv)
    return lambda: commands.main(argv)


def fuzzed_file(rng: random.Random, d: Path) -> Callable:
    "A file of data or of settings with damage, and what reads it."
    name, read = rng.choice(READERS)
    data = (d / name).read_bytes()
    path = d / f"fuzz_{name}"
    if name.endswith(".gz"): path.write_bytes(gzip.compress(mutated(gzip.decompress(data), rng)))
    else: path.write_bytes(mutated(data, rng))
    if rng.random() < 0.1: path.write_bytes(mutated(path.read_bytes(), rng))
    return lambda: read(path)


def prompts(path): return commands.main(["sample", str(path.parent / "model"), "--prompts", str(path), "-n", "1"])
def scored(path): return commands.main(["evaluate", str(path), "--task", "brackets"])
def texts(path): return commands_like(lambda: list(read_records(path, "t" if ".csv" in path.name else "")))
def molecules(path): return commands_like(lambda: list(read_smiles(path)))
def recipes(path): return commands_like(lambda: recipe_from(read_tables(path)))


def bracket_safe(path):
    text = path.read_bytes().decode(errors="replace")
    decode(text, salvage=True)
    reorder(text, 0)
    return commands_like(lambda: tokenize(text))


READERS = [("p.jsonl", prompts), ("p.txt", prompts), ("s.jsonl", scored), ("s.csv", scored), ("t.csv", texts),
           ("t.txt", texts), ("t.txt.gz", texts), ("m.smi", molecules), ("m.csv", molecules), ("r.toml", recipes),
           ("b.bsafe", bracket_safe)]
ROW = '{"prompt": ["("], "tokens": ["(", ")"], "generated": [0, 1]}\n'
DATA = {
    "p.jsonl": '["("]\n{"prompt": ["(", "..."]}\n', "p.txt": "( ...\n( )\n", "s.jsonl": 2 * ROW,
    "s.csv": "prompt,tokens,generated\n(,( ),0 1\n", "t.csv": 'n,t\n1,one two\n2,"three\nfour"\n',
    "t.txt": "a b\nc\n" * 9,
    "m.smi": "CCO name\nc1ccccc1\n", "m.csv": "smiles,x\nCCO,1\nCC,2\n", "b.bsafe": "CC<1>.c1ccccc1<1>.N",
    "r.toml": '[task]\nkind = "brackets"\nmax_pairs = 3\n[model]\nsize = "nano"\n[train]\nsteps = 2\nlr = 1e-3\n',
}


def fuzzed_checkpoint(rng: random.Random, d: Path) -> Callable:
    "A model or a run with wild values in its descriptions, or tensors of other names, shapes and types."
    shutil.rmtree(d / "fuzz", ignore_errors=True)
    shutil.copytree(d / "half", d / "fuzz")
    (point,) = (d / "fuzz/run/checkpoints").glob("step_*")
    if rng.random() < 0.3: spoil_tensors(point, rng)
    else: spoil_json(rng.choice([point / "config.json", point / "state.json", d / "fuzz/run/run.json"]), rng)
    if rng.random() < 0.5: return lambda: resume(d / "fuzz")
    return lambda: commands.main(["sample", str(point), "-n", "1", "--sampler", "tau", "--steps", "1"])


def spoil_json(path: Path, rng: random.Random):
    content = {k: v for k, v in json.loads(path.read_text()).items() if k != "digest"}
    content = mutated_json(content, rng)
    path.write_text(json.dumps(add_digest(content) if rng.random() < 0.7 else content))


def spoil_tensors(point: Path, rng: random.Random):
    "Change a tensor and the digests that are recorded of its file."
    path = rng.choice(sorted(point.glob("*.safetensors")))
    tensors = load_file(path)
    name = rng.choice(sorted(tensors))
    change = rng.randrange(5)
    if change == 0: tensors[name + "x"] = tensors.pop(name)
    elif change == 1: tensors.pop(name)
    elif change == 2: tensors[name] = tensors[name].reshape(-1)[:1].clone()
    elif change == 3: tensors[name] = tensors[name].half()
    else: tensors[name] = tensors[name] * rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e30])
    save_file(tensors, path)
    for about in (point / "config.json", point / "state.json"):
        if path.name not in read_digests(about): continue
        content = json.loads(about.read_text())
        content["files"][path.name] = file_digest(path)
        about.write_text(json.dumps(add_digest(content)))


KINDS = dict(command=fuzzed_command, file=fuzzed_file, checkpoint=fuzzed_checkpoint)


def prepared(jobs: dict[str, Job], place: Path) -> Path:
    "A directory with whole files of all kinds."
    jobs["resume"].begin(d := place / "fuzzed")
    shutil.copytree(d / "run/best", d / "model")
    (d / "half").mkdir()
    shutil.move(d / "run", d / "half/run")
    for name, text in DATA.items(): (d / name).write_text(text)
    (d / "t.txt.gz").write_bytes(gzip.compress(DATA["t.txt"].encode()))
    return d


def campaign(jobs: dict[str, Job], place: Path, tally: Tally, seed: int, numbers: range, together: int = 25):
    "Fuzzed inputs of all kinds, some in each process; number `i` depends on `seed` and `i` alone."
    d = prepared(jobs, place)
    for first in range(numbers.start, numbers.stop, together):
        some = range(first, min(first + together, numbers.stop))
        for i, told in zip(some, isolated_each([partial(attack, seed, i, d) for i in some])):
            tally.note(f"fuzzed {kind_of(i)}", f"seed {seed}, number {i}", what_went_wrong(told))


def kind_of(number: int) -> str: return list(KINDS)[number % len(KINDS)]


def attack(seed: int, number: int, d: Path):
    "Make an input in `d` and give it to what reads it."
    return KINDS[kind_of(number)](random.Random(f"{seed} {number}"), d)()
