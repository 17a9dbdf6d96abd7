"Tools and checks compute what they say."
import importlib.util
import json
from pathlib import Path

import check
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def tool(path: str):
    "Import a tool as its command line would."
    spec = importlib.util.spec_from_file_location(f"tool_{Path(path).stem}", TOOLS / path)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_a_release_needs_one_version_and_a_dated_part_of_the_changelog():
    release = tool("release.py")
    text = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2030-01-02\n\n- a\n\n## 1.1.0 - 2029-01-02\n\n- b\n"
    assert release.notes(text, "1.2.0") == "- a\n" and release.notes(text, "1.1.0") == "- b\n"
    assert release.faults("1.2.0", text, "version: 1.2.0\n") == []
    found = release.faults("1.3", text.replace("Unreleased\n", "Unreleased\n\n- c\n"), "version: 1.2.0\n")
    assert [line.split(":")[0] for line in found] == ["version 1.3", "CHANGELOG.md", "CHANGELOG.md", "CITATION.cff"]


def test_the_version_is_the_same_everywhere():
    release = tool("release.py")
    number = release.version()
    found = release.faults(number, release.read("CHANGELOG.md"), release.read("CITATION.cff"))
    assert [line for line in found if "Unreleased" not in line] == []  # lines may wait for the next version


def test_times_have_two_digits():
    written = tool("page_times.py").rounded
    assert [written(seconds) for seconds in (0.2, 6.7, 41.6, 118.2)] == ["1", "7", "42", "120"]


def test_cells_that_the_site_hides_are_collapsed():
    update = tool("update.py")
    sources = {
        "1 + 1": {}, "#| hide\nimport x": dict(outputs_hidden=True, source_hidden=True), "#| export\ndef f(): ...": {},
        "#| code-fold: true\n#| code-summary: \"Show f\"\nf()": dict(source_hidden=True),
        "#| code-fold: true\n#| code-summary: \"An answer\"\nf()": dict(outputs_hidden=True, source_hidden=True),
    }
    cells = [dict(cell_type="code", metadata={}, source=[s], outputs=[]) for s in sources]
    cells[0]["metadata"] = dict(jupyter=dict(source_hidden=True), tags=["a"])  # hidden before
    text = json.dumps(dict(cells=cells))
    found = json.loads(new := update.with_folds(text))["cells"]
    assert [c["metadata"].get("jupyter", {}) for c in found] == list(sources.values())
    assert found[0]["metadata"] == dict(tags=["a"]) and update.with_folds(new) is new


def test_notebooks_are_collapsed_as_the_site_has_them():
    update = tool("update.py")
    texts = {path: path.read_text(encoding="utf-8") for path in update.notebooks()}
    other = [str(path.relative_to(update.ROOT)) for path, text in texts.items() if update.with_folds(text) != text]
    assert not other, f"run make update: {', '.join(other)}"


def test_what_depends_on_a_room_is_what_imports_from_it():
    found = check.of_room("samplers")
    assert {"tests/samplers/test_samplers.py", "tests/methods/test_masked.py"} <= set(found)
    page = "tests/house/test_notebooks.py::test_notebook"
    assert {f"{page}[samplers/09_entropy_bounded.ipynb]", f"{page}[exact/02_samplers.ipynb]"} <= set(found)
    assert not [name for name in found if "test_site" in name or "support/01_limits" in name]
    with pytest.raises(ValueError, match="room='sampler': choose one of cli, exact"): check.of_room("sampler")
