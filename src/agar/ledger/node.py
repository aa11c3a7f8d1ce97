"""One model call as the ledger keeps it, and the differences it noticed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agar.types import Ids, Message, Sampled, Sampling, ToolSpec, Turn


class Edge(StrEnum):
    """How a call hangs on what was recorded before it."""

    FIRST = "first"
    """The session's first call."""
    EXTEND = "extend"
    """It continues the newest reply of its path."""
    BRANCH = "branch"
    """It continues a reply that was continued before (a fork, a retry, a sub-agent)."""
    UNRELATED = "unrelated"
    """A new root: its first message or its tools were not seen before (a sub-agent, other tools)."""
    REWRITTEN = "rewritten"
    """A new root: it starts like an earlier call, but no recorded reply is in its history (compaction, an edit, a
    repeated first call)."""
    DIVERGED = "diverged"
    """A new root: its history was recorded but came back changed, and the policy goes on from what was sent."""
    UNBRIDGED = "unbridged"
    """A new root: the history matched, but the family could not extend its ids."""


class Divergence(StrEnum):
    """Kinds of difference between the history a caller sent and the history the ledger keeps."""

    REASONING_DROPPED = "reasoning_dropped"
    """The caller left out the reasoning of a turn; the ledger's prompt still holds it."""
    ARGUMENTS_RESPELLED = "arguments_respelled"
    """A tool call's arguments came back spelt differently."""
    CALL_IDS = "call_ids"
    """A tool call came back under another id."""
    WHITESPACE = "whitespace"
    """Trailing white space differs."""
    RESULT_ORDER = "result_order"
    """Parallel tool results came in another order than before."""
    DECLARED = "declared"
    """The text differs in what the record policy's canonicalisers ignore; the ledger keeps the one that came first."""
    FOREIGN_REPLY = "foreign_reply"
    """An assistant message that no engine sampled in this session; it is rendered as context."""
    RENDERED_AGAIN = "rendered_again"
    """A recorded reply that stands in a prompt as rendered text, since the history before it could not be continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One noticed difference.

    Attributes:
        kind: what differs.
        node: the node whose record it concerns; None for a foreign reply before any recorded one.
        message: index of the message in the request.
        kept: start of what the ledger keeps; of a long text, from shortly before the difference.
        sent: the same of what the caller sent.
    """

    kind: Divergence
    node: int | None
    message: int
    kept: str
    sent: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One model call.

    Attributes:
        id: position in commit order, unique in its session.
        parent: the node whose prompt and reply this prompt starts with; None for a root.
        edge: why it hangs there.
        messages: the messages that came after the parent's reply (all of them for a root).
        tools: the tools of a root; a child has its root's.
        delta: int32 [m], prompt ids after the parent's reply (the whole prompt for a root).
        prompt_digest: BLAKE2b-128 of the int32 prompt that went to the engine, in hexadecimal.
        sampled: the engine's reply, token by token.
        turn: the reply as parsed and as the caller got it.
        sampling: how it was sampled.
        requested: what the caller asked for and did not get (its own temperature, limits, unknown fields).
        choice: place among the replies to one call that asked for several; those stand side by side.
    """

    id: int
    parent: int | None
    edge: Edge
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    delta: Ids
    prompt_digest: str
    sampled: Sampled
    turn: Turn
    sampling: Sampling
    requested: Mapping[str, Any] = field(default_factory=dict)
    choice: int = 0
