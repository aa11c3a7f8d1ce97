"""The one way in which episodes are driven: any environment as an asynchronous one that answers in messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import gymnasium

from agar.envs.base import Env
from agar.envs.contract import OBSERVATION_CHARS, checked_reset, checked_step, told
from agar.envs.wrappers.base import awaitable
from agar.errors import AgarError, EnvError, SandboxError
from agar.tool_servers.background import DaemonThread
from agar.types import Message, Outcome, ToolSpec, Turn

logger = logging.getLogger(__name__)

T = TypeVar("T")


def as_async(
    env: gymnasium.Env[Any, Any],
    *,
    max_turns: int | None = None,
    step_timeout_s: float = 600.0,
    max_observation_chars: int = OBSERVATION_CHARS,
) -> "AsyncRunner":
    """Drive an environment from asynchronous code.

    Args:
        env: any environment whose observations are texts or messages, wrapped or not. A synchronous one runs in a
            thread of its own, from its first reset to its close.
        max_turns: truncate after this many turns. None takes the limit that it was registered with, if any.
        step_timeout_s: how long one reset or step may take.
        max_observation_chars: the largest observation, in characters of its texts and image URLs.

    Returns:
        An `AsyncEnvLike`, and an async context manager that closes the environment.
    """
    if max_turns is None and env.spec is not None:
        max_turns = env.spec.max_episode_steps
    return AsyncRunner(
        env, max_turns=max_turns, step_timeout_s=step_timeout_s, max_observation_chars=max_observation_chars
    )


class AsyncRunner:
    """One environment, one episode at a time, driven from asynchronous code.

    It keeps the contract on the environment's behalf: observations come as lists of messages, the reward is a finite
    float, the turn limit truncates, and what the episode holds is released when it ends. A `SandboxError` out of a
    step becomes a truncated step with `info["failure"] = Outcome.INFRA_ERROR`; anything else that the environment
    raises becomes an `EnvError`.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        max_turns: int | None,
        step_timeout_s: float,
        max_observation_chars: int = OBSERVATION_CHARS,
    ) -> None:
        """See `as_async`."""
        self.env = env
        self.max_turns = max_turns
        self.step_timeout_s = step_timeout_s
        self.max_observation_chars = max_observation_chars
        self.turns = 0
        """Turns taken in this episode."""
        self._playing = False
        self._running: asyncio.Future[Any] | None = None  # the latest call that runs, or ran, in a thread
        self._async = awaitable(env)  # Gymnasium's own wrappers must not be stepped over
        self._thread = DaemonThread(name=f"agar-env-{self._name}")

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent may call."""
        return tuple(getattr(self.env.unwrapped, "tools", ()))

    def gold(self) -> Turn | None:
        """The best next turn, as the environment's author says; None where they do not."""
        env = self.env.unwrapped
        turn = env.gold() if isinstance(env, Env) else None
        return None if turn is None else Turn.of(turn)

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Start an episode.

        Raises:
            SandboxError: the environment needed its sandbox at once and did not get it.
            EnvError: the environment raised, hung or broke its contract.
        """
        self._playing = False
        options = dict(options) if options is not None else None
        if self._async is not None:
            result = await self._within(self._async.areset(seed=seed, options=options), "reset")
        else:
            result = await self._within(self._blocking(lambda: self.env.reset(seed=seed, options=options)), "reset")
        messages, info = checked_reset(result, name=self._name, max_chars=self.max_observation_chars)
        self.turns, self._playing = 0, True
        return messages, info

    async def astep(self, action: Turn | str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """Take one turn: observation, reward, terminated, truncated, info.

        Raises:
            EnvError: the environment raised, hung or broke its contract, or no episode is being played.
        """
        if not self._playing:
            raise EnvError(f"{self._name} has no episode in play: reset it first")
        self._playing = False  # until the step has come back whole
        turn = Turn.of(action)
        try:
            if self._async is not None:
                result = await self._within(self._async.astep(turn), "step")
            else:
                result = await self._within(self._blocking(lambda: self._step(turn)), "step")
        except SandboxError as error:
            await self._release()
            return [], 0.0, False, True, {"failure": Outcome.INFRA_ERROR, "failure_reason": str(error)}
        messages, reward, terminated, truncated, info = checked_step(
            result, name=self._name, max_chars=self.max_observation_chars
        )
        self.turns += 1
        if self.max_turns is not None and self.turns >= self.max_turns and not (terminated or truncated):
            truncated = True
            info = {**info, "truncated_by": "max_turns"}
        self._playing = not (terminated or truncated)
        if not self._playing:
            await self._release()
        return messages, reward, terminated, truncated, info

    async def aclose(self) -> None:
        """Release the episode and close the environment. Idempotent.

        One that hangs in a call is closed when that returns; nobody waits for it.
        """
        self._playing = False
        try:
            await self._release()
        finally:
            if self._running is not None and not self._running.done():
                logger.warning("%s is still in a call: it is closed when that returns", self._name)
                self._thread.run(self.env.close)
            else:
                await self._blocking(self.env.close)
            self._thread.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _name(self) -> str:
        return self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__

    async def _within(self, work: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout(self.step_timeout_s) as deadline:
                return await work
        except AgarError:
            raise
        except SystemExit as error:  # an environment's wish to end the process is its own fault
            raise EnvError(f"{self._name}.{what} raised {told(error)}") from error
        except Exception as error:
            if deadline.expired():
                raise EnvError(f"{self._name}.{what} did not return within {self.step_timeout_s:g} s") from error
            raise EnvError(f"{self._name}.{what} raised {told(error)}") from error

    def _step(self, turn: Turn) -> Any:
        return self.env.step(turn)

    async def _blocking(self, call: Callable[[], T]) -> T:
        """Run a call of the environment's in its thread, once the one before it has ended."""
        if self._running is not None and not self._running.done():  # its caller gave up on it, and may on this one too
            await asyncio.wait({self._running})
        running = self._running = self._thread.run(call)
        return await asyncio.shield(running)

    async def _release(self) -> None:
        if self._async is not None:
            await self._async.arelease()
