"""Plants mutants in a copy of the repository, one at a time, and runs the tests that reach the changed line.

`python tools/mutation/campaign.py [--mutants N] [--budget SECONDS] [--work FOLDER]`. A session of pytest
collects all tests once. For each mutant it forks; the child gives the functions in memory their changed code, and
runs the tests that reach them in the order of their durations and earlier successes, up to the first failure. A
mutant that runs only when its module is imported is planted in the copy's files and tried in a process that imports
them. The notebook of the module, planted too, runs for those that survive its tests. With --imports the survivors run
all these tests again in such a process, and every notebook that reaches them. Limits are of processor time.
What is known is kept in report.json and is not tried again while the mutant's function keeps its text, unless asked
with --again. report.md is written from it."""
import argparse
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests")]
import forks  # noqa: E402
from mutants import Mutant, mutants, planted_cell, sample  # noqa: E402
from reach import Plugin, Reach  # noqa: E402

# rooms whose modules are mutated, and whose tests run
ROOMS = (
    "process", "samplers", "methods", "training", "exact", "networks", "models", "tasks", "molecules", "support",
    "reports",
)
# modules, and a room, that compute nothing: they ask, tell, draw and quote
TELLING = (
    "cli", "models/hub.py", "molecules/report.py", "reports/citations.py", "reports/demo.py", "reports/figures.py",
    "models/player.py", "support/colours.py", "support/notebook.py",
)
# tests of the command line in processes of their own, and those that take long
LEFT_OUT = {"changed_data"}
# tests outside the rooms that run in one process
FURTHER = (
    "attacks/test_damage.py", "attacks/test_large_data.py",
    "attacks/test_safety.py", "cli/test_cli_molecules.py", "cli/test_edit.py",
)
# tests that see what a module sets when it is imported, and run none of its lines
OF_IMPORTS = (
    "tests/support/test_configs.py::test_the_schema_in_the_package_is_current_and_presets_name_it",
    "tests/molecules/test_defaults.py::test_what_is_exchanged_and_counts_as_similar",
    "tests/molecules/test_defaults.py::test_how_streams_are_shuffled",
    "tests/molecules/test_defaults.py::test_how_spellings_and_parents_are_tried",
)
REPORT, EQUIVALENT = HERE / "report.json", HERE / "equivalent.json"
MEMORY = 24 << 30  # address space of a mutant's process, in bytes
KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "untested"


class Try(NamedTuple):
    "How a mutant ended."
    status: str
    killer: str     # the test that failed
    seconds: float


# The copy

def copy_tree(work: Path) -> Path:
    "The files of the repository, with old times, so that a planted file is newer than its bytecode."
    tree = work / "tree"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    gone = {p for p in tree.rglob("*") if p.is_file() and p.suffix != ".pyc"} - {tree / name for name in names}
    for path in gone: path.unlink()
    for name in names:
        content, path = (ROOT / name).read_bytes(), tree / name
        if path.is_file() and path.read_bytes() == content: continue
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.stat().st_mtime if path.exists() else 1e9
        path.write_bytes(content)
        os.utime(path, (old + 10, old + 10))  # another time than its bytecode has
    return tree


def cells_of(module: str, text: str) -> list[tuple[int, int, str, str]]:
    "Start and end of each exported cell in a module's text, its notebook and its name there."
    marks, at = [], 0
    for line in text.splitlines(keepends=True):
        if line.startswith("# %% ") and ".ipynb #" in line:
            path, cell = line.removeprefix("# %% ").split()
            marks.append((at + len(line), at, str(os.path.normpath(Path(module).parent / path)), cell[1:]))
        at += len(line)
    ends = [m[1] for m in marks[1:]] + [len(text)]
    return [(start, end, notebook, cell) for (start, _, notebook, cell), end in zip(marks, ends)]


