"""An exchange as a text for people."""

import json
from collections.abc import Iterable
from typing import Any

from agar.types import Message, Turn


def rendering(turn: Turn | None, result: Any) -> str:
    """What was said and what it was answered.

    Args:
        turn: what the agent said; None after a reset.
        result: what `reset` or `step` returned.
    """
    lines = [] if turn is None else said(turn)
    lines += heard(result[0])
    if len(result) == 5:
        _, reward, terminated, truncated, _ = result
        if reward or terminated or truncated:
            end = " the end" if terminated else " cut off" if truncated else ""
            lines.append(f"[reward {reward:g}]{end}")
    return "\n".join(lines)


def said(turn: Turn) -> list[str]:
    """An agent's turn, a line a part."""
    lines = [f"> {turn.text}"] if turn.text or not turn.tool_calls else []
    return lines + [f"> {call.name}({json.dumps(dict(call.arguments), default=str)})" for call in turn.tool_calls]


def heard(observation: str | Message | Iterable[Message]) -> list[str]:
    """An observation, a line a message; roles other than the user's are named."""
    if isinstance(observation, str):
        return [observation] if observation else []
    messages = [observation] if isinstance(observation, Message) else list(observation)
    return [message.text if message.role == "user" else f"{message.role}: {message.text}" for message in messages]
