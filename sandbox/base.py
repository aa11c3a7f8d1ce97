"""The contract of a sandbox, whatever isolates it.

Whose fault is it? A command that fails, hangs, floods or is killed is an `ExecResult`: data for the agent. A bad path
or a full workspace in `read`, `write`, `put`, `get` is a `ToolError`: text for the agent. A sandbox that could not
start or died is a `SandboxError`: infrastructure, which never counts against the agent, and which no command can
provoke.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

KilledBy = Literal["timeout", "memory", "output"]
"""Why a command was killed: its deadline, its memory limit, or more output than is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    r"""What a command did.

    Example: `sh -c 'echo hi; exit 3'` gives `code=3, stdout="hi\n", stderr="", truncated=False, killed_by=None`.

    Attributes:
        code: exit status; 128 + n after signal n, so 137 after a kill; 126 or 127 where the command could not run.
        stdout: what it wrote, as UTF-8; undecodable bytes become U+FFFD.
        stderr: likewise.
        truncated: True where output was cut at `output_bytes`.
        wall_s: seconds from its start until its last process was gone.
        killed_by: None where it ended by itself.
    """

    code: int
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    wall_s: float = 0.0
    killed_by: KilledBy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What `put` or `get` copied.

    Attributes:
        files: regular files copied.
        size_bytes: their size, in bytes.
        skipped: what was left out, by reason (`symlink`, `special`) and count.
    """

    files: int = 0
    size_bytes: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The files of a sandbox at one moment (`agar.sandbox.snapshot` says which); can be pickled and kept.

    Attributes:
        archive: a tarball of `work` and `tmp`, as any backend restores it.
        files: regular files in it.
        size_bytes: their size, in bytes.
    """

    archive: bytes
    files: int
    size_bytes: int


class Process(Protocol):
    """A command that runs on beside the caller, who talks to it. To be used from the event loop that started it."""

    async def write(self, data: bytes) -> None:
        """Give it input. One that has ended takes none: `read` shows its end."""
        ...

    async def read(self) -> bytes:
        """The next bytes that it writes to its output, as soon as there are some; empty once it has ended."""
        ...

    async def close(self) -> ExecResult:
        """Kill what is left of it, and wait until its whole process tree is gone. A second call answers the same.

        One whose output has been read to its end gets a moment to end by itself.

        Returns:
            How it ended: `code` is 137 where it had to be killed. `stderr` is all that it wrote there, `stdout` empty:
            `read` gives that, before this.

        Raises:
            SandboxError: it was not gone within the deadline, or the sandbox died.
        """
        ...


@runtime_checkable
class Sandbox(Protocol):
    """A place to run code that nobody trusts. Async; usable from any event loop; opened by its first use.

    Paths inside are relative to `/work`, or absolute below `/work` or `/tmp`. Symlinks are followed inside the
    sandbox's own tree only, whatever the code in it has planted. No process outlives its `exec` or its `Process`; files
    stay until `close`.
    """

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command and wait until its whole process tree is gone.

        Args:
            command: a string runs by `/bin/sh -c`, a sequence as it stands.
            cwd: working directory; default `/work`.
            env: more environment variables, over the spec's.
            stdin: what the command reads; default nothing.
            timeout_s: deadline in seconds; default the spec's.

        Raises:
            ConfigError: the command is empty, or an environment variable or `timeout_s` is impossible.
            SandboxError: the sandbox could not start, died, or is closed.
            UnsupportedPlatformError: this machine cannot isolate; the message names the fix.
        """
        ...

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 3600.0,
    ) -> Process:
        """Start a command and talk to it. It ends with `Process.close`, at its deadline, or with the sandbox.

        Until then a backend may refuse other commands (`SandboxError`).

        Args:
            command: as for `exec`.
            cwd: as for `exec`.
            env: as for `exec`.
            timeout_s: how long it may live, in seconds.

        Raises:
            ToolError: the command cannot run at all (too long, a NUL byte).
            ConfigError, SandboxError, UnsupportedPlatformError: as for `exec`.
        """
        ...

    async def read(self, path: str) -> bytes:
        """The content of a regular file.

        Raises:
            ToolError: no such file, not a regular file, outside the sandbox, or larger than its disk.
            SandboxError: the sandbox could not start, died, or is closed.
        """
        ...

    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a regular file; missing parent directories are made.

        Raises:
            ToolError: the path is outside or not a regular file, or the sandbox's disk is full.
            SandboxError: the sandbox could not start, died, or is closed.
        """
        ...

    async def put(self, source: Path, target: str) -> Transfer:
        """Copy a file or a directory tree in. Symlinks and special files below `source` are skipped and counted.

        Raises:
            ToolError: `target` is outside, or the disk is full.
            SandboxError: the sandbox could not start, died, or is closed.
            OSError: `source` cannot be read.
        """
        ...

    async def get(self, source: str, target: Path) -> Transfer:
        """Copy a file or a directory tree out. Symlinks and special files are skipped and counted, never followed.

        Raises:
            ToolError: `source` is missing or outside, or larger than the sandbox's disk.
            SandboxError: the sandbox could not start, died, or is closed.
            OSError: `target` cannot be written.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """The files as they are now.

        Raises:
            ToolError: there is more than the sandbox's disk holds, by holes in sparse files.
            SandboxError: the sandbox could not start, died, or is closed.
        """
        ...

    async def restore(self, snapshot: Snapshot) -> None:
        """Replace all files by those of a snapshot, taken here or in another sandbox of any backend.

        Raises:
            ToolError: the disk is too small for them.
            SandboxError: the sandbox could not start, died, or is closed.
        """
        ...

    async def fork(self, count: int) -> "Sequence[Sandbox]":
        """New sandboxes of the same spec with copies of the files as they are now; each is the caller's to close.

        Args:
            count: how many.

        Raises:
            ToolError: as `snapshot`.
            SandboxError: one could not be made; then none is left.
        """
        ...

    async def close(self) -> None:
        """Kill what runs, delete the workspace, and wait until both are gone. A second call does nothing.

        Raises:
            SandboxError: it was not gone within the deadline.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
