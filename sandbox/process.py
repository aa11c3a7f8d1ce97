"""A command in a bubblewrap sandbox that runs on beside its caller."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

from agar.errors import SandboxError
from agar.sandbox.base import ExecResult
from agar.sandbox.keeper import receive
from agar.sandbox.running import CLOSE_TIMEOUT_S
from agar.sandbox.streams import Pipe, Stream, readable, writable

_CHUNK_BYTES = 1 << 16
_GRACE_S = 1.0
"""How long a process whose output has ended may take to end by itself."""


class BubblewrapProcess:
    """A `Process`; made by `BubblewrapSandbox.start`.

    Args:
        reply: where the keeper reports its end.
        into: its input.
        out: its output.
        err: its errors, which are being read.
        timeout_s: when the keeper kills it, in seconds from now.
        stack: holds all of these, and lets go of them.
        ended: makes the result of the keeper's report.
    """

    def __init__(
        self,
        reply: socket.socket,
        into: Pipe,
        out: Pipe,
        err: Stream,
        *,
        timeout_s: float,
        stack: contextlib.AsyncExitStack,
        ended: Callable[["BubblewrapProcess", bytes, Stream], ExecResult],
    ) -> None:
        self._reply, self._into, self._out, self._err = reply, into, out, err
        self._over_at = time.monotonic() + timeout_s + CLOSE_TIMEOUT_S
        self._stack, self._ended = stack, ended
        self._result: ExecResult | None = None
        self._closing: asyncio.Task[ExecResult] | None = None
        self._output_ended = False
        self._users = 0  # who reads and writes just now
        self._unused = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """See `Process.write`."""
        rest = memoryview(data)
        with self._in_use():
            while rest and self._result is None:
                try:
                    rest = rest[os.write(self._into.writer, rest) :]
                except BlockingIOError:
                    await writable(self._into.writer, self._left_s())
                except BrokenPipeError:
                    return

    async def read(self) -> bytes:
        """See `Process.read`."""
        with self._in_use():
            while self._result is None:
                try:
                    data = os.read(self._out.reader, _CHUNK_BYTES)
                except BlockingIOError:
                    await readable(self._out.reader, self._left_s())
                    continue
                self._output_ended = not data
                return data
        return b""

    async def close(self) -> ExecResult:
        """See `Process.close`."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        return await asyncio.shield(self._closing)  # whoever is cancelled here, it still goes

    async def _close(self) -> ExecResult:
        if self._output_ended:
            with contextlib.suppress(TimeoutError):
                await readable(self._reply, _GRACE_S)
        with contextlib.suppress(OSError):  # it has ended, and been reported, already
            self._reply.shutdown(socket.SHUT_WR)
        try:
            await readable(self._reply, CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            raise SandboxError(
                f"a process was not gone {CLOSE_TIMEOUT_S:g} s after it was killed: look for it with ps"
            ) from error
        message, _ = receive(self._reply)
        self._err.drain()
        try:
            self._result = self._ended(self, message, self._err)
            return self._result
        finally:
            if self._users:  # the end of the pipes has woken them; they must not find others under their numbers
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._unused.wait(), CLOSE_TIMEOUT_S)
            await self._stack.aclose()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    def _left_s(self) -> float:
        return max(self._over_at - time.monotonic(), 0.0)
