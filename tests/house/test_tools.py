"The tools begin, count what they should, and write nothing where nothing has changed."
import importlib.util
import sys
from pathlib import Path

import check
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def tool(path: str):
    "Import a tool as its command line would."
    spec = importlib.util.spec_from_file_location(f"tool_{Path(path).stem}", TOOLS / path)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


@pytest.mark.parametrize("path", ["update.py", "house.py", "page_times.py", "mutation/campaign.py"])
def test_a_tool_begins_and_tells_its_options(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "argv", [path, "--help"])
    with pytest.raises(SystemExit) as ended: tool(path).main()
    assert ended.value.code == 0 and path.split("/")[-1] in capsys.readouterr().out


def test_times_have_two_digits():
    written = tool("page_times.py").rounded
    assert [written(seconds) for seconds in (0.2, 6.7, 41.6, 118.2)] == ["1", "7", "42", "120"]


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
    house = tool("house.py")
    found = house.Checkout(checkout)
    assert house.arrows_up(found) == [("process.states", "methods.base"), ("process.states", "tasks.base")]
    assert house.circles(found) == [{"process.states", "methods.base"}]


def test_docstrings_and_defaults_are_read(checkout):
    house = tool("house.py")
    found = house.figures(before := house.Checkout(checkout), run=False)
    assert found["docstrings"] == 3 and found["docstrings that begin with What"] == 1
    assert found["words in first sentences, most"] == 5
    (checkout / "loflexmdm/support/limits.py").write_text(PACKAGE["support/limits.py"].replace("b=1", "b=5"))
    assert house.changed_defaults(before, house.Checkout(checkout)) == ["support.limits:f(b): 1 -> 5"]
    assert house.defaults(before).keys() == {f"support.limits:{name}" for name in ("MOST", "A.size", "f(b)")}


def test_what_depends_on_a_room_is_what_imports_from_it():
    found = check.of_room("samplers")
    assert {"tests/samplers/test_samplers.py", "tests/methods/test_masked.py"} <= set(found)
    page = "tests/house/test_notebooks.py::test_notebook"
    assert {f"{page}[samplers/10_bounded_error.ipynb]", f"{page}[exact/06_rank_calibration.ipynb]"} <= set(found)
    assert not [name for name in found if "test_site" in name or "support/01_limits" in name]
    with pytest.raises(ValueError, match="room='sampler': choose one of cli, exact"): check.of_room("sampler")
