"""A server process under a guardian: its log, its end, and the wait until it is ready."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from agar.errors import EngineError
from agar.sandbox import guardian

_POLL_S = 0.25
_QUOTED_LINES = 25


class GuardedProcess:
    """One command whose whole process tree ends with it, with its owner, or on request.

    Args:
        name: what it is, for messages.
        command: program and arguments.
        log: file that takes its output; appended to.
        environment: its whole environment.
        grace_s: between asking the tree to end and killing it.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], grace_s: float = 5.0
    ) -> None:
        self.name, self.log, self.grace_s = name, log, grace_s
        self._command, self._environment = list(command), dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: asyncio.Future[int] | None = None

    def start(self) -> None:
        """Start it; returns at once.

        Raises:
            EngineError: the program cannot be run.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        guard = [sys.executable, "-I", "-S", guardian.__file__, str(os.getpid()), str(self.grace_s)]
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*guard, *self._command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"{self.name} cannot be started: {error}") from error
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        pid_fd = os.pidfd_open(self._process.pid)
        loop.add_reader(pid_fd, self._reap, loop, pid_fd)

    def _reap(self, loop: asyncio.AbstractEventLoop, pid_fd: int) -> None:
        loop.remove_reader(pid_fd)
        os.close(pid_fd)
        if self._process is not None and self._ended is not None:
            code = self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            if not self._ended.done():
                self._ended.set_result(code)

    @property
    def alive(self) -> bool:
        """True between `start` and the end of the whole tree."""
        return self._ended is not None and not self._ended.done()

    def pids(self) -> list[int]:
        """The guardian and every process below it."""
        if self._process is None or not self.alive:
            return []
        return [self._process.pid, *guardian.descendants(self._process.pid)]

    async def ended(self) -> int:
        """Wait until the whole tree has ended; gives the command's exit code. The caller bounds the wait."""
        if self._ended is None:
            raise EngineError(f"{self.name} was not started")
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """End the whole tree and wait for it; idempotent."""
        if self._process is None or self._process.stdin is None or self._ended is None:
            return
        self._process.stdin.close()
        try:
            async with asyncio.timeout(self.grace_s + 30):
                await asyncio.shield(self._ended)
        except TimeoutError:
            raise EngineError(
                f"{self.name} did not end within {self.grace_s + 30:.0f} s of being killed: processes {self.pids()}"
            ) from None

    def last_lines(self, count: int = _QUOTED_LINES) -> str:
        """The end of its log, for an error message."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 16384))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        return "\n".join(f"  | {line[:300]}" for line in lines[-count:]) or "  | (its log is empty)"

    async def until_ready(
        self, ready: Callable[[], Awaitable[bool]], *, timeout_s: float, stall_timeout_s: float
    ) -> float:
        """Wait until `ready` says so, watching that the log grows.

        Returns:
            Seconds that it took.

        Raises:
            EngineError: the process ended, stalled, or was not ready in time; quotes the end of its log.
        """
        began = grown = time.monotonic()
        size = -1
        while True:
            if not self.alive:
                code = await self.ended()
                raise EngineError(f"{self.name} ended with code {code} while it started.\n{self._quote()}")
            if await ready():
                return time.monotonic() - began
            now = time.monotonic()
            current = self.log.stat().st_size
            if current != size:
                size, grown = current, now
            if now - began > timeout_s:
                raise EngineError(
                    f"{self.name} was not ready within {timeout_s:.0f} s (raise engines.start_timeout_s if it is only "
                    f"slow).\n{self._quote()}"
                )
            if now - grown > stall_timeout_s:
                raise EngineError(
                    f"{self.name} wrote nothing for {stall_timeout_s:.0f} s while it started (raise "
                    f"engines.stall_timeout_s if it is only slow).\n{self._quote()}"
                )
            await asyncio.sleep(_POLL_S)

    def _quote(self) -> str:
        return f"The last lines of {self.log}:\n{self.last_lines()}"
