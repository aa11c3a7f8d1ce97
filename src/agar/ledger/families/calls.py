"""Tool calls inside a reply: where they stand in its marked text, and what one says."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agar.ledger.canonical import unfit
from agar.ledger.families.marking import Marking
from agar.types import ToolSpec

ARGUMENTS = ("arguments", "parameters")
"""Keys of a call's arguments in JSON: templates teach one of them, and models write the other all the same."""


class UnreadableCall(ValueError):
    """Why a call in a reply is none; goes into `Turn.parse_error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a call says."""

    name: str
    arguments: dict[str, Any]


class CallFormat(Protocol):
    """How a family's models write tool calls."""

    @property
    def opening(self) -> str:
        """The mark before a call."""
        ...

    @property
    def closing(self) -> str:
        """The mark after it."""
        ...

    @property
    def around(self) -> tuple[str, ...]:
        """Marks around all calls of a reply; they are no text where there are calls."""
        ...

    def read(self, span: str, tools: Sequence[ToolSpec], marking: Marking) -> Call:
        """Read the marked text between the marks.

        Raises:
            UnreadableCall: it is no call.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCalls:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

    opening: str = "<tool_call>"
    closing: str = "</tool_call>"
    around: tuple[str, ...] = ()

    def read(self, span: str, tools: Sequence[ToolSpec], marking: Marking) -> Call:
        """See `CallFormat.read`."""
        del tools  # JSON says what type a value has
        return json_call(marking.unquote(span))


def span_after(text: str, position: int, opening: str, closing: str) -> tuple[str, int] | None:
    """What stands between two marks, where the first is next but for white space.

    Returns:
        The span and the position after its closing; None where it does not come next or does not end.
    """
    start = after_space(text, position)
    if not text.startswith(opening, start):
        return None
    start += len(opening)
    stop = text.find(closing, start)
    return None if stop < 0 else (text[start:stop], stop + len(closing))


def after_space(text: str, position: int) -> int:
    """The next position that holds no white space."""
    found = _SPACE.match(text, position)
    return position if found is None else found.end()


_SPACE = re.compile(r"\s*")


def json_call(text: str) -> Call:
    """The call in a JSON object with a `name` and its arguments, under either of their keys.

    Raises:
        UnreadableCall: it is no such object, or holds what a call has no place for.
    """
    value = read_json(text)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise UnreadableCall('a tool call must be {"name": "...", "arguments": {...}}')
    given = [key for key in ARGUMENTS if key in value]
    if len(given) > 1:
        raise UnreadableCall(f"tool call {name!r} has both {' and '.join(ARGUMENTS)}: only one can be meant")
    if len(value) > 1 + len(given) and (others := _others(value)):
        raise UnreadableCall(f"tool call {name!r} has {sorted(others)} beside its name and arguments")
    return checked_call(name, value[given[0]] if given else {})


def _others(call: Mapping[str, Any]) -> set[str]:
    """Keys that a call has no place for."""
    others = call.keys() - {"name", *ARGUMENTS}
    return others - {"type"} if call.get("type") == "function" else others  # as the APIs write calls, and models too


def checked_call(name: str, arguments: Any) -> Call:
    """A call whose arguments are an object that every program can be told.

    Raises:
        UnreadableCall: they are not.
    """
    if not isinstance(arguments, dict):
        raise UnreadableCall(f"the arguments of tool call {name!r} must be an object")
    if (why := unfit(arguments)) is not None:
        raise UnreadableCall(f"the arguments of tool call {name!r} {why}")
    return Call(name=name, arguments=arguments)


def read_json(text: str) -> Any:
    """Strict JSON: no NaN, no lone surrogate.

    Raises:
        UnreadableCall: it is not JSON.
    """
    try:
        value = _decode(text)
        if "\\u" in text:  # a lone surrogate has no UTF-8 form
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UnreadableCall(f"a tool call is not JSON: {error}") from error
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
