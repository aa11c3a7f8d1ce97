"""Replies, errors and lists in the shape of Anthropic's Messages."""

from collections.abc import Mapping
from typing import Any

import orjson

from agar.rollout.gateway.call import Reply
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.translation import MessageCache
from agar.types import Finish

ID = "msg_"
"""What the ids of messages begin with."""
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
"""What keeps a waiting stream open."""
THREAD_NOT_FOUND = "thread_not_found"
"""The code on which Anthropic's clients send the whole conversation again."""
_KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def write_reply(reply: Reply, model: str, messages: MessageCache) -> bytes:
    """The reply as a message.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; not needed here.
    """
    del messages
    return orjson.dumps(_head(reply, model) | {"content": _content(reply), **_stop(reply), "usage": _usage(reply)})


def write_events(reply: Reply, model: str, messages: MessageCache, *, usage: bool = False) -> bytes:
    """The reply as the events of a stream, from `message_start` to `message_stop`.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; spells tool arguments.
        usage: the usage is always part of it.
    """
    del usage
    nothing = {"stop_reason": None, "stop_sequence": None, "usage": _usage(reply) | {"output_tokens": 0}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": _head(reply, model) | {"content": [], **nothing}}
    ]
    for index, block in enumerate(_content(reply)):
        deltas: list[dict[str, Any]]
        if block["type"] == "thinking":
            start = block | {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif block["type"] == "text":
            start = block | {"text": ""}
            deltas = [{"type": "text_delta", "text": block["text"]}]
        else:
            start = block | {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": messages.spell(block["input"])}]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": _stop(reply), "usage": _usage(reply)})
    events.append({"type": "message_stop"})
    return b"".join(_event(event) for event in events)


def write_error(failure: Failure) -> dict[str, Any]:
    """A failure in Anthropic's shape."""
    error: dict[str, Any] = {"type": _KINDS.get(failure.status, "api_error"), "message": failure.message}
    if failure.code == THREAD_NOT_FOUND:
        error["details"] = {"error_code": failure.code}
    return {"type": "error", "error": error, "request_id": None}


def write_error_event(failure: Failure) -> bytes:
    """A failure as the last event of a stream: Anthropic's clients raise on it."""
    return _event(write_error(failure))


def write_models(names: list[str]) -> dict[str, Any]:
    """The list of models."""
    fields = {"type": "model", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"}
    rows = [{**fields, "id": name, "display_name": name} for name in names]
    return {"data": rows, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def _event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def _head(reply: Reply, model: str) -> dict[str, Any]:
    head: dict[str, Any] = {"id": ID + reply.id, "type": "message", "role": "assistant", "model": model}
    if reply.turn.parse_error is not None:
        head["parse_error"] = reply.turn.parse_error
    return head


def _content(reply: Reply) -> list[dict[str, Any]]:
    turn = reply.turn
    content: list[dict[str, Any]] = []
    if turn.reasoning:  # clients keep a signed block and drop others; whether it is ours, the ledger knows by its text
        content.append({"type": "thinking", "thinking": turn.reasoning, "signature": reply.id})
    if turn.text:
        content.append({"type": "text", "text": turn.text})
    for call in turn.tool_calls:
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)})
    return content or [{"type": "text", "text": ""}]


def _stop(reply: Reply) -> dict[str, Any]:
    reason = "tool_use" if reply.turn.tool_calls else "end_turn"
    if reply.stopped_by is not None:
        reason = "stop_sequence"
    elif reply.turn.finish is Finish.LENGTH:
        reason = "max_tokens"
    return {"stop_reason": reason, "stop_sequence": reply.stopped_by}


def _usage(reply: Reply) -> dict[str, int]:
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": reply.prompt_tokens, "output_tokens": reply.sampled_tokens, **cached}
