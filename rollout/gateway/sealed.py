"""The record that a session leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agar.ledger.node import Difference, Node
from agar.rollout.gateway.budget import Budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SealedSession:
    """The record of a session that takes no more calls.

    Attributes:
        nodes: committed calls, in order.
        divergences: differences between histories sent and kept.
        open_calls: calls that were under way at the seal; their replies are in no node.
        budget_stops: calls that a budget answered, by budget.
        repeats: identical requests that were answered with a stored reply.
        refused: calls refused because too many were under way.
        family: name of the chat-template family that wrote the prompts.
    """

    nodes: tuple[Node, ...]
    divergences: tuple[Difference, ...]
    open_calls: int = 0
    budget_stops: Mapping[Budget, int] = field(default_factory=dict)
    repeats: int = 0
    refused: int = 0
    family: str = ""
