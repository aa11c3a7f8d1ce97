"""A place without walls: a folder of its own, and programs that run as the user who runs agar.

For programs that are trusted with this machine. The whole process tree of a program ends with it all the same, by the
guardian above it; but a program that means to can kill its guardian, read this user's files and use the network.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from agar.errors import SandboxError
from agar.sandbox import guardian
from agar.sandbox.base import ExecResult, KilledBy, Transfer
from agar.sandbox.command import refusal_of
from agar.sandbox.files import Workspace
from agar.sandbox.streams import Stream

logger = logging.getLogger(__name__)

_FILE_BYTES = 256 << 20  # the largest file, and the most in one folder, that is read back
_END_TIMEOUT_S = 40.0
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_WITH_STDIN = 'input=$1; shift; exec "$@" <"$input"'  # the guardian keeps its own stdin to itself


class ProcessPlace:
    """A `Place` whose programs are plain processes; an async context manager."""

    def __init__(self, *, output_bytes: int) -> None:
        """Make its folder.

        Args:
            output_bytes: bytes kept of stdout, and as many of stderr; a program that writes more is killed.
        """
        self._output_bytes = output_bytes
        self._folder = Path(tempfile.mkdtemp(prefix="agar-harness-"))
        for name in ("work", "tmp"):
            (self._folder / name).mkdir()
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._closed = False
        self._files = Workspace(fd=fd, uid=os.getuid(), gid=os.getgid(), limit_bytes=_FILE_BYTES)

    async def exec(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a program and wait until its whole process tree is gone.

        Args:
            command: the program and its arguments.
            env: all its variables but `PATH`, `HOME`, `LANG` and `TMPDIR`, which it may override.
            stdin: what it reads; default nothing.
            timeout_s: deadline in seconds; default none.

        Raises:
            SandboxError: no process could be started, or it did not end when killed.
        """
        if (refusal := refusal_of(command, env or {})) is not None:
            return ExecResult(code=126, stderr=refusal)
        given = self._folder / "stdin"
        given.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin or b"")
        work = self._folder / "work"
        own = {"PATH": _PATH, "HOME": str(work), "LANG": "C.UTF-8", "TMPDIR": str(self._folder / "tmp")}
        guard = [sys.executable, "-I", "-S", guardian.__file__, str(os.getpid()), "0"]
        words = [*guard, "/bin/sh", "-c", _WITH_STDIN, "sh", str(given), *command]
        out, err = Stream(self._output_bytes), Stream(self._output_bytes)
        began = time.monotonic()
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=subprocess.PIPE,
                    stdout=out.writer,
                    stderr=err.writer,
                    env={**own, **(env or {})},
                    cwd=work,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise SandboxError(f"no process could be started for {command[0]!r}: {error}") from error
            finally:
                out.close_writer()
                err.close_writer()
            killed_by = await _follow(process, out, err, timeout_s)
            return ExecResult(
                code=137 if killed_by else process.returncode or 0,
                stdout=out.text(),
                stderr=err.text(),
                truncated=out.truncated or err.truncated,
                wall_s=time.monotonic() - began,
                killed_by=killed_by,
            )
        finally:
            out.close()
            err.close()

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        return self._files.read(path)

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        self._files.write(path, data.encode() if isinstance(data, str) else data)

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        files = self._files.borrow()
        return await asyncio.to_thread(files.returning, files.get, source, target)

    async def close(self) -> None:
        """Delete the folder. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        os.close(self._files.fd)
        await asyncio.to_thread(_delete, self._folder)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _follow(
    process: asyncio.subprocess.Process, out: Stream, err: Stream, timeout_s: float | None
) -> KilledBy | None:
    """Read until the tree is gone; kill it where it takes too long, says too much, or we are cancelled."""
    flooded = asyncio.Event()
    ended = asyncio.create_task(process.wait())
    flood = asyncio.create_task(flooded.wait())
    try:
        with out.reading(flooded.set), err.reading(flooded.set):
            await asyncio.wait({ended, flood}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            killed_by: KilledBy | None = None if ended.done() else "output" if flooded.is_set() else "timeout"
            await _end(process, ended)
        out.drain()
        err.drain()
        return killed_by
    finally:
        flood.cancel()
        if not ended.done():
            await asyncio.shield(asyncio.ensure_future(_end(process, ended)))


async def _end(process: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
    """Let go of the guardian, which then kills the tree, and wait for it."""
    assert process.stdin is not None, "it was started with a pipe"
    process.stdin.close()
    with contextlib.suppress(ConnectionError):  # it has just ended by itself
        await process.stdin.wait_closed()
    done, _ = await asyncio.wait({ended}, timeout=_END_TIMEOUT_S)
    if not done:
        raise SandboxError(
            f"a program (guardian {process.pid}) was not gone {_END_TIMEOUT_S:g} s after it was killed: look with ps"
        )


def _delete(folder: Path) -> None:
    """Delete a folder, also what a program has made read-only in it, as package managers do with their caches."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        logger.warning("the folder %s of a program could not be deleted: delete it", folder)
