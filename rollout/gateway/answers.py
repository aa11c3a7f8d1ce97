"""From sampled tokens to what a caller gets of them; the record keeps the tokens whole whatever the caller is shown."""

from collections.abc import Sequence
from dataclasses import replace

from agar.ledger.canonical import spell
from agar.rollout.gateway.call import ModelCall
from agar.types import Finish, Turn


def turn_of(parsed: Turn, finish: Finish, call: ModelCall) -> tuple[Turn, str | None]:
    """The turn that the caller of `call` gets, and the text of its own that ended it.

    Args:
        parsed: the reply as the family reads it.
        finish: why the engine ended it.
        call: what the caller takes.
    """
    turn = parsed if parsed.finish is finish else replace(parsed, finish=finish)
    if call.max_calls is not None and len(turn.tool_calls) > call.max_calls:
        turn = _withhold(turn, call.max_calls)
    return _cut(turn, call.stop) if call.stop else (turn, None)


def _withhold(turn: Turn, kept: int) -> Turn:
    """A caller that forbade tool calls would not know what to do with them."""
    told = ", ".join(f"{call.name}({spell(call.arguments)})" for call in turn.tool_calls[kept:])
    error = f"the model made more tool calls than the {kept} that the request allows: {told} withheld"
    errors = [error] if turn.parse_error is None else [turn.parse_error, error]
    return replace(turn, tool_calls=turn.tool_calls[:kept], parse_error="; ".join(errors))


def _cut(turn: Turn, stop: Sequence[str]) -> tuple[Turn, str | None]:
    """End the reply before the first of the caller's texts: the engine sampled that text, and callers do not expect it.

    Not all engines end there by themselves, and none does where a publish cut the text in two.
    """
    if found := _first(turn.reasoning or "", stop):
        said, text = found
        return replace(turn, reasoning=said, text="", tool_calls=(), finish=Finish.STOP), text
    if found := _first(turn.text, stop):
        said, text = found
        return replace(turn, text=said, finish=Finish.STOP), text
    return turn, None


def _first(said: str, stop: Sequence[str]) -> tuple[str, str] | None:
    """What was said before the first of the texts, and that text."""
    found = [(at, text) for text in stop if (at := said.find(text)) >= 0]
    return (said[: min(found)[0]], min(found)[1]) if found else None
