"""What an environment may give, checked in one way wherever it runs: in this process or in its own."""

import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from agar.errors import (
    AgarError,
    ConfigError,
    DeadlineError,
    EngineError,
    EnvError,
    MissingExtraError,
    SandboxError,
    UnsupportedPlatformError,
)
from agar.types import ImagePart, Message, MessageRole, Outcome, TextPart, ToolCall, Turn

OBSERVATION_CHARS = 8 << 20
"""The largest observation, in characters of its texts and image URLs, unless a caller sets another bound."""
LARGEST_REWARD = 1e30
"""The largest reward, of either sign: sums of millions and differences still fit into training's float32."""

_NAMED = (EnvError, SandboxError, EngineError, DeadlineError, ConfigError, MissingExtraError, UnsupportedPlatformError)
"""Errors whose class says whose fault they are, in an environment's code as well."""

_ROLES: tuple[str, ...] = get_args(MessageRole)


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
        except Exception as error:
            raise EnvError(f'{name}: info["failure"] is {shown(info["failure"])}: set an agar.Outcome') from error
    if info.get("reward_parts") is not None:
        info = {**info, "reward_parts": _parts(info["reward_parts"], name)}
    messages = checked_observation(observation, name=name, max_chars=max_chars)
    return (
        messages,
        checked_number(reward, what=f"{name}.step gave the reward"),
        bool(terminated),
        bool(truncated),
        info,
    )


def checked_gold(turn: Any, *, name: str) -> Turn | None:
    """What `gold` gave, as a turn; None where it knows none.

    Args:
        turn: what `gold` returned.
        name: the environment, for the message.

    Raises:
        EnvError: it is something else.
    """
    if not isinstance(turn, Turn | str | None):
        raise EnvError(f"{name}.gold gave {shown(turn)}: return an agar.Turn, a text or None")
    return None if turn is None else Turn.of(turn)


def checked_observation(observation: Any, *, name: str, max_chars: int = OBSERVATION_CHARS) -> list[Message]:
    """An observation as messages: a text is a user message, an empty one none.

    Raises:
        EnvError: it is something else, or larger than `max_chars`, or holds what no conversation can (a role that
            there is none of, half a surrogate pair).
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
    for message in messages:
        _check_texts(message, name)
    return messages


def checked_number(value: Any, *, what: str) -> float:
    """A reward, a part of one or a score as a float that training can hold.

    Args:
        value: a number of any library's, a truth value, or one element of an array.
        what: begins the message, for instance "Maze-v0.step gave the reward".

    Raises:
        EnvError: it is no number, or not within `LARGEST_REWARD` (so that no advantage is infinite).
    """
    if isinstance(value, str | bytes | bytearray):  # float() would read them
        raise EnvError(f"{what} {shown(value)}: return a number, not a text")
    try:
        number = float(value)
    except OverflowError as error:
        raise EnvError(f"{what} {shown(value)}: return a finite number of at most {LARGEST_REWARD:g}") from error
    except Exception as error:  # it is the environment's own object, and may raise anything
        raise EnvError(f"{what} {shown(value)}: return a number ({told(error)})") from error
    if not math.isfinite(number):
        raise EnvError(f"{what} {number}: return a finite number")
    if abs(number) > LARGEST_REWARD:
        raise EnvError(f"{what} {number:g}: return a number of at most {LARGEST_REWARD:g}, of either sign (float32)")
    return number


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


def blamed(error: BaseException, what: str) -> AgarError:
    """What an environment's code raised, as its own error, unless its class says whose it is.

    Args:
        error: what was raised. One of agar's that was meant for a place which the code is not (a `ToolError` outside of
            a tool) is the environment's too.
        what: begins the message, for instance "Maze-v0.step".
    """
    return error if isinstance(error, _NAMED) else EnvError(f"{what} raised {told(error)}")


def _parts(parts: Any, name: str) -> dict[str, float]:
    try:
        table = {str(key): value for key, value in parts.items()}
    except Exception as error:
        raise EnvError(f'{name}: info["reward_parts"] is {shown(parts)}: set a table of names and numbers') from error
    return {
        key: checked_number(
            value, what=f'{name}: info["reward_parts"] must be a table of names and numbers, but {key!r} is'
        )
        for key, value in table.items()
    }


def _size(message: Message, name: str) -> int:
    """Characters of a message, and one for the message itself."""
    if message.role not in _ROLES:
        raise EnvError(f"{name} gave a message of the role {shown(message.role)}: give one of {', '.join(_ROLES)}")
    for what, value in (("reasoning", message.reasoning), ("tool_call_id", message.tool_call_id)):
        if not isinstance(value, str | None):
            raise EnvError(f"{name} gave a message with {what} = {shown(value)}: give a text or None")
    size = 1 + len(message.reasoning or "") + _size_of_calls(message.tool_calls, name)
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


def _plain(arguments: Any) -> Any:
    """A tool call's arguments as the ledger writes them."""
    from agar.ledger.codec import plain  # costs as much to import as gymnasium, and few observations hold calls

    return plain(arguments)


def _size_of_calls(calls: Any, name: str) -> int:
    """Characters of the tool calls of a message, as JSON."""
    size = 0
    for call in calls if isinstance(calls, tuple) else (calls,):
        match call:
            case ToolCall(id=str(), name=str(), arguments=Mapping() as arguments):
                pass
            case _:
                raise EnvError(f"{name} gave a message with the tool call {shown(call)}: give agar.ToolCall in a tuple")
        try:
            size += len(json.dumps(_plain(arguments), allow_nan=False))
        except (TypeError, ValueError, RecursionError, AgarError) as error:
            raise EnvError(
                f"{name} gave a message with the tool call {shown(call)}, whose arguments are not JSON-able "
                f"({told(error)}): use plain values"
            ) from error
    return size


def _check_texts(message: Message, name: str) -> None:
    """Refuse half a surrogate pair, which no tokenizer and no engine can be given."""
    content = message.content
    texts = [content] if isinstance(content, str) else [p.text if isinstance(p, TextPart) else p.url for p in content]
    for call in message.tool_calls:
        texts += [call.id, call.name, json.dumps(_plain(call.arguments), ensure_ascii=False)]
    for text in (*texts, message.reasoning, message.tool_call_id):
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            raise EnvError(
                f"{name} gave a message with half a surrogate pair at character {error.start} of "
                f"{shown(text)}: decode bytes with errors='replace'"
            ) from error


def _shape(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
