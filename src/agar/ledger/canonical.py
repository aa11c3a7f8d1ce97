"""When two messages are the same message: the keys that the forest's paths are made of."""

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import orjson

from agar.ledger.canonicalisers import Canonicaliser
from agar.types import ImagePart, Message, ToolSpec

Key = Hashable
"""A step of a path; equal for messages that mean the same."""
MAX_NESTING = 64
"""Tool arguments and schemas nested deeper are refused."""
_SPELT_ALIKE = frozenset({str, int, bool, type(None)})  # by orjson, too, which is three times as fast
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_name = itemgetter(0)


def message_key(message: Message, canonicaliser: Canonicaliser | None = None) -> Key:
    """The canonical key: role, text without trailing white space, tool calls by name and value.

    Reasoning and call ids are left out: programs drop the one and rewrite the other.

    Args:
        message: the message.
        canonicaliser: declared rules on what of its text counts.
    """
    content = _content(message, canonicaliser)
    if message.role == "assistant":
        return ("assistant", content, tuple([(c.name, freeze(c.arguments)) for c in message.tool_calls]))
    return (message.role, content, message.tool_call_id)


def steps(messages: Sequence[Message], keys: Sequence[Key]) -> list[tuple[Key, int]]:
    """The path of a conversation as (key, messages consumed so far).

    A run of tool messages is one step, a multiset: parallel results have no order.

    Args:
        messages: the conversation.
        keys: the key of each message.
    """
    path: list[tuple[Key, int]] = []
    results: list[Key] = []
    for index, (message, key) in enumerate(zip(messages, keys, strict=True)):
        if message.role != "tool":
            path.append((key, index + 1))
            continue
        results.append(key)
        if index + 1 == len(messages) or messages[index + 1].role != "tool":
            path.append((results[0] if len(results) == 1 else ("tools", *sorted(results, key=repr)), index + 1))
            results = []
    return path


def tools_key(tools: Sequence[ToolSpec]) -> Key:
    """The key of the tools that a root was rendered with."""
    return ("tools", *((t.name, t.description, freeze(t.parameters)) for t in tools))


def spell(arguments: Mapping[str, Any]) -> str:
    """Tool arguments as the gateway spells them."""
    plain = arguments if isinstance(arguments, dict) else dict(arguments)
    for value in plain.values():
        if type(value) not in _SPELT_ALIKE:
            return _encode(plain)
    try:
        return orjson.dumps(plain).decode()
    except TypeError:  # a number beyond 64 bits, half a surrogate pair, a key that is no text
        return _encode(plain)


def freeze(value: Any) -> Hashable:
    """A hashable that is equal for equal JSON values: key order does not count, 1 equals 1.0, true does not equal 1.

    It is made of tuples and plain values only, which the garbage collector need not look at again and again.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, Mapping)):  # asking for a dict first is much cheaper
        return ("{}", *sorted([(str(key), freeze(item)) for key, item in value.items()], key=_name))
    if isinstance(value, (list, tuple)):
        return ("[]", *[freeze(item) for item in value])
    if isinstance(value, bool):
        return ("bool", value)
    return value  # type: ignore[no-any-return]


def unfit(value: Any, limit: int = MAX_NESTING) -> str | None:
    """Why a JSON value cannot be told to every program alike; None where it can.

    Nested more than `limit` deep, it exhausts the stack of whoever walks over it. Readers of JSON disagree on numbers
    that 64 bits do not hold: some refuse them, some round them, some write infinity as null.
    """
    if isinstance(value, str):
        return None
    if isinstance(value, (dict, Mapping)):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return _unfit_number(value)
    if limit <= 0:
        return "are nested too deeply"
    for item in value:
        if (why := unfit(item, limit - 1)) is not None:
            return why
    return None


def _unfit_number(value: Any) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else "hold a number beyond 64 bits"
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**64 else "hold a number beyond 64 bits"
    return None


def _content(message: Message, canonicaliser: Canonicaliser | None) -> Hashable:
    content = message.content
    if not isinstance(content, str):
        if any(isinstance(part, ImagePart) for part in content):
            return content
        content = message.text
    if canonicaliser:
        content = canonicaliser.text(message.role, content)
    return content.rstrip()
