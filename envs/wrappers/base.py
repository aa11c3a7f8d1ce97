"""What the wrappers have in common: one pair of hooks, called from `reset` and `step` as from `areset` and `astep`."""

from collections.abc import Mapping
from typing import Any, cast

import gymnasium

from agar.envs.base import AsyncEnv, StepResult
from agar.envs.spaces import Observation
from agar.types import Turn

ResetResult = tuple[Observation, dict[str, Any]]
"""observation, info."""


class Wrapper(gymnasium.Wrapper[Observation, Turn, Observation, Turn]):
    """A `gymnasium.Wrapper` that can be awaited where the environment inside can.

    Subclasses write `on_reset` and `on_step`. Gymnasium's own wrappers may stand inside or around it; `as_async` then
    drives the whole in a thread.
    """

    def on_reset(self, result: ResetResult, options: Mapping[str, Any]) -> ResetResult:
        """What to give instead of what a reset gave."""
        return result

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """What to give instead of what a step gave."""
        return result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Reset what is inside, then `on_reset`."""
        return self.on_reset(self.env.reset(seed=seed, options=options), options or {})

    def step(self, action: Turn | str) -> StepResult:
        """Step what is inside, then `on_step`."""
        turn = Turn.of(action)
        return self.on_step(turn, cast(StepResult, self.env.step(turn)))

    async def areset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> ResetResult:
        """`reset`, awaited."""
        return self.on_reset(await self._inner.areset(seed=seed, options=options), options or {})

    async def astep(self, action: Turn | str) -> StepResult:
        """`step`, awaited."""
        turn = Turn.of(action)
        return self.on_step(turn, await self._inner.astep(turn))

    async def arelease(self) -> None:
        """Let go of what the episode holds."""
        await self._inner.arelease()

    @property
    def _inner(self) -> AsyncEnv:
        return cast(AsyncEnv, self.env)


def awaitable(env: gymnasium.Env[Any, Any]) -> AsyncEnv | None:
    """The environment, if it can be awaited through all of its wrappers, else None."""
    inside = env
    while isinstance(inside, Wrapper):
        inside = inside.env
    return cast(AsyncEnv, env) if isinstance(inside, AsyncEnv) else None


def cut_off(result: StepResult, by: str) -> StepResult:
    """The result as truncated, unless the episode has ended by itself.

    Args:
        result: of a step.
        by: what is used up; `info["truncated_by"]`.
    """
    observation, reward, terminated, truncated, info = result
    if terminated or truncated:
        return result
    return observation, reward, False, True, {**info, "truncated_by": by}
