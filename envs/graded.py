"""Any environment, graded by a rubric on top of its own reward."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium

from agar.envs.base import AsyncEnv, StepResult, task_of
from agar.envs.rubric import Conversation, Rubric
from agar.envs.runner import as_async
from agar.envs.spaces import Observation
from agar.envs.wrappers.base import awaitable
from agar.types import TaskRow, ToolSpec, Turn


class GradedEnv(AsyncEnv):
    """Adds a rubric's rewards to an environment's: of the turn after each turn, of the whole at the end.

    Args:
        env: any environment; its own reward and parts stay.
        rubric: or `module:attr`. Its group stage is the rollout's to call.

    Raises:
        ConfigError: the rubric cannot be found.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], rubric: Rubric | str) -> None:
        self.rubric = Rubric.named(rubric)
        self.env = env
        self._inner = as_async(env)
        self._told = Conversation(task=TaskRow(key=""), messages=())

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the environment inside."""
        return self._inner.tools

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Reset what is inside, and begin a new conversation."""
        await super().areset(seed=seed, options=options)
        messages, info = await self._inner.areset(seed=seed, options=options)
        self._told = Conversation(task=task_of(options) or TaskRow(key=""), messages=tuple(messages))
        return messages, info

    async def astep(self, action: Turn) -> StepResult:
        """Step what is inside, and grade."""
        messages, reward, terminated, truncated, info = await self._inner.astep(action)
        parts = dict(info.get("reward_parts") or {})
        told = replace(self._told, messages=(*self._told.messages, action.message()), meta=info)
        if info.get("failure") is None:
            grades = [await self.rubric.grade("turn", told)]
            if terminated or truncated:
                grades.append(await self.rubric.grade("trajectory", told))
            reward += sum(grade.total for grade in grades)
            parts |= {name: score for grade in grades for name, score in grade.parts.items()}
        self._told = replace(
            told, messages=(*told.messages, *messages), reward=told.reward + reward, parts=_sum(told.parts, parts)
        )
        return messages, reward, terminated, truncated, {**info, "reward_parts": parts} if parts else info

    async def agold(self) -> Turn | None:
        """What the author of the environment inside would do."""
        return await self._inner.agold()

    async def arelease(self) -> None:
        """Let go of what the environment inside holds."""
        inner = awaitable(self.env)
        if inner is not None:
            await inner.arelease()

    def close(self) -> None:
        """Close the environment inside too."""
        try:
            super().close()
        finally:
            self._inner.close()  # in its own thread, once what may still run there has ended


def _sum(before: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    return {name: before.get(name, 0.0) + new.get(name, 0.0) for name in {**before, **new}}
