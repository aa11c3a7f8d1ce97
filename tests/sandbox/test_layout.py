"""What bwrap is told to show."""

from pathlib import Path

import pytest

from agar.sandbox import SandboxSpec, layout
from agar.sandbox.bubblewrap import BubblewrapSandbox

ANSWER = {"root": "/run/1", "etc": "/run/etc", "mounts": []}


def test_agars_own_folders_are_hidden_where_the_host_shows_them():
    package = Path("/usr/lib/python3/dist-packages/agar")
    words = layout.options(ANSWER, SandboxSpec(), hidden=[package, Path("/opt/venv/lib/agar"), Path("/usrlocal/agar")])
    at = words.index("--tmpfs")
    assert words[at - 2 : at + 4] == ["--perms", "0555", "--tmpfs", str(package), "--remount-ro", str(package)]
    assert at > words.index("/usr"), "over what is shown, not under it"
    assert words.count("--tmpfs") == 1


def test_agars_own_folders_are_those_that_its_modules_are_read_from():
    from agar.examples.coding_agent import library

    assert any(Path(library.__file__).resolve().is_relative_to(folder) for folder in layout.own_folders())
    assert any(Path(layout.__file__).resolve().is_relative_to(folder) for folder in layout.own_folders())


@pytest.mark.sandbox
async def test_a_hidden_folder_is_empty_and_takes_nothing(host, monkeypatch):
    monkeypatch.setattr("agar.sandbox.bubblewrap.own_folders", lambda: (Path("/usr/share"),))
    async with BubblewrapSandbox(SandboxSpec(), host=host) as sandbox:
        done = await sandbox.exec("ls -A /usr/share; touch /usr/share/x || echo refused")
    assert (done.code, done.stdout) == (0, "refused\n")
    assert "Read-only file system" in done.stderr
