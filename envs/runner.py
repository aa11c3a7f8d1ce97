"""The one way in which episodes are driven: any environment as an asynchronous one that answers in messages."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import gymnasium

from agar.envs.base import AsyncEnv, Env, gold_of
from agar.envs.contract import OBSERVATION_CHARS, blamed, checked_gold, checked_reset, checked_step, told
from agar.envs.wrappers.base import awaitable
from agar.errors import AgarError, DeadlineError, EnvError, SandboxError
from agar.tool_servers.background import DaemonThread, awaited, in_task
from agar.types import Message, Outcome, ToolSpec, Turn

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_TIMEOUT_S = 30.0
"""How long a release or a close is waited for where `step_timeout_s` is not shorter."""


@runtime_checkable
class GoldEnvLike(Protocol):
    """What can be asked for the best next turn: an `AsyncRunner`, and what stands before one."""

    async def agold(self) -> Turn | None:
        """The best next turn, as the environment's author says; None where they do not."""
        ...


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
        step_timeout_s: how long one reset, step or question for gold may take. What lets go of things (a release, a
            close) has as long, `CLOSE_TIMEOUT_S` at most; it is then left alone with a warning.
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
    raises becomes an `EnvError`, a wish to cancel its caller or to end the process included.

    All calls of a synchronous environment see one set of context variables: what its reset sets is there in its steps.
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
        self._closed = False
        self._async = awaitable(env)  # Gymnasium's own wrappers must not be stepped over
        self._thread = DaemonThread(name=f"agar-env-{self._name}")
        self._context = contextvars.copy_context()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent may call."""
        return tuple(getattr(self.env.unwrapped, "tools", ()))

    async def agold(self) -> Turn | None:
        """The best next turn, as the environment's author says; None where they do not.

        Raises:
            EnvError: the environment raised, did not answer in time, or gave something that is no turn.
        """
        env = self.env.unwrapped
        if not isinstance(env, Env):
            return None
        if self._async is not None and isinstance(env, AsyncEnv):
            return checked_gold(await self._within(env.agold(), "gold"), name=self._name)
        return await self._within(self._blocking(lambda: gold_of(env)), "gold")

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Start an episode.

        Raises:
            SandboxError: the environment needed its sandbox at once and did not get it.
            EnvError: the environment raised, hung or broke its contract.
        """
        self._playing = self._closed = False
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
            ConfigError: the action is no turn; the episode goes on.
        """
        if not self._playing:
            raise EnvError(f"{self._name} has no episode in play: reset it first")
        turn = Turn.of(action)
        self._playing = False  # until the step has come back whole
        try:
            if self._async is not None:
                result = await self._within(self._async.astep(turn), "step")
            else:
                result = await self._within(self._blocking(lambda: self._step(turn)), "step")
        except SandboxError as error:
            await self._end()
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
            await self._end()
        return messages, reward, terminated, truncated, info

    async def aclose(self) -> None:
        """Release the episode and close the environment. Idempotent.

        One that hangs in a call is closed when that returns; nobody waits for it, nor for a close that hangs.

        Raises:
            EnvError: its release or its close raised.
        """
        if self._closed:
            return
        try:
            await self._release()
        finally:
            closing = self._begin_close()
            if closing is not None and not await self._let_go(asyncio.shield(awaited(closing)), "close"):
                closing.add_done_callback(self._overhear)

    def close(self) -> None:
        """`aclose` for synchronous callers, who have released the episode before. Idempotent.

        Raises:
            EnvError: its close raised.
        """
        closing = None if self._closed else self._begin_close()
        if closing is None:
            return
        try:
            closing.result(self._patience_s)
        except Exception as error:
            if not isinstance(error, FutureTimeoutError) or closing.done():
                raise self._blamed(error, "close") from error
            self._leave("close")
            closing.add_done_callback(self._overhear)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _name(self) -> str:
        return self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__

    @property
    def _patience_s(self) -> float:
        return min(self.step_timeout_s, CLOSE_TIMEOUT_S)

    async def _within(self, work: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout(self.step_timeout_s) as deadline:
                return await self._contained(work, what)
        except Exception as error:
            if deadline.expired() and not isinstance(error, AgarError):
                raise EnvError(f"{self._name}.{what} did not return within {self.step_timeout_s:g} s") from error
            raise self._blamed(error, what) from error

    async def _let_go(self, work: Awaitable[None], what: str) -> bool:
        """Await what changes nothing about the episode any more; False where it is left alone, past its deadline."""
        try:
            async with asyncio.timeout(self._patience_s) as deadline:
                await self._contained(work, what)
        except Exception as error:
            if not deadline.expired() or isinstance(error, AgarError):
                raise self._blamed(error, what) from error
            self._leave(what)
            return False
        return True

    def _contained(self, work: Awaitable[T], what: str) -> Awaitable[T]:
        """What the environment does in the caller's thread, where it could cancel the caller's task."""
        return work if self._async is None else in_task(work, name=f"agar-env-{self._name}.{what}")

    def _leave(self, what: str) -> None:
        logger.warning("%s.%s did not return within %g s: it is left alone", self._name, what, self._patience_s)

    def _overhear(self, closing: "Future[None]") -> None:
        """Say what went wrong with a close that nobody waited for."""
        error = closing.exception()
        if error is not None:
            logger.warning("%s.close raised %s", self._name, told(error))

    def _blamed(self, error: Exception, what: str) -> AgarError:
        if self._async is None and isinstance(error, DeadlineError):  # the environment's own: `drive_timeout_s`
            return EnvError(f"{self._name}.{what} raised {told(error)}")
        return blamed(error, f"{self._name}.{what}")

    def _step(self, turn: Turn) -> Any:
        return self.env.step(turn)

    async def _blocking(self, call: Callable[[], T]) -> T:
        """Run a call of the environment's in its thread, once those before it have ended.

        The caller of one before may have given up on it, and may on this one too: it is then left out.
        """
        return await self._thread.run(call, context=self._context)

    def _begin_close(self) -> "Future[None] | None":
        """Close the environment in its thread; None where nobody should wait for it."""
        self._closed, self._playing = True, False
        waits = self._thread.busy
        closing = self._thread.submit(self.env.close, context=self._context)
        self._thread.stop()
        if not waits:
            return closing
        logger.warning("%s is still in a call: it is closed when that returns", self._name)
        closing.add_done_callback(self._overhear)
        return None

    async def _end(self) -> None:
        """Release the episode that has ended: what goes wrong there changes nothing about it."""
        try:
            await self._release()
        except AgarError as error:
            logger.warning("%s", error)

    async def _release(self) -> None:
        if self._async is not None:
            await self._let_go(self._async.arelease(), "release")
