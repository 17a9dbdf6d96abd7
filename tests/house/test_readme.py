"README.md is nbs/index.ipynb: `make update` writes it, the test says when it is behind."
import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
spec.loader.exec_module(build := importlib.util.module_from_spec(spec))


def text_of(output: dict) -> str:
    data = output.get("data", {})
    if "text/markdown" in data: return "".join(data["text/markdown"])
    plain = "".join(data.get("text/plain", output.get("text", "")))
    return "" if "image/png" in data else "\n".join("    " + line for line in plain.rstrip("\n").splitlines())


def readme() -> str:
    "The index notebook as Markdown, with the outputs of its cells and without hidden ones."
    parts = []
    for cell in json.loads((ROOT / "nbs" / "index.ipynb").read_text())["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown": parts.append(source)
        elif not re.match(r"#\|\s*(hide|default_exp)", source):
            code = "\n".join(line for line in source.splitlines() if not line.startswith("#|"))
            parts += [f"```python\n{code}\n```", *(t for t in map(text_of, cell["outputs"]) if t.strip())]
    text = build.with_repository("\n\n".join(parts), build.repository())
    return re.sub(r"\]\((images/|[\w/]+\.ipynb)", r"](nbs/\1", text) + "\n"


def test_readme_is_the_index_notebook():
    assert (ROOT / "README.md").read_text() == readme(), "run make update"


def figures_in(text: str) -> list[str]:
    "Numbers in a text, .2 for 0.2; not those in names such as V2."
    return [n.lstrip("0") or "0" for n in re.findall(r"(?<![\w.])\d*\.?\d+(?![\w.]*\w)", text)]


def test_figures_of_the_first_table_stand_in_its_pages():
    rows = re.findall(r"(?m)^\|(.+)\|(.+)\|(.+)\| \[.+\]\((\S+)\) \|$", readme().split("## ")[1])
    assert 3 <= len(rows) <= 5
    for _, here, others, page in rows:
        cells = json.loads((ROOT / page).read_text())["cells"]
        lines = [line for cell in cells for text in ["".join(cell["source"]), *map(text_of, cell.get("outputs", []))]
                 for line in text.splitlines()]
        for part in [*here.split(";"), *others.split(";")]:
            wanted = figures_in(part)
            assert wanted and any(set(wanted) <= set(figures_in(line)) for line in lines), (part, page)


if __name__ == "__main__": (ROOT / "README.md").write_text(readme())
