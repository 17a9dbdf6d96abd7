"The tool that plants mutants: what it changes, what it leaves alone, and how tests are chosen."
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import campaign  # noqa: E402
from mutants import mutants, sample  # noqa: E402

TEXT = '''"Docstring with 1 number."
from x import y

@patch
def area(self: Box, a: float, b: float = 2.0) -> float | None:
    "Docstring: 3."
    if a < 0: raise ValueError(f"a={a}: {1 + 1}")
    for _ in range(3): a += swap(a, b)
    return a * b - 1
'''


def kinds(text): return [(m.kind, m.before, m.after) for m in mutants("m.py", text)]


def test_every_change_of_a_patched_method_is_found():
    assert set(kinds(TEXT)) == {
        ("constant", "2.0", "(4.0)"), ("negated condition", "a < 0", "(not (a < 0))"),
        ("comparison", "a < 0", "(a <= 0)"), ("constant", "0", "(1)"),
        ("removed statement", 'raise ValueError(f"a={a}: {1 + 1}")', "pass"),
        ("constant", "3", "(4)"), ("removed statement", "a += swap(a, b)", "pass"),
        ("swapped arguments", "swap(a, b)", "(swap(b, a))"),
        ("arithmetic", "a * b - 1", "(a * b + 1)"), ("dropped term", "a * b - 1", "(a * b)"),
        ("arithmetic", "a * b", "(a / b)"), ("dropped term", "a * b", "(a)"), ("dropped term", "a * b", "(b)"),
        ("constant", "1", "(2)"),
    }


def test_a_mutant_changes_its_place_alone_and_knows_its_function():
    for m in mutants("m.py", TEXT):
        changed = m.plant(TEXT)
        assert changed[:m.start] == TEXT[:m.start] and changed.endswith(TEXT[m.end:]) and changed != TEXT
        assert m.function == "area" and m.runs == (m.before != "2.0")


@pytest.mark.parametrize("text", [
    "def f(x: int = None) -> 'a | b':\n    'text 1'\n    print(1 if x else x)\n", "__all__ = ['a' + 'b']\n", "'text'\n",
])
def test_messages_annotations_and_names_stay(text):
    assert all(k in ("constant", "negated condition") for k, _, _ in kinds(text))


@pytest.mark.parametrize("text", [
    "def f(x, y):\n    return min(x, y)\n", "def f(x, y):\n    return y(x, x)\n",
    "def f(x, y):\n    x = x.to(y.device)\n    return x\n", "def f(x, y):\n    return x.to(y, non_blocking=True)\n",
    "def plot_f(x, y):\n    return x + y\n",
])
def test_what_nothing_can_see_stays(text):
    assert not kinds(text)


def test_reasons_of_mutants_that_are_gone_are_removed(monkeypatch, tmp_path):
    "A module that moves, or a statement that is written anew, gives its mutants other names."
    monkeypatch.setattr(campaign, "EQUIVALENT", tmp_path / "equivalent.json")
    found = list(mutants("m.py", TEXT))
    campaign.EQUIVALENT.write_text(json.dumps({found[0].id: "a reason", "gone": "another"}))
    campaign.forget_reasons(found)
    assert campaign.reasons() == {found[0].id: "a reason"}


def test_a_change_of_one_function_leaves_the_rest_of_the_sample():
    other = TEXT + "\ndef more(c):\n    return c + 5\n"
    first, then = ({m.id for m in mutants("m.py", t)} for t in (TEXT, other))
    assert first < then and len(first) == 14
    chosen = sample(mutants("m.py", TEXT), {"m.py": TEXT}, 5)
    assert len(chosen) == 5 and chosen == sample(mutants("m.py", TEXT)[::-1], {"m.py": TEXT}, 5)
    assert chosen != sample(mutants("m.py", TEXT), {"m.py": TEXT}, 5, seed=1)


def test_mutants_are_planted_in_every_module_that_computes():
    "A module of a new room is mutated, or named among those that only tell."
    package = campaign.ROOT / "loflexmdm"
    names = {p.relative_to(package).as_posix() for p in package.rglob("[!_]*.py")}
    told = {n for n in names for left_out in campaign.TELLING if n == left_out or n.startswith(f"{left_out}/")}
    mutated = {p.relative_to(package).as_posix() for p in campaign.computing(campaign.ROOT)}
    assert mutated | told == names and not mutated & told
    assert all((package / left_out).exists() for left_out in campaign.TELLING) and len(mutated) > 90


def test_which_tests_are_tried():
    "Those that run the line; of a line that runs in other processes alone those of its module."
    of_imports = campaign.OF_IMPORTS[0]
    ran = {"a::one": dict(seconds=1.0, lines={"m.py": [5, 6]}), "a::two": dict(seconds=0.1, lines={"m.py": [9]})}
    tests = campaign.Tests(dict(a=ran, b={of_imports: dict(seconds=0.0, lines={})}), {})
    here = next(m for m in mutants("m.py", TEXT) if m.line == 7 and m.runs)
    for line, found in ((6, ["a::one"]), (9, ["a::two"]), (7, ["a::one", "a::two"])):
        assert tests.reaching(here._replace(line=line, last=line)) == found
    default = next(m for m in mutants("m.py", TEXT) if not m.runs)
    assert tests.order(default, 60.0)[0] == of_imports and campaign.is_default(default)
    assert tests.longest(["a::two", "a::one"]) == [1.0, 1.0]  # what the first makes for both, the second makes alone
