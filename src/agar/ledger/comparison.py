"""What differs between the history that a caller sent and the path that it matches."""

from collections.abc import Sequence

from agar.ledger.canonical import message_key, spell
from agar.ledger.node import Difference, Divergence, Node
from agar.types import Message

_SHOWN_CHARACTERS = 120


class Comparison:
    """Compares histories with recorded paths of one session.

    Callers send the same message objects again with every call: what was found for a reply is kept beside it.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, bool, tuple[Difference, ...] | None]] = {}  # node -> its reply as sent

    def against(
        self, path: Sequence[Node], sent: tuple[Message, ...], respelled: frozenset[int]
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
        found: list[Difference] = []
        end = len(sent)
        for at in path:
            differences = self._reply(at, sent[end - 1], end - 1, respelled=end - 1 in respelled)
            if differences is None:
                return None
            found += differences
            start = end - 1 - len(at.messages)
            if sent[start : end - 1] != at.messages:
                found += _message_differences(at, start, sent[start : end - 1])
            end = start
        return tuple(reversed(found))

    def _reply(self, node: Node, sent: Message, index: int, *, respelled: bool) -> tuple[Difference, ...] | None:
        known = self._known.get(node.id)
        if known is not None and known[0] is sent and known[1] == respelled:
            return known[2]
        kept = node.turn.message()
        found: tuple[Difference, ...] | None
        if sent.reasoning is not None and sent.reasoning.strip() != (kept.reasoning or "").strip():
            found = None
        else:
            found = _reply_differences(node.id, index, kept, sent, respelled=respelled)
        self._known[node.id] = (sent, respelled, found)
        return found


def _reply_differences(
    node: int, index: int, kept: Message, sent: Message, *, respelled: bool
) -> tuple[Difference, ...]:
    found: list[tuple[Divergence, str, str]] = []
    if kept.reasoning and sent.reasoning is None:
        found.append((Divergence.REASONING_DROPPED, kept.reasoning, ""))
    if kept.text != sent.text:
        found.append((Divergence.WHITESPACE, repr(kept.text[-20:]), repr(sent.text[-20:])))
    if respelled or any(a.arguments is not b.arguments for a, b in zip(kept.tool_calls, sent.tool_calls, strict=True)):
        ours = [spell(call.arguments) for call in kept.tool_calls]
        theirs = [spell(call.arguments) for call in sent.tool_calls]
        if respelled or ours != theirs:
            found.append((Divergence.ARGUMENTS_RESPELLED, " ".join(ours), " ".join(theirs)))
    if [call.id for call in kept.tool_calls] != [call.id for call in sent.tool_calls]:
        before, after = (" ".join(call.id for call in message.tool_calls) for message in (kept, sent))
        found.append((Divergence.CALL_IDS, before, after))
    return tuple([_difference(kind, node, index, before, after) for kind, before, after in found])


def _message_differences(node: Node, start: int, sent: tuple[Message, ...]) -> list[Difference]:
    found: list[Difference] = []
    for offset, (before, after) in enumerate(zip(node.messages, sent, strict=True)):
        if before == after:
            continue
        reordered = before.role == "tool" and message_key(before) != message_key(after)
        if before.text == after.text and not reordered and before.role != "assistant":
            continue  # a string that came back as a list of text parts
        kind = Divergence.RESULT_ORDER if reordered else Divergence.WHITESPACE
        found.append(_difference(kind, node.id, start + offset, before.text, after.text))
    return found


def foreign_replies(messages: Sequence[Message], start: int, node: int | None) -> tuple[Difference, ...]:
    """Assistant messages among new ones: no engine sampled them here.

    Args:
        messages: what came after the matched path.
        start: index of the first of them in the request.
        node: the node whose path was matched, or None.
    """
    return tuple(
        [
            _difference(Divergence.FOREIGN_REPLY, node, start + offset, "", message.text)
            for offset, message in enumerate(messages)
            if message.role == "assistant"
        ]
    )


def _difference(kind: Divergence, node: int | None, index: int, kept: str, sent: str) -> Difference:
    return Difference(kind=kind, node=node, message=index, kept=kept[:_SHOWN_CHARACTERS], sent=sent[:_SHOWN_CHARACTERS])
