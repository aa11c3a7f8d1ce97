"""A process in a bubblewrap sandbox: streams, its end, and the sandbox around it."""

import asyncio
import json
import os

import pytest

from agar.errors import SandboxError, ToolError
from agar.sandbox import SandboxSpec, create

pytestmark = pytest.mark.sandbox


@pytest.fixture
async def sandbox():
    async with create(SandboxSpec(output_bytes=10_000)) as opened:
        yield opened


async def heard(process, size):
    data = b""
    while len(data) < size and (piece := await process.read()):
        data += piece
    return data


async def test_other_commands_run_beside_it_share_its_files_and_do_not_see_it(sandbox):
    process = await sandbox.start("while read line; do echo $line >> f; echo ok; done", env={"MARK": "here"})
    await process.write(b"one\n")
    assert await process.read() == b"ok\n"
    assert (await sandbox.exec("cat f; grep -l MARK=here /proc/[0-9]*/environ | wc -l")).stdout == "one\n0\n"
    await process.close()


async def test_it_ends_with_its_children_and_without_those_who_wait_for_it(sandbox):
    process = await sandbox.start("(while :; do date > beat; sleep 0.02; done) & cat")
    waiting = asyncio.create_task(process.read())
    await asyncio.sleep(0.1)
    assert (await process.close()).code == 137
    assert await asyncio.wait_for(waiting, 5) == b""
    await sandbox.exec("rm -f beat; sleep 0.2")
    with pytest.raises(ToolError, match="No such file"):
        await sandbox.read("beat")


async def test_one_that_has_ended_takes_no_input_and_says_how_it_ended(sandbox):
    process = await sandbox.start("echo out; echo err >&2; exit 7")
    assert await heard(process, 1000) == b"out\n"
    await process.write(b"x" * 1_000_000)
    ended = await process.close()
    assert (ended.code, ended.stderr, ended.killed_by) == (7, "err\n", None)


async def test_closing_twice_at_once_is_one_end(sandbox):
    process = await sandbox.start(["cat"])
    first, second = await asyncio.gather(process.close(), process.close())
    assert first == second


async def test_closing_the_sandbox_ends_it_and_leaves_no_descriptor():
    sandbox = create(SandboxSpec())
    await sandbox.exec("true")
    before = len(os.listdir("/proc/self/fd"))
    processes = [await sandbox.start(["cat"]) for _ in range(4)]
    await sandbox.close()
    for process in processes:
        assert await process.read() == b""
        assert (await process.close()).code == 137
    assert len(os.listdir("/proc/self/fd")) <= before
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.start(["cat"])


async def test_it_leaves_a_line_for_the_audit_when_it_ends(sandbox, caplog):
    with caplog.at_level("INFO", logger="agar.sandbox.audit"):
        process = await sandbox.start(["cat"])
        assert caplog.records == []
        await process.close()
    [line] = [json.loads(record.message) for record in caplog.records]
    assert (line["words"], line["code"]) == (["cat"], 137)
