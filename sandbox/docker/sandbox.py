"""A sandbox in a container: no process of one command meets one of the next; files stay until `close`."""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from agar.errors import SandboxError, ToolError
from agar.sandbox import trees
from agar.sandbox.audit import Audit
from agar.sandbox.base import ExecResult, Snapshot, Transfer
from agar.sandbox.command import Command
from agar.sandbox.config import SandboxSpec
from agar.sandbox.docker import files
from agar.sandbox.docker.container import Container, Ran
from agar.sandbox.docker.engine import Engine, default_socket, engine_at
from agar.sandbox.docker.process import DockerProcess
from agar.sandbox.egress import leading_on, proxy_env
from agar.sandbox.files import inside
from agar.sandbox.forwarder import Forwarder
from agar.sandbox.snapshot import forked

# Kills what the command has left as soon as it ends: the engine waits two seconds for a process that keeps its output
# open. Only a convenience: the container's first process kills again, and nothing can get in its way. The shell's own
# words about a signal go nowhere.
_WRAP = 'cd -- "$1" || exit 126; shift; exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; code=$?; kill -9 -1; exit "$code"'
_WRAP_STARTED = 'cd -- "$1" || exit 126; shift; exec "$@"'
_MINE = 3  # exit status of our own scripts where the agent asked for what is not there
_FILE_TIMEOUT_S = 120.0


