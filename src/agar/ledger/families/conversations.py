"""Conversations that every family is tried on: each shape that makes templates differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agar.ledger.canonical import spell
from agar.types import Message, ToolCall, ToolSpec

TOOLS = (
    ToolSpec(
        name="look",
        description='Look at <something> & say "what" it is.',
        parameters={
            "type": "object",
            "properties": {
                "at": {"type": "string"},
                "times": {"type": "integer"},
                "sharp": {"type": "boolean"},
                "inside": {"type": "object"},
            },
            "required": ["at"],
        },
    ),
    ToolSpec(name="rest", parameters={"type": "object", "properties": {}}),
)
_LOOK = ToolCall(id="c0", name="look", arguments={"at": 'the "old" box\nbelow é', "times": 2, "sharp": True})
_DEEP = ToolCall(id="c1", name="look", arguments={"at": "5", "inside": {"a": [1, None, "x"], "b": {}}})
_REST = ToolCall(id="c2", name="rest", arguments={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One of them.

    Attributes:
        name: what is special about it.
        messages: it ends in a message that wants a reply.
        tools: what is offered.
    """

    name: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _said(text: str, *calls: ToolCall, reasoning: str | None = None) -> Message:
    return Message(role="assistant", content=text, tool_calls=calls, reasoning=reasoning)


def _result(call: ToolCall, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=call.id)


_SYSTEM = Message(role="system", content="Be brief.\n")
_ASKED = (_SYSTEM, _user("What is in the box?"))

CONVERSATIONS = (
    Conversation(name="a question", messages=(_user("Start at 47."),)),
    Conversation(name="white space", messages=(_SYSTEM, _user("  Hi\n\nthere \n"))),
    Conversation(name="tools", messages=_ASKED, tools=TOOLS),
    Conversation(name="tools without a system message", messages=(_user("Look."),), tools=TOOLS),
    Conversation(name="two turns", messages=(*_ASKED, _said("Gold."), _user("Sure?"))),
    Conversation(
        name="reasoning before a question",
        messages=(*_ASKED, _said("Gold.", reasoning="It shines.\n\nIs it gold?"), _user("Sure?")),
    ),
    Conversation(
        name="a call and its result",
        messages=(*_ASKED, _said("", _LOOK), _result(_LOOK, "gold\n")),
        tools=TOOLS,
    ),
    Conversation(
        name="a call with text and reasoning",
        messages=(*_ASKED, _said("I look.", _LOOK, reasoning="Look first."), _result(_LOOK, "gold")),
        tools=TOOLS,
    ),
    Conversation(
        name="two calls at once",
        messages=(*_ASKED, _said("", _DEEP, _REST), _result(_DEEP, "gold"), _result(_REST, "rested")),
        tools=TOOLS,
    ),
    Conversation(
        name="calls in a row",
        messages=(
            *_ASKED,
            _said("", _LOOK, reasoning="One."),
            _result(_LOOK, "gold"),
            _said("", _REST, reasoning="Two."),
            _result(_REST, ""),
        ),
        tools=TOOLS,
    ),
    Conversation(
        name="a question after calls",
        messages=(
            *_ASKED,
            _said("", _LOOK, reasoning="One."),
            _result(_LOOK, "gold"),
            _said("Gold it is.", reasoning="Done."),
            _user("And below?"),
        ),
        tools=TOOLS,
    ),
    Conversation(
        name="a call that is answered by a user", messages=(*_ASKED, _said("", _LOOK), _user("No tools.")), tools=TOOLS
    ),
    Conversation(
        name="a system message in the middle",
        messages=(_user("a"), _said("b"), Message(role="system", content="c"), _user("d")),
    ),
)


def message_rows(messages: Sequence[Message], wire: Literal["object", "json"]) -> list[dict[str, Any]]:
    """Messages as `apply_chat_template` takes them; `wire` as in `ChatTemplate`."""
    return [_row(message, wire) for message in messages]


def tool_rows(tools: Sequence[ToolSpec]) -> list[dict[str, Any]] | None:
    """Tools as `apply_chat_template` takes them."""
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in tools
    ] or None


def _row(message: Message, wire: Literal["object", "json"]) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.reasoning is not None:
        row["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        row["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call, wire)}}
            for call in message.tool_calls
        ]
        if wire == "json" and not message.text:
            row["content"] = None
    return row


def _arguments(call: ToolCall, wire: Literal["object", "json"]) -> Mapping[str, Any] | str:
    return spell(call.arguments) if wire == "json" else dict(call.arguments)