def plant(tree: Path, mutant: Mutant) -> tuple[dict[Path, bytes], dict[Path, float]]:
    "Change the module and the cell of its notebook; what they held before, and their times."
    path = tree / mutant.module
    text = path.read_text(encoding="utf-8")
    before, after = {path: path.read_bytes()}, mutant.plant(text)
    times = {path: path.stat().st_mtime}
    for start, end, name, cell in cells_of(mutant.module, text):
        if not start <= mutant.start < end: continue
        notebook = tree / name
        before[notebook], times[notebook] = notebook.read_bytes(), notebook.stat().st_mtime
        grown = end + len(after) - len(text)
        plant_in_notebook(notebook, cell, text[start:end], after[start:grown])
    path.write_text(after, encoding="utf-8")
    return before, times


def plant_in_notebook(path: Path, cell: str, chunk: str, mutated: str):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for one in notebook["cells"]:
        if one.get("id") != cell: continue
        source = planted_cell("".join(one["source"]), chunk, mutated)
        if source is not None: one["source"] = source.splitlines(keepends=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def restore(before: dict[Path, bytes], times: dict[Path, float]):
    for path, content in before.items():
        path.write_bytes(content)
        os.utime(path, (times[path], times[path]))


# A process per try

def fork(out: Path, limit: float, what, environment=lambda: None) -> int | None:
    "Exit code of `what()` in a child that prints into a file; None over `limit` seconds of processor time."
    sys.stdout.flush()
    if not (child := os.fork()): become(out, limit, what, environment)
    end = time.monotonic() + 60 + 20 * limit  # for one that waits
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done: break
        time.sleep(0.01)
    else: status = None
    stop_group(child, wait=status is None)
    code = None if status is None else os.waitstatus_to_exitcode(status)
    return None if code in (-signal.SIGXCPU, -signal.SIGPROF, -signal.SIGKILL) else code


def stop_group(child: int, wait: bool):
    "End what a child left behind."
    try: os.killpg(child, signal.SIGKILL)
    except ProcessLookupError: pass
    if wait: os.waitpid(child, 0)


def become(out: Path, limit: float, what, environment):
    "The child: a session of its own, little memory, limited time."
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    most = int(used + limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2): os.dup2(descriptor, stream)
    code = 70
    try:
        environment()
        code = what()
    except BaseException as error: print(repr(error), flush=True)
    sys.stdout.flush()
    os._exit(code)


def in_tree(tree: Path, cwd: Path | None = None):
    "What makes the copy the package of a child that has not imported it."
    def environment():
        os.chdir(cwd or tree)
        os.environ.update(forks.ALWAYS, PYTHONPATH=str(tree))
        sys.path[:0] = [str(tree), str(tree / "tests")]
    return environment


def run_notebook(tree: Path, name: str) -> int:
    from nbdev.test import test_nb
    return int(not test_nb(tree / name, skip_flags=["notest", "slow", "gpu"], basepath=tree)[0])


# What reaches what

def measure(tree: Path, work: Path, files: list[str], known: dict) -> dict:
    "Seconds and lines of every test and notebook, kept in work/reach.json."
    for name in files:
        if name in known: continue
        target, out = work / "one.json", work / "out.txt"
        target.unlink(missing_ok=True)
        what = partial(measured, tree, name, target)
        code = fork(out, 400, what, in_tree(tree, folder(tree, name)))
        known[name] = json.loads(target.read_text()) if target.exists() else {}
        seconds = sum(t["seconds"] for t in known[name].values())
        print(f"{name}: {len(known[name])} tests, {seconds:.1f} s, exit {code}", flush=True)
        if code: print(out.read_text(errors="replace")[-600:], flush=True)
        (work / "reach.json").write_text(json.dumps(known))
    return known


def folder(tree: Path, name: str) -> Path:
    "Where a test file or a notebook runs."
    return (tree / name).parent if name.endswith(".ipynb") else tree


def measured(tree: Path, name: str, target: Path) -> int:
    if name.endswith(".py"):
        import pytest
        plugin = Plugin(tree)
        code = int(pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", name], plugins=[plugin]))
        found = plugin.result()
    else:
        (reach := Reach(tree)).start()
        code = run_notebook(tree, name)
        found = {} if code else {name: reach.stop()}
    target.write_text(json.dumps(found))
    return code


def in_scope(tree: Path, notebooks: bool) -> list[str]:
    "Test files, and with `notebooks` these too, in the order of their names."
    files = [p for room in (*ROOMS, "golden") for p in sorted((tree / "tests" / room).glob("test_*.py"))]
    tests = [p for p in files if p.stem.removeprefix("test_") not in LEFT_OUT]
    tests += [tree / "tests" / name for name in FURTHER]
    pages = [p for room in ROOMS for p in sorted((tree / "nbs" / room).rglob("*.ipynb"))]
    return [str(p.relative_to(tree)) for p in [*tests, *(pages if notebooks else [])]]


class Tests:
    "Which tests can see a mutant, in the order in which they should be tried."
    def __init__(self, reach: dict, notebooks: dict):
        self.tests = {name: one for file in reach.values() for name, one in file.items()}
        self.notebooks, self.kills = notebooks, Counter()
        self.lines = {n: {m: set(v) for m, v in one["lines"].items()} for n, one in self.tests.items()}

    def reaching(self, mutant: Mutant) -> list[str]:
        first, last = (mutant.line, mutant.last) if mutant.runs else mutant.body
        wanted = set(range(first, last + 1))
        found = [n for n, lines in self.lines.items() if wanted & lines.get(mutant.module, set())]
        if not found: found = [n for n, lines in self.lines.items() if mutant.module in lines]  # in other processes
        if not mutant.runs: found += [n for n in OF_IMPORTS if n in self.tests and n not in found]
        return [n for n in found if n != self.notebooks.get(mutant.module)]  # it is tried by itself

    def order(self, mutant: Mutant, budget: float) -> list[str]:
        "The cheapest per earlier kill in the module first, within `budget` seconds."
        def cost(name): return (self.tests[name]["seconds"] + 0.02) / (1 + self.kills[mutant.module, name])
        cases, chosen, total = Counter(), [], 0.0
        weight = {}
        for name in sorted(self.reaching(mutant), key=cost):
            cases[name.split("[")[0]] += 1  # the tenth case of a test says less than the first of another
            weight[name] = cost(name) * cases[name.split("[")[0]]
        for name in sorted(weight, key=weight.get):
            total += self.tests[name]["seconds"]
            if total > budget and chosen: break
            chosen.append(name)
        return chosen

    def longest(self, names: list[str]) -> list[float]:
        "Seconds that a test may take by itself: those of its file's longest, which may have made what all of them use."
        most = Counter()
        for name, one in self.tests.items():
            file = name.split("::")[0]
            most[file] = max(most[file], one["seconds"])
        return [most[name.split("::")[0]] for name in names]

    def noted(self, notebook: str, seconds: float | None):
        "Seconds of a notebook without a change, None if it fails."
        self.tests.pop(notebook, None)
        if seconds is not None: self.tests[notebook] = dict(seconds=seconds, lines={})

    def seconds(self, names: list[str]) -> float: return sum(self.tests[n]["seconds"] for n in names)


# A try in memory

class Live:
    "The functions of the package that this process has, by file, name and first line."
    def __init__(self, tree: Path):
        self.tree, self.functions = tree, defaultdict(list)
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType) and one.__code__.co_filename.startswith(str(tree)):
                self.functions[one.__code__].append(one)

    def change(self, mutant: Mutant) -> bool:
        "Give functions their changed code; False where there are none, or the new code does not fit them."
        path = self.tree / mutant.module
        text = path.read_text(encoding="utf-8")
        pairs = list(changed_code(*(compile(t, str(path), "exec") for t in (text, mutant.plant(text)))))
        found = [(f, new) for old, new in pairs for f in self.functions.get(old, ())]
        for function, new in found:
            if len(new.co_freevars) != len(function.__code__.co_freevars): return False
            function.__code__ = new
        return bool(found)


def changed_code(old: types.CodeType, new: types.CodeType):
    "Functions of two versions of a module whose code differs, in pairs, outermost first."
    if old.co_name != "<module>" and old != new: yield old, new
    inner = [[c for c in code.co_consts if isinstance(c, types.CodeType)] for code in (old, new)]
    for pair in zip(*inner): yield from changed_code(*pair)


def run_items(items: list, seconds: list[float], first: Path) -> int:
    "Run collected tests up to the first failure, whose name is written; one that takes far too long ends the process."
    from _pytest.runner import runtestprotocol
    for item, after, usual in zip(items, [*items[1:], None], seconds):
        first.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, 1.5 + 4 * usual)
        if any(r.failed for r in runtestprotocol(item, log=False, nextitem=after)): return 1
    return 0


