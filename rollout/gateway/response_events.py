"""Replies and their events in the shape of OpenAI's Responses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from agar.rollout.gateway.call import Reply
from agar.rollout.gateway.chat_replies import write_error
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.live import Follower, LiveReply
from agar.rollout.gateway.translation import MessageCache
from agar.types import Finish

PING = b": waiting for the reply\n\n"
"""What keeps a waiting stream open."""


def write_reply(reply: Reply, model: str, messages: MessageCache) -> bytes:
    """The reply as a response.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
    """
    return orjson.dumps(_response(reply, model, _output(reply, messages)))


class ResponseEvents:
    """A reply as the events of a stream, from `response.created` to `response.completed` or `response.incomplete`.

    Args:
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
        usage: the usage is always part of it.
    """

    def __init__(self, model: str, messages: MessageCache, *, usage: bool = False) -> None:
        del usage
        self._model, self._messages = model, messages
        self._follower = Follower()
        self._id = ""
        self._number = 0
        self._items = 0  # begun
        self._open, self._said = "", ""  # the item that grows: its type, and its text so far

    def more(self, live: LiveReply) -> bytes:
        """See `Events.more`."""
        reasoning, text = self._follower.more(live)
        if not (reasoning or text):
            return b""
        events = self._begin(live.id, live.created)
        return self._written([*events, *self._grow("reasoning", reasoning), *self._grow("message", text)])

    def end(self, reply: Reply) -> bytes:
        """See `Events.end`."""
        events = self._begin(reply.id, reply.created)
        for kind, said in zip(("reasoning", "message"), self._follower.rest(reply.turn), strict=True):
            events += self._grow(kind, said)
        output = _output(reply, self._messages)
        status = _status(reply.turn.finish)
        for item in output[self._items - bool(self._open) :]:
            if item["type"] == "function_call":
                events += [*self._close(status), *_call_events(item, self._items)]
                self._items += 1
            elif not self._open:  # an empty message
                events += self._next("message")
                events.append(_grown("message", self._at(), ""))
        events += self._close(status)
        whole = _response(reply, self._model, output)
        return self._written([*events, {"type": f"response.{whole['status']}", "response": whole}])

    def _begin(self, id: str, created: int) -> list[dict[str, Any]]:
        if self._id:
            return []
        self._id = id
        begun = _head(id, created, self._model) | {"status": "in_progress", "incomplete_details": None}
        kinds = ("response.created", "response.in_progress")
        return [{"type": kind, "response": begun | {"output": [], "usage": None}} for kind in kinds]

    def _grow(self, kind: str, said: str) -> list[dict[str, Any]]:
        if not said:
            return []
        begun = [] if self._open == kind else self._next(kind)
        self._said += said
        return [*begun, _grown(kind, self._at(), said)]

    def _next(self, kind: str) -> list[dict[str, Any]]:
        """Close the item that is open, which is complete then, and begin one."""
        closed = self._close("completed")
        self._items, self._open = self._items + 1, kind
        return [*closed, *_begun(kind, self._at(), self._id)]

    def _close(self, status: str) -> list[dict[str, Any]]:
        kind, self._open = self._open, ""
        said, self._said = self._said, ""
        return _done(kind, self._at(kind), self._id, said, status) if kind else []

    def _at(self, kind: str = "") -> dict[str, Any]:
        return {"item_id": _item_id(kind or self._open, self._id), "output_index": self._items - 1}

    def _written(self, events: Sequence[dict[str, Any]]) -> bytes:
        first, self._number = self._number, self._number + len(events)
        return b"".join(_event(event | {"sequence_number": first + at}) for at, event in enumerate(events))


def write_error_event(failure: Failure) -> bytes:
    """A failure as the last event of a stream."""
    detail = {"code": failure.code, "message": failure.message, "param": failure.param}
    return _event({"type": "error", **detail, **write_error(failure)})


def _event(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def _head(id: str, created: int, model: str) -> dict[str, Any]:
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _status(finish: Finish) -> str:
    return "incomplete" if finish is Finish.LENGTH else "completed"


def _response(reply: Reply, model: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    cut = reply.turn.finish is Finish.LENGTH
    sampled = reply.sampled_tokens
    response = _head(reply.id, reply.created, model) | {
        "status": _status(reply.turn.finish),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.prompt_tokens + sampled,
        },
    }
    if reply.turn.parse_error is not None:
        response["parse_error"] = reply.turn.parse_error
    return response


def _output(reply: Reply, messages: MessageCache) -> list[dict[str, Any]]:
    turn = reply.turn
    status = _status(turn.finish)
    output: list[dict[str, Any]] = []
    if turn.reasoning:
        output.append(_item("reasoning", reply.id, turn.reasoning, status))
    if turn.text or not (output or turn.tool_calls):
        output.append(_item("message", reply.id, turn.text, status))
    for index, call in enumerate(turn.tool_calls):
        named = {"call_id": call.id, "name": call.name, "arguments": messages.spell(call.arguments)}
        output.append({"id": f"fc_{reply.id}_{index}", "type": "function_call", "status": status, **named})
    return output


def _item_id(kind: str, reply: str) -> str:
    return f"{'rs' if kind == 'reasoning' else 'msg'}_{reply}"


def _item(kind: str, reply: str, said: str, status: str) -> dict[str, Any]:
    """Reasoning or a message; `status` is a message's."""
    item = {"id": _item_id(kind, reply), "type": kind}
    if kind == "reasoning":  # clients that keep nothing on a server send back what has encrypted content
        return item | {"summary": [_part(kind, said)], "encrypted_content": reply}
    return item | {"role": "assistant", "status": status, "content": [_part(kind, said)]}


def _part(kind: str, said: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "summary_text", "text": said}
    return {"type": "output_text", "text": said, "annotations": [], "logprobs": []}


_NAMES: Mapping[str, tuple[str, str, str]] = {
    "reasoning": ("reasoning_summary_text", "reasoning_summary_part", "summary_index"),
    "message": ("output_text", "content_part", "content_index"),
}
"""What an item's text and its part are called in events, and the place of the part."""


def _text_event(kind: str, step: str, at: dict[str, Any], name: str, said: str) -> dict[str, Any]:
    text, _, place = _NAMES[kind]
    extra: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
    return {"type": f"response.{text}.{step}", **at, place: 0, name: said, **extra}


def _begun(kind: str, at: dict[str, Any], reply: str) -> Iterator[dict[str, Any]]:
    _, part, place = _NAMES[kind]
    item = _item(kind, reply, "", "in_progress") | ({"summary": []} if kind == "reasoning" else {"content": []})
    yield {"type": "response.output_item.added", "output_index": at["output_index"], "item": item}
    yield {"type": f"response.{part}.added", **at, place: 0, "part": _part(kind, "")}


def _grown(kind: str, at: dict[str, Any], said: str) -> dict[str, Any]:
    return _text_event(kind, "delta", at, "delta", said)


def _done(kind: str, at: dict[str, Any], reply: str, said: str, status: str) -> list[dict[str, Any]]:
    _, part, place = _NAMES[kind]
    item = _item(kind, reply, said, status)
    return [
        _text_event(kind, "done", at, "text", said),
        {"type": f"response.{part}.done", **at, place: 0, "part": _part(kind, said)},
        {"type": "response.output_item.done", "output_index": at["output_index"], "item": item},
    ]


def _call_events(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    arguments = item["arguments"]
    begun = item | {"arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.function_call_arguments.delta", **at, "delta": arguments}
    yield {"type": "response.function_call_arguments.done", **at, "arguments": arguments, "name": item["name"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
