"""OpenAI's chat completions, as far as they can be recorded: reading a request, writing a reply.

The rule for fields: what would change the meaning of the reply and cannot be honoured is refused and named
(`_REFUSED`). Sampling is pinned by the session, so a caller's own wishes have no effect and are kept in the record;
so is every field that the gateway does not know. `tool_choice` is accepted and recorded, not enforced.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import orjson

from agar.ledger.canonical import nested_within, spell
from agar.rollout.gateway.call import BadRequest, ModelCall, Reply
from agar.types import Finish, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolSpec

_READ = frozenset({"messages", "tools", "model"})
_REFUSED: Mapping[str, tuple[object, ...]] = {
    "stream": (False, None),
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
_MAX_CACHED_TOOLS = 256


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


class ToolCache:
    """Tool lists by their JSON: agents send the same one with every call."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[ToolSpec, ...]] = {}

    def read(self, tools: Any) -> tuple[ToolSpec, ...]:
        """The tools of a request.

        Raises:
            BadRequest: they are not a list of function tools.
        """
        if not tools:
            return ()
        try:
            key = orjson.dumps(tools)
        except TypeError:
            raise _too_deep("tools") from None
        known = self._known.get(key)
        if known is None:
            if not nested_within(tools):
                raise BadRequest("tools are nested too deeply", "tools")
            if len(self._known) >= _MAX_CACHED_TOOLS:
                self._known.clear()
            known = self._known[key] = _tools(tools)
        return known


class MessageCache:
    """The messages of one session by their JSON: a caller sends its whole history with every call.

    Equal JSON gives the same `Message` object, and tool arguments that come back as they went out are the same object
    as in the record: the ledger compares by identity before it looks inside.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Message, bool]] = {}
        self._spelt: dict[str, Mapping[str, Any]] = {}

    def read(self, row: Any, index: int) -> tuple[Message, bool]:
        """The message in `row`, and whether its tool arguments are spelt otherwise than `canonical.spell` does.

        Raises:
            BadRequest: it is no message.
        """
        try:
            key = orjson.dumps(row)
        except TypeError:
            raise _too_deep(f"messages[{index}]") from None
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _message(row, f"messages[{index}]", self._spelt)
        return known

    def spell(self, arguments: Mapping[str, Any]) -> str:
        """The text of tool arguments that go out."""
        text = spell(arguments)
        self._spelt[text] = arguments
        return text


def read_request(body: bytes, tools: ToolCache, messages: MessageCache) -> ModelCall:
    """Read a request body.

    Args:
        body: as it came.
        tools: tool lists seen before.
        messages: messages of the same session seen before.

    Raises:
        BadRequest: it is not JSON, not a chat completion, or asks for something that cannot be served.
    """
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(request, dict):
        raise BadRequest("the body must be a JSON object")
    for name, served in _REFUSED.items():
        if name in request and request[name] not in served:
            raise BadRequest(f"{name} = {request[name]!r} is not served here: leave it out", name, "unsupported_value")
    rows = request.get("messages")
    if not isinstance(rows, list) or not rows:
        raise BadRequest("messages must be a list with at least one message", "messages")
    read = [messages.read(row, index) for index, row in enumerate(rows)]
    model = request.get("model")
    return ModelCall(
        messages=tuple([message for message, _ in read]),
        tools=tools.read(request.get("tools")),
        respelled=frozenset([index for index, (_, respelled) in enumerate(read) if respelled]),
        requested={name: value for name, value in request.items() if name not in _READ and value is not None},
        model=model if isinstance(model, str) else None,
        fingerprint=hashlib.blake2b(body, digest_size=16).digest(),
    )


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
    sampled = 0 if reply.node is None else len(reply.node.sampled)
    return orjson.dumps(
        {
            "id": reply.id,
            "object": "chat.completion",
            "created": reply.created,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}],
            "usage": {
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": sampled,
                "total_tokens": reply.prompt_tokens + sampled,
            },
        }
    )


def _finish(reply: Reply) -> str:
    if reply.turn.finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if reply.turn.tool_calls else "stop"


def _too_deep(where: str) -> BadRequest:
    return BadRequest(f"{where} is nested too deeply", where)


def _message(row: Any, where: str, spelt: Mapping[str, Mapping[str, Any]]) -> tuple[Message, bool]:
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
        return Message(role=role, content=content, tool_calls=calls, reasoning=reasoning), respelled
    if role == "tool":
        call_id = row.get("tool_call_id")
        if not isinstance(call_id, str):
            raise BadRequest(f"{where}.tool_call_id must name the call that it answers", f"{where}.tool_call_id")
        return Message(role=role, content=content, tool_call_id=call_id), False
    return Message(role=role, content=content), False


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
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _calls(rows: Any, where: str, spelt: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[ToolCall, ...], bool]:
    if not isinstance(rows, list):
        raise BadRequest(f"{where} must be a list", where)
    calls = []
    respelled = False
    for row in rows:
        function = row.get("function") if isinstance(row, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(f"{where} must hold function calls with a name", where)
        raw = function.get("arguments")
        arguments = spelt.get(raw) if isinstance(raw, str) else None
        if arguments is None:
            arguments = _arguments(raw, where)
            respelled = respelled or spell(arguments) != raw
        calls.append(ToolCall(id=str(row.get("id", "")), name=function["name"], arguments=arguments))
    return tuple(calls), respelled


def _arguments(raw: Any, where: str) -> dict[str, Any]:
    if raw is None or raw == "":
        return {}
    try:
        value = raw if isinstance(raw, dict) else _decode(raw)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        if not nested_within(value):
            raise ValueError("nested too deeply")
        if not isinstance(raw, str) or "\\u" in raw:  # a lone surrogate has no UTF-8 form
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"{where}: arguments must be the JSON text of an object ({error})", where) from None
    return value


def _tools(rows: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(rows, list):
        raise BadRequest("tools must be a list", "tools")
    specs = []
    for index, row in enumerate(rows):
        where = f"tools[{index}]"
        function = row.get("function") if isinstance(row, dict) and row.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(f"{where} must be a function tool with a name", where, "unsupported_value")
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            raise BadRequest(f"{where}.function.parameters must be a JSON schema", where)
        description = function.get("description") or ""
        if not isinstance(description, str):
            raise BadRequest(f"{where}.function.description must be a string", where)
        extra = {} if parameters is None else {"parameters": parameters}
        specs.append(ToolSpec(name=function["name"], description=description, **extra))
    return tuple(specs)