class Loop:
    "In place of pytest's own loop: the campaign, with the collected tests."
    def __init__(self, action): self.action = action

    def pytest_runtestloop(self, session):
        gc.collect()
        self.action({item.nodeid: item for item in session.items})
        return True


class Bench(NamedTuple):
    "What a try needs."
    tree: Path
    work: Path
    tests: Tests
    items: dict  # collected tests by name
    live: Live

    @property
    def first(self) -> Path: return self.work / "first.txt"

    def fork(self, names: list[str], what, environment=lambda: None) -> tuple[str, str]:
        "Status and killer, from a child that writes the first failure; a code of 71 says that nothing was tried."
        self.first.unlink(missing_ok=True)
        code = fork(self.work / "out.txt", 10 + 3 * self.tests.seconds(names), what, environment)
        if code in (0, 71): return (SURVIVED if code == 0 else UNTESTED), ""
        killer = self.first.read_text() if self.first.exists() else names[0]
        return (TIMEOUT if code is None else KILLED), killer

    def started(self, names: list[str]) -> tuple[str, str]:
        "Status and killer, from a process that has imported nothing of the package before."
        self.first.unlink(missing_ok=True)
        request = [str(self.tree), str(self.first), 20 + 3 * self.tests.seconds(names), names]
        code = f"import sys; sys.path[:0] = [{str(HERE)!r}]; import one; sys.exit(one.main(*{request!r}))"
        env = os.environ | {"PYTHONPATH": str(self.tree)}
        done = forks.run(["-c", code], cwd=folder(self.tree, names[0]), env=env)
        if done.returncode == 0: return SURVIVED, ""
        killer = self.first.read_text() if self.first.exists() else names[0]
        return (TIMEOUT if done.returncode in (-signal.SIGXCPU, -signal.SIGALRM) else KILLED), killer

    def passes(self, notebook: str) -> bool:
        "Whether a notebook passes without a change, and so can say something; its seconds are kept in own.json."
        path = self.work / "own.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        if notebook not in known:
            began = time.monotonic()
            self.tests.noted(notebook, 100.0)
            passed = self.started([notebook])[0] == SURVIVED
            known[notebook] = round(time.monotonic() - began, 3) if passed else None
            path.write_text(json.dumps(known))
        self.tests.noted(notebook, known[notebook])
        return known[notebook] is not None

    def in_memory(self, mutant: Mutant, names: list[str]) -> tuple[str, str]:
        seconds, items = self.tests.longest(names), [self.items[n] for n in names]
        return self.fork(names, lambda: run_items(items, seconds, self.first) if self.live.change(mutant) else 71)

    def in_files(self, mutant: Mutant, names: list[str]) -> tuple[str, str]:
        "Tests, then notebooks, each of these in a process of its own that imports the changed file."
        before, times = plant(self.tree, mutant)
        try:
            cases = [n for n in names if n in self.items]
            for group in filter(None, [cases, *([n] for n in names if n not in self.items)]):
                status, killer = self.started(group)
                if status != SURVIVED: return status, killer
        finally: restore(before, times)
        return SURVIVED, ""


