"""What differs between the history that a caller sent and the path that it matches."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import AnyStr

from agar.ledger.canonical import Key, message_key, spell
from agar.ledger.canonicalisers import Canonicaliser
from agar.ledger.node import Difference, Divergence, Node
from agar.types import Message, ToolCall, Turn

_SHOWN_CHARACTERS = 120
_SHOWN_BEFORE = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Compared:
    """What was found for a path, from its newest node on."""

    node: int
    sent: tuple[Message, ...]
    respelled: frozenset[int]
    found: tuple[Difference, ...]

    def covers(self, node: int, end: int, sent: tuple[Message, ...], respelled: frozenset[int]) -> bool:
        """Whether the first `end` messages of another history are this one, up to the same node."""
        if node != self.node or end != len(self.sent) or not all(map(is_, self.sent, sent)):
            return False
        return {index for index in respelled if index < end} == {index for index in self.respelled if index < end}


class Comparison:
    """Compares histories with recorded paths of one session.

    Callers send the same message objects again with every call: what was found for a reply is kept beside it, and a
    history that goes on from the one before is compared from where that one ended.

    Args:
        canonicaliser: declared rules on what of a text counts.
    """

    def __init__(self, canonicaliser: Canonicaliser | None = None) -> None:
        self._canonicaliser = canonicaliser
        self._known: dict[int, tuple[Message, bool, tuple[Difference, ...] | None]] = {}  # node -> its reply as sent
        self._last: _Compared | None = None

    def against(
        self, path: Iterable[Node], sent: tuple[Message, ...], respelled: frozenset[int]
    ) -> tuple[Difference, ...] | None:
        """How a history that matches a path differs from it.

        Args:
            path: nodes from the newest to the root.
            sent: the history, up to and with the reply of the newest.
            respelled: indexes of messages whose tool arguments were not spelt as `canonical.spell` does.

        Returns:
            The differences in the order of the messages; None where the reasoning of a reply was changed, which makes
            it another history.
        """
        found: list[Difference] = []  # from the newest to the oldest
        end, newest = len(sent), None
        for at in path:
            if self._last is not None and self._last.covers(at.id, end, sent, respelled):
                found += reversed(self._last.found)
                break
            newest = at.id if newest is None else newest
            differences = self._reply(at, sent[end - 1], end - 1, respelled=end - 1 in respelled)
            if differences is None:
                return None
            found += reversed(differences)
            start = end - 1 - len(at.messages)
            if sent[start : end - 1] != at.messages:
                found += reversed(self._messages(at, start, sent[start : end - 1]))
            end = start
        known = tuple(reversed(found))
        if newest is not None:
            self._last = _Compared(node=newest, sent=sent, respelled=respelled, found=known)
        return known

    def reply(self, node: Node, sent: Message, index: int, *, respelled: bool) -> tuple[Difference, ...] | None:
        """How a message differs from the reply of a node; None where it is another one.

        Args:
            node: the node.
            sent: the message.
            index: where it stands in the request.
            respelled: whether its tool arguments were spelt otherwise than `canonical.spell` does.
        """
        if not respelled and _as_given(node.turn, sent):
            return ()
        if self._key(node.turn.message()) != self._key(sent):
            return None
        return self._reply(node, sent, index, respelled=respelled)

    def _reply(self, node: Node, sent: Message, index: int, *, respelled: bool) -> tuple[Difference, ...] | None:
        known = self._known.get(node.id)
        if known is not None and known[0] is sent and known[1] == respelled:
            return known[2]
        kept = node.turn.message()
        found: tuple[Difference, ...] | None
        if thought(sent.reasoning) not in {"", thought(kept.reasoning)}:
            found = None
        else:
            found = _reply_differences(node.id, index, kept, sent, respelled=respelled)
        self._known[node.id] = (sent, respelled, found)
        return found

    def _messages(self, node: Node, start: int, sent: tuple[Message, ...]) -> list[Difference]:
        found: list[Difference] = []
        for offset, (before, after) in enumerate(zip(node.messages, sent, strict=True)):
            if before == after:
                continue
            if before.role == "tool" and self._key(before) != self._key(after):
                kind = Divergence.RESULT_ORDER
            elif before.text == after.text and before.role != "assistant":
                continue  # a string that came back as a list of text parts
            else:
                kind = _text_difference(before.text, after.text)
            found.append(_difference(kind, node.id, start + offset, before.text, after.text))
        return found

    def _key(self, message: Message) -> Key:
        return message_key(message, self._canonicaliser)


def thought(reasoning: str | None) -> str:
    """What counts of a message's reasoning; empty where a caller left it out, blanked or not."""
    return "" if reasoning is None else reasoning.strip()


