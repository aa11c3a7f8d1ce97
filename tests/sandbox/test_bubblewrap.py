"""What only a real backend can get wrong: shortage, cancellation, closing in the middle."""

import asyncio
import math

import pytest

from agar.errors import SandboxError, ToolError
from agar.sandbox import SandboxSpec, bubblewrap
from agar.sandbox.bubblewrap import BubblewrapSandbox

pytestmark = pytest.mark.sandbox


async def until_there(sandbox, path):
    async with asyncio.timeout(30):
        while True:
            try:
                await sandbox.read(path)
                return
            except ToolError:
                await asyncio.sleep(0.02)


async def test_a_command_that_takes_every_process_cannot_make_its_neighbour_look_like_our_failure(host):
    """A failing sandbox is left out of training, so nothing that a model runs may be able to play one."""
    async with BubblewrapSandbox(SandboxSpec(pids=16), host=host) as sandbox:
        await sandbox.exec("mkfifo never")
        take = "sh -c 'while :; do sleep 30 & done'; : > taken; read x < never"
        taking = asyncio.create_task(sandbox.exec(take, timeout_s=50.0))
        await until_there(sandbox, "taken")
        results = [await sandbox.exec("echo there", timeout_s=5.0) for _ in range(3)]
        if "cgroup" in sandbox.limits["pids"]:
            assert {result.code for result in results} == {126}, "there was no process left to take"
            assert "not started beside other commands" in results[0].stderr
        else:
            assert {result.stdout for result in results} == {"there\n"}, "each command has a count of its own"
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert (await sandbox.exec("echo back")).stdout == "back\n"


@pytest.mark.parametrize("timeout_s", [math.inf, 1e9, None])
async def test_a_deadline_beyond_what_the_system_can_wait_for_is_none(host, timeout_s):
    spec = SandboxSpec(timeout_s=1e9)
    async with BubblewrapSandbox(spec, host=host) as sandbox, BubblewrapSandbox(SandboxSpec(), host=host) as other:
        command = "mkfifo never; : > there; read x < never; echo $x"
        waiting = asyncio.create_task(sandbox.exec(command, timeout_s=timeout_s))
        await until_there(sandbox, "there")
        assert (await other.exec("echo other")).stdout == "other\n"
        assert (await sandbox.exec("echo word > never", timeout_s=5.0)).code == 0
        assert (await waiting).stdout == "word\n"
        process = await sandbox.start(["cat"], timeout_s=timeout_s)
        await process.write(b"hello")
        assert await process.read() == b"hello"
        assert (await process.close()).code == 137


async def test_files_that_fill_the_memory_are_the_commands_failure(host):
    async with BubblewrapSandbox(SandboxSpec(memory_mib=32, disk_mib=64), host=host) as sandbox:
        filled = await sandbox.exec("head -c 60000000 /dev/zero > f; echo $?")
        later = await sandbox.exec("echo later")
        assert later.stdout == "later\n" or later.killed_by == "memory"
        if "cgroup" in sandbox.limits["memory"]:
            assert filled.stdout != "0\n"


async def test_processor_time_is_bounded_where_it_can_be(host):
    async with BubblewrapSandbox(SandboxSpec(cpus=0.1), host=host) as sandbox:
        result = await sandbox.exec("timeout 1 sh -c 'while :; do :; done'; times", timeout_s=30.0)
        if "cgroup" not in sandbox.limits["cpu"]:
            pytest.skip(f"cpu: {sandbox.limits['cpu']}")
        children = result.stdout.split("\n")[1].split()[0]
        minutes, seconds = children.removesuffix("s").split("m")
        assert float(minutes) * 60 + float(seconds) < 0.5, "a tenth of a second, with much to spare"


async def test_cancelling_twice_leaves_nothing_behind(host):
    async with BubblewrapSandbox(SandboxSpec(), host=host) as sandbox:
        await sandbox.exec("mkfifo started")
        running = asyncio.create_task(sandbox.exec("echo x > started; sleep 60", timeout_s=60))
        await sandbox.exec("cat started", timeout_s=50)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await sandbox.exec("echo usable")).stdout == "usable\n"


async def test_a_cancelled_close_still_closes(host):
    sandbox = BubblewrapSandbox(SandboxSpec(), host=host)
    await sandbox.exec("true")
    closing = asyncio.create_task(sandbox.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.exec("true")
    await asyncio.sleep(0.2)  # the waiting goes on by itself and must end without complaint


async def test_output_is_whole_and_in_order_up_to_the_limit(host):
    async with BubblewrapSandbox(SandboxSpec(output_bytes=300_000), host=host) as sandbox:
        result = await sandbox.exec("i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done", timeout_s=40.0)
        assert result.stdout == "".join(f"{number}\n" for number in range(40000))
        assert (result.truncated, result.killed_by) == (False, None)
        exact = await sandbox.exec("head -c 300000 /dev/zero")
        assert (len(exact.stdout), exact.truncated) == (300_000, False)
        over = await sandbox.exec("head -c 300001 /dev/zero; sleep 60", timeout_s=40.0)
        assert (len(over.stdout), over.truncated, over.killed_by) == (300_000, True, "output")


async def test_the_same_sandbox_serves_more_than_one_event_loop(host):
    sandbox = BubblewrapSandbox(SandboxSpec(), host=host)
    await sandbox.write("f", "x")

    def elsewhere() -> str:
        return asyncio.run(sandbox.exec("cat f")).stdout

    assert await asyncio.to_thread(elsewhere) == "x"
    await sandbox.close()


async def test_one_that_was_not_gone_can_be_closed_again(host, monkeypatch):
    real, calls = bubblewrap.gone, []

    async def slow(link, complaint):
        calls.append(complaint)
        if len(calls) == 1:
            link.close()
            raise SandboxError(complaint)
        await real(link, complaint)

    monkeypatch.setattr(bubblewrap, "gone", slow)
    sandbox = BubblewrapSandbox(SandboxSpec(), host=host)
    await sandbox.exec("true")
    with pytest.raises(SandboxError, match="was not gone"):
        await sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.exec("true")
    await sandbox.close()
    await sandbox.close()
    assert len(calls) == 2
