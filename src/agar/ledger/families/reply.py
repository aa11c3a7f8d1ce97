"""Reading a reply's marked text: reasoning, what was said, tool calls."""

from collections.abc import Sequence

from agar.ledger.families.calls import CallFormat, UnreadableCall
from agar.ledger.families.marking import Marking
from agar.types import Finish, ToolCall, ToolSpec, Turn

THINK, UNTHINK = "<think>", "</think>"


def reasoning_mark(token: str | None) -> str | None:
    """The token where it is a mark of reasoning."""
    return token if token in (THINK, UNTHINK) else None


def split_reasoning(reply: str, *, inside: bool, unopened: bool) -> tuple[str | None, str]:
    """Take the reasoning off the front of a reply's marked text.

    Args:
        reply: marked text.
        inside: whether the prompt ended inside the reasoning.
        unopened: whether a closing mark makes all before it reasoning, opened or not.

    Returns:
        The reasoning, or None where there is no such block, and what follows. A block that never ends is all reasoning.
    """
    opened = reply.lstrip().startswith(THINK)
    if not (inside or opened or (unopened and UNTHINK in reply)):
        return None, reply
    before, _, after = reply.partition(UNTHINK)
    return before.partition(THINK)[2] if opened else before, after


def read_reply(
    reply: str,
    *,
    marking: Marking,
    calls: CallFormat | None,
    tools: Sequence[ToolSpec],
    thinks: bool,
    thinking: str | None,
    unopened: bool,
    finish: Finish,
    call_id: str,
) -> Turn:
    """A reply's marked text as a turn.

    A call that cannot be read stays in the text as the model wrote it and `parse_error` says why; the calls that can
    be read are kept.

    Args:
        reply: marked text without the token that ended it.
        marking: of the family's tokenizer.
        calls: how calls are written; None where the family has none.
        tools: what was offered.
        thinks: whether its models reason; else marks of reasoning are text like any other.
        thinking: the reasoning mark that the prompt ended in, where it ended in one.
        unopened: whether a closing mark of reasoning makes all before it reasoning, opened or not.
        finish: why the reply ended.
        call_id: what the ids of its calls begin with.
    """
    reasoning, said = None, reply
    if thinks:
        reasoning, said = split_reasoning(reply, inside=thinking == THINK, unopened=unopened)
    found: tuple[ToolCall, ...] = ()
    error: str | None = None
    if calls is not None and calls.opening in said:
        said, found, error = _without_calls(said, calls, tools, marking, call_id)
    said = marking.unquote(said)
    return Turn(
        text=said.strip() if found or reasoning is not None or thinking else said,
        reasoning=marking.unquote(reasoning).strip() or None if reasoning is not None else None,
        tool_calls=found,
        finish=finish,
        parse_error=error,
    )


def _without_calls(
    text: str, calls: CallFormat, tools: Sequence[ToolSpec], marking: Marking, call_id: str
) -> tuple[str, tuple[ToolCall, ...], str | None]:
    """Marked text without the calls in it, the calls, and why the first that is none is none."""
    opening, closing = calls.opening, calls.closing
    pieces: list[str] = []
    found: list[ToolCall] = []
    error: str | None = None
    position = 0
    while (start := text.find(opening, position)) >= 0:
        pieces.append(text[position:start])
        inside = start + len(opening)
        stop = text.find(closing, inside)
        position = len(text) if stop < 0 else stop + len(closing)
        try:
            if stop < 0:
                raise UnreadableCall("the reply ended inside a tool call")
            call = calls.read(text[inside:stop], tools, marking)
        except UnreadableCall as reason:
            error = error or str(reason)
            pieces.append(text[start:position])
        else:
            found.append(ToolCall(id=f"{call_id}_{len(found)}", name=call.name, arguments=call.arguments))
    pieces.append(text[position:])
    said = "".join(pieces)
    if found:
        for mark in calls.around:
            said = said.replace(mark, "")
    return said, tuple(found), error
