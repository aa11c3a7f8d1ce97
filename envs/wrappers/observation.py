"""Shorter observations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import gymnasium

from agar.envs.base import StepResult
from agar.envs.spaces import Observation
from agar.envs.wrappers.base import ResetResult, Wrapper
from agar.errors import ConfigError
from agar.types import Message, TextPart, Turn

Keep = Literal["start", "end", "both"]


class TruncateObservation(Wrapper):
    """Cuts the texts of observations, and says in them how much is missing."""

    def __init__(self, env: gymnasium.Env[Any, Any], *, max_chars: int, keep: Keep = "start") -> None:
        """Wrap an environment.

        Args:
            env: the environment.
            max_chars: how many characters of a text stay, beside the note about the rest.
            keep: which part stays; `both` keeps half from each end.

        Raises:
            ConfigError: max_chars is below 1, or there is no such part.
        """
        super().__init__(env)
        if max_chars < 1 or keep not in ("start", "end", "both"):
            raise ConfigError(
                f'max_chars must be at least 1 and keep "start", "end" or "both", got {max_chars}, {keep!r}'
            )
        self.max_chars, self.keep = max_chars, keep

    def on_reset(self, result: ResetResult, options: Mapping[str, Any]) -> ResetResult:
        """Cut the first observation."""
        return self._cut(result[0]), result[1]

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """Cut an observation."""
        return (self._cut(result[0]), *result[1:])

    def _cut(self, observation: Observation) -> Observation:
        if isinstance(observation, str):
            return shortened(observation, self.max_chars, self.keep)
        if isinstance(observation, Message):
            return self._message(observation)
        return [self._message(message) for message in observation]

    def _message(self, message: Message) -> Message:
        if isinstance(message.content, str):
            return replace(message, content=shortened(message.content, self.max_chars, self.keep))
        parts = tuple(
            replace(part, text=shortened(part.text, self.max_chars, self.keep)) if isinstance(part, TextPart) else part
            for part in message.content
        )
        return replace(message, content=parts)


def shortened(text: str, max_chars: int, keep: Keep) -> str:
    """A text of at most `max_chars` characters of the original, and a note about how many are left out."""
    left_out = len(text) - max_chars
    if left_out <= 0:
        return text
    note = f"[{left_out} characters left out]"
    head = {"start": max_chars, "end": 0, "both": max_chars - max_chars // 2}[keep]
    tail = max_chars - head
    return "\n".join(part for part in (text[:head], note, text[len(text) - tail :]) if part)
