"The figures of a small package are those that were written into it."
import house
import pytest

PACKAGE = {
    "__init__.py": "",
    "support/limits.py":
        '"What is allowed."\nMOST = 3\nclass A:\n    size: int = 2\n\n\ndef f(a, b=1): return a + b\n',
    "process/states.py": (
        "from typing import TYPE_CHECKING\nfrom ..support.limits import MOST\n"
        "from ..support.registries import imported\n"
        'if TYPE_CHECKING:\n    from ..methods.base import Method\n'
        'def g(): imported("loflexmdm.tasks.base.task_from")\n'
    ),
    "methods/base.py": '"Methods."\ndef h():\n    from ..process import states\n',
    "support/registries.py": "", "tasks/base.py": '"Return tasks, and no more."\n',
}
TABLE = "FLOORS = dict(support=1, process=2, methods=4, tasks=6)\n"


@pytest.fixture
def checkout(tmp_path):
    "A checkout of a small package."
    for name, text in PACKAGE.items():
        (path := tmp_path / "loflexmdm" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tests" / "house").mkdir(parents=True)
    (tmp_path / "tests" / "house" / "test_layers.py").write_text(TABLE)
    return tmp_path


def test_arrows_and_circles_count_type_hints_functions_and_strings(checkout):
    found = house.Checkout(checkout)
    assert house.arrows_up(found) == [("process.states", "methods.base"), ("process.states", "tasks.base")]
    assert house.circles(found) == [{"process.states", "methods.base"}]


def test_docstrings_and_defaults_are_read(checkout):
    found = house.figures(before := house.Checkout(checkout), run=False)
    assert found["docstrings"] == 3 and found["docstrings that begin with What"] == 1
    assert found["words in first sentences, most"] == 5
    (checkout / "loflexmdm/support/limits.py").write_text(PACKAGE["support/limits.py"].replace("b=1", "b=5"))
    assert house.changed_defaults(before, house.Checkout(checkout)) == ["support.limits:f(b): 1 -> 5"]
    assert house.defaults(before).keys() == {f"support.limits:{name}" for name in ("MOST", "A.size", "f(b)")}


def test_uses_are_counted_within_modules_and_between_them(checkout):
    (checkout / "loflexmdm/support/limits.py").write_text(
        "class A: ...\ndef f(): return A()\ndef _g(): return f()\ndef h(): return f()\n")
    (checkout / "loflexmdm/methods/base.py").write_text("from ..support.limits import h\ndef k(): return h()\n")
    found = house.of_uses(house.Checkout(checkout))
    # A is used once, and f twice, in their own module; h also in another; k, g of states and _g nowhere
    assert list(found.values()) == [6, 1, 4]