class DockerSandbox:
    """A `Sandbox` by a Docker engine. Its commands run one after the other."""

    def __init__(self, spec: SandboxSpec, *, engine: Engine | None = None, gateway: Path | None = None) -> None:
        """Nothing starts before the first use.

        Args:
            spec: what it is made of.
            engine: the engine to use; default the one at the spec's socket.
            gateway: the unix socket behind the port that `network = "gateway"` opens.
        """
        self.spec = spec
        self._engine = engine
        self._gateway = gateway
        self._lock = asyncio.Lock()
        self._container: Container | None = None
        self._process: DockerProcess | None = None
        self._closed = False
        self._audit = Audit("docker")

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        env = {**proxy_env(self.spec), **(env or {})}
        job = Command.of(command, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, spec=self.spec)
        if job.refusal is not None:
            return ExecResult(code=126, stderr=job.refusal)
        return await self._audit.of(job, self._exec(job))

    async def _exec(self, job: Command) -> ExecResult:
        words = ["/bin/sh", "-c", _WRAP, "sh", job.cwd, *job.words]
        ran = await self._run(
            words, env=job.env, stdin=job.stdin, timeout_s=job.timeout_s, limit_bytes=self.spec.output_bytes
        )
        return ExecResult(
            code=ran.code,
            stdout=ran.out.decode("utf-8", "replace"),
            stderr=ran.err.decode("utf-8", "replace"),
            truncated=ran.truncated,
            wall_s=ran.wall_s,
            killed_by=ran.killed_by,
        )

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 3600.0,
    ) -> DockerProcess:
        """See `Sandbox.start`. While it runs, files can be moved, but no other command can run."""
        env = {**proxy_env(self.spec), **(env or {})}
        job = Command.of(command, cwd=cwd, env=env, stdin=None, timeout_s=timeout_s, spec=self.spec)
        if job.refusal is not None:
            raise ToolError(job.refusal.strip())
        async with self._lock:
            self._check_alone()
            container = await self._open()
            words = ["/bin/sh", "-c", _WRAP_STARTED, "sh", job.cwd, *job.words]
            name, starting = await container.prepare(words, user=self.spec.user, env=job.env, stdin=True)
            limit_bytes = self.spec.output_bytes
            self._process = DockerProcess(container, name, await starting, timeout_s=timeout_s, limit_bytes=limit_bytes)
        return self._process

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        return (await self._script(files.READ, inside(path), path)).out

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        content = data.encode() if isinstance(data, str) else data
        await self._script(files.WRITE, inside(path), path, stdin=content)

    async def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        place = inside(target)
        if not await asyncio.to_thread(source.is_dir):
            data = await asyncio.to_thread(source.read_bytes)
            await self.write(target, data)
            return Transfer(files=1, size_bytes=len(data))
        with tempfile.TemporaryFile() as archive:
            sent = await asyncio.to_thread(trees.pack, source, archive)
            archive.seek(0)
            await self._script(files.PUT, place, target, stdin=archive.read())
        return sent

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        archive = (await self._script(files.GET, inside(source), source)).out
        return await asyncio.to_thread(trees.unpack, archive, source, target, self.spec.disk_mib << 20)

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        archive = (await self._script(files.SNAPSHOT, "/", "/")).out
        plain, kept, size_bytes = await asyncio.to_thread(files.plain, archive)
        return Snapshot(archive=plain, files=kept, size_bytes=size_bytes)

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._script(files.RESTORE, "/", "/", stdin=snapshot.archive)

    async def fork(self, count: int) -> "list[DockerSandbox]":
        """See `Sandbox.fork`."""
        copies = [DockerSandbox(self.spec, engine=self._engine, gateway=self._gateway) for _ in range(count)]
        return await forked(self, copies)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        if self._process is not None:
            await self._process.close()
        container, self._container = self._container, None
        if container is not None:
            await asyncio.shield(asyncio.ensure_future(container.remove()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _script(self, script: str, place: str, path: str, *, stdin: bytes = b"") -> Ran:
        """Run one of our own file scripts."""
        limit_bytes = (self.spec.disk_mib << 20) + (1 << 20)
        words = ["/bin/sh", "-c", script, "sh", place]
        ran = await self._run(
            words, env={}, stdin=stdin, timeout_s=_FILE_TIMEOUT_S, limit_bytes=limit_bytes, clear=False
        )
        if ran.killed_by == "output":
            raise ToolError(f"{path!r} holds more than {self.spec.disk_mib} MiB: read a part of it with a command")
        if ran.killed_by or ran.code:
            complaint = ran.err.decode("utf-8", "replace").strip().rpartition(": ")[2] or f"exit status {ran.code}"
            raise ToolError(f"{path!r}: {complaint}: name another path, or free some space")
        return ran

    def _check_alone(self) -> None:
        if self._process is not None and not self._process.closed:
            raise SandboxError("a process runs in this sandbox, and Docker cannot run others beside it: close it first")

    async def _run(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes,
        timeout_s: float,
        limit_bytes: int,
        clear: bool = True,
    ) -> Ran:
        async with self._lock:
            if clear:
                self._check_alone()
            container = await self._open()
            try:
                async with self._way_out(container):
                    return await container.run(
                        words,
                        user=self.spec.user,
                        env=env,
                        stdin=stdin,
                        timeout_s=timeout_s,
                        limit_bytes=limit_bytes,
                        clear=clear,
                    )
            except SandboxError as error:
                if self._closed:
                    raise SandboxError(
                        "the sandbox was closed while a command ran in it: await the command before closing"
                    ) from error
                raise

    async def _open(self) -> Container:
        if self._closed:
            raise SandboxError("the sandbox is closed: make a new one")
        if self._container is None:
            engine = self._engine = self._engine or engine_at(self.spec.engine or default_socket())
            self._container = await Container.make(engine, self.spec)
            if self.spec.workspace is not None:
                await self._fill(self._container, self.spec.workspace)
        return self._container

    async def _fill(self, container: Container, workspace: Path) -> None:
        """Copy the spec's workspace in."""
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(trees.pack, workspace, archive, links=True)
            archive.seek(0)
            ran = await container.run(
                ["/bin/sh", "-c", files.PUT, "sh", "/work"],
                user=self.spec.user,
                env={},
                stdin=archive.read(),
                timeout_s=_FILE_TIMEOUT_S,
                limit_bytes=self.spec.output_bytes,
            )
        if ran.code != 0:
            complaint = ran.err.decode("utf-8", "replace")[-200:]
            raise SandboxError(f"workspace: {workspace} does not fit into disk_mib = {self.spec.disk_mib}: {complaint}")

    @contextlib.asynccontextmanager
    async def _way_out(self, container: Container) -> AsyncIterator[None]:
        """Carry the connections of a command to where they may go, where there is such a place."""
        async with leading_on(self.spec, self._gateway) as onward:
            if onward is None:
                yield
                return
            listening = await asyncio.to_thread(container.listening)
            forwarder = Forwarder(onward)
            try:
                socket.send_fds(forwarder.given, [b"listening"], [listening.fileno()])
                async with forwarder.serving():
                    yield
            finally:
                forwarder.close()
