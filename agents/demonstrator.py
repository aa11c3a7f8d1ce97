"""A player for any environment whose author wrote `gold`: it does what is right, and errs as often as it is told to.

A mistake is a turn that would be right in another task. So it has the form of a good turn, in whatever environment, and
what a policy that imitates it gets wrong is what to say, not how to say it.
"""

from collections.abc import Sequence
from itertools import count

import numpy as np

from agar.agents.scripted import ScriptedAgent, ScriptedPolicy
from agar.envs.runner import GoldEnvLike
from agar.envs.tasks.base import TaskSet
from agar.errors import ConfigError
from agar.types import AsyncEnvLike, Message, TaskRow, ToolSpec, Turn


class Demonstrator(ScriptedAgent):
    """Plays an environment's gold turns, some of them those of another task."""

    def __init__(self, *, tasks: TaskSet, err: float = 0.0, seed: int = 0, max_turns: int = 100) -> None:
        """Make the demonstrator.

        Args:
            tasks: where the other tasks come from.
            err: chance, at every turn, of a mistake.
            seed: what chance it has, together with the task's key and the attempt.
            max_turns: stop an episode that the environment does not end.

        Raises:
            ConfigError: `err` is no chance.
        """
        if not 0 <= err <= 1:
            raise ConfigError(f"err must be a chance between 0 and 1, got {err}")
        super().__init__(_unused, seed=seed, max_turns=max_turns)
        self.tasks = tasks
        self.err = err

    async def policy_for(self, env: AsyncEnvLike, rng: np.random.Generator) -> ScriptedPolicy:
        """The gold turns of the episode to come; where it may err, another task is played first.

        Raises:
            ConfigError: the environment has no `gold`.
        """
        elsewhere = await self._elsewhere(env, rng) if self.err else []
        numbers = count()

        async def policy(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
            number = next(numbers)
            if rng.random() < self.err:
                return elsewhere[min(number, len(elsewhere) - 1)]
            return await _gold(env)

        return policy

    async def _elsewhere(self, env: AsyncEnvLike, rng: np.random.Generator) -> list[Turn]:
        """The gold turns of another task."""
        task: TaskRow = self.tasks[int(rng.integers(len(self.tasks)))]
        await env.areset(seed=task.payload.get("seed"), options={"task": task})
        turns = []
        for _ in range(self.max_turns):
            turns.append(await _gold(env))
            *_, terminated, truncated, _ = await env.astep(turns[-1])
            if terminated or truncated:
                break
        return turns


async def _gold(env: AsyncEnvLike) -> Turn:
    turn = await env.agold() if isinstance(env, GoldEnvLike) else None
    if turn is None:
        raise ConfigError(
            "the environment has no gold() to demonstrate: write it (the best next turn from where the episode "
            "stands), or name a policy of your own in demonstrations.phases"
        )
    return turn


def _unused(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
    raise AssertionError("a demonstrator plays by policy_for")
