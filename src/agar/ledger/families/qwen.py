"""Qwen's families: ChatML with JSON tool calls (2.5, 3) or calls between tags (3.5, 3.6).

Their templates leave out the reasoning of turns before the last question. A reply ends in `<|im_end|>`; the newline
behind it is the template's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from agar.ledger.families.arguments import typed
from agar.ledger.families.calls import (
    Call,
    CallFormat,
    JsonCalls,
    UnreadableCall,
    after_space,
    checked_call,
    span_after,
)
from agar.ledger.families.marking import Marking
from agar.ledger.families.templated import TemplateFamily
from agar.types import ToolSpec


class Qwen25(TemplateFamily):
    """Qwen2.5, and Qwen3 without reasoning."""

    name = "qwen2.5"
    stops = ("<|im_end|>", "<|endoftext|>")
    needs = ("<|im_start|>", "<|im_end|>")
    calls: ClassVar[CallFormat | None] = JsonCalls()
    plain_results = True


class Qwen3(Qwen25):
    """Qwen3 with its switchable reasoning."""

    name = "qwen3"
    thinks = True


class Qwen25VL(Qwen25):
    """Qwen2.5-VL: images, no tools."""

    name = "qwen2.5-vl"
    plain_results = False  # it has no place for them
    calls = None
    image = "<|image_pad|>"


class Qwen3VL(Qwen25):
    """Qwen3-VL without reasoning: images in questions and in tools' results."""

    name = "qwen3-vl"
    image = "<|image_pad|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedCalls:
    """`<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>`."""

    opening: str = "<tool_call>"
    closing: str = "</tool_call>"
    around: tuple[str, ...] = ()

    def read(self, span: str, tools: Sequence[ToolSpec], marking: Marking) -> Call:
        """See `CallFormat.read`. One line end around a value is the format's, more are the value's."""
        found = _FUNCTION.fullmatch(span.strip())
        if found is None:
            raise UnreadableCall("a tool call must be <function=NAME>...</function>")
        name, body = marking.unquote(found[1]).strip(), found[2]
        position, arguments = 0, {}
        while key_span := span_after(body, position, "<parameter=", ">"):
            stop = _end_of_value(body, key_span[1])
            if stop < 0 or "\n" in key_span[0]:
                break
            key = marking.unquote(key_span[0])
            value = body[key_span[1] : stop].removeprefix("\n").removesuffix("\n")
            arguments[key] = typed(marking.unquote(value), name, key, tools)
            position = stop + len(_END)
        if body[position:].strip():
            raise UnreadableCall(f"tool call {name!r} holds something besides <parameter=KEY>...</parameter>")
        return checked_call(name, arguments)


_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*)</function>", re.DOTALL)
_END = "</parameter>"


def _end_of_value(body: str, position: int) -> int:
    """Where a value ends: at the first closing tag that only another parameter may follow; -1 where there is none."""
    while (stop := body.find(_END, position)) >= 0:
        following = after_space(body, stop + len(_END))
        if following == len(body) or body.startswith("<parameter=", following):
            break
        position = stop + len(_END)
    return stop


class Qwen35(Qwen3):
    """Qwen3.5 and Qwen3.6."""

    name = "qwen3.5"
    plain_results = False  # trimmed
    calls = TaggedCalls()
