"""An environment in a process of its own, as an environment of this one."""

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import gymnasium

from agar.envs.base import AsyncEnv, StepResult
from agar.envs.isolation.config import ProcessLimits
from agar.envs.isolation.process import EnvProcess
from agar.envs.spaces import MessageSpace, Observation, TurnSpace
from agar.errors import AgarError, EnvError
from agar.tool_servers.background import in_thread
from agar.types import ToolSpec, Turn

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ProcessEnv(AsyncEnv):
    """An environment that runs in a process of its own; whatever it does hurts only its own episode.

    The process starts with the first reset (or question about its tools) and stays for further episodes. One that
    crashes, hangs, takes too much memory or answers too much is killed; the step fails with an `EnvError` that names
    the fault, and the next reset starts another process.
    """

    def __init__(self, name: str, creator: Any, kwargs: Mapping[str, Any], limits: ProcessLimits) -> None:
        """Prepare it; see `EnvProcess`."""
        self._name, self._creator, self._kwargs, self.limits = name, creator, dict(kwargs), limits
        self._process: EnvProcess | None = None
        self._about: dict[str, Any] | None = None
        self._starting = threading.Lock()
        self._waiting: object | None = None  # the reset or gold that somebody waits for

    def start(self) -> EnvProcess:
        """The running process; a new one where there is none, or the last one has ended.

        Raises:
            ConfigError: it cannot be made in another process.
            EnvError: it could not be made.
        """
        with self._starting:
            if self._process is not None and not self._process.alive:
                self._process.end()
                self._process = None
            if self._process is None:
                self._process = EnvProcess(
                    self._name, self._creator, self._kwargs, self.limits, render_mode=self.render_mode
                )
                self._about = self._process.about
            return self._process

    @functools.cached_property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent may call; starts the process where it never ran."""
        about = self._about or self.start().about
        return self._read(lambda: tuple(ToolSpec(**spec) for spec in about["tools"]), "tools")

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, in a new process where there is none.

        Raises:
            SandboxError, EnvError: see `EnvProcess.ask`.
        """
        return self._reset(seed, options, lambda: True)

    def step(self, action: Turn) -> StepResult:
        """Take one turn.

        Raises:
            SandboxError, EnvError: see `EnvProcess.ask`.
        """
        if self._process is None:
            raise EnvError(f"{self._name} has no episode in play: reset it first")
        answer = self._process.ask("step", action, timeout_s=self.limits.step_timeout_s)
        return self._read(
            lambda: (
                _observation(answer),
                answer["reward"],
                answer["terminated"],
                answer["truncated"],
                dict(answer["info"]),
            ),
            "step",
        )

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """`reset`, from asynchronous code; a caller that gives up kills the process."""
        waiting = self._waiting = object()
        return await self._threaded(lambda: self._reset(seed, options, lambda: self._waiting is waiting))

    async def astep(self, action: Turn) -> StepResult:
        """`step`, from asynchronous code; a caller that gives up kills the process."""
        return await self._threaded(lambda: self.step(action))

    def gold(self) -> Turn | None:
        """What the environment's own `gold` says."""
        return self._gold(lambda: True)

    async def agold(self) -> Turn | None:
        """`gold`, from asynchronous code; a caller that gives up kills the process."""
        waiting = self._waiting = object()
        return await self._threaded(lambda: self._gold(lambda: self._waiting is waiting))

    def render(self) -> str | None:
        """What it draws, where that is a text."""
        answer = self.start().ask("render", timeout_s=self.limits.step_timeout_s)
        return answer if isinstance(answer, str) else None

    async def arelease(self) -> None:
        """Let go of what the episode holds; the process stays. Idempotent."""
        process = self._process
        if process is not None and process.alive:
            try:
                await self._threaded(lambda: process.ask("release", timeout_s=self.limits.reset_timeout_s))
            except AgarError as error:  # the episode is over and known: this changes nothing about it
                logger.warning("%s", error)

    def close(self) -> None:
        """Close the environment and end its process. Idempotent."""
        self._waiting = None
        process, self._process = self._process, None
        try:
            if process is not None:
                process.close()
        finally:
            super().close()

    def _reset(
        self, seed: int | None, options: Mapping[str, Any] | None, wanted: Callable[[], bool]
    ) -> tuple[Observation, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        options = dict(options) if options is not None else None
        answer = self._started("reset", wanted).ask("reset", seed, options, timeout_s=self.limits.reset_timeout_s)
        return self._read(lambda: (_observation(answer), dict(answer["info"])), "reset")

    def _gold(self, wanted: Callable[[], bool]) -> Turn | None:
        answer = self._started("gold", wanted).ask("gold", timeout_s=self.limits.step_timeout_s)
        return None if answer is None else self._read(lambda: Turn.of(TurnSpace().from_jsonable([answer])[0]), "gold")

    def _started(self, what: str, wanted: Callable[[], bool]) -> EnvProcess:
        process = self.start()
        if not wanted():  # its caller gave up while it started, and nobody else knows of it
            if self._process is process:
                self._process = None
            process.end()
            raise EnvError(f"{self._name}.{what}: its caller gave up")
        return process

    async def _threaded(self, call: Callable[[], T]) -> T:
        running = in_thread(call, name=f"agar-env-{self._name}")
        try:
            return await running
        finally:
            if not running.done() or running.cancelled():  # the caller gave up
                self._waiting = None
                process = self._process
                if process is not None:
                    process.kill()

    def _read(self, read: Callable[[], T], what: str) -> T:
        """Read an answer that nobody vouches for."""
        try:
            return read()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"{self._name}.{what} gave an answer that cannot be read: {type(error).__name__}"
            raise (EnvError(reason) if self._process is None else self._process.failed(reason)) from error


def _observation(answer: Any) -> Observation:
    return MessageSpace().from_jsonable([answer["observation"]])[0]
