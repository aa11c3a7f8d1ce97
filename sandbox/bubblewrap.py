"""The bubblewrap backend: Linux namespaces around every command, a workspace that lasts as long as the sandbox.

A fresh bwrap runs per command, started by the keeper (`keeper.py`), so no process of one command can meet one of the
next; only files stay. See `docs/sandbox.md` for what is isolated and how.
"""

import asyncio
import contextlib
import functools
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agar.errors import ConfigError, SandboxError
from agar.sandbox.base import ExecResult, Snapshot, Transfer
from agar.sandbox.command import Command
from agar.sandbox.commanded import Commanded
from agar.sandbox.config import GATEWAY_PORT, SandboxSpec
from agar.sandbox.egress import leading_on
from agar.sandbox.files import Workspace
from agar.sandbox.forwarder import Forwarder
from agar.sandbox.host import Host, MemoryFile, shared
from agar.sandbox.keeper import receive
from agar.sandbox.layout import options, own_folders
from agar.sandbox.limits import LimitPlan, plan_limits, soft_rlimits
from agar.sandbox.process import BubblewrapProcess
from agar.sandbox.running import CLOSE_TIMEOUT_S, ask_for_end, follow, gone, result_of
from agar.sandbox.snapshot import forked, lay_out, take
from agar.sandbox.streams import Pipe, Stream, readable