def try_mutant(bench: Bench, mutant: Mutant, budget: float, notebook: bool, files: bool) -> Try:
    "In memory, then in files: tests that were not tried yet, the notebook of the module, and with `files` the rest."
    began, names = time.monotonic(), bench.tests.order(mutant, budget)
    cases = [n for n in names if n in bench.items]
    status, killer = bench.in_memory(mutant, cases) if mutant.runs and cases else (UNTESTED, "")
    if status == UNTESTED and cases: status, killer = bench.in_files(mutant, cases)

    # dearer ones, for those that live
    dead = KILLED, TIMEOUT
    own = bench.tests.notebooks[mutant.module]
    if status not in dead and notebook and bench.passes(own): status, killer = bench.in_files(mutant, [own])
    if status not in dead and files and names: status, killer = bench.in_files(mutant, names)
    if status == KILLED: bench.tests.kills[mutant.module, killer] += 1
    return Try(status, killer, round(time.monotonic() - began, 2))


# The report

def write(report: dict, path: Path):
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    path.with_suffix(".md").write_text(markdown(report), encoding="utf-8")


def reasons() -> dict[str, str]:
    "Why a mutant changes nothing that can be observed, by its name."
    return json.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else {}


def share(rows: list[dict], equivalent: dict) -> tuple[int, int, int]:
    "Killed (or timed out), equivalent among the rest, all."
    dead = sum(r["status"] in (KILLED, TIMEOUT) for r in rows)
    return dead, sum(lives(r) and r["id"] in equivalent for r in rows), len(rows)


