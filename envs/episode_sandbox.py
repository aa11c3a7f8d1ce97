"""The sandbox of one episode, made when it is first used."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agar.errors import EnvError, SandboxError, ToolError

if TYPE_CHECKING:
    from agar.sandbox.base import ExecResult, Process, Sandbox, Transfer

T = TypeVar("T")


class EpisodeSandbox:
    """A sandbox that starts with the first thing that is done in it.

    An episode that never touches its sandbox pays nothing for it. Once starting it has failed, or it has been closed,
    every use raises.
    """

    def __init__(
        self,
        make: "Callable[[], AbstractAsyncContextManager[Sandbox]]",
        *,
        setup: "Callable[[Sandbox], Awaitable[None]]",
    ) -> None:
        """Prepare a sandbox.

        Args:
            make: makes it, not started, or the lease of one; it is entered once and left at the end.
            setup: puts the episode's files into it once it has started.
        """
        self._make = make
        self._setup = setup
        self._lock = asyncio.Lock()
        self._held = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._over: str | None = None
        self.failure: str | None = None
        """Why it failed, where it did; it stays set, whoever caught the error."""

    @property
    def started(self) -> bool:
        """True from the first use until it is closed."""
        return self._sandbox is not None

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> "ExecResult":
        """Run a command; a str is run by `/bin/sh -c`.

        Raises:
            SandboxError: the sandbox could not start, has died or was closed.
        """
        return await self._in(lambda sb: sb.exec(command, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s))

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 3600.0,
    ) -> "Process":
        """Start a command that runs on until its own `close`, or the sandbox's.

        Raises:
            SandboxError: the sandbox could not start, has died or was closed.
        """
        return await self._in(lambda sb: sb.start(command, cwd=cwd, env=env, timeout_s=timeout_s))

    async def read(self, path: str) -> bytes:
        """The bytes of a file inside."""
        return await self._in(lambda sb: sb.read(path))

    async def write(self, path: str, data: bytes | str) -> None:
        """Write a file inside."""
        await self._in(lambda sb: sb.write(path, data))

    async def put(self, source: Path, target: str) -> "Transfer":
        """Copy a file or folder in."""
        return await self._in(lambda sb: sb.put(source, target))

    async def get(self, source: str, target: Path) -> "Transfer":
        """Copy a file or folder out."""
        return await self._in(lambda sb: sb.get(source, target))

    async def close(self) -> None:
        """Close it if it was started; a use after this raises. Idempotent."""
        async with self._lock:
            self._over = self._over or "the episode is over"
            self._sandbox = None
            await asyncio.shield(self._held.aclose())  # whoever is cancelled here, the sandbox still goes

    async def _in(self, work: "Callable[[Sandbox], Awaitable[T]]") -> T:
        try:
            return await work(await self._ready())
        except SandboxError as error:
            self.failure = str(error)
            raise

    async def _ready(self) -> "Sandbox":
        async with self._lock:
            if self._sandbox is not None:
                return self._sandbox
            if self._over is not None:
                raise SandboxError(f"the episode's sandbox cannot be used: {self._over}")
            self._over = "it did not start"  # until it has
            try:
                sandbox = await self._held.enter_async_context(self._make())
                await self._setup(sandbox)
            except BaseException as error:
                self.failure = f"the sandbox did not start: {str(error) or type(error).__name__}"
                await asyncio.shield(self._held.aclose())
                if isinstance(error, ToolError):  # not a tool's failure: the agent has done nothing yet
                    raise EnvError(f"the episode's files could not be laid out: {error}") from error
                raise
            self._sandbox, self._over = sandbox, None
            return sandbox
