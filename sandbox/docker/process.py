"""A command in a container that runs on beside its caller."""

import asyncio
import time
from collections.abc import Callable

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
        ended: is told how it ended.
    """

    def __init__(
        self,
        container: Container,
        name: str,
        link: Attached,
        *,
        timeout_s: float,
        limit_bytes: int,
        ended: Callable[[ExecResult], None],
    ) -> None:
        self._container, self._name, self._link, self._limit_bytes = container, name, link, limit_bytes
        self._began, self._wall_began = time.monotonic(), time.time()
        self._timeout_s, self._ended = timeout_s, ended
        self._err = bytearray()
        self._output_ended = False
        self._killed_by: KilledBy | None = None
        self._result: ExecResult | None = None
        self._closing: asyncio.Task[ExecResult] | None = None
        self._killing: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expire)

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
                    frame = await self._link.frame()
            except TimeoutError:
                await self._kill("timeout")
                continue
            except OSError:
                frame = None
            if frame is None:
                self._output_ended = True
            elif frame[0] == 1:
                return frame[1]
            else:
                self._err += frame[1]
                if len(self._err) > self._limit_bytes:
                    await self._kill("output")
        return b""

    async def close(self) -> ExecResult:
        """See `Process.close`."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        return await asyncio.shield(self._closing)

    def _expire(self) -> None:
        """Kill it at its deadline also while nobody listens."""
        if self._closing is None:
            self._begin_to_kill("timeout")

    async def _kill(self, reason: KilledBy) -> None:
        await asyncio.shield(self._begin_to_kill(reason))

    def _begin_to_kill(self, reason: KilledBy) -> asyncio.Task[None]:
        if self._killing is None:
            self._killed_by = reason
            self._killing = asyncio.get_running_loop().create_task(self._container.kill_all())
        self._output_ended = True
        return self._killing

    async def _close(self) -> ExecResult:
        self._timer.cancel()
        if self._killing is not None:
            await self._killing
        grace_s = _GRACE_S if self._output_ended else 0.0
        by_itself = self._killed_by is None and await self._container.has_ended(self._name, grace_s)
        await self._container.kill_all()
        self._link.close()
        code, killed_by = 137, self._killed_by
        if by_itself:
            code, killed_by = await self._container.ended(self._name, self._wall_began, None, bytes(self._err))
        else:  # it may not even have begun, which is no failure
            await self._container.settled(self._name, kill=True)
        self._result = ExecResult(
            code=code,
            stderr=bytes(self._err[: self._limit_bytes]).decode("utf-8", "replace"),
            truncated=len(self._err) > self._limit_bytes,
            wall_s=time.monotonic() - self._began,
            killed_by=killed_by,
        )
        self._ended(self._result)
        return self._result

    def _left_s(self) -> float:
        return max(self._began + self._timeout_s - time.monotonic(), 0.0)