def line_of(name: str, rows: list[dict], equivalent: dict) -> str:
    dead, same, n = share(rows, equivalent)
    timeouts = sum(r["status"] == TIMEOUT for r in rows)
    found = f"{100 * dead / max(n - same, 1):.1f} %"
    return f"| {name} | {n} | {dead} | {timeouts} | {n - dead - same} | {same} | {found} |"


def markdown(report: dict) -> str:
    "The table by module and by kind, then every survivor."
    rows, equivalent = report["mutants"], reasons()
    by = [("module", "module"), ("kind of change", "kind")]
    lines = ["# Mutants", "", report["note"], ""]
    for title, key in by:
        head = [title, "planted", "killed", "of these by time", "survived", "equivalent", "killed, equivalent aside"]
        lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for name in sorted({r[key] for r in rows}):
            lines.append(line_of(name, [r for r in rows if r[key] == name], equivalent))
        lines += [line_of("**all**", rows, equivalent), ""]
    lines += ["## Survivors", "", "| mutant | where | change | reason |", "|---|---|---|---|"]
    left = filter(lives, rows)
    return "\n".join([*lines, *(survivor(r, equivalent.get(r["id"], "not detected")) for r in left)]) + "\n"


def lives(row: dict) -> bool: return row["status"] in (SURVIVED, UNTESTED)


def survivor(row: dict, reason: str) -> str:
    change = f"`{flat(row['before'])}` to `{flat(row['after'])}`".replace("|", "\\|")
    return f"| {row['id']} | {row['module']}:{row['line']} {row['function']} | {row['kind']}: {change} | {reason} |"


def flat(text: str, most: int = 70) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most - 3] + "..."


def computing(root: Path) -> list[Path]:
    "The modules that are mutated: all of the rooms, but those that only tell."
    found = [p for room in ROOMS for p in sorted((root / "loflexmdm" / room).rglob("[!_]*.py"))]
    return [p for p in found if p.relative_to(root / "loflexmdm").as_posix() not in TELLING]


def is_default(mutant: Mutant) -> bool:
    "Check whether a mutant is another default or constant, which `tools/house.py` lists."
    return mutant.kind == "constant" and not mutant.runs


