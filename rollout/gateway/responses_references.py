"""What is referred to instead of being sent in OpenAI's Responses: an earlier response, or an item of one."""

from collections.abc import Mapping
from typing import Any

from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.response_events import write_reply
from agar.rollout.gateway.translation import MessageCache
from agar.types import Message

RESPONSE = "resp_"
"""What the ids of responses begin with."""
NOT_FOUND = "response_not_found"
"""The code of a response that is not there."""


def conversation_of(response: str, messages: MessageCache) -> tuple[Message, ...]:
    """The conversation that ends with a response, without instructions.

    Args:
        response: its id.
        messages: of the session; no other session's responses are found.

    Raises:
        BadRequest: the session stored no such response.
    """
    known = messages.recall(response.removeprefix(RESPONSE))
    if known is None:
        raise BadRequest(
            f"previous_response_id {response!r} names no response that this session stored: send the conversation",
            "previous_response_id",
            "previous_response_not_found",
        )
    return known[0]


def response_of(response: str, messages: MessageCache) -> bytes:
    """A response as it went out.

    Args:
        response: its id.
        messages: of the session; no other session's responses are found.

    Raises:
        BadRequest: the session stored no such response.
    """
    known = messages.reply(response.removeprefix(RESPONSE))
    if known is None or not response.startswith(RESPONSE):
        raise _unknown(response)
    return write_reply(*known, messages)


def forget_response(response: str, messages: MessageCache) -> dict[str, Any]:
    """Delete a response, as the answer to its deletion; what is recorded of it stays; see `response_of`."""
    if not response.startswith(RESPONSE) or not messages.forget(response.removeprefix(RESPONSE)):
        raise _unknown(response)
    return {"id": response, "object": "response", "deleted": True}


def _unknown(response: str) -> BadRequest:
    return BadRequest(f"{response!r} is no response that this session stored", "response_id", NOT_FOUND)


def item_of(reference: Mapping[str, Any], where: str, messages: MessageCache) -> dict[str, Any]:
    """The item that an `item_reference` names, as it went out.

    Args:
        reference: the reference.
        where: its place in the request.
        messages: of the session.

    Raises:
        BadRequest: the session stored no such item.
    """
    id = reference.get("id")
    kind, _, rest = id.partition("_") if isinstance(id, str) else ("", "", "")
    reply, _, number = rest.partition("_") if kind == "fc" else (rest, "", "")
    known = messages.recall(reply)
    said = known[0][-1] if known is not None else Message(role="assistant")
    if kind == "msg" and known is not None:
        return {"type": "message", "role": "assistant", "content": said.text}
    if kind == "rs" and said.reasoning:
        return {"type": "reasoning", "summary": [{"type": "summary_text", "text": said.reasoning}]}
    if kind == "fc" and number in {str(at) for at in range(len(said.tool_calls))}:
        call = said.tool_calls[int(number)]
        named = {"call_id": call.id, "name": call.name, "arguments": messages.spell(call.arguments)}
        return {"type": "function_call", **named}
    raise BadRequest(f"{where} refers to {id!r}, no item that this session stored: send the item", where)
