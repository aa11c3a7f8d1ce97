"""ManagedEngine: one engine of a pool, started here or attached to."""

import asyncio
import logging
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import aiohttp

from agar.errors import ConfigError, EngineError
from agar.rollout.engines.arguments import HOST, engine_command, engine_environment
from agar.rollout.engines.config import EnginesConfig
from agar.rollout.engines.control import EngineControl
from agar.rollout.engines.cpu import SGLANG_VERSION
from agar.rollout.engines.installation import engine_python
from agar.rollout.engines.ports import free_port
from agar.rollout.engines.process import GuardedProcess

logger = logging.getLogger(__name__)

_VERSION_OF = "import importlib.metadata as m; print(m.version('sglang'))"


class EngineState(StrEnum):
    """Where an engine stands."""

    STARTING = "starting"
    """Its server starts, or waits for the current weights."""
    SERVING = "serving"
    """In the router, with the current weights."""
    OUT = "out"
    """Out of the router: it missed a publish or is unhealthy; it will be brought back."""
    LOST = "lost"
    """Given up after too many restarts."""


class ManagedEngine:
    """One engine.

    Args:
        name: for logs, errors and receipts.
        config: settings of the pool.
        session: open HTTP session.
        model_dir: first weights; None for an attached engine.
        run_dir: where its log goes.
        index: number on this machine.
        url: of an attached engine; None starts one.
    """

    def __init__(
        self,
        name: str,
        *,
        config: EnginesConfig,
        session: aiohttp.ClientSession,
        model_dir: Path | None,
        run_dir: Path,
        index: int,
        url: str | None = None,
    ) -> None:
        self.name, self.index = name, index
        self.state = EngineState.STARTING
        self.restarts = 0
        self.served_since = 0.0
        self.log = run_dir / f"{name}.log"
        self._config, self._session, self._model_dir = config, session, model_dir
        self._process: GuardedProcess | None = None
        self.attached = url is not None
        self.control = EngineControl(url or f"http://{HOST}:9", session)
        self.wanted = asyncio.Event()  # somebody found it faulty: its keeper should look now

    @property
    def url(self) -> str:
        """Base URL; another one after every start."""
        return self.control.url

    def pids(self) -> list[int]:
        """Its processes, guardian first; none where it is attached."""
        return self._process.pids() if self._process else []

    async def start(self, *, version: int) -> float:
        """Start the server on its first weights and wait until it generates.

        Returns:
            Seconds that it took.

        Raises:
            EngineError: it did not start; quotes its log.
        """
        if self.attached:
            if not await self.control.healthy(timeout_s=self._config.health_timeout_s):
                raise EngineError(
                    f"engine {self.url} does not answer /health_generate: start it, or correct engines.urls"
                )
            await self.control.stamp(version)  # its own stamp is a word until somebody sets a number
            return 0.0
        if self._model_dir is None:
            raise ConfigError("engines need a model directory to start with, or engines.urls to attach to")
        port = free_port()
        command = engine_command(self._config, model_dir=self._model_dir, port=port, version=version, index=self.index)
        self.control = EngineControl(f"http://{HOST}:{port}", self._session)
        self._process = GuardedProcess(
            self.name,
            command,
            log=self.log,
            environment=engine_environment(self._config),
            grace_s=self._config.stop_grace_s,
        )
        self._process.start()
        config = self._config
        took_s = await self._process.until_ready(
            self.control.alive, timeout_s=config.start_timeout_s, stall_timeout_s=config.stall_timeout_s
        )
        if not await self.control.healthy(timeout_s=config.health_timeout_s):
            raise EngineError(
                f"{self.name} started but does not generate. The last lines of {self.log}:\n{self.last_lines()}"
            )
        logger.info("engine %s at %s is up after %.1f s", self.name, self.url, took_s)
        return took_s

    async def ended(self) -> str:
        """Wait until its process has ended; forever for an attached one. Gives the reason."""
        if self._process is None:
            await asyncio.Event().wait()
        assert self._process is not None, "the wait above does not end"
        return f"its process ended with code {await self._process.ended()}"

    async def stop(self) -> None:
        """End its processes; an attached engine is left alone. Idempotent."""
        if self._process is not None:
            await self._process.stop()

    def last_lines(self) -> str:
        """The end of its log."""
        return self._process.last_lines() if self._process else "  | (attached: its log is elsewhere)"


async def check_installation(config: EnginesConfig) -> None:
    """Check that the engines' interpreter has SGLang, and the pinned version where CPU shims depend on it.

    Raises:
        ConfigError: names the interpreter and what to install.
    """
    if config.backend == "fake" or config.urls:
        return
    python = engine_python(config) or sys.executable
    try:
        done = await asyncio.to_thread(
            subprocess.run, [python, "-c", _VERSION_OF], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"engines.python = {python!r} does not run ({error}): make the engines' environment"
        ) from error
    version = done.stdout.strip()
    if done.returncode != 0 or not version:
        raise ConfigError(
            f"{python} has no SGLang: run `make env`, or install requirements/engine.txt into an environment of its "
            "own and set engines.python (or AGAR_ENGINE_PYTHON) to its interpreter"
        )
    if config.device == "cpu" and version != SGLANG_VERSION:
        raise ConfigError(
            f"{python} has SGLang {version}; on a CPU agar needs {SGLANG_VERSION}, whose private names its shims know: "
            f"install sglang=={SGLANG_VERSION}, or set engines.device"
        )
