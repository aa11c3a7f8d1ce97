"""The bubblewrap backend: Linux namespaces around every command, a workspace that lasts as long as the sandbox.

A fresh bwrap runs per command, started by the keeper (`keeper.py`), so no process of one command can meet one of the
next; only files stay. See `docs/sandbox.md` for what is isolated and how.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agar.errors import ConfigError, SandboxError
from agar.sandbox.base import ExecResult, Transfer
from agar.sandbox.command import Command
from agar.sandbox.config import GATEWAY_PORT, SandboxSpec
from agar.sandbox.files import Workspace
from agar.sandbox.forwarder import Forwarder
from agar.sandbox.host import Host, MemoryFile, shared
from agar.sandbox.keeper import receive
from agar.sandbox.limits import LimitPlan, plan_limits, soft_rlimits
from agar.sandbox.streams import Stream, readable

CLOSE_TIMEOUT_S = 15.0
"""How long the end of a killed process tree may take."""


class BubblewrapSandbox:
    """A `Sandbox` by bubblewrap."""

    def __init__(self, spec: SandboxSpec, *, host: Host | None = None, gateway: Path | None = None) -> None:
        """Nothing starts before the first use.

        Args:
            spec: what it is made of.
            host: the keeper to use; default the process's shared one.
            gateway: the unix socket behind the port that `network = "gateway"` opens.
        """
        self.spec = spec
        self._host = host
        self._gateway = gateway
        self._lock = asyncio.Lock()
        self._link: socket.socket | None = None
        self._workspace: Workspace | None = None
        self._plan: LimitPlan | None = None
        self._options: list[str] = []
        self._closed = False

    @property
    def limits(self) -> Mapping[str, str]:
        """What bounds memory, processes, processors and disk, in words; empty before the first use."""
        return self._plan.in_force if self._plan else {}

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
        job = Command.of(command, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, spec=self.spec)
        if job.refusal is not None:
            return ExecResult(code=126, stderr=job.refusal)
        await self._open()
        assert self._plan is not None, "_open has returned"
        request = {
            "options": [*self._options, *job.setenv()],
            "argv": job.argv(processes=self._plan.processes_inside),
            "rlimits": soft_rlimits(self._plan.rlimits),
        }
        return await self._run(request, job)

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

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        link, self._link = self._link, None
        if link is None:
            return
        if self._workspace is not None:
            os.close(self._workspace.fd)
            self._workspace = None
        link.shutdown(socket.SHUT_WR)
        await asyncio.shield(asyncio.ensure_future(_gone(link, "a sandbox was not gone")))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
                    "port": GATEWAY_PORT if self._gateway else None,
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
            self._options = _options(answer, self.spec)
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

    async def _run(self, request: Mapping[str, Any], job: Command) -> ExecResult:
        host, link = self._host, self._link
        if host is None or link is None:
            raise SandboxError("the sandbox is closed: make a new one")
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, err = Stream(self.spec.output_bytes), Stream(self.spec.output_bytes)
        forwarder = Forwarder(self._gateway) if self._gateway else None
        async with contextlib.AsyncExitStack() as stack:
            for close in (reply.close, out.close, err.close, *([forwarder.close] if forwarder else [])):
                stack.callback(close)
            with theirs:
                ends = [*([forwarder.given.fileno()] if forwarder else []), theirs.fileno()]
                try:
                    _send(host, link, request, job, [out.writer, err.writer, *ends])
                finally:
                    out.close_writer()
                    err.close_writer()
            if forwarder:
                await stack.enter_async_context(forwarder.serving())
            message = await _follow(reply, out, err, job.timeout_s)
        if not message:
            raise host.died()
        return _result(json.loads(message), out, err)


def _send(host: Host, link: socket.socket, request: Mapping[str, Any], job: Command, fds: list[int]) -> None:
    with MemoryFile(json.dumps(request).encode()) as body, MemoryFile(job.stdin) as stdin:
        try:
            socket.send_fds(link, [json.dumps({"timeout_s": job.timeout_s}).encode()], [body, stdin, *fds])
        except OSError as error:
            raise host.died() from error


async def _made(link: socket.socket) -> None:
    """Wait until the keeper has made a workspace, or says why not."""
    try:
        await readable(link, CLOSE_TIMEOUT_S)
    except TimeoutError as error:
        raise SandboxError(
            f"no sandbox was made within {CLOSE_TIMEOUT_S:g} s: is the machine overloaded? Open fewer at a time"
        ) from error


async def _follow(reply: socket.socket, out: Stream, err: Stream, timeout_s: float) -> bytes:
    """Read output until the keeper reports the end; ask it to kill when there is too much, or we are cancelled.

    Returns:
        The report; empty where the keeper died.
    """

    def overflow() -> None:
        try:
            reply.send(b"output", socket.MSG_DONTWAIT)
        except OSError:
            return  # it has just ended by itself

    with out.reading(overflow), err.reading(overflow):
        try:
            await readable(reply, timeout_s + CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            raise SandboxError(
                f"a command was not gone {CLOSE_TIMEOUT_S:g} s after its deadline: is the machine out of memory?"
            ) from error
        except asyncio.CancelledError:
            reply.shutdown(socket.SHUT_WR)
            await asyncio.shield(asyncio.ensure_future(_gone(reply.dup(), "a cancelled command was not gone")))
            raise
        message, _ = receive(reply)
        out.drain()
        err.drain()
    return message


async def _gone(link: socket.socket, complaint: str) -> None:
    """Wait until the keeper says that something has gone. Owns the socket, so it may outlive a cancelled caller."""
    with link:
        try:
            await readable(link, CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            raise SandboxError(
                f"{complaint} {CLOSE_TIMEOUT_S:g} s after it was killed: look for stuck processes with ps"
            ) from error


def _result(answer: Mapping[str, Any], out: Stream, err: Stream) -> ExecResult:
    if answer["killed_by"] == "closed":
        raise SandboxError("the sandbox was closed while a command ran in it: await the command before closing")
    if not answer["started"] and answer["killed_by"] is None:
        reason = answer["error"] or err.text().strip() or "bwrap ended before the command began"
        if answer.get("crowded"):  # another command here may have taken the last process: not our failure
            return ExecResult(code=126, stderr=f"not started beside other commands: {reason}\n")
        raise SandboxError(f"a command could not be isolated: {reason}")
    truncated = out.truncated or err.truncated
    return ExecResult(
        code=answer["code"],
        stdout=out.text(),
        stderr=err.text(),
        truncated=truncated,
        wall_s=answer["wall_s"],
        killed_by=answer["killed_by"],
    )


def _options(answer: Mapping[str, Any], spec: SandboxSpec) -> list[str]:
    """Bwrap's options for a workspace; of the host, the sandbox sees programs, libraries and mounts only, read-only.

    Args:
        answer: what the keeper has made.
        spec: what it was made for.
    """
    root, etc = answer["root"], answer["etc"]
    words = "--unshare-user --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup-try"
    words += " --uid 1000 --gid 1000 --disable-userns --hostname sandbox --die-with-parent --new-session"
    words += " --clearenv --cap-drop ALL"
    if spec.network == "none":  # else bwrap starts within the network that the keeper has made
        words += " --unshare-net"
    options = [*words.split(), "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in ("ld.so.cache", "alternatives"):
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ("passwd", "group", "hosts", "nsswitch.conf"):
        options += ["--ro-bind", f"{etc}/{name}", f"/etc/{name}"]
    for source, place in zip(answer["mounts"], spec.mounts, strict=True):
        options += ["--ro-bind", source, place]
    options += ["--proc", "/proc", "--dev", "/dev", "--bind", f"{root}/shm", "/dev/shm", "--remount-ro", "/dev"]
    return [*options, "--bind", f"{root}/tmp", "/tmp", "--bind", f"{root}/work", "/work", "--remount-ro", "/"]