def forget_reasons(found: list[Mutant]):
    "Remove the reasons of mutants that are no longer in the package."
    kept = {name: why for name, why in reasons().items() if name in {m.id for m in found}}
    if kept != reasons(): EQUIVALENT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def planted(n: int, seed: int, where: str = "") -> tuple[list[Mutant], int, dict[str, str]]:
    "The sample, the number of all mutants whose place matches `where`, and the notebook of each module."
    texts = {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in computing(ROOT)}
    place = lambda m: f"{m.module.removeprefix('loflexmdm/')}:{m.function}"
    every = [m for module, text in texts.items() for m in mutants(module, text)]
    forget_reasons(every)
    found = [m for m in every if re.search(where, place(m)) and not is_default(m)]
    notebooks = {module: cells_of(module, text)[0][2] for module, text in texts.items()}
    return sample(found, texts, n, seed), len(found), notebooks


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def entry(mutant: Mutant, result: Try) -> dict:
    fields = ("id", "module", "function", "line", "kind", "before", "after")
    return {k: getattr(mutant, k) for k in fields} | result._asdict()


def campaign(options, bench: Bench, chosen: list[Mutant], total: int):
    "Try each mutant of the sample that has no result yet."
    path = options.report
    old = json.loads(path.read_text(encoding="utf-8"))["mutants"] if path.exists() else []
    known = {r["id"]: r for r in old}
    for r in old: bench.tests.kills[r["module"], r["killer"]] += r["status"] == KILLED
    for i, mutant in enumerate(sorted(chosen, key=lambda m: not m.runs)):  # those that need imports last
        before = known.get(mutant.id)
        if before and not (options.again and lives(before) and mutant.id not in reasons()): continue
        result = try_mutant(bench, mutant, options.budget, not options.tests, options.imports)
        known[mutant.id] = entry(mutant, result)
        where = f"{mutant.module}:{mutant.line} {mutant.kind}: {flat(mutant.before, 50)} -> {flat(mutant.after, 50)}"
        print(f"{i + 1}/{len(chosen)} {result.status} {result.seconds:.1f} s {where} [{result.killer}]", flush=True)
        rows = [known[m.id] | dict(line=m.line) for m in chosen if m.id in known]
        write(dict(commit=commit(), all=total, sample=len(chosen), seed=options.seed,
                   note=note(rows, total, options), mutants=rows), path)


def run_campaign(options, tree: Path, reach: dict):
    "Collect the tests, then plant."
    import pytest
    chosen, total, notebooks = planted(options.mutants, options.seed, options.where)
    def action(items):
        print(f"{len(items)} tests collected", flush=True)
        bench = Bench(tree, options.work, Tests(reach, notebooks), items, Live(tree))
        gc.freeze()
        campaign(options, bench, chosen, total)
    in_tree(tree)()
    files = [name for name, found in reach.items() if name.endswith(".py") and found]
    pytest.main(["-q", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", *files], plugins=[Loop(action)])


def note(rows: list[dict], total: int, options) -> str:
    dead, same, n = share(rows, reasons())
    return (
        f"Commit {commit()}: {n} of {total} mutants (seed {options.seed}), {dead} killed, {n - dead - same} survived, "
        f"{same} equivalent; {100 * dead / max(n - same, 1):.1f} % of those that are not equivalent are killed."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--where", default="", help="pattern of places, such as ^process/clocks.py:Clock")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests per mutant")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "loflexmdm-mutants")
    parser.add_argument("--report", type=Path, default=REPORT, help="where results are kept; a table goes beside it")
    parser.add_argument("--again", action="store_true", help="try survivors again, equivalent ones aside")
    parser.add_argument("--tests", action="store_true", help="no notebooks, which take most of the time")
    parser.add_argument("--imports", action="store_true", help="try survivors also in files, and by other notebooks")
    parser.add_argument("--files", nargs="*", help="measure these tests and notebooks again")
    parser.add_argument("--measure", action="store_true", help="only measure what reaches what")
    parser.add_argument("--known", action="store_true", help="do not measure, take what is there")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    forks.import_packages()
    tree = copy_tree(options.work)
    kept = options.work / "reach.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for name in options.files or []: known.pop(name, None)
    if not options.known: known = measure(tree, options.work, options.files or in_scope(tree, options.imports), known)
    if not options.measure: run_campaign(options, tree, known)


if __name__ == "__main__": main()
