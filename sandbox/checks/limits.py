"""Deadlines, output, memory, processes, disk, processors."""

import time

from agar.errors import ToolError
from agar.sandbox.base import Sandbox
from agar.sandbox.checks.check import Check, Refused, expect, expect_raises, expect_that


async def kills_at_the_deadline(sandbox: Sandbox) -> None:
    """`timeout_s`."""
    began = time.monotonic()
    result = await sandbox.exec("sleep 30", timeout_s=0.3)
    expect("killed_by", result.killed_by, "timeout")
    expect("code", result.code, 137)
    expect("returned soon", time.monotonic() - began < 20, True)
    expect("usable afterwards", (await sandbox.exec("echo still here")).stdout, "still here\n")


async def kills_the_whole_tree_at_the_deadline(sandbox: Sandbox) -> None:
    """Children in sessions of their own, deaf to signals, go too."""
    beat = "setsid sh -c 'trap \"\" TERM HUP INT; while :; do date > beat; sleep 0.02; done'"
    result = await sandbox.exec(f"{beat} & {beat} & sleep 30", timeout_s=0.7)
    expect("killed_by", result.killed_by, "timeout")
    await sandbox.exec("rm -f beat; sleep 0.3")
    await expect_raises(ToolError, "the file of a dead process", sandbox.read("beat"))


async def leaves_no_process(sandbox: Sandbox) -> None:
    """A background process ends with the command that started it."""
    beating = (
        "(while :; do date > beat; sleep 0.02; done) >/dev/null 2>&1 & while [ ! -s beat ]; do sleep 0.02; done; echo"
    )
    expect("a beat", (await sandbox.exec(beating)).stdout, "\n")
    await sandbox.exec("rm -f beat; sleep 0.2")
    await expect_raises(ToolError, "the file of a dead process", sandbox.read("beat"))


async def stops_a_flood(sandbox: Sandbox) -> None:
    """Endless output is cut and its writer killed."""
    result = await sandbox.exec("yes")
    expect("killed_by", result.killed_by, "output")
    expect("truncated", result.truncated, True)
    result = await sandbox.exec("yes >&2")
    expect("killed_by, of stderr", result.killed_by, "output")


async def keeps_output_up_to_the_limit(sandbox: Sandbox) -> None:
    """All of what fits, in order, and not a byte more."""
    result = await sandbox.exec("i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done; exit 6")
    expect_that("all lines", result.stdout == "".join(f"{number}\n" for number in range(2000)), result.stdout[-30:])
    expect("ending", (result.code, result.truncated, result.killed_by), (6, False, None))
    result = await sandbox.exec("head -c 10000 /dev/zero")
    expect("exactly", (len(result.stdout), result.truncated), (10_000, False))
    result = await sandbox.exec("head -c 10001 /dev/zero; sleep 30")
    expect("one more", (len(result.stdout), result.truncated, result.killed_by), (10_000, True, "output"))


async def bounds_memory(sandbox: Sandbox) -> None:
    """A process that takes more than there is fails or is killed; the next one has all again."""
    result = await sandbox.exec(
        "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null; echo code $?", timeout_s=40
    )
    expect_that("no success", result.stdout != "code 0\n", result)
    expect("usable afterwards", (await sandbox.exec("echo alive")).stdout, "alive\n")


async def bounds_processes(sandbox: Sandbox) -> None:
    """Forks fail beyond the limit; the next command has all again."""
    command = "i=0; while [ $i -lt 100 ]; do sleep 30 & i=$((i+1)); echo $i; done"
    result = await sandbox.exec(command, timeout_s=20.0)
    made = len(result.stdout.splitlines())
    expect_that("at most 16 processes", 4 <= made <= 18, result)
    expect("usable afterwards", (await sandbox.exec("echo alive | cat")).stdout, "alive\n")


async def survives_a_fork_bomb(sandbox: Sandbox) -> None:
    """However it ends, it ends, and only for itself."""
    result = await sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 30", timeout_s=1.0)
    expect_that("its end", result.killed_by in ("timeout", "output") or result.code != 0, result)
    expect("usable afterwards", (await sandbox.exec("echo alive")).stdout, "alive\n")


async def bounds_the_disk(sandbox: Sandbox) -> None:
    """Bytes."""
    filled = await sandbox.exec("head -c 12000000 /dev/zero > f; echo $?; stat -c %s f")
    expect_that("no more than 8 MiB", int(filled.stdout.split()[1]) <= 8 << 20, filled)
    expect_that("a failure", filled.stdout.split()[0] != "0" or filled.killed_by is not None, filled)
    await expect_raises(ToolError, "writing to a full disk", sandbox.write("g", b"x" * 100_000))
    await expect_raises(ToolError, "writing more than the disk", sandbox.write("h", b"x" * (9 << 20)))
    await sandbox.exec("rm -f f g h")
    await sandbox.write("g", "room again")


async def bounds_the_number_of_files(sandbox: Sandbox) -> None:
    """Inodes."""
    result = await sandbox.exec("touch $(seq 1 2000) 2>/dev/null; ls | wc -l")
    expect_that("fewer than 200 files", int(result.stdout) < 200, result.stdout)
    await expect_raises(ToolError, "one more file", sandbox.write("more", "x"))


async def does_not_fall_for_holes(sandbox: Sandbox) -> None:
    """Sparse files take no disk inside, and must take no memory of the caller's."""
    await sandbox.exec("truncate -s 7M one; truncate -s 7M two; truncate -s 900G huge 2>/dev/null; echo made")
    expect("a file that fits", len(await sandbox.read("one")), 7 << 20)
    await expect_raises(ToolError, "a snapshot of more than the disk", sandbox.snapshot())


async def bounds_processor_time(sandbox: Sandbox) -> None:
    """`cpus`."""
    result = await sandbox.exec("timeout 1 sh -c 'while :; do :; done'; times", timeout_s=40.0)
    held = getattr(sandbox, "limits", {}).get("cpu", "")
    if held.startswith("not limited"):
        raise Refused(f"cpus: {held}")
    minutes, seconds = result.stdout.split("\n")[1].split()[0].removesuffix("s").split("m")
    expect_that("a tenth of a second, with much to spare", float(minutes) * 60 + float(seconds) < 0.5, result.stdout)


LIMITS = (
    Check(run=kills_at_the_deadline, real=False),
    Check(run=kills_the_whole_tree_at_the_deadline),
    Check(run=leaves_no_process),
    Check(run=stops_a_flood),
    Check(run=keeps_output_up_to_the_limit, changes={"output_bytes": 10_000}),
    Check(run=bounds_memory, changes={"memory_mib": 64, "disk_mib": 16}),
    Check(run=bounds_processes, changes={"pids": 16}),
    Check(run=survives_a_fork_bomb, changes={"pids": 24}),
    Check(run=bounds_the_disk, changes={"disk_mib": 8}),
    Check(run=bounds_the_number_of_files, changes={"files": 200}),
    Check(run=does_not_fall_for_holes, changes={"disk_mib": 8}),
    Check(run=bounds_processor_time, changes={"cpus": 0.1}, optional=True),
)
"""Checks of what a sandbox may use."""
