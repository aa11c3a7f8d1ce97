"""Folders that are put into their place, by many at once too."""

import threading
from pathlib import Path

import pytest

from agar.errors import ConfigError, DeadlineError
from agar.tool_servers.search import place


def made(parent: Path, name: str, text: str) -> Path:
    (parent / name).mkdir()
    (parent / name / "index").write_text(text)
    return parent / name


def says(folder: Path) -> str | None:
    try:
        return (folder / "index").read_text()
    except FileNotFoundError:
        return None


def test_a_missing_or_empty_folder_is_free_and_one_with_strangers_is_not(tmp_path: Path):
    place.check(tmp_path / "missing", ours=())
    place.check(tmp_path, ours=())
    made(tmp_path, "place", "old")
    place.check(tmp_path / "place", ours={"index"})
    for folder, said in ((tmp_path / "place", "holds 'index'"), (tmp_path / "place" / "index", "Not a directory")):
        with pytest.raises(ConfigError, match=said):
            place.check(folder, ours={"other"})


def test_what_came_there_while_it_was_built_is_not_deleted(tmp_path: Path):
    fresh, folder = made(tmp_path, "fresh", "new"), made(tmp_path, "place", "old")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds 'notes"):
        place.put(fresh, folder, held=lambda: False, ours=lambda: {"index"})
    assert (says(folder), (folder / "notes.txt").read_text()) == ("old", "mine")


def test_the_old_one_stays_where_the_new_one_cannot_be_put(tmp_path: Path):
    folder = made(tmp_path, "place", "old")
    with pytest.raises(FileNotFoundError):
        place.put(tmp_path / "nowhere", folder, held=lambda: False, ours=lambda: {"index"})
    assert says(folder) == "old"


def test_many_at_once_put_one_and_nobody_finds_it_missing_afterwards(tmp_path: Path):
    failed: list[BaseException | str] = []

    def one(fresh: Path, folder: Path, start: threading.Barrier) -> None:
        try:
            start.wait(20)
            place.put(fresh, folder, held=lambda: says(folder) == "new", ours=lambda: {"index"})
            for _ in range(20):
                if says(folder) != "new":
                    failed.append(f"found {says(folder)}")
        except BaseException as error:
            failed.append(error)

    for round_ in range(10):
        parent = tmp_path / str(round_)
        parent.mkdir()
        folder, start = made(parent, "place", "old"), threading.Barrier(6)
        some = [
            threading.Thread(target=one, args=(made(parent, f"fresh{number}", "new"), folder, start))
            for number in range(6)
        ]
        for thread in some:
            thread.start()
        for thread in some:
            thread.join(30)
        assert says(folder) == "new"
        assert len([path for path in parent.iterdir() if path.name.startswith("fresh")]) == 5
    assert failed == []


def test_a_lock_that_is_never_let_go_is_named(tmp_path: Path, monkeypatch):
    import fcntl

    monkeypatch.setattr(place, "_LOCK_TIMEOUT_S", 0.05)
    fresh, folder = made(tmp_path, "fresh", "new"), tmp_path / "place"
    with (tmp_path / ".place.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DeadlineError, match=r"held .*/\.place\.lock for 0\.05 s"):
            place.put(fresh, folder, held=lambda: False, ours=lambda: set())
    place.put(fresh, folder, held=lambda: False, ours=lambda: set())
    assert says(folder) == "new"
