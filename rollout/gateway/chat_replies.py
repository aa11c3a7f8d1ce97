"""Replies and errors in the shape of OpenAI's chat completions."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from agar.rollout.gateway.call import Reply
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.live import Follower, LiveReply
from agar.rollout.gateway.translation import MessageCache
from agar.types import Finish


def write_message(reply: Reply, messages: MessageCache) -> bytes:
    """The message of a reply.

    Args:
        reply: one choice.
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
    return orjson.dumps(message)


def write_completion(reply: Reply, model: str, written: Sequence[bytes]) -> bytes:
    """The reply as a chat completion.

    Args:
        reply: what to write.
        model: the model's name as the caller knows it.
        written: the message of every choice.
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
                    "message": orjson.Fragment(message),
                    "finish_reason": _finish(choice),
                    "logprobs": _logprobs(choice),
                }
                for index, (choice, message) in enumerate(zip(reply.choices, written, strict=True))
            ],
            "usage": _usage(reply),
        }
    )


class ChatEvents:
    """A reply as the chunks of a stream, from the role to `[DONE]`; several replies come one after the other.

    Args:
        model: the model's name as the caller knows it.
        messages: of the same session; knows the reply's tool arguments when they come back.
        usage: end with a chunk that holds the usage.
    """

    def __init__(self, model: str, messages: MessageCache, *, usage: bool = False) -> None:
        self._model, self._messages, self._usage = model, messages, usage
        self._follower = Follower()
        self._head: dict[str, Any] = {}

    def more(self, live: LiveReply) -> bytes:
        """See `Events.more`."""
        reasoning, text = self._follower.more(live)
        if not (reasoning or text):
            return b""
        deltas = _said(reasoning, text)
        if not self._head:
            self._begin(live.id, live.created)
            deltas.insert(0, {"role": "assistant", "content": "" if text else None})
        return self._chunks([_piece(0, delta) for delta in deltas])

    def end(self, reply: Reply) -> bytes:
        """See `Events.end`."""
        pieces = []
        for index, choice in enumerate(reply.choices):
            begun = bool(self._head)
            if not index:
                self._begin(reply.id, reply.created)
            deltas = self._rest(choice, begun=begun and not index)
            pieces += [_piece(index, delta) for delta in deltas]
            pieces.append(_piece(index, {}, finish=_finish(choice), logprobs=_logprobs(choice)))
        chunks = [self._chunks(pieces)]
        if self._usage:
            chunks.append(_event({**self._head, "choices": [], "usage": _usage(reply)}))
        return b"".join([*chunks, b"data: [DONE]\n\n"])

    def _begin(self, id: str, created: int) -> None:
        self._head = self._head or {
            "id": f"chatcmpl-{id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": self._model,
        }

    def _rest(self, reply: Reply, *, begun: bool) -> list[dict[str, Any]]:
        turn = reply.turn
        if begun:
            deltas = _said(*self._follower.rest(turn))
            if not (turn.text or turn.tool_calls):
                deltas.append({"content": ""})
        else:
            deltas = [{"role": "assistant", "content": None if turn.tool_calls else ""}]
            deltas += _said(turn.reasoning or "", turn.text)
        for index, call in enumerate(turn.tool_calls):
            first = {"name": call.name, "arguments": ""}
            arguments = self._messages.spell(call.arguments)
            deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": first}]})
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
        if turn.parse_error is not None:
            deltas.append({"parse_error": turn.parse_error})
        return deltas

    def _chunks(self, pieces: Iterable[dict[str, Any]]) -> bytes:
        tail = {"usage": None} if self._usage else {}
        return b"".join([_event({**self._head, "choices": [piece], **tail}) for piece in pieces])


def write_error(failure: Failure) -> dict[str, Any]:
    """A failure in OpenAI's shape."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    if failure.status == 429:
        kind = "requests"
    return {"error": {"message": failure.message, "type": kind, "param": failure.param, "code": failure.code}}


def write_error_event(failure: Failure) -> bytes:
    """A failure as the last event of a stream: OpenAI's clients raise on it."""
    return _event(write_error(failure))


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(chunk)


def _piece(
    index: int, delta: dict[str, Any], *, finish: str | None = None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A choice of a chunk; the last of a reply holds why it ended, and the log-probs."""
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}


def _said(reasoning: str, text: str) -> list[dict[str, Any]]:
    said = {"reasoning_content": reasoning, "content": text}
    return [{name: piece} for name, piece in said.items() if piece]


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
    prompt, sampled = reply.prompt_tokens, reply.sampled_tokens
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _finish(reply: Reply) -> str:
    if reply.turn.finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if reply.turn.tool_calls else "stop"
