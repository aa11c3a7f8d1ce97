"""What is left behind: nothing, however the controller, the keeper or the caller ends."""

import asyncio
import functools
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from agar.errors import SandboxError, ToolError, UnsupportedPlatformError
from agar.sandbox import SandboxSpec
from agar.sandbox import keeper as keeper_module
from agar.sandbox.bubblewrap import BubblewrapSandbox
from agar.sandbox.host import Host, SharedHost, find_bubblewrap
from agar.sandbox.keeper import Keeper
from agar.sandbox.limits import find_controllers

pytestmark = pytest.mark.sandbox

CONTROLLER = """
import asyncio, sys
from agar.sandbox import SandboxSpec, create
from agar.sandbox.host import shared
async def main():
    async with create(SandboxSpec()) as one, create(SandboxSpec()) as two:
        await two.write("f", "x")
        await one.write("started", "")
        running = asyncio.create_task(one.exec("sleep {mark} & echo x > started; sleep {mark}", timeout_s=100))
        while not await one.read("started"):
            await asyncio.sleep(0.02)
        print(shared.get().pid, flush=True)
        await running
asyncio.run(main())
"""


def processes(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"sleep" in line and mark.encode() in line and b"asyncio" not in line:
                found.append(int(entry.name))
    return found


def traces(keeper: int) -> list[str]:
    """Run directories and control groups that name this keeper."""
    parents = [Path(tempfile.gettempdir()), *(parent for _, parent in find_controllers().parents.values())]
    return [str(path) for parent in set(parents) for path in parent.glob(f"agar-*-{keeper}-*")]


def wait_until(what, condition, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


async def started(sandbox):
    """Wait until a command has written the file `started`."""
    async with asyncio.timeout(20):
        while True:
            try:
                await sandbox.read("started")
                return
            except ToolError:
                await asyncio.sleep(0.02)


@pytest.fixture
def controller():
    """A process with two sandboxes, one of them busy; gives it, its keeper's pid and the mark of its commands."""
    mark = f"5{os.getpid()}.{time.monotonic_ns() % 10**6}"
    process = subprocess.Popen([sys.executable, "-c", CONTROLLER.format(mark=mark)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    keeper = int(process.stdout.readline())
    wait_until("the sandboxed commands run", lambda: len(processes(mark)) >= 2)
    assert traces(keeper), "the keeper has a run directory"
    yield process, keeper, mark
    process.kill()
    process.wait()
    process.stdout.close()


def test_nothing_is_left_after_the_controller_was_killed(controller):
    process, keeper, mark = controller
    process.kill()
    process.wait()
    wait_until("processes gone", lambda: not processes(mark))
    wait_until("the keeper gone", lambda: not Path(f"/proc/{keeper}").exists())
    assert traces(keeper) == []


def test_nothing_is_left_after_ctrl_c(controller):
    process, keeper, mark = controller
    process.send_signal(signal.SIGINT)
    process.wait(10)
    wait_until("processes gone", lambda: not processes(mark))
    wait_until("the keeper gone", lambda: not Path(f"/proc/{keeper}").exists())
    assert traces(keeper) == []


def test_no_process_is_left_after_keeper_and_controller_were_killed_and_the_next_keeper_reaps_the_rest(controller):
    process, keeper, mark = controller
    os.kill(keeper, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_until("processes gone", lambda: not processes(mark))
    wait_until("the keeper gone", lambda: not Path(f"/proc/{keeper}").exists())
    left = [path for path in traces(keeper) if Path(path).is_relative_to(tempfile.gettempdir())]
    assert all(not list(Path(path).iterdir()) for path in left), "workspaces went with the keeper's mounts"
    with Host() as host:
        assert traces(host.pid), "a living keeper's directory stays"
        with Host():
            assert traces(host.pid), "also when another one starts"
    assert traces(keeper) == []
    assert traces(host.pid) == []


async def test_a_dead_keeper_is_a_sandbox_error_and_the_next_sandbox_gets_a_new_one():
    shared = SharedHost()
    first = shared.get()
    async with BubblewrapSandbox(SandboxSpec(), host=first) as sandbox:
        running = asyncio.create_task(sandbox.exec("sleep 20", timeout_s=30))
        await sandbox.exec("true")
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match=r"keeper .* died"):
            await running
        with pytest.raises(SandboxError, match=r"keeper .* died"):
            await sandbox.exec("true")
    with pytest.raises(SandboxError, match=r"keeper .* died"):
        async with BubblewrapSandbox(SandboxSpec(), host=first) as sandbox:
            await sandbox.exec("true")
    second = shared.get()
    assert second.pid != first.pid
    assert shared.get() is second
    first.close()
    second.close()


async def test_cancelling_exec_kills_its_processes_before_it_returns(host):
    mark = f"6{os.getpid()}.5"
    async with BubblewrapSandbox(SandboxSpec(), host=host) as sandbox:
        running = asyncio.create_task(sandbox.exec(f"sleep {mark} & echo x > started; sleep {mark}", timeout_s=60))
        await started(sandbox)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert processes(mark) == []
        assert (await sandbox.exec("echo usable")).stdout == "usable\n"


async def test_many_sandboxes_at_once(host):
    async def episode(number: int) -> str:
        async with BubblewrapSandbox(SandboxSpec(), host=host) as sandbox:
            await sandbox.write("f", str(number))
            return (await sandbox.exec("cat f", timeout_s=50)).stdout

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(episode(number)) for number in range(64)]
    assert [task.result() for task in tasks] == [str(number) for number in range(64)]


async def test_calls_in_one_sandbox_run_at_the_same_time(host):
    async with BubblewrapSandbox(SandboxSpec(), host=host) as sandbox:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(sandbox.exec("while ! cat flag; do sleep 0.02; done", timeout_s=20))
            group.create_task(sandbox.exec("echo go > flag.new; mv flag.new flag", timeout_s=20))
        assert waiting.result().stdout == "go\n"


def test_a_machine_without_namespaces_is_refused_with_the_fix(monkeypatch):
    """The keeper reports what the kernel said; here it cannot even make its run directory."""
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no-such-directory")
    with pytest.raises(UnsupportedPlatformError, match=r"refused .*run as root, or allow them"):
        Host()


def test_the_bundled_bubblewrap_comes_first():
    found = find_bubblewrap()
    assert found.path.is_file()
    assert subprocess.run([found.path, "--version"], capture_output=True, check=True).stdout.startswith(b"bubblewrap ")


ORDINARY = """
import asyncio, os
from agar.sandbox import create
from agar.sandbox.checker import CHECKS, check_sandbox
wanted = '''runs_a_string_with_the_shell keeps_files_between_commands copies_trees kills_at_the_deadline bounds_the_disk
    hides_the_environment writes_nowhere_else has_no_network leaves_no_process stops_a_flood starts_as_a_folder
    snapshots_and_restores reaches_the_gateway_and_nothing_else'''.split()
report = asyncio.run(check_sandbox(create, checks=[check for check in CHECKS if check.name in wanted]))
print(report.failed or (report.refused or "all held" if len(report.passed) == len(wanted) else report.passed))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests run as an ordinary user already")
@pytest.mark.parametrize("user", [1000, 0], ids=["ordinary", "root-of-a-container-with-no-other-users"])
def test_other_users_get_the_same_isolation(user):
    command = ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", "--", sys.executable, "-c", ORDINARY]
    result = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert result.stdout == "all held\n", result.stderr


def test_what_was_closed_in_the_same_turn_of_the_keeper_is_not_called(tmp_path):
    keeper = object.__new__(Keeper)
    keeper.selector, keeper.deadlines, keeper.boxes, keeper.leaving = selectors.DefaultSelector(), [], {}, False
    keeper.base = str(tmp_path / "base")
    os.mkdir(keeper.base)
    keeper.control, controller = socket.socketpair()
    pairs = [socket.socketpair() for _ in range(2)]
    called = []

    def take(number):
        called.append(number)
        keeper.leaving = True
        other = pairs[1 - number][0]
        keeper.selector.unregister(other)
        other.close()

    for number, (near, far) in enumerate(pairs):
        keeper.watch(near, functools.partial(take, number))
        far.send(b"x")
    keeper.run()
    assert len(called) == 1
    for each in (keeper.control, controller, *(end for pair in pairs for end in pair)):
        each.close()


def test_a_child_that_another_command_has_named_is_nobody_elses_orphan(monkeypatch):
    """Commands that are killed at once are looked at one by one; what the second has named may not be read yet."""
    named, nameless = 11, 12
    monkeypatch.setattr(keeper_module, "children", lambda pid: [named, nameless])
    first = SimpleNamespace(outer=1, inner=None, read_info=lambda: None)
    second = SimpleNamespace(outer=2, inner=None, read_info=lambda: setattr(second, "inner", named))
    keeper = object.__new__(Keeper)
    keeper.boxes = {1: SimpleNamespace(execs=[first, second], spare=None)}
    assert keeper.orphan() == nameless