class BubblewrapSandbox(Commanded):
    """A `Sandbox` by bubblewrap."""

    def __init__(self, spec: SandboxSpec, *, host: Host | None = None, gateway: Path | None = None) -> None:
        """Nothing starts before the first use.

        Args:
            spec: what it is made of.
            host: the keeper to use; default the process's shared one.
            gateway: the unix socket behind the port that `network = "gateway"` opens.
        """
        super().__init__(spec, backend="bubblewrap")
        self._host = host
        self._gateway = gateway
        self._lock = asyncio.Lock()
        self._link: socket.socket | None = None
        self._workspace: Workspace | None = None
        self._plan: LimitPlan | None = None
        self._options: list[str] = []
        self._started: set[BubblewrapProcess] = set()
        self._closed = False

    @property
    def limits(self) -> Mapping[str, str]:
        """What bounds memory, processes, processors and disk, in words; empty before the first use."""
        return self._plan.in_force if self._plan else {}

    async def _exec(self, job: Command) -> ExecResult:
        await self._open()
        return await self._run(job)

    async def _start(self, job: Command) -> BubblewrapProcess:
        """Start a command; others run beside it, and cannot see it."""
        await self._open()
        async with contextlib.AsyncExitStack() as stack:
            into, out = Pipe("writer"), Pipe("reader")
            err = Stream(self.spec.output_bytes)
            for held in (into, out, err):
                stack.callback(held.close)
            reply = await self._launch(stack, job, [into.reader, out.writer, err.writer])
            into.close_reader()
            out.close_writer()
            err.close_writer()
            stack.enter_context(err.reading(lambda: ask_for_end(reply, b"output")))
            ended = functools.partial(self._ended, job, time.time())
            rest = stack.pop_all()
            process = BubblewrapProcess(reply, into, out, err, timeout_s=job.timeout_s, stack=rest, ended=ended)
        self._started.add(process)
        return process

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        return (await self._open()).read(path)

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        (await self._open()).write(path, data.encode() if isinstance(data, str) else data)

    async def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        workspace = (await self._open()).borrow()
        return await asyncio.to_thread(workspace.returning, workspace.put, source, target)

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        workspace = (await self._open()).borrow()
        return await asyncio.to_thread(workspace.returning, workspace.get, source, target)

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        workspace = (await self._open()).borrow()
        return await asyncio.to_thread(workspace.returning, take, workspace.fd, workspace.limit_bytes)

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        mine = (await self._open()).borrow()
        await asyncio.to_thread(mine.returning, lay_out, mine.fd, snapshot, uid=mine.uid, gid=mine.gid)

    async def fork(self, count: int) -> "list[BubblewrapSandbox]":
        """See `Sandbox.fork`."""
        copies = [BubblewrapSandbox(self.spec, host=self._host, gateway=self._gateway) for _ in range(count)]
        return await forked(self, copies)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        for process in list(self._started):
            await process.close()
        link = self._link
        if link is None:
            return
        if self._workspace is not None:
            os.close(self._workspace.fd)
            self._workspace = None
            link.shutdown(socket.SHUT_WR)
        await asyncio.shield(asyncio.ensure_future(self._see_gone(link)))

    async def _see_gone(self, link: socket.socket) -> None:
        """Forget the sandbox once it is gone; until then it can be closed again."""
        await gone(link.dup(), "a sandbox was not gone")
        link.close()
        if self._link is link:
            self._link = None

    async def _open(self) -> Workspace:
        async with self._lock:
            if self._closed:
                raise SandboxError("the sandbox is closed: make a new one")
            if self._workspace is not None:
                return self._workspace
            host = self._host = await asyncio.to_thread(shared.get) if self._host is None else self._host
            self._plan = plan_limits(self.spec, host.controllers)
            link = host.open(
                {
                    "disk_bytes": self.spec.disk_mib << 20,
                    "files": self.spec.files,
                    "cgroups": self._plan.cgroups,
                    "mounts": self._mounts(),
                    "workspace": self._base(),
                    "port": None if self.spec.network == "none" else GATEWAY_PORT,
                }
            )
            try:
                await _made(link)
                message, fds = receive(link)
                if not message:
                    raise host.died()
                answer: dict[str, Any] = json.loads(message)
                if "error" in answer:
                    raise SandboxError(f"a sandbox could not be made: {answer['error']}")
            except BaseException:
                link.close()
                raise
            self._options = options(answer, self.spec, hidden=own_folders())
            self._workspace = Workspace(
                fd=fds[0], uid=answer["uid"], gid=answer["gid"], limit_bytes=self.spec.disk_mib << 20
            )
            self._link = link
            return self._workspace

    def _mounts(self) -> list[str]:
        for place, path in self.spec.mounts.items():
            if not os.path.exists(path):  # false too where a folder above it is closed to us
                raise ConfigError(f"mounts: there is no {path} that we can reach, to show as {place}: correct the path")
        return [os.path.realpath(path) for path in self.spec.mounts.values()]

    def _base(self) -> str | None:
        folder = self.spec.workspace
        if folder is None:
            return None
        if not folder.is_dir():
            raise ConfigError(f"workspace: there is no folder {folder} that we can reach: correct the path")
        return os.path.realpath(folder)

    async def _run(self, job: Command) -> ExecResult:
        out, err = Stream(self.spec.output_bytes), Stream(self.spec.output_bytes)
        async with contextlib.AsyncExitStack() as stack:
            for stream in (out, err):
                stack.callback(stream.close)
            with MemoryFile(job.stdin) as stdin:
                reply = await self._launch(stack, job, [stdin, out.writer, err.writer])
            out.close_writer()
            err.close_writer()
            message = await follow(reply, out, err, job.timeout_s)
        return result_of(self._report(message), out, err)

    async def _launch(self, stack: contextlib.AsyncExitStack, job: Command, stdio: list[int]) -> socket.socket:
        """Give a command to the keeper; the socket on which its end is reported."""
        host, link, plan = self._host, self._link, self._plan
        if host is None or link is None or plan is None or self._closed:
            raise SandboxError("the sandbox is closed: make a new one")
        request = {
            "options": [*self._options, *job.setenv()],
            "argv": job.argv(processes=plan.processes_inside),
            "rlimits": soft_rlimits(plan.rlimits),
        }
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(reply.close)
        onward = await stack.enter_async_context(leading_on(self.spec, self._gateway))
        with theirs, MemoryFile(json.dumps(request).encode()) as body:
            fds = [body, *stdio]
            if onward is not None:
                forwarder = Forwarder(onward)
                stack.callback(forwarder.close)
                fds.append(forwarder.given.fileno())
            try:
                socket.send_fds(link, [json.dumps({"timeout_s": job.timeout_s}).encode()], [*fds, theirs.fileno()])
            except OSError as error:
                raise host.died() from error
        if onward is not None:
            await stack.enter_async_context(forwarder.serving())
        return reply

    def _ended(self, job: Command, began: float, process: BubblewrapProcess, message: bytes, err: Stream) -> ExecResult:
        self._started.discard(process)
        result = result_of(self._report(message), None, err)
        self._audit.write(job, began, result)
        return result

    def _report(self, message: bytes) -> Mapping[str, Any]:
        """What the keeper says of a command's end; an empty message says that it died."""
        if not message:
            assert self._host is not None, "a command was given to it"
            raise self._host.died()
        report: Mapping[str, Any] = json.loads(message)
        return report


async def _made(link: socket.socket) -> None:
    """Wait until the keeper has made a workspace, or says why not."""
    try:
        await readable(link, CLOSE_TIMEOUT_S)
    except TimeoutError as error:
        raise SandboxError(
            f"no sandbox was made within {CLOSE_TIMEOUT_S:g} s: is the machine overloaded? Open fewer at a time"
        ) from error
