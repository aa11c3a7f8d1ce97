"""Leases: bounded, fresh, warm, seen deleted; and nothing left when the owner is killed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agar.errors import ConfigError, DeadlineError, SandboxError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.fake import FakeSandbox
from agar.sandbox.pool import SandboxPool
from agar.sandbox.snapshot import of_files

FAKE = SandboxSpec(backend="fake")


class Stubborn(FakeSandbox):
    """Is gone only at the second attempt."""

    closes = 0

    async def close(self):
        self.closes += 1
        if self.closes == 1:
            raise SandboxError("was not gone")
        await super().close()


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  a count that others change
            await asyncio.sleep(0.005)


async def test_every_lease_is_a_fresh_sandbox_that_is_closed_after_it():
    made = []

    def make():
        made.append(FakeSandbox(FAKE))
        return made[-1]

    async with SandboxPool(make, size=1, files=of_files({"/work/f": b"x"})) as pool:
        for _ in range(2):
            async with pool.lease() as sandbox:
                assert await sandbox.read("f") == b"x"
                await sandbox.write("g", "left behind")
                with pytest.raises(Exception, match="No such file"):
                    await sandbox.read("h")
    assert len(made) == 2
    assert all(sandbox.closed for sandbox in made)
    assert (pool.state.leases, pool.state.deleted, pool.state.leased) == (2, 2, 0)


async def test_no_more_than_its_size_exist_at_one_time():
    alive, most = set(), 0

    def make():
        nonlocal most
        sandbox = FakeSandbox(FAKE)
        alive.add(sandbox)
        most = max(most, len({one for one in alive if not one.closed}))
        return sandbox

    async with SandboxPool(make, size=3, warm=2) as pool:

        async def episode():
            async with pool.lease() as sandbox:
                await sandbox.exec("sleep 0.01")

        await asyncio.gather(*(episode() for _ in range(20)))
    assert most == 3
    assert pool.state.leases == 20


async def test_warm_ones_are_started_before_they_are_asked_for():
    async with SandboxPool(lambda: FakeSandbox(FAKE), size=4, warm=2) as pool:
        await until(lambda: pool.state.warm == 2)
        async with pool.lease(), pool.lease():
            assert pool.state.warm_leases == 2
            await until(lambda: pool.state.warm == 2)
            async with pool.lease(), pool.lease():
                await asyncio.sleep(0.01)
                assert pool.state.warm == 0, "no place is left for more"
    assert (pool.state.warm, pool.state.leased) == (0, 0)


async def test_the_only_place_may_be_a_warm_one():
    async with SandboxPool(lambda: FakeSandbox(FAKE), size=1, warm=1, wait_s=20.0) as pool:
        for _ in range(3):
            async with pool.lease() as sandbox:
                assert (await sandbox.exec("echo x")).stdout == "x\n"


async def test_waiting_for_a_place_has_a_deadline_that_says_what_for():
    async with SandboxPool(lambda: FakeSandbox(FAKE), size=1, wait_s=0.05) as pool, pool.lease():
        with pytest.raises(DeadlineError, match="1 of 1 are leased"):
            async with pool.lease():
                pass


async def test_one_that_is_not_gone_keeps_its_place_until_it_is(monkeypatch):
    monkeypatch.setattr("agar.sandbox.pool._RETRY_S", 0.01)
    async with SandboxPool(lambda: Stubborn(FAKE), size=1) as pool:
        async with pool.lease():
            pass
        assert (pool.state.condemned, pool.state.deleted) == (0, 1)


async def test_one_that_never_goes_is_reported(monkeypatch):
    class Undead(FakeSandbox):
        async def close(self):
            raise SandboxError("was not gone")

    monkeypatch.setattr("agar.sandbox.pool._RETRY_S", 0.01)
    monkeypatch.setattr("agar.sandbox.pool._CLOSE_TIMEOUT_S", 0.1)
    pool = SandboxPool(lambda: Undead(FAKE), size=1)
    async with pool.lease():
        pass
    assert pool.state.condemned == 1
    with pytest.raises(SandboxError, match="1 sandboxes were not gone"):
        await pool.close()


async def test_a_failed_preparation_gives_its_place_back():
    async def fail(sandbox):
        raise SandboxError("died at once")

    async with SandboxPool(lambda: FakeSandbox(FAKE), size=1, prepare=fail, wait_s=5.0) as pool:
        for _ in range(3):
            with pytest.raises(SandboxError, match="died at once"):
                async with pool.lease():
                    pass
    assert (pool.state.failed_starts, pool.state.deleted, pool.state.leases) == (3, 3, 0)


async def test_a_cancelled_lease_is_deleted_all_the_same():
    held = []
    async with SandboxPool(lambda: FakeSandbox(FAKE), size=1) as pool:

        async def episode():
            async with pool.lease() as sandbox:
                held.append(sandbox)
                await asyncio.sleep(60)

        task = asyncio.create_task(episode())
        await until(lambda: held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held[0].closed
        async with pool.lease():
            pass


async def test_a_closed_pool_gives_nothing_away():
    async with SandboxPool(lambda: FakeSandbox(FAKE), size=1) as pool:
        pass
    with pytest.raises(SandboxError, match="closed"):
        async with pool.lease():
            pass


def test_impossible_sizes_are_refused():
    for size, warm in ((0, 0), (1, 2), (1, -1)):
        with pytest.raises(ConfigError, match="a pool needs a place"):
            SandboxPool(lambda: FakeSandbox(FAKE), size=size, warm=warm)


async def test_a_sandbox_that_cannot_even_be_made_leaves_its_place():
    def refuse():
        raise ConfigError("no key: set one")

    async with SandboxPool(refuse, size=1, wait_s=0.5) as pool:
        for _ in range(2):
            with pytest.raises(ConfigError, match="no key"):
                async with pool.lease():
                    pass
        assert pool.state.failed_starts == 2


OWNER = """
import asyncio, os, sys
from pathlib import Path
from agar.sandbox import SandboxSpec, create
from agar.sandbox.pool import SandboxPool

