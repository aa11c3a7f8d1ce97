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
from agar.rollout.gateway.call import BadRequest, ModelCall, OutputForm, Reply
from agar.rollout.gateway.chat_replies import (
    ChatEvents,
    write_completion,
    write_error,
    write_error_event,
    write_message,
)
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
from agar.rollout.gateway.continued import Continued
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.images import read_image
from agar.rollout.gateway.translation import History, MessageCache, ReadRow, ReadTools, ToolCache
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
    continued = messages.chats.continued(body)
    if continued is not None:
        try:
            return _go_on(continued, messages)
        except BadRequest:
            pass  # the whole body may have another fault before
    return _begin(body, tools, messages)


def _go_on(read: Continued, messages: MessageCache) -> ModelCall:
    """A body of which only the rows behind those of an earlier call are new."""
    known, first = read.before.call, read.before.rows
    history = History(messages=known.messages)
    if read.rows:
        places = range(first, first + len(read.rows))
        history = messages.read(read.rows, _message, places=places, before=known.messages)
    call = known.gone_on(
        messages=history.messages,
        respelled=known.respelled | history.respelled,
        unknown={**known.unknown, **history.unknown},
        fingerprint=read.fingerprint,
    )
    messages.chats.go_on(read, call)
    return call


def _begin(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """A body of which nothing is known."""
    request = read_object(body)
    asked = _ENVELOPE.read(request)
    history = messages.read(asked.messages, _message)
    offered = tools.read(asked.tools, _tools)
    stream, options = bool(asked.stream), asked.stream_options
    call = ModelCall(
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
    if not stream:  # whose fingerprint is that of another body
        messages.chats.keep(body, len(asked.messages), call)
    return call


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
    if (plain := _plain(row)) is not None:
        return ReadRow(messages=(plain,))
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


def _plain(row: Any) -> Message | None:
    """The message of a row with text and no more, which most are; None for all others."""
    if not isinstance(row, dict) or not isinstance(text := row.get("content"), str):
        return None
    role, id = row.get("role"), row.get("tool_call_id")
    if role == "tool":
        return Message(role=role, content=text, tool_call_id=id) if isinstance(id, str) and len(row) == 3 else None
    return Message(role=role, content=text) if role in ("user", "system", "assistant") and len(row) == 2 else None


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


def write_reply(reply: Reply, model: str, messages: MessageCache) -> bytes:
    """The reply as a chat completion; its messages are known when they come back as they went out.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session.
    """
    written = []
    for choice in reply.choices:
        written.append(write_message(choice, messages))
        thought = choice.turn.reasoning
        if thought is None or thought.strip():  # else its message is read without it
            messages.expect(written[-1], ReadRow(messages=(choice.turn.message(),)), _message)
    return write_completion(reply, model, written)


CHAT_COMPLETIONS = Dialect(
    read=read_request,
    write=write_reply,
    events=ChatEvents,
    error=write_error,
    error_event=write_error_event,
    ping=b": waiting for the reply\n\n",
)
"""OpenAI's chat completions."""
