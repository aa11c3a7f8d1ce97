"""Where the paths of a session end, found by the messages that led there.

Callers send the same message objects again with every call. Where they do, the newest reply and what came after it are
all that there is to look at.
"""

from operator import is_
from typing import NamedTuple

from agar.ledger.context import Context
from agar.ledger.node import Difference, Node
from agar.types import Message, ToolSpec


class Asked(NamedTuple):  # a tuple, as `Leaf` is, since every call makes one
    """What a caller sent, beside the path that it goes on from.

    Attributes:
        sent: the whole conversation.
        tools: what it offers.
        respelled: indexes of messages whose tool arguments were spelt otherwise than `canonical.spell` does.
        found: how the messages that the path holds differ from it.
    """

    sent: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    respelled: frozenset[int]
    found: tuple[Difference, ...] = ()


class Leaf(NamedTuple):
    """A node that nothing goes on from yet.

    Attributes:
        node: the node.
        asked: what it answers.
        context: its prompt and reply.
    """

    node: Node
    asked: Asked
    context: Context


class Leaves:
    """The leaves of a session's forest."""

    def __init__(self) -> None:
        self._leaves: dict[int, Leaf] = {}
        self._behind: dict[int, Leaf] = {}  # id of the last message that was sent -> the newest leaf behind it

    def add(self, leaf: Leaf) -> None:
        """Take a leaf in."""
        self._leaves[leaf.node.id] = leaf
        self._behind[id(leaf.asked.sent[-1])] = leaf

    def drop(self, node: int) -> None:
        """A node, a leaf or not, is none any more."""
        leaf = self._leaves.pop(node, None)
        if leaf is not None and self._behind.get(id(leaf.asked.sent[-1])) is leaf:
            del self._behind[id(leaf.asked.sent[-1])]

    def context(self, node: int) -> Context | None:
        """Prompt and reply of a node; None where it is no leaf."""
        leaf = self._leaves.get(node)
        return None if leaf is None else leaf.context

    def before(self, sent: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> Leaf | None:
        """The leaf whose call is, message by message the same object, what comes before the last reply in `sent`."""
        at = len(sent) - 1
        while at > 0 and sent[at].role != "assistant":
            at -= 1
        leaf = self._behind.get(id(sent[at - 1])) if at > 0 else None
        if leaf is None:
            return None
        asked = leaf.asked
        if len(asked.sent) != at or not all(map(is_, asked.sent, sent)):
            return None
        if asked.tools is not tools and not (len(asked.tools) == len(tools) and all(map(is_, asked.tools, tools))):
            return None
        return leaf
