"""Replies, errors and lists in the shape of Anthropic's Messages."""

from collections.abc import Mapping
from typing import Any

import orjson

from agar.rollout.gateway.call import Reply
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.live import Follower, LiveReply
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
    head = _head(reply.id, model)
    if reply.turn.parse_error is not None:
        head["parse_error"] = reply.turn.parse_error
    return orjson.dumps(head | {"content": _content(reply), **_stop(reply), "usage": _usage(reply)})


class MessageEvents:
    """A reply as the events of a stream, from `message_start` to `message_stop`.

    Args:
        model: the model's name as the caller knows it.
        messages: of the same session; spells tool arguments.
        usage: the usage is always part of it.
    """

    def __init__(self, model: str, messages: MessageCache, *, usage: bool = False) -> None:
        del usage
        self._model, self._messages = model, messages
        self._follower = Follower()
        self._id = ""
        self._index, self._open = -1, ""  # the block that comes, and its type

    def more(self, live: LiveReply) -> bytes:
        """See `Events.more`."""
        reasoning, text = self._follower.more(live)
        if not (reasoning or text):
            return b""
        events = [] if self._id else [self._start(live.id, live.prompt_tokens)]
        return b"".join(map(_event, [*events, *self._grow("thinking", reasoning), *self._grow("text", text)]))

    def end(self, reply: Reply) -> bytes:
        """See `Events.end`; of a stream that has begun, `message_delta` says why calls could not be read."""
        error = {} if reply.turn.parse_error is None else {"parse_error": reply.turn.parse_error}
        events = [] if self._id else [self._start(reply.id, reply.prompt_tokens, **error)]
        late = {} if events else error
        for kind, said in zip(("thinking", "text"), self._follower.rest(reply.turn), strict=True):
            events += self._grow(kind, said)
        calls = [block for block in _content(reply) if block["type"] == "tool_use"]
        if self._index < 0 and not calls:
            events += [*self._next("text"), {"type": "content_block_delta", "index": 0, "delta": _delta("text", "")}]
        for block in calls:
            events += self._next("tool_use", **block | {"input": {}})
            delta = {"type": "input_json_delta", "partial_json": self._messages.spell(block["input"])}
            events.append({"type": "content_block_delta", "index": self._index, "delta": delta})
        events += self._close()
        events.append({"type": "message_delta", "delta": _stop(reply) | late, "usage": _usage(reply)})
        events.append({"type": "message_stop"})
        return b"".join(map(_event, events))

    def _start(self, id: str, prompt_tokens: int, **fields: Any) -> dict[str, Any]:
        self._id = id
        usage = _tokens(prompt_tokens, 0)
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return {"type": "message_start", "message": _head(id, self._model) | fields | nothing}

    def _grow(self, kind: str, said: str) -> list[dict[str, Any]]:
        if not said:
            return []
        begun = [] if self._open == kind else self._next(kind)
        return [*begun, {"type": "content_block_delta", "index": self._index, "delta": _delta(kind, said)}]

    def _next(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Close the block that is open and begin one."""
        closed = self._close()
        self._index, self._open = self._index + 1, kind
        block = fields or {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
        return [*closed, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _close(self) -> list[dict[str, Any]]:
        if not self._open:
            return []
        events: list[dict[str, Any]] = [{"type": "content_block_stop", "index": self._index}]
        if self._open == "thinking":
            delta = {"type": "signature_delta", "signature": self._id}
            events.insert(0, {"type": "content_block_delta", "index": self._index, "delta": delta})
        self._open = ""
        return events


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


def _head(id: str, model: str) -> dict[str, Any]:
    return {"id": ID + id, "type": "message", "role": "assistant", "model": model}


def _delta(kind: str, said: str) -> dict[str, Any]:
    return {"type": f"{kind}_delta", kind: said}


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
    return _tokens(reply.prompt_tokens, reply.sampled_tokens)


def _tokens(prompt: int, sampled: int) -> dict[str, int]:
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": prompt, "output_tokens": sampled, **cached}
