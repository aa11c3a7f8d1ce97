"""A real Docker engine: commands, files, kills, limits, deletion."""

import asyncio

import pytest

from agar.errors import SandboxError, ToolError, UnsupportedPlatformError
from agar.sandbox import create
from agar.sandbox.docker.sandbox import DockerSandbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
async def sandbox(docker_spec):
    async with DockerSandbox(docker_spec.model_copy(update={"output_bytes": 10_000})) as sandbox:
        yield sandbox


async def test_a_command_runs_as_nobody_in_an_empty_place(sandbox):
    result = await sandbox.exec("id -u; id -g; pwd; ls -A /work; cat; ls /sys")
    assert (result.stdout, result.stderr, result.code) == ("1000\n1000\n/work\n", "", 0)


async def test_a_background_process_ends_with_its_command_and_without_delay(sandbox):
    result = await sandbox.exec("setsid sh -c 'trap \"\" TERM HUP; sleep 50' & echo started")
    assert result.stdout == "started\n"
    assert (await sandbox.exec("ls /proc | grep -c '^[0-9]'")).stdout <= "6\n"


async def test_a_command_that_is_killed_leaves_the_sandbox_usable(sandbox):
    for command in ("sleep 60", "b() { b | b & }; b; sleep 60", "kill -9 1; kill -STOP 1; kill -STOP $PPID; sleep 60"):
        result = await sandbox.exec(command, timeout_s=0.7)
        assert (result.killed_by, result.code) in {("timeout", 137), ("output", 137)}
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_a_cancelled_command_is_gone_when_the_caller_hears_of_it(sandbox):
    running = asyncio.create_task(sandbox.exec("while :; do date > beat; sleep 0.02; done", timeout_s=50))
    await asyncio.sleep(1.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await sandbox.exec("rm -f beat; sleep 0.2")
    with pytest.raises(ToolError, match="No such file"):
        await sandbox.read("beat")


async def test_the_first_process_cannot_be_looked_into_by_the_commands(sandbox):
    result = await sandbox.exec(
        "cat /proc/1/environ; readlink /proc/1/fd/0 /proc/1/root /proc/1/cwd; echo x > /proc/1/fd/0"
    )
    assert result.stdout == ""
    assert result.code != 0


async def test_closing_removes_the_container_and_then_refuses(docker_spec):
    sandbox = create(docker_spec)
    await sandbox.write("f", "x")
    name = sandbox._container._name
    await sandbox.close()
    await sandbox.close()
    with pytest.raises(SandboxError, match="No such container"):
        await sandbox._engine.call("GET", f"/containers/{name}/json")
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.exec("true")


async def test_closing_in_the_middle_says_so(docker_spec):
    sandbox = create(docker_spec)
    await sandbox.exec("true")
    running = asyncio.create_task(sandbox.exec("sleep 50", timeout_s=50))
    await asyncio.sleep(0.5)
    await sandbox.close()
    with pytest.raises(SandboxError, match="closed while a command ran"):
        await running


async def test_an_engine_that_is_not_there_is_named_with_the_fix(docker_spec, tmp_path):
    sandbox = create(docker_spec.model_copy(update={"engine": tmp_path / "nothing.sock"}))
    with pytest.raises(UnsupportedPlatformError, match="no Docker engine answers"):
        await sandbox.exec("true")


async def test_an_image_that_is_not_there_is_named(docker_spec):
    with pytest.raises(SandboxError, match=r"(?i)no such image"):
        await create(docker_spec.model_copy(update={"image": "nobody/has:this"})).exec("true")


async def test_the_same_sandbox_serves_more_than_one_event_loop(docker_spec):
    sandbox = create(docker_spec)
    await sandbox.write("f", "x")
    assert await asyncio.to_thread(lambda: asyncio.run(sandbox.exec("cat f")).stdout) == "x"
    await sandbox.close()
