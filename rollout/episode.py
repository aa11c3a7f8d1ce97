"""Plays one episode: an agent, an environment and a recording session, from reset to a sealed trace."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from agar.envs.contract import blamed, checked_number
from agar.envs.runner import AsyncRunner, GoldEnvLike, as_async
from agar.errors import AgarError, ConfigError, EnvError, MissingExtraError, UnsupportedPlatformError
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig
from agar.rollout.gateway.sealed import SealedSession
from agar.rollout.gateway.server import Gateway
from agar.rollout.gateway.session import GatewaySession
from agar.tool_servers.background import in_task
from agar.types import Agent, AgentReport, AsyncEnvLike, Message, Outcome, Reward, Sampling, ToolSpec, Turn

logger = logging.getLogger(__name__)

HOPELESS = (ConfigError, MissingExtraError, UnsupportedPlatformError)
"""What every further attempt would meet again."""

MakeEnv = Callable[[str, Mapping[str, Any]], Any]
"""(environment id, constructor arguments) -> an `agar.Env`."""


class Watched:
    """An environment as the agent sees it, with everything that the trace needs kept on the side."""

    def __init__(self, env: AsyncEnvLike, last_node: Callable[[], int | None], *, name: str) -> None:
        self._env = env
        self._name = name
        self._last_node = last_node
        self.env_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Keep nothing of an episode that the agent played before: what counts is the one that it plays last."""
        self.turns = 0
        self.turn_rewards: dict[int, float] = {}
        self.total = 0.0
        self.parts: dict[str, float] = {}
        self.ended: Outcome | None = None
        self.reason = ""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The environment's tools."""
        return self._env.tools

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Reset, attributing any failure to the environment."""
        self._begin()
        started = time.monotonic()
        try:
            observation, info = await self._env.areset(seed=seed, options=options)
        except Exception as error:
            raise blamed(error, "the environment's reset") from error
        self.env_s += time.monotonic() - started
        return observation, info

    async def agold(self) -> Turn | None:
        """What the environment's author would do next, for agents that check or demonstrate; None where nobody says."""
        return await self._env.agold() if isinstance(self._env, GoldEnvLike) else None

    async def astep(self, action: Turn | str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """Step, attributing any failure to the environment and binding the reward to the turn."""
        started = time.monotonic()
        try:
            observation, reward, terminated, truncated, info = await self._env.astep(action)
        except Exception as error:
            raise blamed(error, "the environment's step") from error
        self.env_s += time.monotonic() - started
        self._account(reward, terminated, truncated, info)
        return observation, reward, terminated, truncated, info

    def _account(self, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]) -> None:
        self.turns += 1
        what = f"{self._name}: all rewards of the episode so far make"
        self.total = checked_number(self.total + reward, what=what)
        node = self._last_node()
        if node is not None and reward:
            self.turn_rewards[node] = checked_number(self.turn_rewards.get(node, 0.0) + reward, what=what)
        for name, value in (info.get("reward_parts") or {}).items():
            self.parts[name] = checked_number(self.parts.get(name, 0.0) + value, what=f"{what} a part {name!r} of")
        if terminated:
            self.ended = Outcome.COMPLETED
        elif truncated:
            self.ended, self.reason = Outcome.TRUNCATED, str(info.get("truncated_by", "environment"))
        if info.get("failure") is not None:
            self.ended, self.reason = Outcome(info["failure"]), str(info.get("failure_reason", "environment"))


