"""A limit of turns."""

from collections.abc import Mapping
from typing import Any

import gymnasium

from agar.envs.base import StepResult
from agar.envs.wrappers.base import ResetResult, Wrapper, cut_off
from agar.errors import ConfigError
from agar.types import Turn


class TurnLimit(Wrapper):
    """Truncates an episode after so many turns; `register(..., max_turns=)` does it for every one of a name."""

    def __init__(self, env: gymnasium.Env[Any, Any], *, max_turns: int) -> None:
        """Wrap an environment.

        Raises:
            ConfigError: max_turns is below 1.
        """
        super().__init__(env)
        if max_turns < 1:
            raise ConfigError(f"max_turns must be at least 1, got {max_turns}: leave the wrapper away for no limit")
        self.max_turns, self.turns = max_turns, 0

    def on_reset(self, result: ResetResult, options: Mapping[str, Any]) -> ResetResult:
        """Count from 0."""
        self.turns = 0
        return result

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """Count, and cut off."""
        self.turns += 1
        return cut_off(result, "max_turns") if self.turns >= self.max_turns else result
