"""When two messages are the same message: the keys that the forest's paths are made of."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from agar.types import ImagePart, Message, ToolSpec

Key = Hashable
"""A step of a path; equal for messages that mean the same."""
MAX_NESTING = 64
"""Tool arguments and schemas nested deeper are refused."""


def message_key(message: Message) -> Key:
    """The canonical key: role, text without trailing white space, tool calls by name and value.

    Reasoning and call ids are left out: programs drop the one and rewrite the other.
    """
    if message.role == "assistant":
        return ("assistant", _content(message), tuple((c.name, freeze(c.arguments)) for c in message.tool_calls))
    return (message.role, _content(message), message.tool_call_id)


def strict_key(message: Message) -> Key:
    """The strict key: everything, tool arguments as spelt."""
    calls = tuple((c.id, c.name, spell(c.arguments)) for c in message.tool_calls)
    return ("=", message.role, message.content, calls, message.tool_call_id, message.reasoning)


def steps(messages: Sequence[Message], *, strict: bool) -> Iterator[tuple[Key, int]]:
    """The path of a conversation as (key, messages consumed so far).

    In canonical form a run of tool messages is one step, a multiset: parallel results have no order.
    """
    if strict:
        yield from ((strict_key(message), index + 1) for index, message in enumerate(messages))
        return
    index = 0
    while index < len(messages):
        if messages[index].role != "tool":
            yield message_key(messages[index]), index + 1
            index += 1
            continue
        start = index
        while index < len(messages) and messages[index].role == "tool":
            index += 1
        results = [message_key(message) for message in messages[start:index]]
        yield (results[0] if len(results) == 1 else ("tools", *sorted(results, key=repr))), index


def tools_key(tools: Sequence[ToolSpec]) -> Key:
    """The key of the tools that a root was rendered with."""
    return ("tools", *((t.name, t.description, freeze(t.parameters)) for t in tools))


def spell(arguments: Mapping[str, Any]) -> str:
    """Tool arguments as the gateway spells them."""
    return json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"))


def freeze(value: Any) -> Hashable:
    """A hashable that is equal for equal JSON values: key order does not count, 1 equals 1.0, true does not equal 1."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ("{}", frozenset((str(key), freeze(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("[]", *(freeze(item) for item in value))
    if isinstance(value, bool):
        return ("bool", value)
    return value  # type: ignore[no-any-return]


def nested_within(value: Any, limit: int = MAX_NESTING) -> bool:
    """Whether a JSON value is nested at most `limit` deep, so that no walk over it exhausts the stack."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return True
    return limit > 0 and all(nested_within(item, limit - 1) for item in value)


def _content(message: Message) -> Hashable:
    if isinstance(message.content, str):
        return message.content.rstrip()
    if any(isinstance(part, ImagePart) for part in message.content):
        return message.content
    return message.text.rstrip()
