"""A sandbox on another machine."""

import asyncio
import base64
import contextlib
import io
import time
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agar.errors import SandboxError
from agar.sandbox import trees
from agar.sandbox.base import ExecResult, Snapshot, Transfer
from agar.sandbox.command import Command
from agar.sandbox.commanded import Commanded
from agar.sandbox.config import SandboxSpec
from agar.sandbox.files import inside
from agar.sandbox.made import made_or_unmade
from agar.sandbox.remote.client import SandboxClient
from agar.sandbox.remote.process import RemoteProcess
from agar.sandbox.remote.wire import ASKABLE, Forked, Moved, Ran, SandboxMade

_CALL_TIMEOUT_S = 180.0
_GRACE_S = 60.0
"""How much longer than a command's deadline its reply may take: the server ends the command, and says so."""
_TAR = "application/x-tar"
Reply = TypeVar("Reply", bound=BaseModel)


class RemoteSandbox(Commanded):
    """A `Sandbox` of a sandbox server."""

    def __init__(self, spec: SandboxSpec, *, client: SandboxClient, name: str | None = None) -> None:
        """Nothing is asked for before the first use.

        Args:
            spec: what it is to be made of, as far as the server lets its callers choose.
            client: the server.
            name: the server's name for it, where it is there already.
        """
        super().__init__(spec, backend="remote")
        self._client = client
        self._name = name
        self._lock = asyncio.Lock()
        self._started: list[RemoteProcess] = []
        self._closed = False

    async def _exec(self, job: Command) -> ExecResult:
        body = {**_asked(job), "stdin": base64.b64encode(job.stdin).decode()}
        return (await self._ask(Ran, "POST", "/exec", body=body, timeout_s=job.timeout_s + _GRACE_S)).result()

    async def _start(self, job: Command) -> RemoteProcess:
        ended = partial(self._audit.write, job, time.time())
        made = await self._ask(SandboxMade, "POST", "/processes", body=_asked(job))
        path = f"/sandboxes/{self._name}/processes/{made.id}"
        self._started.append(RemoteProcess(self._client, path, ended=ended))
        return self._started[-1]

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        inside(path)
        data: bytes = (await self._send("GET", "/file", params={"path": path})).content
        return data

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        inside(path)
        content = data.encode() if isinstance(data, str) else data
        await self._send("PUT", "/file", params={"path": path}, content=content)

    async def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        inside(target)
        if not await asyncio.to_thread(source.is_dir):
            data = await asyncio.to_thread(source.read_bytes)
            await self.write(target, data)
            return Transfer(files=1, size_bytes=len(data))
        archive = io.BytesIO()
        sent = await asyncio.to_thread(trees.pack, source, archive)
        await self._send("PUT", "/tree", params={"path": target}, content=archive.getvalue())
        return sent

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        inside(source)
        answer = await self._send("GET", "/tree", params={"path": source})
        if answer.headers.get("content-type") == _TAR:
            limit_bytes = self.spec.disk_mib << 20
            await asyncio.to_thread(trees.unpack, answer.content, source, target, limit_bytes, folder=True)
        else:
            await asyncio.to_thread(target.write_bytes, answer.content)
        return _read(Moved, answer.headers.get("agar-moved", "")).transfer()

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        answer = await self._send("GET", "/snapshot")
        moved = _read(Moved, answer.headers.get("agar-moved", ""))
        return Snapshot(archive=answer.content, files=moved.files, size_bytes=moved.size_bytes)

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._send("PUT", "/snapshot", content=snapshot.archive)

    async def fork(self, count: int) -> "list[RemoteSandbox]":
        """See `Sandbox.fork`."""
        if count < 1:
            return []
        forked = await self._ask(Forked, "POST", "/fork", body={"count": count})
        return [RemoteSandbox(self.spec, client=self._client, name=name) for name in forked.ids]

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        for process in self._started:
            with contextlib.suppress(SandboxError):  # what is left of it goes with the sandbox
                await process.close()
        async with self._lock:
            name = self._name
            if name is not None:
                await self._remove(name)
                self._name = None

    async def _open(self) -> str:
        async with self._lock:
            if self._closed:
                raise SandboxError("the sandbox is closed: make a new one")
            if self._name is None:
                asked = self.spec.model_dump(mode="json", include=set(ASKABLE), exclude_unset=True)
                making = self._client.send("POST", "/sandboxes", body={"spec": asked}, timeout_s=_CALL_TIMEOUT_S)
                answer = await made_or_unmade(making, lambda made: self._remove(_read(SandboxMade, made.content).id))
                self._name = _read(SandboxMade, answer.content).id
            return self._name

    async def _remove(self, name: str) -> None:
        await self._client.send("DELETE", f"/sandboxes/{name}", timeout_s=_CALL_TIMEOUT_S)

    async def _send(self, method: str, path: str, *, timeout_s: float = _CALL_TIMEOUT_S, **options: Any) -> Any:
        name = await self._open()
        return await self._client.send(method, f"/sandboxes/{name}{path}", timeout_s=timeout_s, **options)

    async def _ask(self, kind: type[Reply], method: str, path: str, **options: Any) -> Reply:
        return _read(kind, (await self._send(method, path, **options)).content)


def _asked(job: Command) -> dict[str, Any]:
    """A command's body: the words as they were checked, the variables without those that the server adds itself."""
    return {"command": list(job.words), "cwd": job.cwd, "env": dict(job.extra), "timeout_s": job.timeout_s}


def _read(kind: type[Reply], data: str | bytes) -> Reply:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise SandboxError(
            f"the sandbox server's answer is none: is it of this version of agar? {error.error_count()} problems"
        ) from error
