"""Llama 3: a reply is text or, where tools were offered, one JSON object that names a tool.

Nothing marks a call, so that it is looked for only where there are tools. Reasoning has no place.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agar.errors import LedgerError
from agar.ledger.families.calls import ARGUMENTS, UnreadableCall, after_space, json_call
from agar.ledger.families.growing import GrowingReply
from agar.ledger.families.templated import TemplateFamily
from agar.types import Ids, Message, ToolCall, ToolSpec, Turn

_PYTHON = "<|python_tag|>"


class Llama3(TemplateFamily):
    """Llama 3, 3.1, 3.2 and 3.3 (text)."""

    name = "llama3"
    stops = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
    needs = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")

    def _said(self, message: Message, thinking: str | None) -> str:
        if message.tool_calls and message.text:
            raise LedgerError("a llama3 model says text or makes a call, never both: leave one out")
        return super()._said(message, thinking)

    def parse(
        self, ids: Ids, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, call_id: str = "call"
    ) -> Turn:
        """Read a reply from its ids; see `Family.parse`."""
        turn = super().parse(ids, tools, prompt=prompt, call_id=call_id)
        python = self.tokenizer.added.get(_PYTHON)
        tagged = python is not None and len(ids) > 0 and int(ids[0]) == python
        body = turn.text.removeprefix(_PYTHON) if tagged else turn.text
        if not tools or not (tagged or body.lstrip().startswith("{")):
            return turn
        try:
            calls = _calls(body.strip(), tools, tagged=tagged, call_id=call_id)
        except UnreadableCall as reason:
            return Turn(text=turn.text, finish=turn.finish, parse_error=str(reason))
        return Turn(tool_calls=calls, finish=turn.finish) if calls else turn

    def grow(
        self, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, holds: Sequence[str] = ()
    ) -> GrowingReply | None:
        """Read a reply while it is sampled; see `Family.grow`. One that may be a call is read as a whole."""
        return self._grow(prompt, holds, whole=("{", _PYTHON) if tools else ())


def _calls(text: str, tools: Sequence[ToolSpec], *, tagged: bool, call_id: str) -> tuple[ToolCall, ...]:
    """The calls of JSON objects; none where it is an answer that happens to be JSON.

    Raises:
        UnreadableCall: it was meant as a call and is none.
    """
    try:
        spans = list(_objects(text))
    except UnreadableCall:
        if tagged or any(f'"{word}"' in text for word in (*ARGUMENTS, *(tool.name for tool in tools))):
            raise
        return ()
    if not tagged and not any(_meant(value, tools) for _, value in spans):
        return ()
    calls = [json_call(span) for span, _ in spans]
    return tuple(
        [
            ToolCall(id=f"{call_id}_{index}", name=call.name, arguments=call.arguments)
            for index, call in enumerate(calls)
        ]
    )


def _meant(value: Any, tools: Sequence[ToolSpec]) -> bool:
    """Whether an object is a call, well-formed or not: it names a tool that was offered, or brings arguments."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    return any(key in value for key in ARGUMENTS) or any(value["name"] == tool.name for tool in tools)


def _objects(text: str) -> Iterator[tuple[str, Any]]:
    """JSON values with a semicolon or white space between them: the text of each, and the value.

    Raises:
        UnreadableCall: something else stands there.
    """
    position = 0
    while position < len(text):
        try:
            value, stop = _decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise UnreadableCall(f"a tool call is not JSON: {error}") from error
        yield text[position:stop], value
        position = after_space(text, stop)
        if text.startswith(";", position):
            position = after_space(text, position + 1)


_decoder = json.JSONDecoder()
