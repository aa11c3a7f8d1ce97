"""Llama 3: a reply is text or, where tools were offered, one JSON object that names a tool.

Nothing marks a call, so that it is looked for only where there are tools. Reasoning has no place.
"""

import json
from collections.abc import Sequence

from agar.errors import LedgerError
from agar.ledger.families.calls import UnreadableCall, after_space, json_call
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

    def parse(self, ids: Ids, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None) -> Turn:
        """Read a reply from its ids; see `Family.parse`."""
        turn = super().parse(ids, tools, prompt=prompt)
        python = self.tokenizer.added.get(_PYTHON)
        tagged = python is not None and len(ids) > 0 and int(ids[0]) == python
        body = turn.text.removeprefix(_PYTHON) if tagged else turn.text
        if not tools or not (tagged or body.lstrip().startswith("{")):
            return turn
        try:
            calls = _objects(body)
        except UnreadableCall as reason:
            meant = tagged or '"name"' in body  # else it is an answer that happens to be JSON
            return Turn(text=turn.text, finish=turn.finish, parse_error=str(reason) if meant else None)
        return Turn(tool_calls=calls, finish=turn.finish)

    def grow(
        self, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, holds: Sequence[str] = ()
    ) -> GrowingReply | None:
        """Read a reply while it is sampled; see `Family.grow`. One that may be a call is read as a whole."""
        return self._grow(prompt, holds, whole=("{", _PYTHON) if tools else ())


def _objects(text: str) -> tuple[ToolCall, ...]:
    """The calls of JSON objects with a semicolon or white space between them.

    Raises:
        UnreadableCall: one of them is no call.
    """
    calls: list[ToolCall] = []
    text, position = text.strip(), 0
    while position < len(text):
        try:
            stop = _decoder.raw_decode(text, position)[1]
        except (ValueError, RecursionError) as error:
            raise UnreadableCall(f"a tool call is not JSON: {error}") from error
        call = json_call(text[position:stop], "parameters")
        calls.append(ToolCall(id=f"call_{len(calls)}", name=call.name, arguments=call.arguments))
        position = after_space(text, stop)
        if text.startswith(";", position):
            position = after_space(text, position + 1)
    return tuple(calls)


_decoder = json.JSONDecoder()
