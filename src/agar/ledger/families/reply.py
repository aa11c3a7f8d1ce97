"""Reading a reply's marked text: reasoning, what was said, tool calls."""

from collections.abc import Iterator, Sequence

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
) -> Turn:
    """A reply's marked text as a turn.

    A call that cannot be read stays in the text as the model wrote it and `parse_error` says why; the calls that can
    be read are kept. Call ids are `call_0`, `call_1` and so on; the session makes them unique.

    Args:
        reply: marked text without the token that ended it.
        marking: of the family's tokenizer.
        calls: how calls are written; None where the family has none.
        tools: what was offered.
        thinks: whether its models reason; else marks of reasoning are text like any other.
        thinking: the reasoning mark that the prompt ended in, where it ended in one.
        unopened: whether a closing mark of reasoning makes all before it reasoning, opened or not.
        finish: why the reply ended.
    """
    reasoning, rest = None, reply
    if thinks:
        reasoning, rest = split_reasoning(reply, inside=thinking == THINK, unopened=unopened)
    text: list[str] = []
    found: list[ToolCall] = []
    error: str | None = None
    for is_call, span in _spans(rest, calls):
        if calls is None or not is_call:
            text.append(span)
            continue
        inner = span.removeprefix(calls.opening)
        try:
            if not inner.endswith(calls.closing):
                raise UnreadableCall("the reply ended inside a tool call")
            call = calls.read(inner.removesuffix(calls.closing), tools, marking)
        except UnreadableCall as reason:
            error = error or str(reason)
            text.append(span)
        else:
            found.append(ToolCall(id=f"call_{len(found)}", name=call.name, arguments=call.arguments))
    said = "".join(text)
    if found and calls is not None:
        for mark in calls.around:
            said = said.replace(mark, "")
    said = marking.unquote(said)
    return Turn(
        text=said.strip() if found or reasoning is not None or thinking else said,
        reasoning=marking.unquote(reasoning).strip() or None if reasoning is not None else None,
        tool_calls=tuple(found),
        finish=finish,
        parse_error=error,
    )


def _spans(text: str, calls: CallFormat | None) -> Iterator[tuple[bool, str]]:
    """Pieces of marked text, and whether each begins with a call's opening."""
    position = 0
    while calls is not None and (start := text.find(calls.opening, position)) >= 0:
        if position < start:
            yield False, text[position:start]
        stop = text.find(calls.closing, start + len(calls.opening))
        position = len(text) if stop < 0 else stop + len(calls.closing)
        yield True, text[start:position]
    if position < len(text):
        yield False, text[position:]
