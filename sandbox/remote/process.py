"""A command in a sandbox elsewhere that runs on beside its caller."""

import asyncio
from collections.abc import Callable

from agar.errors import SandboxError
from agar.sandbox.base import ExecResult
from agar.sandbox.remote.client import SandboxClient
from agar.sandbox.remote.wire import Ran

_CALL_TIMEOUT_S = 60.0
_NOTHING_YET = 204
_NOTHING_MORE = 205


class RemoteProcess:
    """A `Process`; made by `RemoteSandbox.start`.

    Args:
        client: the server.
        path: where it is there.
        ended: is told how it ended.
    """

    def __init__(self, client: SandboxClient, path: str, *, ended: Callable[[ExecResult], None]) -> None:
        self._client, self._path, self._ended = client, path, ended
        self._result: ExecResult | None = None
        self._hearing: asyncio.Task[bytes] | None = None
        self._one_reads = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        """See `Process.write`."""
        if self._result is None:
            await self._client.send("POST", f"{self._path}/input", content=data, timeout_s=_CALL_TIMEOUT_S)

    async def read(self) -> bytes:
        """See `Process.read`.

        The server hands out what it has heard once, so a question whose caller has left goes on for the next one.
        """
        async with self._one_reads:
            if self._result is not None:
                return b""
            hearing = self._hearing = self._hearing or asyncio.ensure_future(self._hear())
            await asyncio.wait({hearing})
            self._hearing = None
            return b"" if hearing.cancelled() else hearing.result()

    async def close(self) -> ExecResult:
        """See `Process.close`."""
        if self._result is None:
            if self._hearing is not None:
                self._hearing.cancel()
                await asyncio.gather(self._hearing, return_exceptions=True)
            answer = await self._client.send("DELETE", self._path, timeout_s=_CALL_TIMEOUT_S)
            try:
                self._result = Ran.model_validate_json(answer.content).result()
            except ValueError as error:
                raise SandboxError(f"the sandbox server did not say how a process ended: {error}") from error
            self._ended(self._result)
        return self._result

    async def _hear(self) -> bytes:
        while True:
            answer = await self._client.send("GET", f"{self._path}/output", timeout_s=_CALL_TIMEOUT_S)
            if answer.status_code == _NOTHING_MORE:
                return b""
            if answer.status_code != _NOTHING_YET:
                data: bytes = answer.content
                return data
