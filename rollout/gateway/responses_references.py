"""What a request of OpenAI's Responses refers to instead of sending it: an earlier response, or an item of one."""

from collections.abc import Mapping
from typing import Any

from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.translation import MessageCache
from agar.types import Message

RESPONSE = "resp_"
"""What the ids of responses begin with."""


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