async def main(mark, count, spec):
    async with SandboxPool(lambda: create(spec), size=count, warm=count // 4) as pool:
        ready = 0
        async def episode():
            nonlocal ready
            async with pool.lease() as sandbox:
                await sandbox.write("f", b"x" * 100_000)
                process = await sandbox.start(f"echo up; setsid sleep {mark} & sleep {mark}")
                await process.read()
                ready += 1
                if ready == count:
                    print("all run", flush=True)
                await asyncio.sleep(600)
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(episode())

spec = SandboxSpec(backend=sys.argv[3], engine=Path(sys.argv[4]) if sys.argv[4] else None)
asyncio.run(main(sys.argv[1], int(sys.argv[2]), spec))
"""


def left_behind(mark: str, keeper_of: int | None) -> list[str]:
    """Processes with the mark, control groups and folders of the owner's keeper, and the keeper, which holds mounts."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words or (keeper_of and f"-{keeper_of}-".encode() in words):
                found.append(f"process {entry.name}: {words[:100]!r}")
    if keeper_of:
        if Path(f"/proc/{keeper_of}").exists():
            found.append(f"keeper {keeper_of}, with the mounts that only its own namespace has")
        for folder, names, _ in os.walk("/sys/fs/cgroup"):
            found += [f"cgroup {folder}/{name}" for name in names if f"-{keeper_of}-" in name]
        found += [f"folder {path}" for path in Path("/tmp").glob(f"agar-*-{keeper_of}-*")]
    return found


def keeper_of(pid: int) -> int:
    """The keeper that a process has started."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"keeper.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("the owner has no keeper")


def in_namespace(name: str) -> list[str]:
    """Processes in a mount namespace; its mounts are gone with the last of them."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns" / "mnt") == name:
                found.append(f"mounts of process {entry.name}")
    return found


def kill_and_look(
    mark: str, number: int, kind: str, engine: str, how: int, also: Callable[[], list[str]] = lambda: []
) -> list[str]:
    """What is left 5 seconds after the owner of running episodes was told to go."""
    words = [sys.executable, "-c", OWNER, mark, str(number), kind, engine]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "all run\n"
        keeper, namespace = None, ""
        if kind == "bubblewrap":
            keeper = keeper_of(owner.pid)
            namespace = os.readlink(f"/proc/{keeper}/ns/mnt")
            assert Path(f"/proc/{keeper}/mountinfo").read_text().count(f"-{keeper}-") >= number

        def left() -> list[str]:
            return left_behind(mark, keeper) + in_namespace(namespace) + also()

        assert len(left()) >= 2 * number, "they do run"
        owner.send_signal(how)
        deadline = time.monotonic() + 5.0
        while (found := left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        owner.wait(30)
    return found


@pytest.mark.sandbox
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_nothing_is_left_5_seconds_after_the_owner_of_32_episodes_is_gone(how):
    assert kill_and_look(f"5{os.getpid()}.5", 32, "bubblewrap", "", how) == []


@pytest.mark.sandbox
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_no_container_is_left_5_seconds_after_the_owner_of_32_episodes_is_gone(how, docker_socket, docker_spec):
    from agar.sandbox.docker.engine import engine_at

    seen: set[str] = set()

    def containers() -> list[str]:
        there = [item["Id"] for item in asyncio.run(engine_at(docker_socket).call("GET", "/containers/json?all=true"))]
        grouped = {id for _, names, _ in os.walk("/sys/fs/cgroup") for name in names for id in seen if id in name}
        if not seen:  # the first look, while all run
            seen.update(there)
            assert len(containers()) >= 2 * 32, "each is seen, and in a control group"
        return [f"container {id}" for id in there] + [f"cgroup of container {id}" for id in grouped]

    assert kill_and_look(f"6{os.getpid()}.5", 32, "docker", str(docker_socket), how, containers) == []


@pytest.mark.sandbox
async def test_real_sandboxes_are_leased_with_their_files():
    async with SandboxPool(
        lambda: create(SandboxSpec()), size=3, warm=2, files=of_files({"/work/repo/a": b"first"})
    ) as pool:

        async def episode(number):
            async with pool.lease() as sandbox:
                await sandbox.exec(f"echo {number} >> repo/a")
                return await sandbox.read("repo/a")

        seen = await asyncio.gather(*(episode(number) for number in range(6)))
    assert seen == [f"first{number}\n".encode() for number in range(6)]
    assert pool.state.deleted == pool.state.leases == 6 or pool.state.deleted > 6