def _as_given(turn: Turn, sent: Message) -> bool:
    """Whether a caller sent a reply back as it got it."""
    if sent.content != turn.text or sent.reasoning != turn.reasoning:
        return False
    ours, theirs = turn.tool_calls, sent.tool_calls
    return ours is theirs or (len(ours) == len(theirs) and all(map(_same_call, ours, theirs)))


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    if one.id != other.id or one.name != other.name:
        return False
    a, b = one.arguments, other.arguments
    return a is b or (a == b and spell(a) == spell(b))  # equal ones may still be spelt in another order, or 1 as true


def _reply_differences(
    node: int, index: int, kept: Message, sent: Message, *, respelled: bool
) -> tuple[Difference, ...]:
    found: list[tuple[Divergence, str, str]] = []
    if thought(kept.reasoning) and not thought(sent.reasoning):
        found.append((Divergence.REASONING_DROPPED, thought(kept.reasoning), ""))
    if kept.text != sent.text:
        found.append((_text_difference(kept.text, sent.text), kept.text, sent.text))
    if respelled or any(a.arguments is not b.arguments for a, b in zip(kept.tool_calls, sent.tool_calls, strict=True)):
        ours = [spell(call.arguments) for call in kept.tool_calls]
        theirs = [spell(call.arguments) for call in sent.tool_calls]
        if respelled or ours != theirs:
            found.append((Divergence.ARGUMENTS_RESPELLED, " ".join(ours), " ".join(theirs)))
    if [call.id for call in kept.tool_calls] != [call.id for call in sent.tool_calls]:
        before, after = (" ".join(call.id for call in message.tool_calls) for message in (kept, sent))
        found.append((Divergence.CALL_IDS, before, after))
    return tuple([_difference(kind, node, index, before, after) for kind, before, after in found])


def unsampled_replies(
    messages: Sequence[Message], start: int, node: int | None, recorded: Callable[[Message], int | None]
) -> tuple[Difference, ...]:
    """Assistant messages among new ones: they are context, whoever wrote them.

    Args:
        messages: what came after the matched path.
        start: index of the first of them in the request.
        node: the node whose path was matched, or None.
        recorded: the node whose reply a message is, or None.
    """
    found = []
    for index, message in enumerate(messages, start):
        if message.role == "assistant":
            reply = recorded(message)
            kind = Divergence.FOREIGN_REPLY if reply is None else Divergence.RENDERED_AGAIN
            found.append(_difference(kind, node if reply is None else reply, index, "", message.text))
    return tuple(found)


def _text_difference(kept: str, sent: str) -> Divergence:
    """The kind of difference between texts that are the same in canonical form."""
    return Divergence.WHITESPACE if kept.rstrip() == sent.rstrip() else Divergence.DECLARED


def _difference(kind: Divergence, node: int | None, index: int, kept: str, sent: str) -> Difference:
    at = max(common_prefix(kept, sent) - _SHOWN_BEFORE, 0) if kept else 0
    shown = slice(at, at + _SHOWN_CHARACTERS)
    return Difference(kind=kind, node=node, message=index, kept=kept[shown], sent=sent[shown])


def common_prefix(one: AnyStr, other: AnyStr) -> int:
    """How many characters or bytes two texts begin with in common; by bisection, since whole slices compare fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
