"""Replies and errors in the shape of OpenAI's chat completions."""

from collections.abc import Iterator
from typing import Any

import orjson

from agar.rollout.gateway.call import Reply
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.translation import MessageCache
from agar.types import Finish


def write_reply(reply: Reply, model: str, messages: MessageCache) -> bytes:
    """The reply as a chat completion.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
    """
    return orjson.dumps(
        {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion",
            "created": reply.created,
            "model": model,
            "choices": [
                {
                    "index": index,
                    "message": _message(choice, messages),
                    "finish_reason": _finish(choice),
                    "logprobs": _logprobs(choice),
                }
                for index, choice in enumerate(reply.choices)
            ],
            "usage": _usage(reply),
        }
    )


def write_events(reply: Reply, model: str, messages: MessageCache, *, usage: bool = False) -> bytes:
    """The reply as the chunks of a stream, from the role to `[DONE]`; several replies come one after the other.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
        usage: end with a chunk that holds the usage.
    """
    head: dict[str, Any] = {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": model,
    }
    tail = {"usage": None} if usage else {}
    chunks = [
        {**head, "choices": [piece], **tail}
        for index, choice in enumerate(reply.choices)
        for piece in _pieces(index, choice, messages)
    ]
    if usage:
        chunks.append({**head, "choices": [], "usage": _usage(reply)})
    return b"".join([*(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks), b"data: [DONE]\n\n"])


def write_error(failure: Failure) -> dict[str, Any]:
    """A failure in OpenAI's shape."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    if failure.status == 429:
        kind = "requests"
    return {"error": {"message": failure.message, "type": kind, "param": failure.param, "code": failure.code}}


def write_error_event(failure: Failure) -> bytes:
    """A failure as the last event of a stream: OpenAI's clients raise on it."""
    return b"data: %b\n\n" % orjson.dumps(write_error(failure))


def _message(reply: Reply, messages: MessageCache) -> dict[str, Any]:
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
    return message


def _pieces(index: int, reply: Reply, messages: MessageCache) -> Iterator[dict[str, Any]]:
    """One reply as the choices of its chunks; the last holds why it ended, and the log-probs."""
    for delta in _deltas(reply, messages):
        yield {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
    yield {"index": index, "delta": {}, "finish_reason": _finish(reply), "logprobs": _logprobs(reply)}


def _deltas(reply: Reply, messages: MessageCache) -> Iterator[dict[str, Any]]:
    turn = reply.turn
    yield {"role": "assistant", "content": None if turn.tool_calls else ""}
    if turn.reasoning is not None:
        yield {"reasoning_content": turn.reasoning}
    if turn.text:
        yield {"content": turn.text}
    for index, call in enumerate(turn.tool_calls):
        first = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": first}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": messages.spell(call.arguments)}}]}
    if turn.parse_error is not None:
        yield {"parse_error": turn.parse_error}


def _logprobs(reply: Reply) -> dict[str, Any] | None:
    """The ledger's log-prob of every sampled token, control tokens included."""
    if reply.tokens is None or reply.node is None:
        return None
    rows = [
        {
            "token": token,
            "logprob": logprob,
            "bytes": None if "\ufffd" in token else list(token.encode()),  # a piece of a character has no text
            "top_logprobs": [],
        }
        for token, logprob in zip(reply.tokens, reply.node.sampled.logprobs.tolist(), strict=True)
    ]
    return {"content": rows, "refusal": None}


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.sampled_tokens,
        "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
    }


def _finish(reply: Reply) -> str:
    if reply.turn.finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if reply.turn.tool_calls else "stop"
