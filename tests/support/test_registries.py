"Registries: what other packages offer is read once."
import os

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
