"""A Docker engine, or Podman, behind its unix socket: plain calls, and connections handed over to a process."""

import asyncio
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from agar.errors import MissingExtraError, SandboxError, UnsupportedPlatformError, to_install
from agar.sandbox.docker.attached import API, CALL_TIMEOUT_S, Attached, EngineRefusal, refused
from agar.sandbox.docker.image import HostTree
from agar.sandbox.keeper import identity, start_time

logger = logging.getLogger(__name__)

IMPORT_TIMEOUT_S = 300.0
_REMOVED_AGAIN_S = (0.1, 0.5, 2.0)
OWNER = "agar.owner"
"""The label that says which process a container belongs to."""


class Engine:
    """One engine. Nothing of it is bound to an event loop."""

    def __init__(self, path: Path) -> None:
        """Nothing is connected yet.

        Args:
            path: the engine's unix socket.
        """
        self.path = path
        self._images: dict[str | None, str] = {}
        self._swept = False

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content: IO[bytes] | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        """Make one call; gives the decoded JSON answer, or its text where it is none, or several.

        Raises:
            MissingExtraError: httpx is not installed.
            UnsupportedPlatformError: no engine listens on the socket.
            SandboxError: it refused the call (`EngineRefusal`, with its status), or did not answer in time.
        """
        httpx = _httpx()
        # Certificates are for nobody here, and reading them takes longer than a call.
        transport = httpx.AsyncHTTPTransport(uds=str(self.path), verify=False)
        async with httpx.AsyncClient(transport=transport, timeout=timeout_s, trust_env=False, verify=False) as client:
            try:
                answer = await client.request(
                    method, f"http://docker{API}{path}", json=body, content=_chunks(content) if content else None
                )
            except httpx.ConnectError as error:
                raise UnsupportedPlatformError(
                    f"no Docker engine answers at {self.path} ({error}): start one, or set `engine` to its socket"
                ) from error
            except httpx.HTTPError as error:
                raise SandboxError(
                    f"the Docker engine at {self.path} gave no answer to {method} {path} within {timeout_s:g} s "
                    f"({type(error).__name__}): see its log"
                ) from error
        if answer.status_code >= 400:
            raise refused(answer.status_code, f"{method} {path}", answer.text)
        try:
            return answer.json()
        except ValueError:
            return answer.text

    async def attach(self, path: str, body: Mapping[str, Any] | None = None) -> Attached:
        """Start or join a process whose input and output then travel over the returned connection.

        Raises:
            SandboxError: the engine refused.
        """
        return await Attached.open(self.path, f"{API}{path}", body)

    async def image(self, wanted: str | None) -> str:
        """The name of an image that the engine has, made where it has to be.

        Args:
            wanted: `SandboxSpec.image`.

        Raises:
            UnsupportedPlatformError: it cannot be made on this machine.
            SandboxError: the engine does not have it.
        """
        if wanted not in self._images:
            self._images[wanted] = await self._make_image(wanted)
        return self._images[wanted]

    async def _make_image(self, wanted: str | None) -> str:
        if wanted is not None and not wanted.startswith("/"):
            await self.call("GET", f"/images/{wanted}/json")
            return wanted
        tag, source = await asyncio.to_thread(_source, wanted)
        name = f"agar-sandbox:{tag}"
        try:
            await self.call("GET", f"/images/{name}/json")
        except EngineRefusal as error:
            if error.status != 404:
                raise
            archive = await asyncio.to_thread(source)
            with archive:
                imported = f"/images/create?fromSrc=-&repo=agar-sandbox&tag={tag}"
                await self.call("POST", imported, content=archive, timeout_s=IMPORT_TIMEOUT_S)
            await self.call("GET", f"/images/{name}/json")  # an import reports its failure within a success
        return name

    async def sweep(self) -> int:
        """Remove the containers of processes of this user that are gone; returns how many. Once per engine."""
        if self._swept:
            return 0
        self._swept = True
        mine = identity().split("-")
        filters = json.dumps({"label": [OWNER]})
        found = await self.call("GET", f"/containers/json?all=true&filters={filters}")
        removed = 0
        for item in found:
            parts = item["Labels"][OWNER].split("-")
            ours = len(parts) == 5 and parts[:3] == mine[:3]
            if ours and start_time(int(parts[3])) != parts[4]:
                try:
                    await self.remove(item["Id"])
                except SandboxError as error:  # not of this sandbox's making
                    logger.warning("a container of a dead process is not gone: %s", error)
                else:
                    removed += 1
        return removed

    async def remove(self, container: str) -> None:
        """Kill a container, remove it, and see it gone.

        Raises:
            SandboxError: it was not gone within the deadline, or the engine refused to remove it however often it was
                asked.
        """
        for pause_s in (*_REMOVED_AGAIN_S, None):
            try:
                await self.call("DELETE", f"/containers/{container}?force=true&v=true")
                break
            except EngineRefusal as error:
                if error.status in (404, 409):  # gone by itself, or going
                    break
                if error.status < 500 or pause_s is None:
                    raise
                # One that ends while it is being killed: "could not kill", for it "is not running".
                await asyncio.sleep(pause_s)
        try:
            await self.call("POST", f"/containers/{container}/wait?condition=removed")
        except EngineRefusal as error:
            if error.status != 404:
                raise


@lru_cache(maxsize=16)
def engine_at(path: Path) -> Engine:
    """The engine at a socket; one object per process, so that an image is made once."""
    return Engine(path)


def default_socket() -> Path:
    """Where the engine is by custom: `DOCKER_HOST`, else /var/run/docker.sock.

    Raises:
        UnsupportedPlatformError: `DOCKER_HOST` is no unix socket.
    """
    named = os.environ.get("DOCKER_HOST")
    if named and not named.startswith("unix://"):
        raise UnsupportedPlatformError(
            f"DOCKER_HOST is {named}, expected unix://PATH: an engine on another machine cannot be reached directly"
        )
    return Path(named.removeprefix("unix://")) if named else Path("/var/run/docker.sock")


def _source(wanted: str | None) -> tuple[str, Callable[[], IO[bytes]]]:
    """A tag for the root file system, and what opens its tarball."""
    if wanted is not None:
        stat = os.stat(wanted)
        known = f"{wanted} {stat.st_mtime_ns} {stat.st_size}"
        return f"file-{hashlib.sha256(known.encode()).hexdigest()[:16]}", lambda: open(wanted, "rb")
    tree = HostTree()

    def packed() -> IO[bytes]:
        archive = tempfile.TemporaryFile()  # noqa: SIM115  whoever asked for it closes it
        tree.write(archive)
        archive.seek(0)
        return archive

    return f"host-{tree.digest}", packed


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError(f"Docker sandboxes need httpx: {to_install('sandbox')}") from error
    return httpx


async def _chunks(content: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := content.read(1 << 20):
        yield chunk
