"""The router in front of the engines: its process, and which engines it sends calls to."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from agar.errors import EngineError
from agar.rollout.engines.arguments import HOST, own_environment, router_command
from agar.rollout.engines.config import EnginesConfig
from agar.rollout.engines.ports import free_port
from agar.rollout.engines.process import GuardedProcess

_POLL_S = 0.1
_JOIN_TIMEOUT_S = 60.0


class Router(Protocol):
    """Who may serve; an engine is in it only while it holds the current weights."""

    @property
    def url(self) -> str:
        """Base URL that calls go to."""
        ...

    async def start(self) -> None:
        """Start serving, with no engine yet."""
        ...

    async def add(self, url: str) -> None:
        """Let an engine serve; returns once the router sends it calls."""
        ...

    async def remove(self, url: str) -> None:
        """Send an engine no more calls; no error where it is not a member."""
        ...

    async def ended(self) -> None:
        """Wait until the router's process has ended; forever where there is none."""
        ...

    async def stop(self) -> None:
        """End it; idempotent."""
        ...


class NoRouter:
    """Calls go straight to the single engine."""

    def __init__(self) -> None:
        self._url = f"http://{HOST}:9"  # the discard port: refuses until an engine is there

    @property
    def url(self) -> str:
        """URL of the engine."""
        return self._url

    async def start(self) -> None:
        """Nothing to start."""

    async def add(self, url: str) -> None:
        """Send calls to this engine."""
        self._url = url

    async def remove(self, url: str) -> None:
        """Send calls nowhere."""
        if self._url == url:
            self._url = f"http://{HOST}:9"

    async def ended(self) -> None:
        """Never."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Nothing to stop."""


class RouterProcess:
    """`smg` or `sglang-router` as a guarded process; both speak the same `/workers` API.

    Args:
        config: settings of the pool.
        session: open HTTP session.
        log: the router's log file.
    """

    def __init__(self, config: EnginesConfig, session: aiohttp.ClientSession, *, log: Path) -> None:
        self._config, self._session, self._log = config, session, log
        self._port = free_port()
        self._process: GuardedProcess | None = None

    @property
    def url(self) -> str:
        """Base URL; the same over restarts."""
        return f"http://{HOST}:{self._port}"

    async def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            EngineError: it does not start; quotes its log.
        """
        command = router_command(self._config, port=self._port, metrics_port=free_port())
        self._process = GuardedProcess(
            f"router {self._config.router}", command, log=self._log, environment=own_environment(), grace_s=1.0
        )
        self._process.start()
        await self._process.until_ready(self._answers, timeout_s=60, stall_timeout_s=60)

    async def _answers(self) -> bool:
        try:
            await self._call("GET", "/workers", timeout_s=2)
        except EngineError:
            return False
        return True

    async def add(self, url: str) -> None:
        """Let an engine serve; returns once the router sends it calls.

        Raises:
            EngineError: the router does not take it within a minute.
        """
        until = asyncio.get_running_loop().time() + _JOIN_TIMEOUT_S
        last: object = "not asked yet"
        asked = False
        while asyncio.get_running_loop().time() < until:
            members = await self._members()
            if url in members and _ready(members[url]):
                return
            if url not in members and not asked:
                last = await self._call("POST", "/workers", body={"url": url}, timeout_s=10)
                asked = True
            last = members.get(url, last)
            await asyncio.sleep(_POLL_S)
        raise EngineError(
            f"router {self._config.router} did not take engine {url} within {_JOIN_TIMEOUT_S:.0f} s; it says {last}. "
            f"The last lines of {self._log}:\n{self._process.last_lines() if self._process else ''}"
        )

    async def remove(self, url: str) -> None:
        """Send an engine no more calls; its running ones go on.

        Raises:
            EngineError: the router still counts it among its ready workers after a minute.
        """
        until = asyncio.get_running_loop().time() + _JOIN_TIMEOUT_S
        asked = False
        while asyncio.get_running_loop().time() < until:
            member = (await self._members()).get(url)
            if member is None or (asked and not _ready(member)):
                return
            if not asked:
                await self._call("DELETE", f"/workers/{member['id']}", timeout_s=10)
                asked = True
            await asyncio.sleep(_POLL_S)
        raise EngineError(f"router {self._config.router} did not let go of engine {url} within {_JOIN_TIMEOUT_S:.0f} s")

    async def _members(self) -> dict[str, Mapping[str, Any]]:
        reply = await self._call("GET", "/workers", timeout_s=10)
        return {str(worker["url"]).rstrip("/"): worker for worker in reply.get("workers", [])}

    async def _call(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, timeout_s: float
    ) -> Mapping[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(method, self.url + path, json=body, timeout=timeout) as response:
                text = await response.text()
                reply: Any = await response.json() if response.content_type == "application/json" else {}
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise EngineError(f"router {self.url}{path} failed: {error!r}") from error
        if response.status >= 400 and response.status not in {
            404,
            409,
        }:  # gone or there already: the caller looks again
            raise EngineError(f"router {self.url}{path} answered HTTP {response.status}: {text[:300]}")
        return reply if isinstance(reply, dict) else {}

    async def ended(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            await self._process.ended()

    async def stop(self) -> None:
        """End the process; idempotent."""
        if self._process is not None:
            await self._process.stop()


def _ready(worker: Mapping[str, Any]) -> bool:
    if "status" in worker:
        return bool(worker["status"] == "ready")
    return bool(worker.get("is_healthy"))


def make_router(config: EnginesConfig, session: aiohttp.ClientSession, *, run_dir: Path) -> Router:
    """The router that the settings name."""
    if config.router == "none":
        return NoRouter()
    return RouterProcess(config, session, log=run_dir / "router.log")
