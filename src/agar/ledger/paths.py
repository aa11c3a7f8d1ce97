"""The recorded paths of a session, found by the keys of their messages."""

from collections.abc import Sequence

from agar.ledger.canonical import Key
from agar.ledger.canonicalisers import Canonicaliser
from agar.ledger.node import Node
from agar.ledger.trie import NOWHERE, Trie, Walk
from agar.types import Message, ToolSpec


class Paths:
    """Where the replies of a session end, in canonical form.

    A session that is one conversation never looks anything up: nodes wait until somebody asks for what only the trie
    knows.

    Args:
        canonicaliser: declared rules on what of a text counts; with any, nodes never wait, so that a rule that fails
            fails the call that it is about.
    """

    def __init__(self, canonicaliser: Canonicaliser) -> None:
        self._eager = bool(canonicaliser)
        self._trie = Trie(canonicaliser)
        self._waiting: list[Node] = []
        self._in_line = True  # whether every node goes on from the one before
        self._at: dict[int, list[int]] = {}  # trie state -> nodes whose reply ends there
        self._replies: dict[Key, int] = {}  # key of a reply -> the newest node that has it
        self._state: list[int] = []  # node -> its trie state

    def add(self, node: Node) -> None:
        """Take a node in; its parent is there."""
        if self._eager:
            self._enter(node)
        else:
            self._waiting.append(node)
        self._in_line = self._in_line and node.parent == (node.id - 1 if node.id else None)

    def alone(self, node: int) -> bool:
        """Whether no other node's path is, in canonical form, the same."""
        return self._in_line or len(self.ending(self._states()[node])) == 1

    def walk(self, sent: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> Walk:
        """Follow a history as far as it is recorded; see `Trie.walk`."""
        if not self._states() and not self._eager:
            return NOWHERE
        return self._trie.walk(sent, tools)

    def ending(self, state: int) -> Sequence[int]:
        """The nodes whose reply ends at a state of a walk, the oldest first."""
        return self._at.get(state, ())

    def reply(self, message: Message) -> int | None:
        """The newest node whose reply a message is; its reasoning is not looked at."""
        self._states()
        return self._replies.get(self._trie.key(message))

    def _states(self) -> list[int]:
        """The state of every node."""
        for node in self._waiting:
            self._enter(node)
        self._waiting.clear()
        return self._state

    def _enter(self, node: Node) -> None:
        reply = self._trie.key(node.turn.message())
        state = self._trie.root(node.tools) if node.parent is None else self._state[node.parent]
        for key in (*self._trie.steps(node.messages), reply):
            state = self._trie.step(state, key)
        self._state.append(state)
        self._at.setdefault(state, []).append(node.id)
        self._replies[reply] = node.id
