"""Environments of one question and one answer."""

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any

from agar.envs.base import AsyncEnv, StepResult, task_of
from agar.envs.spaces import Observation
from agar.errors import ConfigError
from agar.tool_servers.background import in_thread
from agar.types import Reward, TaskRow, Turn


class SingleTurnEnv(AsyncEnv):
    """One question, one answer, one reward: subclasses write `grade`, and `ask` where a prompt is not enough.

    The task comes with the reset; without one, it is drawn from the registered train split.
    """

    task: TaskRow
    """The task in play."""

    def ask(self) -> Observation:
        """The question; the task's prompt unless a subclass says otherwise."""
        return self.task.prompt

    def grade(self, action: Turn) -> float | Reward | Awaitable[float | Reward]:
        """The reward of an answer.

        Args:
            action: the agent's only turn.

        Returns:
            A number, or a `Reward` whose parts are reported; it may be awaited. What is not runs in a thread.

        Raises:
            NotImplementedError: the subclass did not write it.
        """
        raise NotImplementedError(f"{type(self).__name__} must write grade(self, action: agar.Turn)")

    def draw(self) -> TaskRow:
        """A task for a reset that brings none.

        Raises:
            ConfigError: the environment was not made by its name, so that it has no task set.
        """
        from agar.envs.registry import spec  # which makes environments, and so imports this package's classes

        if self.spec is None:
            raise ConfigError(
                f'{type(self).__name__} has no task set to draw from: reset it with options={{"task": …}}, or make it '
                "by its registered name"
            )
        tasks = spec(self.spec.id).tasks("train")
        return tasks[int(self.np_random.integers(0, len(tasks)))]

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Ask the question.

        Args:
            seed: seeds `np_random`.
            options: `options["task"]` is the `TaskRow` to play.
        """
        await super().areset(seed=seed, options=options)
        self.task = task_of(options) or self.draw()
        return self.ask(), {}

    async def astep(self, action: Turn) -> StepResult:
        """Grade the answer; the episode is over."""
        if inspect.iscoroutinefunction(self.grade):
            graded = await self.grade(action)
        else:
            graded = await in_thread(lambda: self.grade(action), name=f"agar-grade-{type(self).__name__}")
        if isinstance(graded, Reward):
            return "", graded.total, True, False, {"reward_parts": dict(graded.parts)}
        return "", graded, True, False, {}
