"""What the gateway needs to know of a dialect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agar.rollout.gateway.call import ModelCall, Reply
from agar.rollout.gateway.failures import Failure
from agar.rollout.gateway.live import LiveReply
from agar.rollout.gateway.translation import MessageCache, ToolCache


class Events(Protocol):
    """One reply as server-sent events."""

    def more(self, live: LiveReply) -> bytes:
        """Events for what is new of a reply on its way; empty where nothing is."""
        ...

    def end(self, reply: Reply) -> bytes:
        """The rest of the events, to the last.

        Raises:
            LedgerError: the reply does not go on from what was sent of it.
        """
        ...


class _MakeEvents(Protocol):
    def __call__(self, model: str, messages: MessageCache, *, usage: bool = False) -> Events: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way of asking for a reply.

    Attributes:
        read: a request body to a call; raises `BadRequest`.
        write: a reply, the model's name as the caller knows it, and the session's messages to a body.
        events: the model's name, the session's messages, and whether the usage is wanted, to a writer of events.
        error: a failure as a body.
        error_event: a failure as the last event of a stream that has begun.
        ping: what keeps a waiting stream open.
    """

    read: Callable[[bytes, ToolCache, MessageCache], ModelCall]
    write: Callable[[Reply, str, MessageCache], bytes]
    events: _MakeEvents
    error: Callable[[Failure], Mapping[str, Any]]
    error_event: Callable[[Failure], bytes]
    ping: bytes
