"""Agents without a model: a function from the conversation to the next turn."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agar.errors import EnvError
from agar.types import AsyncEnvLike, Message, Outcome, SessionAccess, TaskRow, ToolSpec, Turn

ScriptedPolicy = Callable[
    [Sequence[Message], Sequence[ToolSpec], np.random.Generator], Turn | str | Awaitable[Turn | str]
]
"""Gives the next turn for the conversation so far, the tools, and a source of chance; it may be awaitable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One episode that was played without a model."""

    task: TaskRow
    """The task."""
    messages: tuple[Message, ...]
    """The whole conversation, the agent's turns included, as a chat template takes it."""
    tools: tuple[ToolSpec, ...]
    """The tools that the agent could call."""
    reward: float
    """The sum of the steps' rewards."""
    turns: int
    """How many turns the agent took."""
    outcome: Outcome
    """How it ended."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The last step's info."""


class ScriptedAgent:
    """Plays by a function; the baseline, the demonstrator, and the test double of every other agent."""

    def __init__(self, policy: ScriptedPolicy, *, seed: int = 0, max_turns: int = 100) -> None:
        """Make the agent.

        Args:
            policy: gives the next turn.
            seed: what chance the policy gets, together with the task's key and the attempt.
            max_turns: stop an episode that the environment does not end.
        """
        self.policy = policy
        self.seed = seed
        self.max_turns = max_turns

    async def play(self, env: AsyncEnvLike, task: TaskRow, session: SessionAccess | None) -> None:
        """Play one episode; nothing is asked of the session."""
        await self.transcript(env, task)

    async def policy_for(self, env: AsyncEnvLike, rng: np.random.Generator) -> ScriptedPolicy:
        """The policy of the episode that is about to begin; for subclasses that look at the environment."""
        return self.policy

    async def transcript(self, env: AsyncEnvLike, task: TaskRow, *, attempt: int = 0) -> Transcript:
        """Play one episode and keep the conversation.

        Args:
            env: the environment, as `as_async` gives it.
            task: the task to play.
            attempt: tells attempts at one task apart; the same attempt gives the same episode.

        Returns:
            The episode; `truncated` where `max_turns` of the environment or of the agent ended it.
        """
        rng = np.random.default_rng([self.seed, attempt, *task.key.encode()])
        policy = await self.policy_for(env, rng)
        observation, info = await env.areset(seed=task.payload.get("seed"), options={"task": task})
        messages = list(observation)
        reward = 0.0
        outcome = Outcome.TRUNCATED
        turns = 0
        while turns < self.max_turns:
            said = policy(tuple(messages), env.tools, rng)
            turn = Turn.of(await said if inspect.isawaitable(said) else said)
            observation, gained, terminated, truncated, info = await env.astep(turn)
            turns += 1
            reward += gained
            messages += [turn.message(), *observation]
            if terminated or truncated:
                outcome = info.get("failure") or (Outcome.COMPLETED if terminated else Outcome.TRUNCATED)
                break
        if turns == 0:
            raise EnvError(f"a scripted agent needs at least one turn, got max_turns {self.max_turns}")
        return Transcript(
            task=task,
            messages=tuple(messages),
            tools=env.tools,
            reward=reward,
            turns=turns,
            outcome=outcome,
            info=info,
        )
