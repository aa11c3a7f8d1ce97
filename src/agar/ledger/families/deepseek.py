# ruff: noqa: RUF001 (the family's own tokens)
"""DeepSeek's families: V3, R1 with the same layout of tools, and V3.1.

Their templates remember: the block of tool results is opened once a conversation, and system messages move to its
front. The bridge renders new messages after a conversation that has had tools where this one has; a system message in
the middle has no bridge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from agar.ledger.canonical import spell
from agar.ledger.families.calls import Call, CallFormat, UnreadableCall, checked_call, read_json
from agar.ledger.families.marking import Marking
from agar.ledger.families.reply import THINK
from agar.ledger.families.template import Row
from agar.ledger.families.templated import TemplateFamily
from agar.types import Ids, Message, ToolCall, ToolSpec

_CALLS, _END_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _END_CALL, _SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedCalls:
    """Marks around all calls and around each; a type, the name, and the arguments as a fenced block of JSON."""

    opening: str = _CALL
    closing: str = _END_CALL
    around: tuple[str, ...] = (_CALLS, _END_CALLS)

    def read(self, span: str, tools: Sequence[ToolSpec], marking: Marking) -> Call:
        """See `CallFormat.read`."""
        del tools
        _, separator, rest = span.partition(_SEPARATOR)
        name, _, block = marking.unquote(rest).partition("\n")
        text = block.strip()
        if not separator or not (text.startswith("```json") and text.endswith("```")):
            raise UnreadableCall("a tool call must be TYPE, its separator, the name, and a ```json block")
        return checked_call(name.strip(), read_json(text.removeprefix("```json").removesuffix("```")))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCalls:
    """Marks around all calls and around each; the name, a separator, and the arguments as JSON."""

    opening: str = _CALL
    closing: str = _END_CALL
    around: tuple[str, ...] = (_CALLS, _END_CALLS)

    def read(self, span: str, tools: Sequence[ToolSpec], marking: Marking) -> Call:
        """See `CallFormat.read`."""
        del tools
        name, separator, text = span.partition(_SEPARATOR)
        if not separator:
            raise UnreadableCall("a tool call must be the name, its separator, and JSON")
        return checked_call(marking.unquote(name).strip(), read_json(marking.unquote(text)))


class DeepSeekV3(TemplateFamily):
    """DeepSeek-V3 without reasoning."""

    name = "deepseek-v3"
    stops = ("<｜end▁of▁sentence｜>",)
    needs = ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>")
    calls: ClassVar[CallFormat | None] = FencedCalls()
    between: ClassVar[str] = "\n"
    """Between two calls."""
    wire = "json"

    def _probe(self, previous_ids: Ids | tuple[()]) -> list[Row]:
        results = self.tokenizer.added.get("<｜tool▁outputs▁begin｜>")
        if results is None or results not in previous_ids:
            return super()._probe(previous_ids)
        return [*self._question, *self._used, self._slot]

    @property
    def _used(self) -> list[Row]:
        call = Message(role="assistant", tool_calls=(ToolCall(id="c", name="t"),))
        return self.template.rows([call, Message(role="tool", content=".", tool_call_id="c")])

    def _said(self, message: Message, thinking: str | None) -> str:
        """Written here: the template leaves reasoning out, and after a first tool call the opening of the next."""
        quote = self.marking.quote
        reasoning = ""
        if thinking == THINK:
            reasoning = self._reasoned(quote(message.reasoning or ""))
        elif message.reasoning:
            reasoning = THINK + self._reasoned(quote(message.reasoning))
        calls = self.between.join(
            f"{_CALL}{self._call(quote(call.name), quote(spell(call.arguments)))}{_END_CALL}"
            for call in message.tool_calls
        )
        return reasoning + quote(message.text) + (f"{_CALLS}{calls}{_END_CALLS}" if calls else "")

    def _reasoned(self, reasoning: str) -> str:
        return f"{reasoning}\n</think>\n\n"

    def _call(self, name: str, arguments: str) -> str:
        return f"function{_SEPARATOR}{name}\n```json\n{arguments}\n```"


class DeepSeekR1(DeepSeekV3):
    """DeepSeek-R1, R1-0528 and V3-0324: a first prompt ends inside the reasoning, one after tool results does not."""

    name = "deepseek-r1"
    thinks = True
    unopened = True


class DeepSeekV31(DeepSeekV3):
    """DeepSeek-V3.1: the prompt's last mark switches the reasoning, which is off by default."""

    name = "deepseek-v3.1"
    calls = NamedCalls()
    between = ""
    thinks = True

    def _reasoned(self, reasoning: str) -> str:
        return f"{reasoning}</think>"

    def _call(self, name: str, arguments: str) -> str:
        return f"{name}{_SEPARATOR}{arguments}"
