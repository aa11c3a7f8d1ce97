"""What an environment may give, checked in one way wherever it runs: in this process or in its own."""

import math
from typing import Any

import numpy as np

from agar.errors import EnvError
from agar.types import ImagePart, Message, Outcome, TextPart

OBSERVATION_CHARS = 8 << 20
"""The largest observation, in characters of its texts and image URLs, unless a caller sets another bound."""


def checked_reset(
    result: Any, *, name: str, max_chars: int = OBSERVATION_CHARS
) -> tuple[list[Message], dict[str, Any]]:
    """What a reset gave, as messages and info.

    Args:
        result: what `reset` returned.
        name: the environment, for the message.
        max_chars: the bound of the observation.

    Raises:
        EnvError: it is not (observation, info), or the observation is not one, or too large.
    """
    match result:
        case (observation, dict() as info):
            return checked_observation(observation, name=name, max_chars=max_chars), info
    raise EnvError(f"{name}.reset must return (observation, info dict), got {_shape(result)}")


def checked_step(
    result: Any, *, name: str, max_chars: int = OBSERVATION_CHARS
) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
    """What a step gave: messages, a finite reward, two truth values, info.

    Args:
        result: what `step` returned.
        name: the environment, for the message.
        max_chars: the bound of the observation.

    Raises:
        EnvError: names the part that is wrong.
    """
    if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict)):
        raise EnvError(
            f"{name}.step must return (observation, reward, terminated, truncated, info dict), got {_shape(result)}"
        )
    observation, reward, terminated, truncated, info = result
    for what, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise EnvError(f"{name}.step gave {what} = {shown(value)}: return True or False")
    if info.get("failure") is not None:
        try:
            info = {**info, "failure": Outcome(info["failure"])}
        except ValueError as error:
            raise EnvError(f'{name}: info["failure"] is {shown(info["failure"])}: set an agar.Outcome') from error
    if info.get("reward_parts") is not None:
        info = {**info, "reward_parts": _parts(info["reward_parts"], name)}
    messages = checked_observation(observation, name=name, max_chars=max_chars)
    return messages, _reward(reward, name), bool(terminated), bool(truncated), info


def checked_observation(observation: Any, *, name: str, max_chars: int = OBSERVATION_CHARS) -> list[Message]:
    """An observation as messages: a text is a user message, an empty one none.

    Raises:
        EnvError: it is something else, or larger than `max_chars`.
    """
    match observation:
        case str():
            messages = [Message(role="user", content=observation)] if observation else []
        case Message():
            messages = [observation]
        case list() | tuple() if all(isinstance(item, Message) for item in observation):
            messages = list(observation)
        case _:
            raise EnvError(
                f"{name} gave an observation of type {type(observation).__name__}, expected str, Message or "
                "list[Message]: convert it, for instance with gymnasium.wrappers.TransformObservation"
            )
    size = sum(_size(message, name) for message in messages)
    if size > max_chars:
        raise EnvError(f"{name} gave an observation of {size:,} characters, at most {max_chars:,} are allowed: cut it")
    return messages


def shown(value: Any) -> str:
    """A value in an error message: short, and whatever its `repr` does."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}…"


def told(error: BaseException) -> str:
    """An exception in an error message: its class and text, short, and whatever its `str` does."""
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text if len(text) <= 2000 else text[:2000] + '…'}"


def _reward(reward: Any, name: str) -> float:
    try:
        value = float(reward)
    except (TypeError, ValueError) as error:
        raise EnvError(f"{name}.step gave the reward {shown(reward)}: return a number") from error
    if not math.isfinite(value):
        raise EnvError(f"{name}.step gave the reward {value}: return a finite number")
    return value


def _parts(parts: Any, name: str) -> dict[str, float]:
    try:
        found = {str(key): float(value) for key, value in parts.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise EnvError(f'{name}: info["reward_parts"] is {shown(parts)}: set a table of names and numbers') from error
    if not all(map(math.isfinite, found.values())):
        raise EnvError(f'{name}: info["reward_parts"] is {shown(parts)}: its numbers must be finite')
    return found


def _size(message: Message, name: str) -> int:
    """Characters of a message, and one for the message itself."""
    size = 1 + len(message.reasoning or "")
    if isinstance(message.content, str):
        return size + len(message.content)
    if not isinstance(message.content, tuple):
        raise EnvError(
            f"{name} gave a message whose content is of type {type(message.content).__name__}: give a text or a tuple "
            "of parts"
        )
    for part in message.content:
        match part:
            case TextPart(text=str() as text) | ImagePart(url=str() as text):
                size += len(text)
            case _:
                raise EnvError(f"{name} gave a message with the part {shown(part)}: give a TextPart or an ImagePart")
    return size


def _shape(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
