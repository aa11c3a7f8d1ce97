"""A limit of time."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from agar.envs.base import StepResult
from agar.envs.wrappers.base import ResetResult, Wrapper, cut_off
from agar.errors import ConfigError
from agar.types import Turn


class WallClock(Wrapper):
    """Truncates an episode at the first turn that ends later than so many seconds after the reset."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], *, limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Wrap an environment; `clock` gives seconds.

        Raises:
            ConfigError: limit_s is not positive.
        """
        super().__init__(env)
        if limit_s <= 0:
            raise ConfigError(f"limit_s must be positive, got {limit_s}: leave the wrapper away for no limit")
        self.limit_s = limit_s
        self._clock = clock
        self._began = clock()

    def on_reset(self, result: ResetResult, options: Mapping[str, Any]) -> ResetResult:
        """Start the clock."""
        self._began = self._clock()
        return result

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """Look at it."""
        return cut_off(result, "wall_clock") if self._clock() - self._began >= self.limit_s else result
