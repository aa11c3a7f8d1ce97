"""OpenAI's chat completions, as far as they can be recorded: reading a request, writing a reply.

The rule for fields: what would change the meaning of the reply and cannot be honoured is refused and named
(`_REFUSED`). Sampling is pinned by the session, so a caller's own wishes have no effect and are kept in the record;
so is every field that the gateway does not know. `tool_choice` is accepted and recorded, not enforced.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from agar.rollout.gateway.call import BadRequest, ModelCall, Reply
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.failures import Failure
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
from agar.types import Finish, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolSpec

_READ = frozenset({"messages", "tools", "model", "stream"})
_REFUSED: Mapping[str, tuple[object, ...]] = {
    "n": (1, None),
    "logprobs": (False, None),
    "functions": (None,),
    "function_call": (None,),
    "audio": (None,),
    "modalities": (None, ["text"]),
    "response_format": (None, {"type": "text"}),
}
_ROLES: Mapping[object, MessageRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


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
    refuse(request, _REFUSED)
    read, respelled = messages.read(request.get("messages"), _message)
    model = request.get("model")
    stream = read_stream(request)
    requested = {name: value for name, value in request.items() if name not in _READ and value is not None}
    return ModelCall(
        messages=tuple(read),
        tools=tools.read(request.get("tools"), _tools),
        respelled=respelled,
        requested=requested,
        model=model if isinstance(model, str) else None,
        fingerprint=fingerprint(body, request, dialect=b"chat", stream=stream),
        stream=stream,
        stream_usage=stream and _wants_usage(requested),
    )


def _wants_usage(requested: dict[str, Any]) -> bool:
    """Take the one stream option that is served out of what has no effect."""
    options = requested.pop("stream_options", None)
    if options is None:
        return False
    wanted = options.get("include_usage") if isinstance(options, dict) else "?"
    if wanted is not None and not isinstance(wanted, bool):
        raise BadRequest("stream_options must be an object; include_usage true or false", "stream_options")
    if rest := {name: value for name, value in options.items() if name != "include_usage"}:
        requested["stream_options"] = rest
    return bool(wanted)


def write_reply(reply: Reply, model: str, messages: MessageCache) -> bytes:
    """The reply as a chat completion.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
    """
    turn = reply.turn
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or (None if turn.tool_calls else "")}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": messages.spell(c.arguments)}}
            for c in turn.tool_calls
        ]
    if turn.parse_error is not None:
        message["parse_error"] = turn.parse_error
    return orjson.dumps(
        {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion",
            "created": reply.created,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}],
            "usage": _usage(reply),
        }
    )


def write_events(reply: Reply, model: str, messages: MessageCache, *, usage: bool = False) -> bytes:
    """The reply as the chunks of a stream, from the role to `[DONE]`.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
        usage: end with a chunk that holds the usage.
    """
    turn = reply.turn
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if turn.tool_calls else ""}]
    if turn.reasoning is not None:
        deltas.append({"reasoning_content": turn.reasoning})
    if turn.text:
        deltas.append({"content": turn.text})
    for index, call in enumerate(turn.tool_calls):
        first = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": first}]})
        then = {"arguments": messages.spell(call.arguments)}
        deltas.append({"tool_calls": [{"index": index, "function": then}]})
    if turn.parse_error is not None:
        deltas.append({"parse_error": turn.parse_error})
    choices: list[list[dict[str, Any]]] = [[_choice(delta, None)] for delta in deltas]
    choices.append([_choice({}, _finish(reply))])
    head: dict[str, Any] = {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": model,
    }
    chunks = [{**head, "choices": choice, **({"usage": None} if usage else {})} for choice in choices]
    if usage:
        chunks.append({**head, "choices": [], "usage": _usage(reply)})
    return b"".join([*(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks), b"data: [DONE]\n\n"])


def write_error(failure: Failure) -> dict[str, Any]:
    """A failure in OpenAI's shape."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    return {"error": {"message": failure.message, "type": kind, "param": failure.param, "code": failure.code}}


