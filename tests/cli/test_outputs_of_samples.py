"Samples written under every ending read back as the same texts, for texts, words, graphs and molecules."
import json

import pytest

from loflexmdm.models.row_files import TABLES, TEXTS
from loflexmdm.support.readers import FASTA
from loflexmdm.support.records import EXPECTED, read_records
from loflexmdm.support.table_writers import TABLE_WRITERS
from commands import SMALL, call, refused, status_of

FAMILIES = {"characters": "((.))\n(..)\n((..))\n" * 9, "words": "a b c\nb a\nc a b\n" * 9, "graph": "star-tiny",
            "molecules": "molecules"}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    folder, text = tmp_path_factory.mktemp(request.param), FAMILIES[request.param]
    if "\n" not in text: return request.param, text
    (folder / "a.txt").write_text(text)
    line = f"train {folder / 'a.txt'} --unit {request.param} --steps 2 --out {folder / 'run'}"
    assert call(line, *SMALL)[0] == 0
    return request.param, folder / "run" / "best"


@pytest.fixture(scope="module")
def samples(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("samples") / "s.jsonl"
    assert call(f"sample {model[1]} -n 3 --no-picture --nll 0 --out {path}")[0] == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_tables_are_written_and_fasta_has_one_list():
    assert {*TABLES} == {*TABLE_WRITERS}
    assert {ending for ending, name in EXPECTED.items() if name == "fasta"} == {*FASTA} == {*TEXTS} - {".txt"}


@pytest.mark.slow
@pytest.mark.parametrize("ending", TABLES)
def test_tables_of_samples_read_back(model, samples, tmp_path, ending):
    path = tmp_path / f"s{ending}"
    assert call(f"sample {model[1]} -n 3 --no-picture --nll 0 --out {path}")[0] == 0
    names = read_records(path, "tokens").names
    found = [[*cells, *[""] * (len(names) - len(cells))] for _, cells in read_records(path, "tokens").parse()]
    tokens = [cells[names.index("tokens")] for cells in found]
    assert [t.split() if isinstance(t, str) else t for t in tokens] == [row["tokens"] for row in samples]
    if "text" in names: assert [c[names.index("text")] for c in found] == [row["text"] for row in samples]
    code, text = status_of(f"evaluate {path}")
    assert code == 0 and "3 records, 3 kept" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("ending", TEXTS)
def test_texts_of_samples_read_back(model, samples, tmp_path, ending):
    family, path = model[0], tmp_path / f"s{ending}"
    line = f"sample {model[1]} -n 3 --no-picture --nll 0 --out {path}"
    if ending in FASTA and family in ("words", "graph"): return refused(call(line), "texts with spaces do not fit")
    assert call(line)[0] == 0
    joined = "" if family in ("characters", "molecules") else " "
    texts = [joined.join(row["tokens"]) for row in samples]
    assert list(read_records(path, format="auto" if ending in FASTA else "lines").texts()) == [t for t in texts if t]
