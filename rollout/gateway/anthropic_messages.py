"""Anthropic's Messages: reading a request.

The rules: sampling is pinned by the session, so wishes (`temperature`, `max_tokens`, `thinking`, `output_config`, ...)
have no effect and are kept in the record with every field that the gateway does not know, and so are tools that
Anthropic itself would run, which the model is not told of. A deferred tool is offered from the start. What only
serves caching, billing or checking (`cache_control`, `signature`, `citations`, `is_error`) is not looked at. Refused
and named are blocks that cannot be told to the model, MCP servers, and a conversation that ends with an assistant's
message, for a reply is never the continuation of another text.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from agar.rollout.gateway.anthropic_replies import (
    ID,
    PING,
    THREAD_NOT_FOUND,
    write_error,
    write_error_event,
    write_events,
    write_reply,
)
from agar.rollout.gateway.call import BadRequest, ModelCall
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.translation import (
    MessageCache,
    Spelt,
    ToolCache,
    fingerprint,
    joined,
    read_arguments,
    read_object,
    read_stream,
    read_tool,
    refuse,
)
from agar.types import ImagePart, Message, Part, TextPart, ToolCall, ToolSpec

_READ = frozenset({"messages", "system", "tools", "model", "stream", "thread"})
_REFUSED: Mapping[str, tuple[object, ...]] = {"mcp_servers": (None, [])}
_OFFERED = (None, "custom")


def read_request(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read a request for a reply.

    Args:
        body: as it came.
        tools: tool lists seen before.
        messages: messages of the same session seen before, and its threads.

    Raises:
        BadRequest: it is not JSON, no such request, or asks for something that cannot be served.
    """
    call = read_conversation(body, tools, messages)
    if call.messages[-1].role == "assistant":
        raise BadRequest("messages must not end with an assistant message: a reply does not continue it", "messages")
    return call


