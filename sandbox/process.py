"""A command in a bubblewrap sandbox that runs on beside its caller."""

import contextlib
import os
import socket
import time
from collections.abc import Callable

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
        self._output_ended = False

    async def write(self, data: bytes) -> None:
        """See `Process.write`."""
        rest = memoryview(data)
        while rest and self._result is None:
            try:
                rest = rest[os.write(self._into.writer, rest) :]
            except BlockingIOError:
                await writable(self._into.writer, self._left_s())
            except BrokenPipeError:
                return

    async def read(self) -> bytes:
        """See `Process.read`."""
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
        if self._result is None:
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
            finally:
                await self._stack.aclose()
        return self._result

    def _left_s(self) -> float:
        return max(self._over_at - time.monotonic(), 0.0)
