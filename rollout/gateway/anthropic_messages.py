"""Anthropic's Messages: reading a request.

The rules are those of chat completions; `messages_wire.py` names the fields. Sampling is pinned by the session, so
wishes (`temperature`, `max_tokens`, `thinking`, ...) have no effect and are kept in the record with every field that
the gateway does not know, and so are tools that Anthropic itself would run, which the model is not told of. A deferred
tool is offered from the start. What only serves caching, billing or checking (`cache_control`, `signature`,
`citations`, `is_error`) is not looked at. Refused and named are blocks that cannot be told to the model, MCP servers,
and a conversation that ends with an assistant's message, for a reply is never the continuation of another text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agar.rollout.gateway.anthropic_replies import (
    ID,
    PING,
    THREAD_NOT_FOUND,
    MessageEvents,
    write_error,
    write_error_event,
    write_reply,
)
from agar.rollout.gateway.bodies import (
    Spelt,
    compact,
    fingerprint,
    form_of,
    joined,
    max_calls,
    read_arguments,
    read_object,
    tool_of,
    wishes_of,
)
from agar.rollout.gateway.call import BadRequest, ModelCall, OutputForm
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.images import read_image
from agar.rollout.gateway.messages_wire import (
    AssistantRow,
    CountRequest,
    DocumentBlock,
    HiddenThinkingBlock,
    ImageBlock,
    MessagesRequest,
    MessagesRow,
    MessagesTool,
    SystemRow,
    TextBlock,
    ThinkingBlock,
    Thread,
    ToldBlock,
    ToldContent,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserRow,
)
from agar.rollout.gateway.translation import MessageCache, ReadRow, ReadTools, ToolCache
from agar.rollout.gateway.wire import Reader, unknown_fields
from agar.types import Message, Part, TextPart, ToolCall, ToolSpec

_READ = frozenset(
    {"messages", "system", "tools", "model", "stream", "thread", "stop_sequences", "output_config", "mcp_servers"}
)
_OFFERED = (None, "custom")
_CHOICES = {"none": "none", "any": "required"}
"""What OpenAI calls what Anthropic's `tool_choice` says."""
_REQUEST: Reader[MessagesRequest] = Reader(MessagesRequest)
_COUNT: Reader[CountRequest] = Reader(CountRequest)
_ROW: Reader[UserRow | AssistantRow | SystemRow] = Reader(MessagesRow)
_SYSTEM: Reader[ToldContent] = Reader(ToldContent)
_TOOL: Reader[MessagesTool] = Reader(MessagesTool)


def read_request(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read a request for a reply.

    Args:
        body: as it came.
        tools: tool lists seen before.
        messages: messages of the same session seen before, and its threads.

    Raises:
        BadRequest: it is not JSON, no such request, or asks for something that cannot be served.
    """
    request = read_object(body)
    asked = _REQUEST.read(request)
    call = _read(request, asked, tools, messages, stop=tuple(asked.stop_sequences or ()), stream=bool(asked.stream))
    if call.messages[-1].role == "assistant":
        raise BadRequest("messages must not end with an assistant message: a reply does not continue it", "messages")
    return call


def read_conversation(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read what a request says without asking for a reply to it; see `read_request`."""
    request = read_object(body)
    return _read(request, _COUNT.read(request), tools, messages)


def _read(
    request: Mapping[str, Any],
    asked: CountRequest,
    tools: ToolCache,
    messages: MessageCache,
    *,
    stop: tuple[str, ...] = (),
    stream: bool = False,
) -> ModelCall:
    offered = tools.read(asked.tools, _tools)
    known = offered.offered
    before: tuple[Message, ...] = ()
    if asked.thread is not None:
        before, held = _thread(asked.thread, messages)
        known = known if asked.tools is not None else held
    system: tuple[Message, ...] = ()
    unknown: dict[str, Any] = {}
    if asked.system:
        told = messages.read([request["system"]], _system, name="system")
        system = told.messages
        for _, fields in told.unknown.values():
            unknown["system"] = fields
    if system and before and before[0].role == "system":
        before = before[1:]
    history = messages.read(asked.messages, _message, before=(*system, *before))
    return ModelCall(
        messages=history.messages,
        tools=known,
        requested=wishes_of(request, _READ, offered.kept, unknown, _output(request)),
        unknown=history.unknown,
        model=asked.model,
        fingerprint=fingerprint(compact(request), request, dialect=b"messages", stream=stream),
        stream=stream,
        stop=stop,
        max_calls=_max_calls(asked, known),
        form=_form(asked),
        remember=0 if asked.thread is not None else None,
    )


def _output(request: Mapping[str, Any]) -> dict[str, Any]:
    """What `output_config` holds beside the format."""
    config = request.get("output_config") or {}
    rest = {name: value for name, value in config.items() if name != "format" and value is not None}
    return {"output_config": rest} if rest else {}


def _form(asked: CountRequest) -> OutputForm | None:
    wanted = asked.output_config.format if asked.output_config is not None else None
    if wanted is None:
        return None
    return form_of("output_config.format", wanted.model_dump(by_alias=True), wanted.schema_)


def _max_calls(asked: CountRequest, offered: Sequence[ToolSpec]) -> int | None:
    choice = asked.tool_choice
    if choice is None:
        return None
    name = (choice.name or "") if choice.type == "tool" else None
    listed = bool(offered or asked.tools)
    return max_calls(
        _CHOICES.get(choice.type), name, offered, listed=listed, single=bool(choice.disable_parallel_tool_use)
    )


def _thread(thread: Thread, messages: MessageCache) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]]:
    """What a thread holds: nothing where it begins."""
    if thread.type == "create":
        return (), ()
    previous = thread.previous_message_id
    known = messages.recall(previous.removeprefix(ID)) if previous is not None else None
    if known is None:
        text = f"thread.previous_message_id {previous!r} names no message of this session: begin another thread"
        raise BadRequest(text, "thread", THREAD_NOT_FOUND)
    return known


