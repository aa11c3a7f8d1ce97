"""OpenAI's Responses: reading a request.

The rules are those of chat completions; `responses_wire.py` names the fields. Items that a reply consists of
(reasoning, message, function calls, in this order) are one assistant message again. Tools that are no functions
(namespaces, web search, free-form) are not offered to the model and kept in the record. A response that is stored, as
all are unless a request says otherwise, is held for the life of its session: `previous_response_id` goes on from it and
`item_reference` names its items. Refused and named are `conversation`, `prompt`, `background`, and items that cannot be
told to the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agar.rollout.gateway.bodies import (
    Spelt,
    fingerprint,
    form_of,
    joined,
    max_calls,
    read_call,
    read_object,
    tool_of,
    wishes_of,
)
from agar.rollout.gateway.call import BadRequest, ModelCall, OutputForm
from agar.rollout.gateway.chat_replies import write_error
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.images import read_image
from agar.rollout.gateway.response_events import PING, ResponseEvents, write_error_event, write_reply
from agar.rollout.gateway.responses_references import conversation_of, item_of
from agar.rollout.gateway.responses_wire import (
    FunctionCallItem,
    FunctionResultItem,
    JsonForm,
    MessageItem,
    ReasoningItem,
    ResponsesRequest,
    ResponsesTool,
    SaidContent,
    SaidImage,
    SaidRefusal,
    SchemaForm,
    ToolWish,
)
from agar.rollout.gateway.translation import MessageCache, ReadRow, ReadTools, ToolCache
from agar.rollout.gateway.wire import Reader, Wire, unknown_fields
from agar.types import Message, Part, TextPart, ToolSpec

_READ = frozenset({"input", "instructions", "previous_response_id", "tools", "model", "stream", "text"})
_ORDER = ("reasoning", "message", "function_call")
_ENVELOPE: Reader[ResponsesRequest] = Reader(ResponsesRequest)
_TOOL: Reader[ResponsesTool] = Reader(ResponsesTool)
_MESSAGE: Reader[MessageItem] = Reader(MessageItem)
_RESULT: Reader[FunctionResultItem] = Reader(FunctionResultItem)
_CALL: Reader[FunctionCallItem] = Reader(FunctionCallItem)
_REASONING: Reader[ReasoningItem] = Reader(ReasoningItem)


def read_request(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read a request body.

    Args:
        body: as it came.
        tools: tool lists seen before.
        messages: messages of the same session seen before, and its responses.

    Raises:
        BadRequest: it is not JSON, no such request, or asks for something that cannot be served.
    """
    request = read_object(body)
    asked = _ENVELOPE.read(request)
    told = (Message(role="system", content=asked.instructions),) if asked.instructions else ()
    before = conversation_of(asked.previous_response_id, messages) if asked.previous_response_id else ()
    items = [{"role": "user", "content": asked.input}] if isinstance(asked.input, str) else asked.input
    rows, places = _grouped(items, messages)
    history = messages.read(rows, _row, name="input", places=places, before=(*told, *before))
    offered = tools.read(asked.tools, _tools)
    stream = bool(asked.stream)
    return ModelCall(
        messages=history.messages,
        tools=offered.offered,
        respelled=history.respelled,
        requested=wishes_of(request, _READ, offered.kept, _text(request)),
        unknown=history.unknown,
        model=asked.model,
        fingerprint=fingerprint(body, request, dialect=b"responses", stream=stream),
        stream=stream,
        max_calls=_max_calls(asked, offered.offered),
        form=_form(asked),
        remember=None if asked.store is False else len(told),
    )


