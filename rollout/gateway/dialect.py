"""What the gateway needs to know of a dialect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agar.rollout.gateway.call import ModelCall, Reply
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.translation import MessageCache, ToolCache


class _Events(Protocol):
    def __call__(self, reply: Reply, model: str, messages: MessageCache, *, usage: bool = False) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way of asking for a reply.

    Attributes:
        read: a request body to a call; raises `BadRequest`.
        write: a reply, the model's name as the caller knows it, and the session's messages to a body.
        events: the same as server-sent events, whole and in order.
        error: a failure as a body.
        error_event: a failure as the last event of a stream that has begun.
        ping: what keeps a waiting stream open.
    """

    read: Callable[[bytes, ToolCache, MessageCache], ModelCall]
    write: Callable[[Reply, str, MessageCache], bytes]
    events: _Events
    error: Callable[[Failure], Mapping[str, Any]]
    error_event: Callable[[Failure], bytes]
    ping: bytes
