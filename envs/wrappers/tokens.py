"""A budget of tokens."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from agar.envs.base import StepResult
from agar.envs.contract import checked_observation
from agar.envs.spaces import Observation
from agar.envs.wrappers.base import ResetResult, Wrapper, cut_off
from agar.errors import ConfigError
from agar.types import Turn


class TokenBudget(Wrapper):
    """Truncates an episode once what was said and heard in it has used up so many tokens.

    It counts the texts alone, without a chat template's own tokens: `rollout.max_episode_tokens` and
    `gateway.context_tokens` bound what a model really samples and reads.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, max_tokens: int, count: Callable[[str], int]) -> None:
        """Wrap an environment.

        Args:
            env: the environment.
            max_tokens: the budget of an episode.
            count: how many tokens a text has, for instance `lambda text: len(tokenizer.encode(text))`.

        Raises:
            ConfigError: max_tokens is below 1.
        """
        super().__init__(env)
        if max_tokens < 1:
            raise ConfigError(f"max_tokens must be at least 1, got {max_tokens}: leave the wrapper away for no limit")
        self.max_tokens, self.tokens = max_tokens, 0
        self._count = count

    def on_reset(self, result: ResetResult, options: Mapping[str, Any]) -> ResetResult:
        """Count the first observation."""
        self.tokens = self._heard(result[0])
        return result

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """Count, and cut off."""
        calls = "".join(call.name + json.dumps(dict(call.arguments), default=str) for call in action.tool_calls)
        self.tokens += self._count((action.reasoning or "") + action.text + calls) + self._heard(result[0])
        return cut_off(result, "max_tokens") if self.tokens >= self.max_tokens else result

    def _heard(self, observation: Observation) -> int:
        messages = checked_observation(observation, name=type(self.unwrapped).__name__)
        return sum(self._count(message.text) for message in messages)
