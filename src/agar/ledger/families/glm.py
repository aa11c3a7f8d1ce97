"""GLM's families (4.5 to 4.7): a reply ends in the mark of whoever speaks next.

So the last sampled token is the opening of the next message. Where another role comes instead (the model asked for a
tool's result and gets a user's word), no template writes what was sampled: there is no bridge.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agar.ledger.families.arguments import typed
from agar.ledger.families.calls import Call, UnreadableCall, checked_call, span_after
from agar.ledger.families.marking import Marking
from agar.ledger.families.reply import THINK, UNTHINK
from agar.ledger.families.templated import TemplateFamily
from agar.types import Message, ToolSpec

_USER, _OBSERVATION = "<|user|>", "<|observation|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCalls:
    """`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>`."""

    opening: str = "<tool_call>"
    closing: str = "</tool_call>"
    around: tuple[str, ...] = ()

    def read(self, span: str, tools: Sequence[ToolSpec], marking: Marking) -> Call:
        """See `CallFormat.read`."""
        named, mark, rest = span.partition("<arg_key>")
        name = marking.unquote(named).strip()
        if not name or "\n" in name:
            raise UnreadableCall("a tool call must begin with the tool's name on a line of its own")
        position, body, arguments = 0, mark + rest, {}
        while key_span := span_after(body, position, "<arg_key>", "</arg_key>"):
            value_span = span_after(body, key_span[1], "<arg_value>", "</arg_value>")
            if value_span is None:
                break
            key = marking.unquote(key_span[0]).strip()
            arguments[key] = typed(marking.unquote(value_span[0]), name, key, tools)
            position = value_span[1]
        if body[position:].strip():
            raise UnreadableCall(f"tool call {name!r} holds something besides <arg_key> and <arg_value>")
        return checked_call(name, arguments)


class Glm45(TemplateFamily):
    """GLM-4.5 and GLM-4.6."""

    name = "glm4.5"
    stops = (_USER, _OBSERVATION, "<|endoftext|>")
    needs = ("<|assistant|>", _USER, _OBSERVATION)
    calls = KeyedCalls()
    thinks = True
    plain_results = True

    def _stop(self, message: Message) -> int:
        return self.tokenizer.added[_OBSERVATION if message.tool_calls else _USER]

    def _follows(self, last: int, ids: Sequence[int]) -> Sequence[int] | None:
        if ids and ids[0] == last:
            return ids[1:]
        return None if ids and last in (self.tokenizer.added[_USER], self.tokenizer.added[_OBSERVATION]) else ids


class Glm47(Glm45):
    """GLM-4.7: a prompt ends inside the reasoning; a turn without any closes it at once."""

    name = "glm4.7"

    def _said(self, message: Message, thinking: str | None) -> str:
        if thinking != THINK or message.reasoning:
            return super()._said(message, thinking)
        rows = [*self._question, *self.template.rows([message])]
        written = self.template.render(rows, generation=False).removeprefix(self._before)
        return written[written.index(UNTHINK) :]
