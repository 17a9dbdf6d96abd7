"Registries: what other packages offer is read once."
import os
import sys

import pytest

from loflexmdm.support import registries


def test_entry_points_are_read_once_until_a_folder_changes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    read, offered = [], registries.Registry("toy", (), "loflexmdm.toys")
    real = registries.entry_points
    monkeypatch.setattr(registries, "entry_points", lambda: read.append("once") or real())

    def install(name: str, second: int):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[loflexmdm.toys]\n{name} = {name}\n")
        os.utime(tmp_path, (second, second))  # two changes within a tick of the clock would look like one

    install("one", 1)
    assert [*offered.plugins()] == [*offered.plugins()] == ["one"] and len(read) == 1
    install("two", 2)
    assert sorted(offered.plugins()) == ["one", "two"] and len(read) == 2


class Base:
    "What classes of files extend."


FILE = """from test_registries_base import Base
class Good(Base): value = 1
class Other: pass
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "test_registries_base.py").write_text("class Base: pass\n")
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("raise SystemExit('no')")
    monkeypatch.chdir(tmp_path)
    yield registries.Registry("toy", (), "loflexmdm.none", "test_registries_base.Base")
    own = (registries.FILES, "test_registries_base")
    for name in [name for name in sys.modules if name.startswith(own)]: del sys.modules[name]


def test_a_class_of_a_file_runs_once_it_is_allowed(files, tmp_path):
    name = f"{tmp_path / 'mine.py'}:Good"
    with pytest.raises(ValueError, match="toy=.*the file names code, which does not run"): files["mine.py:Good"]
    with registries.permit_code(): found = files["mine.py:Good"]
    assert found.value == 1 and files[name] is found is files["./mine.py:Good"] and name in files
    assert "mine.py:Good" not in files
    assert files.read("mine.py:Good") == name and files.read("plain") == "plain"
    with registries.permit_code(), registries.permit_code(False): registries.check_code_allowed("a", "b")
    with pytest.raises(ValueError, match="--allow-code"): registries.check_code_allowed("a", "b")


@pytest.mark.parametrize("name, message", [
    ("none.py:Good", "no such file"), ("broken.py:Good", "cannot be run .SystemExit: no"), ("mine.py:Other", "Other"),
    ("mine.py:Absent", "Absent"),
])
def test_classes_of_files_that_are_none(files, name, message):
    with registries.permit_code(), pytest.raises(ValueError, match=message): files[name]
    assert not [m for m in sys.modules if m.startswith(registries.FILES)] or "mine" in name


def test_names_of_files(tmp_path):
    assert registries.code_place("a/b.py:C") == ("a/b.py", "C")
    assert registries.code_place("b.py:1C") is registries.code_place("b:C") is registries.code_place(3) is None
    assert registries.absolute_name("b.py:C", tmp_path) == f"{tmp_path / 'b.py'}:C"
    assert registries.absolute_name("ar", tmp_path) == "ar"


def test_unknown_names_are_answered_with_near_ones():
    toys = registries.Registry("toy", (), "loflexmdm.none")
    for name in ("alpha", "beta"): toys.add(name, Base)
    assert toys["alpha"] is Base and toys.names() == ["alpha", "beta"] and len(toys) == 2 and "beta" in toys
    assert "x" not in toys
    assert toys.all() == toys.usable() == dict(alpha=Base, beta=Base)
    with pytest.raises(ValueError,
        match=r"toy='alpa' \(did you mean 'alpha'\?\): choose one of alpha, beta$"): toys["alpa"]
    with pytest.raises(ValueError, match="toy=3: not in alpha, beta"): toys[3]


@pytest.mark.parametrize("name, near", [
    ("orderd", "ordered"), ("ord", "ordered"), ("or", ""), ("masks", "order-masks"), ("xy", "xyz"), ("", ""),
    ("ordered?", "ordered"), ("o" * 100, ""),
])
def test_near_names(name, near):
    assert registries.nearest(name, ["ordered", "order-masks", "xyz"]) == near


def test_arguments_are_checked_before_a_call():
    seen = []

    class Toy:
        def loss(self, batch, generator=None): return batch

    registries.check_argument(Toy, "loss", 1, seen.append)
    registries.check_argument(Toy, "absent", 1, seen.append)
    assert Toy().loss(3) == 3 and Toy().loss(batch=4, generator=1) == 4 and seen == [3, 4]
    assert Toy.loss.__name__ == "loss"
    with pytest.raises(TypeError): Toy().loss(generator=1)
    assert seen == [3, 4] and registries.import_object("os.sep") == os.sep
