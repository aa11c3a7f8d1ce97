"""A sandbox in a machine of E2B's service."""

import asyncio
import contextlib
import time
from collections.abc import Mapping

from agar.errors import SandboxError, UnsupportedPlatformError
from agar.sandbox.base import KilledBy, Process
from agar.sandbox.command import Command
from agar.sandbox.config import SandboxSpec
from agar.sandbox.e2b.client import E2BClient, Machine
from agar.sandbox.made import made_or_unmade
from agar.sandbox.scripted import ScriptedSandbox
from agar.sandbox.scripts import WRAP, Ran
from agar.sandbox.snapshot import forked

LIFETIME_S = 3600
"""After so long without us the service deletes the machine; a machine in use is extended."""
_USER = "user"
_FILE_TIMEOUT_S = 300.0
_SETTLE_TIMEOUT_S = 30.0
_INPUT = "/tmp/.agar-input"
# `exec`, for the shell that ends with killing the others must not have one of ours above it.
_GIVEN = f'exec < {_INPUT}; rm -f {_INPUT}; exec "$@"'
_SET_UP = f"mkdir -p /work && chown {_USER}: /work && chmod 700 /work"


class E2BSandbox(ScriptedSandbox):
    """A `Sandbox` by E2B's protocol. Its commands run one after the other; what it may use is its template's."""

    def __init__(self, spec: SandboxSpec, *, client: E2BClient) -> None:
        """Nothing is asked for before the first use.

        Args:
            spec: what it is made of.
            client: the service.
        """
        super().__init__(spec, backend="e2b")
        self._client = client
        self._lock = asyncio.Lock()
        self._machine: Machine | None = None
        self._extended = 0.0
        self._closed = False

    async def fork(self, count: int) -> "list[E2BSandbox]":
        """See `Sandbox.fork`."""
        return await forked(self, [E2BSandbox(self.spec, client=self._client) for _ in range(count)])

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        machine = self._machine
        if machine is not None:
            await asyncio.shield(asyncio.ensure_future(self._client.remove(machine)))
            self._machine = None

    async def _start(self, job: Command) -> Process:
        """Not offered."""
        raise UnsupportedPlatformError("sandboxes of E2B run commands to their end: choose another backend for `start`")

    async def _run(self, job: Command) -> Ran:
        async with self._lock:
            return await self._run_words(
                ["/bin/sh", "-c", WRAP, "sh", job.cwd, *job.words],
                env=job.env,
                stdin=job.stdin,
                timeout_s=job.timeout_s,
                limit_bytes=self.spec.output_bytes,
            )

    async def _script(self, script: str, place: str, stdin: bytes) -> Ran:
        async with self._lock:
            return await self._run_words(
                ["/bin/sh", "-c", script, "sh", place],
                env={},
                stdin=stdin,
                timeout_s=_FILE_TIMEOUT_S,
                limit_bytes=(self.spec.disk_mib << 20) + (1 << 20),
            )

    async def _open(self) -> Machine:
        if self._closed:
            raise SandboxError("the sandbox is closed: make a new one")
        now = time.monotonic()
        if self._machine is None:
            making = self._client.make(self.spec.template, lifetime_s=LIFETIME_S, internet=False)
            machine = await made_or_unmade(making, self._client.remove)
            self._machine, self._extended = machine, now
            words = ["/bin/sh", "-c", _SET_UP]
            done = await self._follow(machine, words, env={}, user="root", timeout_s=_FILE_TIMEOUT_S, limit_bytes=4096)
            if done.code != 0:
                raise SandboxError(f"/work could not be made in a machine: {done.err.decode(errors='replace')}")
        elif now - self._extended > LIFETIME_S / 2:
            await self._client.extend(self._machine, LIFETIME_S)
            self._extended = now
        return self._machine

    async def _run_words(
        self, words: list[str], *, env: Mapping[str, str], stdin: bytes, timeout_s: float, limit_bytes: int
    ) -> Ran:
        """Run a command, and kill what it has left."""
        machine = await self._open()
        if stdin:
            await self._client.upload(machine, _INPUT, stdin, user=_USER)
            words = ["/bin/sh", "-c", _GIVEN, "sh", *words]
        else:
            words = ["/bin/sh", "-c", 'exec "$@" < /dev/null', "sh", *words]
        try:
            ran = await self._follow(machine, words, env=env, user=_USER, timeout_s=timeout_s, limit_bytes=limit_bytes)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._kill_all(machine)))
            raise
        if ran.killed_by:
            await self._kill_all(machine)
        return ran

    async def _follow(
        self,
        machine: Machine,
        words: list[str],
        *,
        env: Mapping[str, str],
        user: str,
        timeout_s: float,
        limit_bytes: int,
    ) -> Ran:
        began = time.monotonic()
        kept: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        code: int | None = None
        killed_by: KilledBy | None = None
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.start(
                    machine, words, env=env, user=user, timeout_s=timeout_s + _SETTLE_TIMEOUT_S
                ) as events,
            ):
                async for event in events:
                    code = event.code if event.code is not None else code
                    kept[event.stream] += event.data
                    if len(kept[event.stream]) > limit_bytes:
                        killed_by = "output"
                        break
        except TimeoutError:
            killed_by = "timeout"
        if code is None and killed_by is None:
            raise SandboxError("a machine's agent did not say how a command ended")
        return Ran(
            code=137 if killed_by or code is None or code < 0 else code,
            out=bytes(kept[1][:limit_bytes]),
            err=bytes(kept[2][:limit_bytes]),
            truncated=max(map(len, kept.values())) > limit_bytes,
            killed_by=killed_by,
            wall_s=time.monotonic() - began,
        )

    async def _kill_all(self, machine: Machine) -> None:
        """Kill every process of the user: by one of its own, which the kernel leaves out."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_TIMEOUT_S):
                words = ["/bin/sh", "-c", "kill -9 -1 2>/dev/null; exit 0"]
                await self._follow(machine, words, env={}, user=_USER, timeout_s=_SETTLE_TIMEOUT_S, limit_bytes=4096)
                return
        raise SandboxError("a machine's processes were not gone after they were killed: make a new sandbox")
