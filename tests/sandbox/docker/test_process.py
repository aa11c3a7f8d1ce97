"""A process in a container: its streams, its deadline, and what else may run meanwhile."""

import asyncio

import pytest

from agar.errors import SandboxError, ToolError
from agar.sandbox import create

pytestmark = pytest.mark.sandbox


@pytest.fixture
async def sandbox(docker_spec):
    async with create(docker_spec.model_copy(update={"output_bytes": 10_000})) as opened:
        yield opened


async def test_it_ends_at_its_deadline_while_nobody_listens(sandbox):
    process = await sandbox.start("while :; do date > beat; sleep 0.02; done", timeout_s=1.0)
    async with asyncio.timeout(30):
        while process._killing is None or not process._killing.done():  # noqa: ASYNC110  its own timer's doing
            await asyncio.sleep(0.02)
    await sandbox.write("beat", "still")
    await asyncio.sleep(0.2)
    assert await sandbox.read("beat") == b"still"
    assert (await process.close()).killed_by == "timeout"


async def test_files_can_be_moved_beside_it_and_commands_cannot_run(sandbox):
    process = await sandbox.start("while read line; do echo $line >> f; echo ok; done")
    await process.write(b"one\n")
    assert await process.read() == b"ok\n"
    assert await sandbox.read("f") == b"one\n"
    await sandbox.write("g", "x")
    with pytest.raises(ToolError):
        await sandbox.read("nothing")
    with pytest.raises(SandboxError, match="close it first"):
        await sandbox.exec("true")
    await process.write(b"two\n")
    assert await process.read() == b"ok\n", "moving files has not killed it"
    await process.close()
    assert (await sandbox.exec("cat f g")).stdout == "one\ntwo\nx"


async def test_a_process_that_takes_every_place_makes_files_a_tools_failure(docker_spec):
    """A failing sandbox is left out of training, so nothing that a model runs may be able to play one."""
    async with create(docker_spec.model_copy(update={"pids": 16})) as sandbox:
        process = await sandbox.start("i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; echo full; wait")
        assert await process.read() in (b"", b"full\n")
        with pytest.raises(ToolError):
            await sandbox.read("nothing")
        await process.close()
        assert (await sandbox.exec("echo back")).stdout == "back\n"
