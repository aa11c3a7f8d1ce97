"""Processes of the scripted sandbox: what they write is known beforehand, or made of what they are given."""

import asyncio
from collections.abc import Callable

from agar.sandbox.base import ExecResult

Answer = Callable[[bytes], bytes | None]
"""What a process writes when it is given input; None ends it."""


class FakeProcess:
    """A `Process` that runs nothing.

    Args:
        answer: plays it; None for one that has ended.
        result: how it ends by itself; its `stdout` can be read.
    """

    def __init__(self, answer: Answer | None, result: ExecResult | None = None) -> None:
        self._answer = answer
        self._result = result
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        if result is not None and result.stdout:
            self._said.put_nowait(result.stdout.encode())
        if answer is None:
            self._said.put_nowait(b"")

    async def write(self, data: bytes) -> None:
        """See `Process.write`."""
        if self._answer is None:
            return
        said = self._answer(data)
        if said is None:
            self._answer = None
        if said != b"":
            self._said.put_nowait(said or b"")

    async def read(self) -> bytes:
        """See `Process.read`."""
        said = await self._said.get()
        if not said:
            self._said.put_nowait(b"")  # the end stays the end
        return said

    async def close(self) -> ExecResult:
        """See `Process.close`."""
        if self._answer is not None:
            self._answer = None
            self._said.put_nowait(b"")
        if self._result is None:
            self._result = ExecResult(code=137)
        return ExecResult(code=self._result.code, stderr=self._result.stderr)
