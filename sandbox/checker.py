"""The conformance kit: what every sandbox backend must do, checked against a real one.

`await check_sandbox(lambda: create(spec))` returns a `Report`; a backend that isolates must pass all of it, a scripted
one passes with `isolates=False`, which leaves out what needs real processes.
"""

import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from agar.errors import AgarError, SandboxError, ToolError
from agar.sandbox.base import Sandbox

Check = Callable[[Sandbox], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a backend did.

    Attributes:
        passed: names of the checks that held.
        failed: check name to what went wrong.
    """

    passed: tuple[str, ...]
    failed: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return not self.failed


async def check_sandbox(make: Callable[[], Sandbox], *, isolates: bool = True) -> Report:
    """Run every check, each in a sandbox of its own.

    Args:
        make: makes a fresh sandbox with the default limits.
        isolates: False for a scripted backend, which runs no processes.

    Raises:
        UnsupportedPlatformError: the machine cannot run the backend at all.
        MissingExtraError: likewise, for want of a package.
    """
    passed, failed = [], {}
    for check in (*CONTRACT, *(ISOLATION if isolates else ())):
        name = check.__name__
        try:
            async with make() as sandbox:
                await check(sandbox)
        except (AssertionError, SandboxError, ToolError, OSError) as error:
            failed[name] = f"{type(error).__name__}: {error}"
        else:
            passed.append(name)
    return Report(passed=tuple(passed), failed=failed)


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, expected {wanted!r}")


async def _expect_raises(kind: type[AgarError], what: str, call: Awaitable[object]) -> None:
    try:
        got = await call
    except kind:
        return
    raise AssertionError(f"{what} gave {got!r}, expected {kind.__name__}")


async def runs_a_string_with_the_shell(sandbox: Sandbox) -> None:
    """`exec` of a string."""
    result = await sandbox.exec("echo one; echo two")
    _expect("stdout", result.stdout, "one\ntwo\n")
    _expect("code", result.code, 0)
    _expect("killed_by", result.killed_by, None)
    _expect("truncated", result.truncated, False)


async def runs_a_sequence_as_it_stands(sandbox: Sandbox) -> None:
    """`exec` of a sequence: no word is interpreted."""
    _expect("stdout", (await sandbox.exec(["echo", "$HOME; a  b"])).stdout, "$HOME; a  b\n")


async def reports_failure_as_data(sandbox: Sandbox) -> None:
    """Exit codes, missing commands, missing files, impossible words."""
    _expect("code of exit 3", (await sandbox.exec("exit 3")).code, 3)
    _expect("code of a missing command", (await sandbox.exec(["no-such-command"])).code, 127)
    missing = await sandbox.exec("cat nothing")
    _expect("code of cat", missing.code, 1)
    _expect("stderr names the file", "nothing" in missing.stderr, True)
    _expect("code of a NUL byte", (await sandbox.exec("echo a\0b")).code, 126)
    _expect("code of a huge word", (await sandbox.exec("echo " + "x" * 200_000)).code, 126)
    _expect("code of a lone surrogate", (await sandbox.exec("echo \ud800")).code, 0)


async def starts_in_the_workspace(sandbox: Sandbox) -> None:
    """The default directory, and `cwd`."""
    await sandbox.write("sub/f", "x")
    _expect("pwd", (await sandbox.exec("pwd")).stdout, "/work\n")
    _expect("pwd in cwd", (await sandbox.exec("pwd", cwd="sub")).stdout, "/work/sub\n")


async def feeds_stdin(sandbox: Sandbox) -> None:
    """`stdin`, and its default."""
    _expect("stdout", (await sandbox.exec("cat", stdin="line\n")).stdout, "line\n")
    _expect("stdout without stdin", (await sandbox.exec("cat")).stdout, "")


async def keeps_files_between_commands(sandbox: Sandbox) -> None:
    """`write`, `exec`, `read` see one tree; bytes survive."""
    data = bytes(range(256))
    await sandbox.write("deep/er/b", data)
    _expect("read", await sandbox.read("deep/er/b"), data)
    await sandbox.write("f", "text")
    _expect("cat", (await sandbox.exec("cat f")).stdout, "text")
    await sandbox.write("/work/f", "new")
    _expect("read of an absolute path", await sandbox.read("/work/f"), b"new")
    await sandbox.write("/tmp/f", "temporary")
    _expect("cat of /tmp", (await sandbox.exec("cat /tmp/f")).stdout, "temporary")


async def refuses_paths_outside(sandbox: Sandbox) -> None:
    """Paths that leave the workspace, or name no regular file."""
    await sandbox.write("d/f", "x")
    for path in ("/etc/passwd", "../etc/passwd", "d/../../x", "", "a\0b", "/", "/workshop", "nothing", "d"):
        await _expect_raises(ToolError, f"read {path!r}", sandbox.read(path))
    for path in ("/etc/passwd", "../x", "", "/usr/x", "d"):
        await _expect_raises(ToolError, f"write {path!r}", sandbox.write(path, "x"))


async def copies_trees(sandbox: Sandbox) -> None:
    """`put` and `get`, files and directories; links are counted."""
    with tempfile.TemporaryDirectory() as place:
        source, target, one = (Path(place, name) for name in ("source", "target", "one"))
        (source / "sub").mkdir(parents=True)
        (source / "a").write_bytes(b"A")
        (source / "sub" / "b").write_bytes(b"BB")
        (source / "link").symlink_to("/etc/passwd")
        sent = await sandbox.put(source, "tree")
        _expect("put", (sent.files, sent.size_bytes, dict(sent.skipped)), (2, 3, {"symlink": 1}))
        _expect("cat", (await sandbox.exec("cat tree/sub/b")).stdout, "BB")
        back = await sandbox.get("tree", target)
        _expect("get", (back.files, back.size_bytes), (2, 3))
        _expect("content", (target / "sub" / "b").read_bytes(), b"BB")
        await sandbox.put(source / "a", "one")
        await sandbox.get("one", one)
        _expect("one file", one.read_bytes(), b"A")
        await _expect_raises(ToolError, "get of nothing", sandbox.get("nothing", target))


async def kills_at_the_deadline(sandbox: Sandbox) -> None:
    """`timeout_s`."""
    began = time.monotonic()
    result = await sandbox.exec("sleep 30", timeout_s=0.3)
    _expect("killed_by", result.killed_by, "timeout")
    _expect("code", result.code, 137)
    _expect("returned soon", time.monotonic() - began < 10, True)
    _expect("usable afterwards", (await sandbox.exec("echo still here")).stdout, "still here\n")


async def closes_for_good(sandbox: Sandbox) -> None:
    """`close` twice, and use after it."""
    await sandbox.write("f", "x")
    await sandbox.close()
    await sandbox.close()
    await _expect_raises(SandboxError, "exec after close", sandbox.exec("true"))
    await _expect_raises(SandboxError, "read after close", sandbox.read("f"))


async def hides_the_environment(sandbox: Sandbox) -> None:
    """Nothing of the controller's environment is visible, not even through the first process."""
    result = await sandbox.exec("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | cut -d= -f1 | sort -u")
    known = {"", "HOME", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    _expect("names", set(result.stdout.split("\n")) - known, set())


async def has_no_network(sandbox: Sandbox) -> None:
    """Only the sandbox's own loopback."""
    devices = await sandbox.exec("cut -d: -f1 -s /proc/net/dev | tr -d ' '")
    _expect("devices", devices.stdout.split(), ["lo"])


async def writes_nowhere_else(sandbox: Sandbox) -> None:
    """Everything but `/work`, `/tmp`, `/dev/shm` is read-only."""
    for place in ("/", "/usr", "/etc", "/dev", "/proc/sys/kernel"):
        result = await sandbox.exec(f"(echo x > {place}/planted) 2>/dev/null && echo written")
        _expect(f"writing to {place}", result.stdout, "")


async def leaves_no_process(sandbox: Sandbox) -> None:
    """A background process ends with the command that started it."""
    await sandbox.exec("(while :; do date > beat; sleep 0.02; done) >/dev/null 2>&1 & sleep 0.2")
    await sandbox.exec("rm -f beat; sleep 0.2")
    await _expect_raises(ToolError, "the file of a dead process", sandbox.read("beat"))


async def stops_a_flood(sandbox: Sandbox) -> None:
    """Endless output is cut and its writer killed."""
    result = await sandbox.exec("yes")
    _expect("killed_by", result.killed_by, "output")
    _expect("truncated", result.truncated, True)


CONTRACT: tuple[Check, ...] = (
    runs_a_string_with_the_shell,
    runs_a_sequence_as_it_stands,
    reports_failure_as_data,
    starts_in_the_workspace,
    feeds_stdin,
    keeps_files_between_commands,
    refuses_paths_outside,
    copies_trees,
    kills_at_the_deadline,
    closes_for_good,
)
"""What any backend does."""

ISOLATION: tuple[Check, ...] = (
    hides_the_environment,
    has_no_network,
    writes_nowhere_else,
    leaves_no_process,
    stops_a_flood,
)
"""What a backend that isolates does besides."""
