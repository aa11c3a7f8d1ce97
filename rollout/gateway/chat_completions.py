"""OpenAI's chat completions: reading a request, writing replies.

The rule for fields (`chat_wire.py` names them): what would change the meaning of the reply and cannot be honoured is
refused and named. Sampling is pinned by the session, so a caller's own wishes have no effect and are kept in the
record; so is every field that the gateway does not know. Honoured are `n`, `stop`, `logprobs`, what forbids tool calls
(`tool_choice` none, `parallel_tool_calls` false: the calls are withheld), and a form of output as far as the record
policy allows. What demands a tool call (`required`, a name) is kept in the record: only the model can make one.
"""

from collections.abc import Mapping
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
from agar.rollout.gateway.call import ModelCall, OutputForm
from agar.rollout.gateway.chat_replies import ChatEvents, write_error, write_error_event, write_reply
from agar.rollout.gateway.chat_wire import (
    AssistantMessage,
    ChatContent,
    ChatImage,
    ChatRefusal,
    ChatRequest,
    ChatRow,
    ChatTool,
    NamedChoice,
    SchemaFormat,
    TextFormat,
    ToldMessage,
    ToolMessage,
)
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.images import read_image
from agar.rollout.gateway.translation import MessageCache, ReadRow, ReadTools, ToolCache
from agar.rollout.gateway.wire import Reader, unknown_fields
from agar.types import Message, Part, TextPart, ToolSpec

_READ = frozenset(
    {"messages", "tools", "model", "stream", "stream_options", "n", "stop", "logprobs", "top_logprobs"}
    | {"response_format"}
)
_ENVELOPE: Reader[ChatRequest] = Reader(ChatRequest)
_ROW: Reader[ToldMessage | AssistantMessage | ToolMessage] = Reader(ChatRow)
_TOOL: Reader[ChatTool] = Reader(ChatTool)


def read_request(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read a request body.

    Args:
        body: as it came.
        tools: tool lists seen before.
        messages: messages of the same session seen before.

    Raises:
        BadRequest: it is not JSON, not a chat completion, or asks for something that cannot be served.
    """
    request = read_object(body)
    asked = _ENVELOPE.read(request)
    history = messages.read(asked.messages, _message)
    offered = tools.read(asked.tools, _tools)
    stream, options = bool(asked.stream), asked.stream_options
    return ModelCall(
        messages=history.messages,
        tools=offered.offered,
        respelled=history.respelled,
        requested=wishes_of(request, _READ, offered.kept, _stream_options(asked)),
        unknown=history.unknown,
        model=asked.model,
        fingerprint=fingerprint(body, request, dialect=b"chat", stream=stream),
        stream=stream,
        stream_usage=stream and options is not None and bool(options.include_usage),
        n=asked.n or 1,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
        max_calls=_max_calls(asked, offered.offered),
        form=_form(asked, request),
        logprobs=bool(asked.logprobs),
    )


def _stream_options(asked: ChatRequest) -> dict[str, Any]:
    """Options of a stream that have no effect."""
    rest = unknown_fields(asked.stream_options) if asked.stream_options is not None else {}
    return {"stream_options": rest} if rest else {}


def _max_calls(asked: ChatRequest, offered: tuple[ToolSpec, ...]) -> int | None:
    choice = asked.tool_choice
    name = choice.function.name if isinstance(choice, NamedChoice) else None
    return max_calls(choice, name, offered, listed=bool(offered), single=asked.parallel_tool_calls is False)


def _form(asked: ChatRequest, request: Mapping[str, Any]) -> OutputForm | None:
    wanted = asked.response_format
    if wanted is None or isinstance(wanted, TextFormat):
        return None
    schema = wanted.json_schema.schema_ if isinstance(wanted, SchemaFormat) else {"type": "object"}
    return form_of("response_format", request["response_format"], schema)


def _message(row: Any, name: str, index: int, spelt: Spelt) -> ReadRow:
    where = f"{name}[{index}]"
    read, unknown = _ROW.read_row(row, where)
    content = _told(read.content, f"{where}.content")
    if read.role == "tool":  # `isinstance` of a pydantic model is slow
        message = Message(role="tool", content=content, tool_call_id=read.tool_call_id)
    elif read.role == "assistant":
        return _assistant(read, content, f"{where}.tool_calls", spelt, unknown)
    else:
        message = Message(role="user" if read.role == "user" else "system", content=content)
    return ReadRow(messages=(message,), unknown=unknown)


def _assistant(
    read: AssistantMessage, content: str | tuple[Part, ...], where: str, spelt: Spelt, unknown: Mapping[str, Any]
) -> ReadRow:
    calls, respelled = [], False
    for call in read.tool_calls or ():
        one, otherwise = read_call(call.id, call.function.name, call.function.arguments, where, spelt)
        calls.append(one)
        respelled = respelled or otherwise
    spelt_out = (each for each in (read.reasoning_content, read.reasoning) if each and not each.isspace())
    reasoning = next(spelt_out, None)  # some clients blank what they do not keep
    said = content or read.refusal or ""
    message = Message(role="assistant", content=said, tool_calls=tuple(calls), reasoning=reasoning)
    return ReadRow(messages=(message,), respelled=respelled, unknown=unknown)


def _told(content: ChatContent, where: str) -> str | tuple[Part, ...]:
    """Nothing, text, or parts; text alone becomes a string."""
    if not isinstance(content, list):
        return content or ""
    parts: list[Part] = []
    for part in content:
        if isinstance(part, ChatImage):
            parts.append(read_image(part.image_url.url, where))
        else:
            parts.append(TextPart(text=part.refusal if isinstance(part, ChatRefusal) else part.text))
    return joined(parts)


def _tools(rows: list[Any]) -> ReadTools:
    offered, kept = [], {}
    for index, row in enumerate(rows):
        where = f"tools[{index}]"
        tool, unknown = _TOOL.read_row(row, where)
        offered.append(tool_of(tool.function.name, tool.function.description, tool.function.parameters))
        if unknown:
            kept[where] = unknown
    return ReadTools(offered=tuple(offered), kept=kept)


CHAT_COMPLETIONS = Dialect(
    read=read_request,
    write=write_reply,
    events=ChatEvents,
    error=write_error,
    error_event=write_error_event,
    ping=b": waiting for the reply\n\n",
)
"""OpenAI's chat completions."""
