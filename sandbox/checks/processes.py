"""Commands that run on beside the caller: `Sandbox.start`."""

import asyncio
import os

from agar.errors import SandboxError, ToolError
from agar.sandbox.base import Process, Sandbox
from agar.sandbox.checks.check import Check, expect, expect_raises


async def talks_to_a_process(sandbox: Sandbox) -> None:
    """Input and output while it runs, and its end."""
    process = await sandbox.start(["cat"])
    for line in (b"one\n", bytes(range(256))):
        await process.write(line)
        expect("what cat says", await _heard(process, len(line)), line)
    expect("code of a process that was closed", (await process.close()).code, 137)
    expect("code at the second close", (await process.close()).code, 137)
    expect("read after close", await process.read(), b"")
    await process.write(b"nobody hears this")
    expect("usable afterwards", (await sandbox.exec("echo still here")).stdout, "still here\n")


async def tells_how_a_process_ended(sandbox: Sandbox) -> None:
    """Output to the end, and the result."""
    process = await sandbox.start("echo out; exit 3")
    expect("output", await _heard(process, 1000), b"out\n")
    ended = await process.close()
    expect("code and output of close", (ended.code, ended.stdout, ended.killed_by), (3, "", None))
    await expect_raises(ToolError, "start with a NUL byte", sandbox.start("a\0b"))


async def hears_how_a_process_ends(sandbox: Sandbox) -> None:
    """What it writes at its end, to its errors too."""
    process = await sandbox.start("read line; echo got $line; echo why >&2; exit 3")
    await process.write(b"a line\n")
    expect("output", await _heard(process, 1000), b"got a line\n")
    ended = await process.close()
    expect("code and stderr", (ended.code, ended.stderr), (3, "why\n"))


async def ends_processes_with_the_sandbox(sandbox: Sandbox) -> None:
    """`close` while a process runs."""
    process = await sandbox.start(["cat"])
    await sandbox.close()
    expect("read", await process.read(), b"")
    await process.close()
    await expect_raises(SandboxError, "start after close", sandbox.start(["cat"]))


async def ends_a_process_at_its_deadline(sandbox: Sandbox) -> None:
    """`timeout_s` of `start`, and nothing left behind."""
    process = await sandbox.start("(while :; do date > beat; sleep 0.02; done) & sleep 60", timeout_s=0.5)
    expect("read", await process.read(), b"")
    expect("killed_by", (await process.close()).killed_by, "timeout")
    await sandbox.exec("rm -f beat; sleep 0.2")
    await expect_raises(ToolError, "the file of a dead process", sandbox.read("beat"))


async def stops_a_process_that_floods_its_errors(sandbox: Sandbox) -> None:
    """Its output waits for the reader; its errors are kept, up to a bound."""
    process = await sandbox.start("yes >&2")
    expect("read", await process.read(), b"")
    ended = await process.close()
    expect("killed_by and truncated", (ended.killed_by, ended.truncated), ("output", True))


async def carries_megabytes_both_ways(sandbox: Sandbox) -> None:
    """More than any pipe holds, while the caller still writes."""
    process = await sandbox.start(["cat"])
    data = os.urandom(1 << 16) * 48
    async with asyncio.TaskGroup() as group:
        group.create_task(process.write(data))
        heard = await _heard(process, len(data))
    await process.close()
    expect("bytes that cat gave back", (len(heard), heard == data), (len(data), True))


async def loses_nothing_to_a_cancelled_read(sandbox: Sandbox) -> None:
    """A read that its caller gives up."""
    process = await sandbox.start(["cat"])
    for _ in range(5):
        try:
            async with asyncio.timeout(0.02):
                expect("read of a silent process", await process.read(), None)
        except TimeoutError:
            continue
    await process.write(b"said")
    expect("read", await _heard(process, 4), b"said")
    await process.close()


async def _heard(process: Process, size: int) -> bytes:
    heard = b""
    while len(heard) < size and (piece := await process.read()):
        heard += piece
    return heard


PROCESSES = (
    Check(run=talks_to_a_process, real=False),
    Check(run=tells_how_a_process_ended, real=False),
    Check(run=ends_processes_with_the_sandbox, real=False),
    Check(run=carries_megabytes_both_ways, real=False),
    Check(run=loses_nothing_to_a_cancelled_read, real=False),
    Check(run=hears_how_a_process_ends),
    Check(run=ends_a_process_at_its_deadline),
    Check(run=stops_a_process_that_floods_its_errors),
)