def _system(system: Any, name: str, index: int, spelt: Spelt) -> ReadRow:
    del index, spelt
    read = _SYSTEM.read(system, name)
    unknown: dict[str, Any] = {}
    for place, block in enumerate(read if isinstance(read, list) else ()):
        unknown |= unknown_fields(block, f"[{place}].")
    return ReadRow(messages=(Message(role="system", content=_told(read, name)),), unknown=unknown)


def _message(row: Any, name: str, index: int, spelt: Spelt) -> ReadRow:
    del spelt  # arguments come as values, not as text
    where = f"{name}[{index}]"
    read, unknown = _ROW.read_row(row, where)
    if isinstance(read, AssistantRow):
        said: tuple[Message, ...] = (_assistant(read, f"{where}.content"),)
    elif isinstance(read, UserRow):
        said = _user(read, f"{where}.content")
    else:
        said = (Message(role="system", content=_told(read.content, f"{where}.content")),)
    return ReadRow(messages=said, unknown=unknown)


def _assistant(row: AssistantRow, where: str) -> Message:
    if isinstance(row.content, str):
        return Message(role="assistant", content=row.content)
    parts: list[Part] = []
    calls: list[ToolCall] = []
    thoughts: list[str] = []
    for block in row.content:
        if isinstance(block, ToolUseBlock):
            calls.append(ToolCall(id=block.id, name=block.name, arguments=read_arguments(block.input, where)))
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.thinking)
        elif not isinstance(block, HiddenThinkingBlock):  # it says nothing that anyone here could read
            parts.append(_part(block, where))
    reasoning = "\n".join(thought for thought in thoughts if thought) or None
    return Message(role="assistant", content=joined(parts), tool_calls=tuple(calls), reasoning=reasoning)


def _user(row: UserRow, where: str) -> tuple[Message, ...]:
    """Tool results are messages of their own; what stands between them is the user's."""
    if isinstance(row.content, str):
        return (Message(role="user", content=row.content),)
    found: list[Message] = []
    parts: list[Part] = []

    def close() -> None:
        if parts:
            found.append(Message(role="user", content=joined(parts, "\n")))
            parts.clear()

    for block in row.content:
        if not isinstance(block, ToolResultBlock):
            parts.append(_part(block, where))
            continue
        close()
        found.append(Message(role="tool", content=_told(block.content, where), tool_call_id=block.tool_use_id))
    close()
    return tuple(found) or (Message(role="user"),)


def _told(content: ToldContent, where: str) -> str | tuple[Part, ...]:
    """A string or a list of blocks; blocks of text are lines of their own."""
    if not isinstance(content, list):
        return content or ""
    return joined([_part(block, where) for block in content], "\n")


def _part(block: ToldBlock, where: str) -> Part:
    if isinstance(block, TextBlock):
        return TextPart(text=block.text)
    if isinstance(block, ToolReferenceBlock):
        return TextPart(text=block.tool_name)
    source = block.source
    data = source.url if source.data is None else source.data
    if isinstance(block, DocumentBlock) and source.type == "text" and data is not None:
        return TextPart(text=data)
    if isinstance(block, ImageBlock) and data is not None:
        return read_image(f"data:{source.media_type};base64,{data}" if source.type == "base64" else data, where)
    raise BadRequest(f"{where} holds a block of type {block.type!r} that cannot be told to the model", where)


def _tools(rows: list[Any]) -> ReadTools:
    offered: list[ToolSpec] = []
    kept: dict[str, Any] = {}
    for index, row in enumerate(rows):
        where = f"tools[{index}]"
        if not isinstance(row, dict):
            raise BadRequest(f"{where} must be an object", where)
        if row.get("type") not in _OFFERED:
            kept.setdefault("tools", []).append(row)
            continue
        tool, unknown = _TOOL.read_row(row, where)
        offered.append(tool_of(tool.name, tool.description, tool.input_schema))
        if unknown:
            kept[where] = unknown
    return ReadTools(offered=tuple(offered), kept=kept)


MESSAGES = Dialect(
    read=read_request,
    write=write_reply,
    events=MessageEvents,
    error=write_error,
    error_event=write_error_event,
    ping=PING,
)
"""Anthropic's Messages."""
