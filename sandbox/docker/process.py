"""A command in a container that runs on beside its caller."""

import asyncio
import time
from collections.abc import AsyncIterator

from agar.sandbox.base import ExecResult, KilledBy
from agar.sandbox.docker.attached import Attached
from agar.sandbox.docker.container import Container

_GRACE_S = 1.0
"""How long a process whose output has ended may take to end by itself."""


class DockerProcess:
    """A `Process`; made by `DockerSandbox.start`.

    Args:
        container: where it runs.
        name: the engine's name for it.
        link: its streams.
        timeout_s: when it is killed, in seconds from now.
        limit_bytes: how much of its errors is kept; it is killed for more.
    """

    def __init__(self, container: Container, name: str, link: Attached, *, timeout_s: float, limit_bytes: int) -> None:
        self._container, self._name, self._link, self._limit_bytes = container, name, link, limit_bytes
        self._began, self._wall_began = time.monotonic(), time.time()
        self._timeout_s = timeout_s
        self._frames: AsyncIterator[tuple[int, bytes]] = link.frames()
        self._err = bytearray()
        self._output_ended = False
        self._killed_by: KilledBy | None = None
        self._result: ExecResult | None = None
        self._closing: asyncio.Task[ExecResult] | None = None

    @property
    def closed(self) -> bool:
        """Whether it is gone."""
        return self._result is not None

    async def write(self, data: bytes) -> None:
        """See `Process.write`."""
        if self._result is None:
            try:
                async with asyncio.timeout(self._left_s()):
                    await self._link.send(data)
            except (OSError, TimeoutError):
                return

    async def read(self) -> bytes:
        """See `Process.read`."""
        while self._result is None and not self._output_ended:
            try:
                async with asyncio.timeout(self._left_s()):
                    stream, data = await anext(self._frames)
            except TimeoutError:
                await self._kill("timeout")
            except (StopAsyncIteration, OSError):
                self._output_ended = True
            else:
                if stream == 1:
                    return data
                self._err += data
                if len(self._err) > self._limit_bytes:
                    await self._kill("output")
        return b""

    async def close(self) -> ExecResult:
        """See `Process.close`."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        return await asyncio.shield(self._closing)

    async def _kill(self, reason: KilledBy) -> None:
        self._killed_by = self._killed_by or reason
        self._output_ended = True
        await asyncio.shield(asyncio.ensure_future(self._container.kill_all()))

    async def _close(self) -> ExecResult:
        by_itself = (
            self._output_ended and self._killed_by is None and await self._container.has_ended(self._name, _GRACE_S)
        )
        await self._container.kill_all()
        self._link.close()
        code, killed_by = await self._container.ended(self._name, self._wall_began, self._killed_by, bytes(self._err))
        self._result = ExecResult(
            code=code if by_itself else 137,
            stderr=bytes(self._err[: self._limit_bytes]).decode("utf-8", "replace"),
            truncated=len(self._err) > self._limit_bytes,
            wall_s=time.monotonic() - self._began,
            killed_by=killed_by,
        )
        return self._result

    def _left_s(self) -> float:
        return max(self._began + self._timeout_s - time.monotonic(), 0.0)
