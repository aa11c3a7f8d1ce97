"""Replies and their events in the shape of OpenAI's Responses."""

from collections.abc import Iterator
from typing import Any

import orjson

from agar.rollout.gateway.call import Reply
from agar.rollout.gateway.chat_replies import write_error
from agar.rollout.gateway.failures import Failure
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


def write_events(reply: Reply, model: str, messages: MessageCache, *, usage: bool = False) -> bytes:
    """The reply as the events of a stream, from `response.created` to `response.completed` or `response.incomplete`.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
        usage: the usage is always part of it.
    """
    del usage
    output = _output(reply, messages)
    whole = _response(reply, model, output)
    begun = whole | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(output):
        events += _item_events(item, index)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return b"".join(_event(event | {"sequence_number": number}) for number, event in enumerate(events))


def write_error_event(failure: Failure) -> bytes:
    """A failure as the last event of a stream."""
    detail = {"code": failure.code, "message": failure.message, "param": failure.param}
    return _event({"type": "error", **detail, **write_error(failure)})


def _event(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def _response(reply: Reply, model: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    cut = reply.turn.finish is Finish.LENGTH
    sampled = reply.sampled_tokens
    response: dict[str, Any] = {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
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
    status = "incomplete" if turn.finish is Finish.LENGTH else "completed"
    output: list[dict[str, Any]] = []
    if turn.reasoning:  # clients that keep nothing on a server send back what has encrypted content
        summary = [{"type": "summary_text", "text": turn.reasoning}]
        output.append({"id": f"rs_{reply.id}", "type": "reasoning", "summary": summary, "encrypted_content": reply.id})
    if turn.text or not (output or turn.tool_calls):
        text = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        said = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "status": status, "content": [text]}
        output.append(said)
    for index, call in enumerate(turn.tool_calls):
        named = {"call_id": call.id, "name": call.name, "arguments": messages.spell(call.arguments)}
        output.append({"id": f"fc_{reply.id}_{index}", "type": "function_call", "status": status, **named})
    return output


def _item_events(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    empty: dict[str, Any] = {"reasoning": {"summary": []}, "message": {"content": []}}.get(kind, {"arguments": ""})
    status = {} if kind == "reasoning" else {"status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": item | empty | status}
    if kind == "reasoning":
        at |= {"summary_index": 0}
        (part,) = item["summary"]
        yield {"type": "response.reasoning_summary_part.added", **at, "part": part | {"text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": part["text"]}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
    elif kind == "message":
        at |= {"content_index": 0}
        (part,) = item["content"]
        yield {"type": "response.content_part.added", **at, "part": part | {"text": ""}}
        yield {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}
    else:
        arguments = item["arguments"]
        yield {"type": "response.function_call_arguments.delta", **at, "delta": arguments}
        yield {"type": "response.function_call_arguments.done", **at, "arguments": arguments, "name": item["name"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
