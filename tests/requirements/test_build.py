"""The builder of environments: steps, keys, and that a half-built environment is never used."""

import fcntl
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.scripts import script

SCRIPT = Path(__file__).resolve().parent.parent.parent / "requirements" / "build.py"


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The script as a module, working on a checkout of its own whose only requirement is a small wheel."""
    checkout = tmp_path / "checkout"
    (checkout / "requirements").mkdir(parents=True)
    wheel = tmp_path / "pebble-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pebble.py", "weight = 3\n")
        archive.writestr("pebble-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pebble\nVersion: 1.0\n")
        archive.writestr("pebble-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("pebble-1.0.dist-info/entry_points.txt", "[console_scripts]\npebble = pebble:__name__.upper\n")
        archive.writestr("pebble-1.0.dist-info/RECORD", "")
    with script(SCRIPT) as module:
        for name in (*module.NAMES, *module.LATER):
            (checkout / "requirements" / f"{name}.txt").write_text(f"#: a pebble | --no-index --no-deps\n{wheel}\n")
        monkeypatch.setattr(module, "CHECKOUT", checkout)
        yield module


def weight(folder: Path) -> str:
    command = [str(folder / "bin" / "python"), "-c", "import pebble; print(pebble.weight)"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()


def test_a_requirement_file_is_read_as_steps(builder: ModuleType) -> None:
    first, second = builder.steps("# why\n#: torch\ntorch==1\n\n#: rest | --no-deps -v\na==1\n# note\nb==2\n")
    assert (first.title, first.flags, first.requirements) == ("torch", [], ["torch==1"])
    assert (second.title, second.flags, second.requirements) == ("rest", ["--no-deps", "-v"], ["a==1", "b==2"])
    with pytest.raises(builder.CannotBuild, match="stands before the first step"):
        builder.steps("a==1\n")


def test_the_files_of_this_repository_pin_every_version_once() -> None:
    for path in sorted(SCRIPT.parent.glob("*.txt")):
        pins = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
        assert [pin for pin in pins if "==" not in pin] == []
        names = [pin.partition("==")[0].lower().replace("_", "-") for pin in pins]
        assert sorted(names) == sorted(set(names)), path


def test_a_comment_keeps_the_key_and_a_pin_changes_it(builder: ModuleType) -> None:
    path = builder.CHECKOUT / "requirements" / "agar.txt"
    before = builder.key("agar")
    path.write_text("# a comment\n" + path.read_text())
    assert builder.key("agar") == before
    path.write_text(path.read_text() + "more==1\n")
    assert builder.key("agar") != before


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_environments_are_built_once_and_shared_by_checkouts(builder: ModuleType, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = builder.build("agar", cache)
    assert weight(folder) == "3"
    stamp = (folder / "built.json").stat().st_mtime_ns
    assert builder.build("agar", cache) == folder
    assert (folder / "built.json").stat().st_mtime_ns == stamp

    # Cut off before the end: no stamp. It is not used, and built anew.
    (folder / "built.json").unlink()
    (folder / "leftover").touch()
    assert not builder.usable(folder)
    assert builder.build("agar", cache) == folder
    assert not (folder / "leftover").exists()

    # A command of the shared environment runs in the checkout's.
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    builder.borrow(folder / "bin" / "pebble", folder, venv)
    assert (venv / "bin" / "pebble").read_text().splitlines()[0] == f"#!{venv / 'bin' / 'python'}"


def test_a_killed_builders_last_step_keeps_the_lock(builder: ModuleType, tmp_path: Path) -> None:
    def taken() -> bool:
        with (tmp_path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    with builder.locked(tmp_path / "lock") as lock:
        orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with orphan:
        assert taken()
        orphan.kill()
        orphan.wait(timeout=10)
    assert not taken()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_step_that_hangs_is_ended(builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "STEP_TIMEOUT_S", 0.5)
    (tmp_path / "log").write_text("")
    with pytest.raises(builder.CannotBuild, match=r"wait was ended after 0\.5 s"):
        builder.run("wait", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_step_that_fails_says_so_and_leaves_nothing_usable(builder: ModuleType, tmp_path: Path) -> None:
    (builder.CHECKOUT / "requirements" / "agar.txt").write_text(f"#: none | --no-index\n{tmp_path / 'no.whl'}\n")
    with pytest.raises(builder.CannotBuild, match=r"agar 2/2 none failed with code 1; the end of .*log"):
        builder.build("agar", tmp_path / "cache")
    assert not builder.usable(tmp_path / "cache" / f"agar-{builder.key('agar')}")


def test_an_optional_step_that_fails_is_said_and_left_out(
    builder: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (builder.CHECKOUT / "requirements" / "agar.txt").open("a") as file:
        file.write("#: a boulder | --no-index --optional\nboulder==1\n")
    folder = builder.build("agar", tmp_path / "cache")
    assert weight(folder) == "3"
    assert "note: a boulder is left out" in capsys.readouterr().out


def test_what_is_missing_is_said_with_the_remedy(
    builder: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(builder, "FREE_GIB", 10**9)
    monkeypatch.setattr(builder, "user_namespaces", lambda: "user namespaces are refused")
    disk, namespaces = builder.missing(tmp_path, to_build=True)
    assert "set AGAR_CACHE to a folder on another disk" in disk
    assert namespaces == "user namespaces are refused"
    monkeypatch.setattr(sys, "argv", ["build.py", "--cache", str(tmp_path), "--check"])
    assert builder.main() == 1


def test_only_environments_that_nobody_asks_for_are_removed(builder: ModuleType, tmp_path: Path) -> None:
    for name in (f"agar-{builder.key('agar')}", "agar-000000000000", "notes-000000000000"):
        (tmp_path / name).mkdir()
    builder.remove_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "checkout") == [
        f"agar-{builder.key('agar')}", "notes-000000000000",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_environment_is_built_alone_and_its_folder_said_last(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py", "--cache", str(tmp_path / "cache"), "--only", "clients"])
    assert builder.main() == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    assert folder == tmp_path / "cache" / f"clients-{builder.key('clients')}"
    assert weight(folder) == "3"
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [folder.name]


def test_the_stamp_of_this_environment_names_both(builder: ModuleType) -> None:
    stamp = Path(sys.prefix) / "built.json"
    if not stamp.exists():
        pytest.skip("not run in an environment that build.py made")
    assert set(json.loads(stamp.read_text())) >= {"agar", "engine"}