class EpisodeRunner:
    """Plays attempts; one instance serves any number of concurrent episodes."""

    def __init__(self, *, gateway: Gateway, agent: Agent, make_env: MakeEnv, config: RolloutConfig) -> None:
        self._gateway = gateway
        self._agent = agent
        self._make_env = make_env
        self._config = config

    async def play(self, attempt: Attempt, sampling: Sampling) -> Trace:
        """Play one attempt to its end.

        Whatever goes wrong with the episode becomes the trace's outcome.

        Raises:
            ConfigError, MissingExtraError, UnsupportedPlatformError: no episode can be played here; nothing to retry.
        """
        session = self._gateway.open(
            policy=attempt.policy,
            sampling=sampling,
            max_turns=self._config.max_turns,
            max_tokens=self._config.max_episode_tokens,
        )
        started = time.time()
        watched: Watched | None = None
        env: AsyncRunner | None = None
        clock: asyncio.Timeout | None = None
        report: AgentReport | None = None
        try:
            try:
                env = as_async(self._make_env(attempt.env, attempt.env_kwargs))
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                raise blamed(error, "the environment's constructor") from error
            watched = Watched(env, lambda: session.last_node, name=attempt.env)
            async with asyncio.timeout(self._config.episode_timeout_s) as clock:
                playing = self._agent.play(watched, attempt.task, session)
                report = await in_task(playing, name=attempt.trajectory)
            outcome, reason = _ending(watched, report)
        except (asyncio.CancelledError, *HOPELESS):
            session.abandon()
            raise
        except Exception as error:
            # A `TimeoutError` alone says little: an engine's passed deadline is one too, and no fault of the agent's.
            if isinstance(error, TimeoutError) and clock is not None and clock.expired():
                outcome, reason = Outcome.TRUNCATED, f"wall clock of {self._config.episode_timeout_s:g} s"
                session.hang_up()  # the agent has ended: nobody waits for the call that it made over HTTP
                session.seal()  # nor for one that is still on its way here
            else:
                outcome, reason = classify(error)
        finally:
            if env is not None:
                await self._close(env)
        return self._trace(attempt, session, watched, outcome, reason, started, report)

    async def _close(self, env: AsyncRunner) -> None:
        try:
            await env.aclose()
        except Exception as error:
            logger.warning("closing %s failed: %r", type(env.env.unwrapped).__name__, error)

    def _trace(
        self,
        attempt: Attempt,
        session: GatewaySession,
        watched: Watched | None,
        outcome: Outcome,
        reason: str,
        started: float,
        report: AgentReport | None,
    ) -> Trace:
        sealed = session.seal()
        if outcome is Outcome.AGENT_ERROR and watched is not None and watched.ended is None:
            outcome, reason = _left(sealed, reason)
        total = watched.total if watched else 0.0
        return Trace(
            trajectory=attempt.trajectory,
            group=attempt.group,
            role="agent",
            policy=attempt.policy,
            task=attempt.task,
            nodes=sealed.nodes,
            divergences=sealed.divergences,
            turn_rewards=dict(watched.turn_rewards) if watched else {},
            reward=Reward(total=total, parts=dict(watched.parts) if watched else {}),
            outcome=outcome,
            reason=reason,
            open_calls=sealed.open_calls,
            meta={
                "turns": watched.turns if watched else 0,
                "env_s": watched.env_s if watched else 0.0,
                "wall_s": time.time() - started,
                "family": sealed.family,
                **({"agent": dict(report.meta)} if report else {}),
            },
        )


def _ending(watched: Watched, report: AgentReport | None) -> tuple[Outcome, str]:
    """How an episode ended: by the environment's word, else by the agent's."""
    if watched.ended is None and report is not None and report.outcome is not None:
        return report.outcome, report.reason
    return watched.ended or Outcome.AGENT_ERROR, watched.reason


def _left(sealed: SealedSession, reason: str) -> tuple[Outcome, str]:
    """The outcome of an episode that the agent left before the environment ended it: a budget's doing, or its own."""
    if sealed.budget_stops:
        return Outcome.TRUNCATED, f"budget: {', '.join(sorted(sealed.budget_stops))}"
    return Outcome.AGENT_ERROR, reason or "the agent stopped before the environment ended"


def classify(error: Exception) -> tuple[Outcome, str]:
    """The outcome that an exception stands for.

    An environment's own error is `env_error`. Everything else that escapes an agent (the engine, the sandbox, the
    network, a defect of ours) is `infra_error`: outside the statistics rather than a reward of 0.
    """
    if isinstance(error, EnvError):
        return Outcome.ENV_ERROR, str(error)
    if not isinstance(error, AgarError):
        logger.warning("an episode ended with %r", error)
    return Outcome.INFRA_ERROR, f"{type(error).__name__}: {error}"
