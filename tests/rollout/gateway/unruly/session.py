"""A session, its conversations and requests, as their clients know them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unruly.dialects import Responses, Said

from agar.ledger.config import RecordPolicy
from agar.ledger.node import Difference, Divergence, Node
from agar.ledger.trace import Trace
from agar.rollout.gateway.session import GatewaySession, SealedSession
from agar.types import GroupId, Outcome, Reward, TaskRow


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Sent:
    """A request as its client knows it.

    Attributes:
        dialect: of the request.
        body: its bytes.
        stream: whether it asks for events.
        history: the conversation in the neutral form.
        tail: the node whose reply ends what the ledger is to find again, or None where it is to begin anew.
        must: differences that the ledger has to notice, by node.
        raw: the reply's bytes; None before it came.
        said: the reply.
    """

    dialect: Any
    body: bytes
    stream: bool
    history: list[dict[str, Any]]
    tail: int | None
    must: frozenset[tuple[Divergence, int]] = frozenset()
    raw: bytes | None = None
    said: Said | None = None

    def __repr__(self) -> str:
        return f"a request of {len(self.history)} messages"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every field

    @property
    def is_held(self) -> bool:
        """Whether the gateway holds the conversation under the reply's id: OpenAI's do it always, threads do."""
        request = json.loads(self.body)
        return self.dialect is Responses or "thread" in request

    @property
    def question(self) -> tuple[Any, str]:
        """Equal for bodies that are the same call: a stream and the same without `stream` are."""
        request = json.loads(self.body)
        return self.dialect, json.dumps({k: v for k, v in request.items() if k not in ("stream", "stream_options")})


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Played:
    """A session and what its clients know of it.

    Attributes:
        session: the real one.
        number: unique in an example.
        policy: how it records.
        limited: whether it has budgets.
        sent: requests that were answered.
        provoked: differences that clients made.
        sealed: its record, once it is sealed.
        open_calls: how many calls its clients had under way then.
    """

    session: GatewaySession
    number: int
    policy: RecordPolicy
    limited: bool
    threads: list[Any] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    provoked: set[Divergence] = field(default_factory=set)
    sealed: SealedSession | None = None
    open_calls: int = 0
    dump: bytes = b""
    looked_closely_at: int = 0

    def __repr__(self) -> str:
        return f"session {self.number}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print every field

    @property
    def secret(self) -> str:
        """A word that is in each of its conversations and in no other session's."""
        return f"secret-{self.number}-"

    @property
    def tag(self) -> str:
        """Its name to engines, and in the ids of replies."""
        return self.session._recorder.tag

    @property
    def nodes(self) -> Sequence[Node]:
        """Its calls so far."""
        return self.sealed.nodes if self.sealed else self.session._forest.nodes

    @property
    def differences(self) -> Sequence[Difference]:
        """What the ledger noticed so far."""
        return self.sealed.divergences if self.sealed else self.session._forest.differences

    def path(self, node: int) -> list[Node]:
        """From the root to a node."""
        found = [self.nodes[node]]
        while (parent := found[-1].parent) is not None:
            found.append(self.nodes[parent])
        return found[::-1]

    def trace(self) -> Trace:
        """The record as it stands."""
        return Trace(
            trajectory=f"t{self.number}",
            group=GroupId(task="k", ordinal=self.number),
            role="agent",
            policy="main",
            task=TaskRow(key="k"),
            nodes=tuple(self.nodes),
            divergences=tuple(self.differences),
            reward=Reward(total=1.0),
            outcome=Outcome.COMPLETED,
            open_calls=self.sealed.open_calls if self.sealed else 0,
        )
