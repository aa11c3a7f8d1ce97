"""A sandbox in a container: no process of one command meets one of the next; files stay until `close`."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from agar.errors import SandboxError
from agar.sandbox.command import Command
from agar.sandbox.config import SandboxSpec
from agar.sandbox.docker.container import Container
from agar.sandbox.docker.engine import Engine, default_socket, engine_at
from agar.sandbox.docker.process import DockerProcess
from agar.sandbox.egress import leading_on
from agar.sandbox.forwarder import Forwarder
from agar.sandbox.scripted import ScriptedSandbox
from agar.sandbox.scripts import WRAP, Ran, ScriptedFiles
from agar.sandbox.snapshot import forked

_WRAP_STARTED = 'cd -- "$1" || exit 126; shift; exec "$@"'
_FILE_TIMEOUT_S = 120.0


class DockerSandbox(ScriptedSandbox):
    """A `Sandbox` by a Docker engine. Its commands run one after the other."""

    def __init__(self, spec: SandboxSpec, *, engine: Engine | None = None, gateway: Path | None = None) -> None:
        """Nothing starts before the first use.

        Args:
            spec: what it is made of.
            engine: the engine to use; default the one at the spec's socket.
            gateway: the unix socket behind the port that `network = "gateway"` opens.
        """
        super().__init__(spec, backend="docker")
        self._engine = engine
        self._gateway = gateway
        self._lock = asyncio.Lock()
        self._container: Container | None = None
        self._process: DockerProcess | None = None
        self._closed = False

    async def _start(self, job: Command) -> DockerProcess:
        """Start a command; while it runs, files can be moved, but no other command can run."""
        async with self._lock:
            self._check_alone()
            container = await self._open()
            words = ["/bin/sh", "-c", _WRAP_STARTED, "sh", job.cwd, *job.words]
            name, starting = await container.prepare(words, user=self.spec.user, env=job.env, stdin=True)
            self._process = DockerProcess(
                container,
                name,
                await starting,
                timeout_s=job.timeout_s,
                limit_bytes=self.spec.output_bytes,
                ended=partial(self._audit.write, job, time.time()),
            )
        return self._process

    async def fork(self, count: int) -> "list[DockerSandbox]":
        """See `Sandbox.fork`."""
        copies = [DockerSandbox(self.spec, engine=self._engine, gateway=self._gateway) for _ in range(count)]
        return await forked(self, copies)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        if self._process is not None:
            with contextlib.suppress(SandboxError):  # what is left of it goes with the container
                await self._process.close()
        container = self._container
        if container is not None:
            await asyncio.shield(asyncio.ensure_future(container.remove()))
            self._container = None  # only now: one that is not gone can be closed again

    async def _script(self, script: str, place: str, stdin: bytes) -> Ran:
        """Run one of our own file scripts, also beside a process that was started."""
        async with self._lock:
            return await self._run_script(await self._open(), script, place, stdin)

    async def _run_script(self, container: Container, script: str, place: str, stdin: bytes) -> Ran:
        return await container.run(
            ["/bin/sh", "-c", script, "sh", place],
            user=self.spec.user,
            env={},
            stdin=stdin,
            timeout_s=_FILE_TIMEOUT_S,
            limit_bytes=(self.spec.disk_mib << 20) + (1 << 20),
            beside=self._busy(),
        )

    def _busy(self) -> bool:
        return self._process is not None and not self._process.closed

    def _check_alone(self) -> None:
        if self._busy():
            raise SandboxError("a process runs in this sandbox, and Docker cannot run others beside it: close it first")

    async def _run(self, job: Command) -> Ran:
        async with self._lock:
            self._check_alone()
            container = await self._open()
            try:
                async with self._way_out(container):
                    return await container.run(
                        ["/bin/sh", "-c", WRAP, "sh", job.cwd, *job.words],
                        user=self.spec.user,
                        env=job.env,
                        stdin=job.stdin,
                        timeout_s=job.timeout_s,
                        limit_bytes=self.spec.output_bytes,
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
            container = await Container.make(engine, self.spec)
            if self.spec.workspace is not None:
                filling = ScriptedFiles(partial(self._run_script, container), disk_mib=self.spec.disk_mib)
                try:
                    await filling.fill(self.spec.workspace)
                except BaseException:
                    await asyncio.shield(asyncio.ensure_future(container.remove()))
                    raise
            self._container = container
        return self._container

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
