"""Guess-v0: find a number between 1 and 99 from "Higher." and "Lower."."""

from collections.abc import Mapping
from typing import Any

from agar.envs.base import Env, StepResult
from agar.envs.parsing import parse_int
from agar.envs.spaces import Observation
from agar.types import Turn


class Guess(Env):
    """The smallest environment of several turns; reward 1 for the right number."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a number."""
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(1, 100))
        return "Guess a number between 1 and 99.", {}

    def step(self, action: Turn) -> StepResult:
        """Take a guess; a turn without a number is answered "Lower."."""
        guess = parse_int(action.text)
        if guess == self.number:
            return "Right.", 1.0, True, False, {}
        return ("Higher." if guess is not None and guess < self.number else "Lower."), 0.0, False, False, {}

    def gold(self) -> Turn:
        """The number."""
        return Turn(text=str(self.number))
