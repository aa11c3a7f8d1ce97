"""Another reward."""

from collections.abc import Callable
from typing import Any

import gymnasium

from agar.envs.base import StepResult
from agar.envs.wrappers.base import Wrapper
from agar.types import Turn


class ShapeReward(Wrapper):
    """Puts a function's number in the place of the reward; the original stays in `info["unshaped_reward"]`."""

    def __init__(self, env: gymnasium.Env[Any, Any], shape: Callable[[Turn, StepResult], float]) -> None:
        """Wrap an environment; `shape` gives the new reward from the turn and what it was answered."""
        super().__init__(env)
        self._shape = shape

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """Shape it."""
        observation, reward, terminated, truncated, info = result
        info = {**info, "unshaped_reward": reward}
        return observation, float(self._shape(action, result)), terminated, truncated, info
