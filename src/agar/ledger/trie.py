"""The trie of canonical paths: how far the record holds the history of a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_

from agar.ledger.canonical import Key, message_key, steps, tools_key
from agar.ledger.canonicalisers import Canonicaliser
from agar.types import ImagePart, Message, TextPart, ToolSpec

_MAX_KNOWN_MESSAGES = 8192
_MAX_KNOWN_CHARACTERS = 16 * 1024 * 1024
_NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """Where a history leads.

    Attributes:
        sent: the history.
        root: the state that it starts from; negative where no conversation with its tools is recorded.
        steps: its steps, as (key, messages consumed so far).
        states: the states that the first of its steps lead to; beyond them nothing is recorded.
    """

    sent: tuple[Message, ...]
    root: int
    steps: Sequence[tuple[Key, int]]
    states: Sequence[int]


NOWHERE = Walk(sent=(), root=_NOWHERE, steps=(), states=())
"""The walk of a history of which nothing is recorded, where nothing is recorded at all."""


class Trie:
    """Paths of one session, by the keys of their messages.

    Callers send the same message objects again with every call, so a history that goes on from the one before is walked
    from where that one ended.

    Args:
        canonicaliser: declared rules on what of a text counts.
        limit_characters: how much text of messages it keeps the keys of; calls that fail bring some, too.

    Attributes:
        held_characters: how much it keeps of them now.
    """

    def __init__(self, canonicaliser: Canonicaliser | None, *, limit_characters: int = _MAX_KNOWN_CHARACTERS) -> None:
        self._canonicaliser = canonicaliser
        self.limit_characters, self.held_characters = limit_characters, 0
        self._next: dict[tuple[int, Key], int] = {}  # (state, step) -> state
        self._keys: dict[int, tuple[Message, Key]] = {}  # id of a message -> the message, its key
        self._tools: tuple[tuple[ToolSpec, ...], Key] | None = None
        self._last: Walk | None = None

    def key(self, message: Message) -> Key:
        """The canonical key of a message."""
        return message_key(message, self._canonicaliser)

    def root(self, tools: tuple[ToolSpec, ...]) -> int:
        """The state that conversations with these tools start from; it is made where it is new."""
        return self.step(0, self._tools_key(tools))

    def step(self, state: int, key: Key) -> int:
        """The state that a step leads to; it is made where it is new."""
        return self._next.setdefault((state, key), len(self._next) + 1)

    def steps(self, messages: Sequence[Message]) -> list[Key]:
        """The steps of messages that stand together."""
        return [key for key, _ in steps(messages, self._keys_of(messages))]

    def walk(self, sent: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> Walk:
        """Follow a history as far as it is recorded.

        Args:
            sent: the conversation.
            tools: what it offers.
        """
        path, states = self._begun(sent)
        begin = path[-1][1] if path else 0
        new = sent[begin:]
        path += [(key, begin + consumed) for key, consumed in steps(new, self._keys_of(new))]
        root = self._next.get((0, self._tools_key(tools)), _NOWHERE)
        if self._last is None or self._last.root != root:
            states = []
        state = states[-1] if states else root
        for key, _ in path[len(states) :]:
            state = self._next.get((state, key), _NOWHERE)
            if state == _NOWHERE:
                break
            states.append(state)
        self._last = Walk(sent=sent, root=root, steps=path, states=states)
        return self._last

    def _begun(self, sent: tuple[Message, ...]) -> tuple[list[tuple[Key, int]], list[int]]:
        """The steps and states that a history shares with the last one, where it goes on from it."""
        last = self._last
        if last is None or len(last.sent) > len(sent) or not all(map(is_, last.sent, sent)):
            return [], []
        path, at = list(last.steps), len(last.sent)
        if at < len(sent) and sent[at - 1].role == sent[at].role == "tool":
            path.pop()  # the run of results goes on, and makes another step
        return path, list(last.states[: len(path)])

    def _keys_of(self, messages: Sequence[Message]) -> list[Key]:
        return [(self._keys.get(id(message)) or self._learn(message))[1] for message in messages]

    def _learn(self, message: Message) -> tuple[Message, Key]:
        known = (message, self.key(message))
        size = _characters(known[1]) + len(message.reasoning or "")
        # A caller may build its messages anew for every call.
        if len(self._keys) >= _MAX_KNOWN_MESSAGES or self.held_characters + size > self.limit_characters:
            self._keys.clear()
            self.held_characters = 0
        if size <= self.limit_characters:
            self._keys[id(message)] = known
            self.held_characters += size
        return known

    def _tools_key(self, tools: tuple[ToolSpec, ...]) -> Key:
        if self._tools is None or self._tools[0] is not tools:
            self._tools = (tools, tools_key(tools))
        return self._tools[1]


def _characters(key: Key) -> int:
    """About how much room a key takes, and its message with it."""
    if isinstance(key, str):
        return len(key)
    if isinstance(key, tuple):
        return len(key) + sum(map(_characters, key))
    if isinstance(key, ImagePart):
        return len(key.url)
    return len(key.text) if isinstance(key, TextPart) else 1