def _text(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `text` holds beside its format."""
    text = request.get("text") or {}
    rest = {name: value for name, value in text.items() if name != "format" and value is not None}
    return {"text": rest} if rest else {}


def _form(asked: ResponsesRequest) -> OutputForm | None:
    wanted = asked.text.format if asked.text is not None else None
    if isinstance(wanted, SchemaForm):
        return form_of("text.format", wanted.model_dump(by_alias=True), wanted.schema_)
    if isinstance(wanted, JsonForm):
        return form_of("text.format", wanted.model_dump(), {"type": "object"})
    return None


def _max_calls(asked: ResponsesRequest, offered: tuple[ToolSpec, ...]) -> int | None:
    choice = asked.tool_choice
    name = (choice.name or "") if isinstance(choice, ToolWish) and choice.type == "function" else None
    return max_calls(choice, name, offered, listed=bool(asked.tools), single=asked.parallel_tool_calls is False)


def _kind(item: Any) -> Any:
    return item.get("type") or "message" if isinstance(item, dict) else None


def _grouped(items: Sequence[Any], messages: MessageCache) -> tuple[list[Any], list[int]]:
    """Items in order, and the place of each; those that may be one reply stand in a list of their own."""
    found: list[Any] = []
    places: list[int] = []
    last = -1  # place in the order of a reply; -1 outside one
    for index, item in enumerate(items):
        kind = _kind(item)
        if kind == "item_reference":
            item = item_of(item, f"input[{index}]", messages)
            kind = _kind(item)
        said = kind in _ORDER and (kind != "message" or item.get("role") == "assistant")
        place = _ORDER.index(kind) if said else -1
        if said and last >= 0 and (place > last or place == last != 1):
            found[-1].append(item)
        else:
            found.append([item] if said else item)
            places.append(index)
        last = place
    return found, places


def _row(row: Any, name: str, index: int, spelt: Spelt) -> ReadRow:
    if isinstance(row, list):
        return _reply(row, name, index, spelt)
    where, kind = f"{name}[{index}]", _kind(row)
    if kind == "message":
        said, unknown = _MESSAGE.read_row(row, where)
        message = Message(role="user" if said.role == "user" else "system", content=_told(said.content, where))
        return ReadRow(messages=(message,), unknown=unknown)
    if kind == "function_call_output":
        result, unknown = _RESULT.read_row(row, where)
        message = Message(role="tool", content=_told(result.output, where), tool_call_id=result.call_id)
        return ReadRow(messages=(message,), unknown=unknown)
    raise BadRequest(f"{where} is an item of type {kind!r} that cannot be told to the model", where)


def _reply(items: list[Any], name: str, index: int, spelt: Spelt) -> ReadRow:
    thoughts: list[str] = []
    content: str | tuple[Part, ...] = ""
    calls = []
    respelled = False
    unknown: dict[str, Any] = {}
    for offset, item in enumerate(items):
        where = f"{name}[{index + offset}]"
        read: Wire
        if _kind(item) == "reasoning":
            read = _REASONING.read(item, where)
            told = _told(read.content or read.summary, where)
            thoughts.append(told if isinstance(told, str) else "")
        elif _kind(item) == "function_call":
            read = _CALL.read(item, where)
            call, otherwise = read_call(read.call_id, read.name, read.arguments, where, spelt)
            calls.append(call)
            respelled = respelled or otherwise
        else:
            read = _MESSAGE.read(item, where)
            content = _told(read.content, where)
        unknown |= unknown_fields(read, f"+{offset}." if offset else "")
    reasoning = "\n".join(thought for thought in thoughts if thought) or None
    message = Message(role="assistant", content=content, tool_calls=tuple(calls), reasoning=reasoning)
    return ReadRow(messages=(message,), respelled=respelled, unknown=unknown)


def _told(content: SaidContent, where: str) -> str | tuple[Part, ...]:
    if not isinstance(content, list):
        return content or ""
    parts: list[Part] = []
    for part in content:
        if isinstance(part, SaidImage):
            parts.append(read_image(part.image_url, where))
        else:
            parts.append(TextPart(text=part.refusal if isinstance(part, SaidRefusal) else part.text))
    return joined(parts, "\n")


def _tools(rows: list[Any]) -> ReadTools:
    offered: list[ToolSpec] = []
    kept: dict[str, Any] = {}
    for index, row in enumerate(rows):
        where = f"tools[{index}]"
        if not isinstance(row, dict):
            raise BadRequest(f"{where} must be an object", where)
        if row.get("type") != "function":
            kept.setdefault("tools", []).append(row)
            continue
        tool, unknown = _TOOL.read_row(row, where)
        offered.append(tool_of(tool.name, tool.description, tool.parameters))
        if unknown:
            kept[where] = unknown
    return ReadTools(offered=tuple(offered), kept=kept)


RESPONSES = Dialect(
    read=read_request,
    write=write_reply,
    events=ResponseEvents,
    error=write_error,
    error_event=write_error_event,
    ping=PING,
)
"""OpenAI's Responses."""
