"""The ids of prompts: whole ones, and what follows ids that are there already."""

from collections.abc import Iterable

import numpy as np

from agar.ledger.families.base import Family
from agar.ledger.node import Node
from agar.types import Ids, Message, ToolSpec


class Prompts:
    """Writes a session's prompts.

    Args:
        family: renders and bridges.
        as_sent: write history as the model's template does, even where that leaves out reasoning that was sampled.
    """

    def __init__(self, family: Family, *, as_sent: bool) -> None:
        self._family, self._as_sent = family, as_sent
        self._last: tuple[tuple[Message, ...], tuple[ToolSpec, ...], Ids] | None = None

    def whole(self, sent: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> Ids:
        """The whole prompt; the last one is kept, since a plan may need it twice. int32 [n].

        Raises:
            LedgerError: a message cannot be rendered.
        """
        if self._last is None or self._last[0] is not sent or self._last[1] is not tools:
            self._last = (sent, tools, self._family.render(sent, tools))
        return self._last[2]

    def following(
        self,
        parent: Node,
        path: Iterable[Node],
        known: Ids,
        sent: tuple[Message, ...],
        tools: tuple[ToolSpec, ...],
        *,
        consumed: int,
    ) -> Ids | None:
        """What follows the ids of a recorded path.

        Args:
            parent: its newest node.
            path: its nodes from the newest to the root.
            known: int32 [n], their prompts and replies.
            sent: the whole conversation.
            tools: the tools it offers.
            consumed: how many of its messages the path holds.

        Returns:
            int32 [m], or None where the next prompt cannot begin with `known`.

        Raises:
            LedgerError: a message cannot be rendered.
        """
        new = sent[consumed:]
        if self._as_sent and any(node.turn.reasoning for node in path) and self._family.strips_reasoning(new):
            return None
        bridge = self._family.bridge(known, parent.sampled.finish, new)
        if bridge is not None:
            return bridge
        whole = self.whole(sent, tools)  # the template's own prompt may still begin with what was sampled
        grown = len(whole) > len(known) and np.array_equal(whole[: len(known)], known)
        return whole[len(known) :] if grown else None