def write_error_event(failure: Failure) -> bytes:
    """A failure as the last event of a stream: OpenAI's clients raise on it."""
    return b"data: %b\n\n" % orjson.dumps(write_error(failure))


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _usage(reply: Reply) -> dict[str, int]:
    sampled = 0 if reply.node is None else len(reply.node.sampled)
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": reply.prompt_tokens + sampled,
    }


def _finish(reply: Reply) -> str:
    if reply.turn.finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if reply.turn.tool_calls else "stop"


def _message(row: Any, where: str, spelt: Spelt) -> tuple[tuple[Message, ...], bool]:
    if not isinstance(row, dict):
        raise BadRequest(f"{where} must be an object", where)
    sent_role = row.get("role")
    role = _ROLES.get(sent_role) if isinstance(sent_role, str) else None
    if role is None:
        raise BadRequest(f"{where}.role must be one of {sorted(map(str, _ROLES))}, got {sent_role!r}", f"{where}.role")
    content = row.get("content")
    if not isinstance(content, str):
        content = _parts(content, where)
    if role == "assistant":
        reasoning = row.get("reasoning_content", row.get("reasoning"))
        if reasoning is not None and not isinstance(reasoning, str):
            raise BadRequest(f"{where}.reasoning_content must be a string", where)
        rows = row.get("tool_calls")
        calls, respelled = _calls(rows, f"{where}.tool_calls", spelt) if rows else ((), False)
        return (Message(role=role, content=content, tool_calls=calls, reasoning=reasoning),), respelled
    if role == "tool":
        call_id = row.get("tool_call_id")
        if not isinstance(call_id, str):
            raise BadRequest(f"{where}.tool_call_id must name the call that it answers", f"{where}.tool_call_id")
        return (Message(role=role, content=content, tool_call_id=call_id),), False
    return (Message(role=role, content=content),), False


def _parts(content: Any, where: str) -> str | tuple[Part, ...]:
    """Content that is not a string: nothing, or a list of parts. Text alone becomes a string."""
    if content is None:
        return ""
    if not isinstance(content, list):
        raise BadRequest(f"{where}.content must be a string or a list of parts", f"{where}.content")
    parts: list[Part] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(TextPart(text=part["text"]))
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            parts.append(TextPart(text=part["refusal"]))
        elif kind == "image_url" and isinstance(part.get("image_url"), dict):
            parts.append(ImagePart(url=str(part["image_url"].get("url", ""))))
        else:
            raise BadRequest(f"{where}.content holds a part of type {kind!r}: send text", f"{where}.content")
    return joined(parts)


def _calls(rows: Any, where: str, spelt: Spelt) -> tuple[tuple[ToolCall, ...], bool]:
    if not isinstance(rows, list):
        raise BadRequest(f"{where} must be a list", where)
    calls = []
    respelled = False
    for row in rows:
        function = row.get("function") if isinstance(row, dict) else None
        if not isinstance(function, dict):
            raise BadRequest(f"{where} must hold function calls with a name", where)
        call, spelt_otherwise = read_call(row.get("id"), function.get("name"), function.get("arguments"), where, spelt)
        calls.append(call)
        respelled = respelled or spelt_otherwise
    return tuple(calls), respelled


def _tools(rows: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(rows, list):
        raise BadRequest("tools must be a list", "tools")
    specs = []
    for index, row in enumerate(rows):
        where = f"tools[{index}]"
        function = row.get("function") if isinstance(row, dict) and row.get("type") == "function" else None
        if not isinstance(function, dict):
            raise BadRequest(f"{where} must be a function tool with a name", where, "unsupported_value")
        specs.append(read_tool(function, "parameters", where))
    return tuple(specs)


CHAT_COMPLETIONS = Dialect(
    read=read_request,
    write=write_reply,
    events=write_events,
    error=write_error,
    error_event=write_error_event,
    ping=b": waiting for the reply\n\n",
)
"""OpenAI's chat completions."""
