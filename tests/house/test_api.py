"One API, whatever was imported first: the same calls work in a process that began with any module of the package."
import importlib
import pkgutil

import forks
import pytest

import loflexmdm

CALLS = """
import importlib, sys, tempfile
importlib.import_module({module!r})
import loflexmdm

m = loflexmdm.load("star-tiny")
task = m.task
s = m.sample(task.prompts("test", 2), seed=0, record=True)
assert s.texts == list(s) == [s[0], s[1]] and all(s.texts), s.texts
assert s[0:2] == s.texts
assert list(s.frame()["text"]) == s.texts
with tempfile.TemporaryDirectory() as place:
    assert s.save(place + "/answers.txt").read_text().splitlines() == s.texts
    m.save(place + "/model")
    again = loflexmdm.load(place + "/model")
    assert again.sample(task.prompts("test", 2), seed=0).texts == s.texts
assert "<svg" in s.player()._repr_html_()
assert callable(m.push)
try: m.prompt("4 1")
except ValueError as e: assert "'star' has no prompts written as text" in str(e)
print(s.texts)
"""


def modules_to_begin_with() -> list[str]:
    "The package and a module of each room."
    found = ["loflexmdm"]
    for room in pkgutil.iter_modules(loflexmdm.__path__, "loflexmdm."):
        if not room.ispkg: continue
        package = importlib.import_module(room.name)
        modules = [m.name for m in pkgutil.iter_modules(package.__path__, room.name + ".") if "__main__" not in m.name]
        found.append(modules[-1])
    return found


@pytest.mark.parametrize("module", modules_to_begin_with())
@pytest.mark.slow
def test_the_same_calls_after_any_import(module):
    done = forks.run(["-c", CALLS.format(module=module)])
    assert done.returncode == 0, done.stderr
    wanted = ["6 3 0 7 2 8 7 1 0 2 0 6 0 3 0 6 6 3", "1 6 9 4 2 8 1 2 6 0 1 9 1 8 1 2 2 8"]
    assert done.stdout == f"{wanted}\n", done.stdout


def test_a_model_asked_nothing_answers_the_prompts_of_its_task():
    model = loflexmdm.load("star-tiny")
    asked = model.sample(model.prompts("test", 3), seed=0).texts
    assert model.sample(n=3, seed=0).texts == asked and model.sample([[]], n=3, seed=0).texts != asked
