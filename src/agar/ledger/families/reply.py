"""Reading a model's reply from its ids: marks are found as ids first, then the spans between them are decoded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agar.ledger.canonical import nested_within
from agar.ledger.tokenizer import Tokenizer
from agar.types import Finish, Ids, ToolCall, Turn


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def parse_reply(tokenizer: Tokenizer, ids: Ids, stop_ids: Sequence[int]) -> Turn:
    """Read `<think>`, text and `<tool_call>` spans.

    A call that cannot be read stays in the text as the model wrote it and `parse_error` says why; the calls that can
    be read are kept. `finish` is STOP where the ids end in a stop token, else LENGTH. Call ids are `call_0`, `call_1`
    and so on; the session makes them unique.

    Args:
        tokenizer: decodes spans and knows the marks.
        ids: int32 [n], the sampled ids.
        stop_ids: ids that end a reply.
    """
    values: list[int] = ids.tolist()
    stopped = bool(values) and values[-1] in stop_ids
    if stopped:
        values.pop()
    scan = _Scan(tokenizer=tokenizer, values=values)
    reasoning = scan.leading("<think>", "</think>")
    text: list[str] = []
    calls: list[ToolCall] = []
    error: str | None = None
    for kind, span in scan.spans("<tool_call>", "</tool_call>"):
        if kind == "text":
            text.append(span)
            continue
        call = _call(span, f"call_{len(calls)}") if kind == "call" else "the reply ended inside a tool call"
        if isinstance(call, ToolCall):
            calls.append(call)
        else:
            error = error or call
            text.append(f"<tool_call>{span}" + ("</tool_call>" if kind == "call" else ""))
    said = "".join(text)
    return Turn(
        text=said.strip() if calls or reasoning is not None else said,
        reasoning=reasoning,
        tool_calls=tuple(calls),
        finish=Finish.STOP if stopped else Finish.LENGTH,
        parse_error=error,
    )


@dataclass(slots=True, kw_only=True)
class _Scan:
    """A cursor over the reply; a mark is one id where the tokenizer has it, else a piece of the decoded text."""

    tokenizer: Tokenizer
    values: list[int]

    def leading(self, opening: str, closing: str) -> str | None:
        """Take a reasoning span off the front; one that never ends is all reasoning."""
        start, stop = self.tokenizer.added.get(opening), self.tokenizer.added.get(closing)
        if start is None or stop is None or not self.values:
            return None
        begin = 1 if self.values[0] == start else 0
        if not begin and stop not in self.values:
            return None
        end = self.values.index(stop) if stop in self.values else len(self.values)
        reasoning = self.tokenizer.decode(self.values[begin:end]).strip()
        self.values = self.values[end + 1 :]
        return reasoning

    def spans(self, opening: str, closing: str) -> list[tuple[str, str]]:
        """Split into ("text" | "call" | "open", decoded span)."""
        start, stop = self.tokenizer.added.get(opening), self.tokenizer.added.get(closing)
        if start is None or stop is None:
            return _split_text(self.tokenizer.decode(self.values), opening, closing)
        found: list[tuple[str, str]] = []
        position = 0
        while position < len(self.values):
            begin = _find(self.values, start, position)
            if begin > position:
                found.append(("text", self.tokenizer.decode(self.values[position:begin])))
            if begin == len(self.values):
                break
            end = _find(self.values, stop, begin + 1)
            kind = "call" if end < len(self.values) else "open"
            found.append((kind, self.tokenizer.decode(self.values[begin + 1 : end])))
            position = end + 1
        return found


def _find(values: list[int], wanted: int, start: int) -> int:
    try:
        return values.index(wanted, start)
    except ValueError:
        return len(values)


def _split_text(text: str, opening: str, closing: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while text:
        before, mark, rest = text.partition(opening)
        if before:
            found.append(("text", before))
        if not mark:
            break
        inside, mark, text = rest.partition(closing)
        found.append(("call" if mark else "open", inside))
    return found


def _call(span: str, id: str) -> ToolCall | str:
    """The call in `span`, or why it is none."""
    try:
        value = _decode(span)
        if "\\u" in span:  # a lone surrogate has no UTF-8 form
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return f"a tool call is not JSON: {error}"
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return 'a tool call must be {"name": "...", "arguments": {...}}'
    arguments: Any = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return f"the arguments of tool call {value['name']!r} must be an object"
    if not nested_within(arguments):
        return f"the arguments of tool call {value['name']!r} are nested too deeply"
    return ToolCall(id=id, name=value["name"], arguments=arguments)
