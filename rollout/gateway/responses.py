"""OpenAI's Responses without server-side state: reading a request.

The rules are those of chat completions. Items that a reply consists of (reasoning, message, function calls, in this
order) are one assistant message again. Tools that are no functions (namespaces, web search, free-form) are not offered
to the model and kept in the record. Refused and named are what refers to state (`previous_response_id`,
`conversation`, `item_reference`), output formats other than text, and items that cannot be told to the model.
"""

from collections.abc import Mapping
from typing import Any

from agar.rollout.gateway.call import BadRequest, ModelCall
from agar.rollout.gateway.chat_completions import write_error
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.response_events import PING, write_error_event, write_events, write_reply
from agar.rollout.gateway.translation import (
    MessageCache,
    Spelt,
    ToolCache,
    fingerprint,
    joined,
    read_call,
    read_object,
    read_stream,
    read_tool,
    refuse,
)
from agar.types import ImagePart, Message, MessageRole, Part, TextPart, ToolSpec

_READ = frozenset({"input", "instructions", "tools", "model", "stream"})
_REFUSED: Mapping[str, tuple[object, ...]] = {
    "previous_response_id": (None,),
    "conversation": (None,),
    "prompt": (None,),
    "background": (None, False),
    "top_logprobs": (None, 0),
}
_ROLES: Mapping[object, MessageRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_ORDER = ("reasoning", "message", "function_call")
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def read_request(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read a request body.

    Args:
        body: as it came.
        tools: tool lists seen before.
        messages: messages of the same session seen before.

    Raises:
        BadRequest: it is not JSON, no such request, or asks for something that cannot be served.
    """
    request = read_object(body)
    refuse(request, _REFUSED)
    _refuse_formats(request.get("text"))
    rows = request.get("input")
    if isinstance(rows, str):
        rows = [{"role": "user", "content": rows}]
    instructions = request.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise BadRequest("instructions must be a string", "instructions")
    before = [{"role": "developer", "content": instructions}] if instructions else []
    grouped = [*before, *_grouped(rows)] if isinstance(rows, list) and rows else None
    read, respelled = messages.read(grouped, _messages, name="input")
    stream = read_stream(request)
    model = request.get("model")
    return ModelCall(
        messages=tuple(read),
        tools=tools.read(request.get("tools"), _tools),
        respelled=respelled,
        requested=_wishes(request),
        model=model if isinstance(model, str) else None,
        fingerprint=fingerprint(body, request, dialect=b"responses", stream=stream),
        stream=stream,
    )


def _refuse_formats(text: Any) -> None:
    wanted = text.get("format") if isinstance(text, dict) else None
    if wanted is not None and (not isinstance(wanted, dict) or wanted.get("type") != "text"):
        raise BadRequest("text.format is not served here: leave it out", "text", "unsupported_value")


def _wishes(request: Mapping[str, Any]) -> dict[str, Any]:
    wishes = {name: value for name, value in request.items() if name not in _READ and value is not None}
    if left_out := [row for row in request.get("tools") or () if row.get("type") != "function"]:
        wishes["tools"] = left_out
    return wishes


def _kind(item: Any) -> Any:
    return item.get("type", "message") if isinstance(item, dict) else None


def _grouped(items: list[Any]) -> list[Any]:
    """Items in order; those that may be one reply stand in a list of their own."""
    found: list[Any] = []
    last = -1  # place in the order of a reply; -1 outside one
    for item in items:
        kind = _kind(item)
        said = kind in _ORDER and (kind != "message" or item.get("role") == "assistant")
        place = _ORDER.index(kind) if said else -1
        if said and last >= 0 and (place > last or place == last != 1):
            found[-1].append(item)
        else:
            found.append([item] if said else item)
        last = place
    return found


def _messages(row: Any, where: str, spelt: Spelt) -> tuple[tuple[Message, ...], bool]:
    if isinstance(row, list):
        return _reply(row, where, spelt)
    kind = _kind(row)
    if kind == "message":
        role = _ROLES.get(row.get("role")) if isinstance(row.get("role"), str) else None
        if role is None:
            raise BadRequest(f"{where}.role must be one of {sorted(map(str, _ROLES))}", f"{where}.role")
        return (Message(role=role, content=_told(row.get("content"), where)),), False
    if kind == "function_call_output":
        if not isinstance(row.get("call_id"), str):
            raise BadRequest(f"{where}.call_id must name the call that it answers", f"{where}.call_id")
        return (Message(role="tool", content=_told(row.get("output"), where), tool_call_id=row["call_id"]),), False
    raise BadRequest(f"{where} is an item of type {kind!r} that cannot be told to the model", where)


def _reply(items: list[dict[str, Any]], where: str, spelt: Spelt) -> tuple[tuple[Message, ...], bool]:
    thoughts: list[str] = []
    content: str | tuple[Part, ...] = ""
    calls = []
    respelled = False
    for item in items:
        if item.get("type") == "reasoning":
            told = _told(item.get("content") or item.get("summary"), where)
            thoughts.append(told if isinstance(told, str) else "")
        elif item.get("type") == "function_call":
            call, spelt_otherwise = read_call(
                item.get("call_id"), item.get("name"), item.get("arguments"), where, spelt
            )
            calls.append(call)
            respelled = respelled or spelt_otherwise
        else:
            content = _told(item.get("content"), where)
    reasoning = "\n".join(thought for thought in thoughts if thought) or None
    message = Message(role="assistant", content=content, tool_calls=tuple(calls), reasoning=reasoning)
    return (message,), respelled


def _told(content: Any, where: str) -> str | tuple[Part, ...]:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise BadRequest(f"{where} must hold a string or a list of parts", where)
    parts: list[Part] = []
    for part in content:
        kind = _kind(part)
        if kind in _TEXTS and isinstance(part.get("text"), str):
            parts.append(TextPart(text=part["text"]))
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            parts.append(TextPart(text=part["refusal"]))
        elif kind == "input_image" and isinstance(part.get("image_url"), str):
            parts.append(ImagePart(url=part["image_url"]))
        else:
            raise BadRequest(f"{where} holds a part of type {kind!r} that cannot be told to the model", where)
    return joined(parts, "\n")


def _tools(rows: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadRequest("tools must be a list of objects", "tools")
    offered = [(index, row) for index, row in enumerate(rows) if row.get("type") == "function"]
    return tuple([read_tool(row, "parameters", f"tools[{index}]") for index, row in offered])


RESPONSES = Dialect(
    read=read_request,
    write=write_reply,
    events=write_events,
    error=write_error,
    error_event=write_error_event,
    ping=PING,
)
"""OpenAI's Responses, without state."""