def read_conversation(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read what a request says without asking for a reply to it; see `read_request`."""
    request = read_object(body)
    refuse(request, _REFUSED)
    read, _ = messages.read(request.get("messages"), _messages)
    offered = tools.read(request.get("tools"), _tools)
    remember = False
    if request.get("thread") is not None:
        before, known_tools = _thread(request["thread"], messages)
        if request.get("system") and before and before[0].role == "system":
            before = before[1:]
        read = [*before, *read]
        offered = offered if "tools" in request else known_tools
        remember = True
    if request.get("system"):
        read = [*messages.read([request["system"]], _system)[0], *read]
    stream = read_stream(request)
    model = request.get("model")
    return ModelCall(
        messages=tuple(read),
        tools=offered,
        requested=_wishes(request),
        model=model if isinstance(model, str) else None,
        fingerprint=fingerprint(orjson.dumps(request), request, dialect=b"messages", stream=stream),
        stream=stream,
        remember=0 if remember else None,
    )


def _wishes(request: Mapping[str, Any]) -> dict[str, Any]:
    wishes = {name: value for name, value in request.items() if name not in _READ and value is not None}
    if run_elsewhere := [row for row in request.get("tools") or () if row.get("type") not in _OFFERED]:
        wishes["tools"] = run_elsewhere
    return wishes


def _thread(thread: Any, messages: MessageCache) -> tuple[list[Message], tuple[ToolSpec, ...]]:
    """What a thread holds: nothing where it begins."""
    kind = thread.get("type") if isinstance(thread, dict) else None
    if kind == "create":
        return [], ()
    if kind != "continue":
        raise BadRequest("thread.type must be create or continue", "thread")
    previous = thread.get("previous_message_id")
    known = messages.recall(previous.removeprefix(ID)) if isinstance(previous, str) else None
    if known is None:
        text = f"thread.previous_message_id {previous!r} names no message of this session: begin another thread"
        raise BadRequest(text, "thread", THREAD_NOT_FOUND)
    return list(known[0]), known[1]


def _system(system: Any, where: str, spelt: Spelt) -> tuple[tuple[Message, ...], bool]:
    del where, spelt
    return (Message(role="system", content=_told(system, "system")),), False


def _messages(row: Any, where: str, spelt: Spelt) -> tuple[tuple[Message, ...], bool]:
    del spelt  # arguments come as values, not as text
    role = row.get("role") if isinstance(row, dict) else None
    content = None if role is None else row.get("content")
    if role == "system":
        return (Message(role="system", content=_told(content, f"{where}.content")),), False
    if role not in ("user", "assistant"):
        raise BadRequest(f"{where}.role must be user, assistant or system, got {role!r}", f"{where}.role")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise BadRequest(f"{where}.content must be a string or a list of blocks", f"{where}.content")
    if role == "assistant":
        return (_assistant(blocks, f"{where}.content"),), False
    return tuple(_user(blocks, f"{where}.content")), False


def _assistant(blocks: list[dict[str, Any]], where: str) -> Message:
    parts: list[Part] = []
    calls: list[ToolCall] = []
    thoughts: list[str] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            if not isinstance(block.get("name"), str) or not isinstance(block.get("id"), str):
                raise BadRequest(f"{where}: a tool_use block needs an id and a name", where)
            arguments = read_arguments(block.get("input"), where)
            calls.append(ToolCall(id=block["id"], name=block["name"], arguments=arguments))
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            thoughts.append(block["thinking"])
        elif kind != "redacted_thinking":  # it says nothing that anyone here could read
            parts.append(_part(block, where))
    reasoning = "\n".join(thought for thought in thoughts if thought) or None
    return Message(role="assistant", content=joined(parts), tool_calls=tuple(calls), reasoning=reasoning)


def _user(blocks: list[dict[str, Any]], where: str) -> list[Message]:
    """Tool results are messages of their own; what stands between them is the user's."""
    found: list[Message] = []
    parts: list[Part] = []

    def close() -> None:
        if parts:
            found.append(Message(role="user", content=joined(parts, "\n")))
            parts.clear()

    for block in blocks:
        if block.get("type") != "tool_result":
            parts.append(_part(block, where))
            continue
        close()
        if not isinstance(block.get("tool_use_id"), str):
            raise BadRequest(f"{where}: a tool_result block must name its tool_use_id", where)
        told = _told(block.get("content"), where)
        found.append(Message(role="tool", content=told, tool_call_id=block["tool_use_id"]))
    close()
    return found or [Message(role="user")]


def _told(content: Any, where: str) -> str | tuple[Part, ...]:
    """A string or a list of blocks; blocks of text are lines of their own."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise BadRequest(f"{where} must be a string or a list of blocks", where)
    return joined([_part(block, where) for block in content], "\n")


def _part(block: Mapping[str, Any], where: str) -> Part:
    kind, source = block.get("type"), block.get("source")
    if kind == "text" and isinstance(block.get("text"), str):
        return TextPart(text=block["text"])
    if kind == "tool_reference" and isinstance(block.get("tool_name"), str):
        return TextPart(text=block["tool_name"])
    if kind in ("image", "document") and isinstance(source, dict):
        data = source.get("data", source.get("url"))
        if kind == "document" and source.get("type") == "text" and isinstance(data, str):
            return TextPart(text=data)
        if kind == "image" and isinstance(data, str):
            inline = source.get("type") == "base64"
            return ImagePart(url=f"data:{source.get('media_type')};base64,{data}" if inline else data)
    raise BadRequest(f"{where} holds a block of type {kind!r} that cannot be told to the model", where)


def _tools(rows: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadRequest("tools must be a list of objects", "tools")
    offered = [(index, row) for index, row in enumerate(rows) if row.get("type") in _OFFERED]
    return tuple([read_tool(row, "input_schema", f"tools[{index}]") for index, row in offered])


MESSAGES = Dialect(
    read=read_request,
    write=write_reply,
    events=write_events,
    error=write_error,
    error_event=write_error_event,
    ping=PING,
)
"""Anthropic's Messages."""
