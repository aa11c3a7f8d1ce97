"""One container: made, running a command at a time, gone."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from agar.errors import ConfigError, SandboxError
from agar.sandbox.base import KilledBy
from agar.sandbox.config import GATEWAY_PORT, SandboxSpec
from agar.sandbox.docker.attached import Attached
from agar.sandbox.docker.engine import OWNER, Engine
from agar.sandbox.docker.hardening import container
from agar.sandbox.docker.listener import listen_in
from agar.sandbox.keeper import identity
from agar.sandbox.made import made_or_unmade
from agar.sandbox.scripts import Ran

CLOSE_TIMEOUT_S = 15.0
"""How long the end of a killed process tree may take."""
_NOTICE_S = 5.0  # for what the engine learns a moment late
_LOOK_S = 0.025


class Container:
    """A container whose first process kills on demand, and ends when we hang up (see `hardening.INIT`)."""

    def __init__(self, engine: Engine, name: str, init: Attached, pid: int) -> None:
        self._engine, self._name, self._init, self._pid = engine, name, init, pid
        self._kills = 0
        self._killing = asyncio.Lock()
        self._listening: socket.socket | None = None

    @classmethod
    async def make(cls, engine: Engine, spec: SandboxSpec) -> "Container":
        """Create and start one.

        Raises:
            ConfigError: a mount's source is not there.
            SandboxError: the engine refused.
        """
        _check_mounts(spec)
        await engine.sweep()
        image = await engine.image(spec.image)
        body = container(spec, image=image, labels={OWNER: identity()})
        creating = engine.call("POST", "/containers/create", body=body)
        name = str((await made_or_unmade(creating, lambda made: engine.remove(str(made["Id"]))))["Id"])
        try:
            init = await engine.attach(f"/containers/{name}/attach?stream=1&stdin=1&stdout=1")
            try:
                await engine.call("POST", f"/containers/{name}/start")
                state = (await engine.call("GET", f"/containers/{name}/json"))["State"]
            except BaseException:
                init.close()
                raise
        except BaseException:
            await asyncio.shield(engine.remove(name))
            raise
        return cls(engine, name, init, int(state["Pid"]))

    async def run(
        self,
        words: Sequence[str],
        *,
        user: int,
        env: Mapping[str, str],
        stdin: bytes,
        timeout_s: float,
        limit_bytes: int,
        beside: bool = False,
    ) -> Ran:
        """Run a command, then kill whatever it has left; one at a time.

        Args:
            words: what to run.
            user: as whom, and in whose group.
            env: variables beside the engine's own few.
            stdin: what it reads.
            timeout_s: its deadline, in seconds.
            limit_bytes: how much of its output, and of its errors, is kept; it is killed for more.
            beside: whether it is one of ours, which leaves nothing, beside a process that is to run on; that process
                may have taken the last place, which is not our failure.

        Raises:
            SandboxError: the container is gone.
        """
        began, wall_began = time.monotonic(), time.time()
        kept: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        killed_by: KilledBy | None = None
        name, starting = await self.prepare(words, user=user, env=env, stdin=bool(stdin))
        try:
            async with asyncio.timeout(timeout_s):
                link = await starting
                try:
                    killed_by = await _follow(link, stdin, kept, limit_bytes)
                finally:
                    link.close()
        except TimeoutError:
            killed_by = "timeout"
        finally:
            starting.close()
            if not beside or killed_by:
                await asyncio.shield(asyncio.ensure_future(self.kill_all()))
        code, killed_by = await self.ended(name, wall_began, killed_by, bytes(kept[1] + kept[2]), crowded=beside)
        return Ran(
            code=code,
            out=bytes(kept[1][:limit_bytes]),
            err=bytes(kept[2][:limit_bytes]),
            truncated=max(map(len, kept.values())) > limit_bytes,
            killed_by=killed_by,
            wall_s=time.monotonic() - began,
        )

    async def prepare(
        self, words: Sequence[str], *, user: int, env: Mapping[str, str], stdin: bool
    ) -> tuple[str, Coroutine[Any, Any, Attached]]:
        """Announce a command; gives its name, and what starts it and hands over its streams."""
        body = {
            "AttachStdin": stdin,
            "AttachStdout": True,
            "AttachStderr": True,
            "User": f"{user}:{user}",
            "Env": [f"{name}={value}" for name, value in env.items()],
            "Cmd": list(words),
        }
        made = await self._engine.call("POST", f"/containers/{self._name}/exec", body=body)
        name = str(made["Id"])
        return name, self._engine.attach(f"/exec/{name}/start", {"Detach": False, "Tty": False})

    async def ended(
        self, name: str, since: float, killed_by: KilledBy | None, said: bytes, *, crowded: bool = False
    ) -> tuple[int, KilledBy | None]:
        """How a command ended.

        Args:
            name: the command's.
            since: when it was started, in seconds since 1970.
            killed_by: why we killed it, if we did.
            said: what it wrote; the engine's own complaint where it could not be started.
            crowded: whether it may not have been started for want of room, which others have taken.

        Raises:
            SandboxError: it could not be started.
        """
        state = await self.settled(name, kill=not crowded)
        if killed_by:
            return 137, killed_by
        if not state["Pid"] and crowded:
            return 126, None
        if not state["Pid"]:
            raise SandboxError(f"a command could not be started: {said.decode(errors='replace')}")
        code = int(state["ExitCode"])
        return code, "memory" if code != 0 and await self._was_short_of_memory(since, code) else None

    def listening(self) -> socket.socket:
        """The socket that listens at the gateway's port inside the container; made at the first call.

        Raises:
            UnsupportedPlatformError: we may not enter the container's network.
        """
        if self._listening is None:
            self._listening = listen_in(self._pid, GATEWAY_PORT)
        return self._listening

    async def remove(self) -> None:
        """Kill it, remove it, and see it gone.

        Raises:
            SandboxError: it was not gone within the deadline.
        """
        self._init.close()
        if self._listening is not None:
            self._listening.close()
        await self._engine.remove(self._name)

    async def kill_all(self) -> None:
        """Kill every process but the container's first, and wait until they are gone."""
        async with self._killing:  # one at a time reads the answers
            self._kills += 1
            word = str(self._kills).encode()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._init.send(word + b"\n")
                    said = b""
                    while frame := await self._init.frame():
                        said += frame[1]
                        if word in said.split(b"\n"):
                            return
            except TimeoutError as error:
                raise SandboxError(
                    f"a container's processes were not gone {CLOSE_TIMEOUT_S:g} s after they were killed: is the "
                    "machine out of memory?"
                ) from error
            except OSError as error:
                raise SandboxError(f"the container {self._name[:12]} died: {error}; make a new sandbox") from error
        raise SandboxError(f"the container {self._name[:12]} died, and its files with it: make a new sandbox")

    async def has_ended(self, name: str, within_s: float) -> bool:
        """Whether a command ends by itself within some seconds."""
        for _ in range(max(1, int(within_s / _LOOK_S))):
            state = await self._engine.call("GET", f"/exec/{name}/json")
            if not state["Running"] and state["ExitCode"] is not None:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def settled(self, name: str, *, kill: bool) -> Any:
        """What the engine knows of a command once it has ended.

        Args:
            name: the command's.
            kill: whether to kill it, should it begin only now.

        Raises:
            SandboxError: it did not end in time.
        """
        for _ in range(int(_NOTICE_S / _LOOK_S)):
            state = await self._engine.call("GET", f"/exec/{name}/json")
            if not state["Running"] and state["ExitCode"] is not None:
                return state
            if kill and state["Running"]:  # it began only after the others had been killed
                await self.kill_all()
            await asyncio.sleep(_LOOK_S)
        raise SandboxError("the Docker engine did not notice the end of a command for seconds: see its log")

    async def _was_short_of_memory(self, since: float, code: int) -> bool:
        """Whether the kernel has killed for memory; the engine hears of it on another way than of the end."""
        filters = json.dumps({"container": [self._name], "event": ["oom"]})
        for _ in range(4 if code == 137 else 1):
            path = f"/events?since={since:.9f}&until={time.time():.9f}&filters={filters}"
            if await self._engine.call("GET", path):
                return True
            await asyncio.sleep(_LOOK_S)
        return False


def _check_mounts(spec: SandboxSpec) -> None:
    for place, path in spec.mounts.items():
        if not os.path.exists(path):  # the engine would make a folder of that name
            raise ConfigError(f"mounts: there is no {path} that we can reach, to show as {place}: correct the path")


async def _follow(link: Attached, stdin: bytes, kept: dict[int, bytearray], limit_bytes: int) -> KilledBy | None:
    """Feed a process and read what it writes until it has ended, or has written too much."""
    feeding = asyncio.ensure_future(_feed(link, stdin)) if stdin else None
    try:
        while frame := await link.frame():
            stream, data = frame
            kept[stream] += data
            if len(kept[stream]) > limit_bytes:
                return "output"
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.wait([feeding])
    return None


async def _feed(link: Attached, stdin: bytes) -> None:
    try:
        await link.send(stdin)
        link.end_input()
    except OSError:
        return  # it has ended, or does not read
