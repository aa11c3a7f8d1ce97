"""The ChatML family with tools, and its chat template.

    <|im_start|>system            the system message and, where there are tools, one JSON line per tool
    <|im_start|>user              text, or the results of a turn's tool calls
    <|im_start|>assistant         <think> reasoning </think>, text, <tool_call> JSON </tool_call>

`TEMPLATE` is the same layout in jinja, for engines and for transformers; a test holds the two together. It keeps
reasoning in earlier turns, so that a conversation's prompt only ever grows.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from agar.errors import ConfigError, LedgerError
from agar.ledger.families.reply import parse_reply
from agar.ledger.tokenizer import Tokenizer
from agar.types import Bools, Finish, Ids, ImagePart, Message, ToolSpec, Turn

TEMPLATE = r"""{%- macro assistant(m) -%}
{%- if m.reasoning_content -%}{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' -}}{%- endif -%}
{{- m.content or '' -}}
{%- for call in m.tool_calls or [] -%}
{%- set f = call.function or call -%}
{%- if m.content or not loop.first -%}{{- '\n' -}}{%- endif -%}
{{- '<tool_call>\n{"name":' + f.name | tojson(separators=(',', ':')) + ',"arguments":' -}}
{%- if f.arguments is string -%}{{- f.arguments -}}
{%- else -%}{{- f.arguments | tojson(separators=(',', ':')) -}}{%- endif -%}
{{- '}\n</tool_call>' -}}
{%- endfor -%}
{%- endmacro -%}
{%- set first = messages[0].role == 'system' -%}
{%- if tools or first -%}
{{- '<|im_start|>system\n' -}}
{%- if first -%}{{- messages[0].content -}}{%- endif -%}
{%- if tools -%}
{{- ('\n' if first and messages[0].content else '') + '<tools>\n' -}}
{%- for tool in tools -%}{{- (tool.function or tool) | tojson(separators=(',', ':')) + '\n' -}}{%- endfor -%}
{{- '</tools>' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- elif m.role == 'assistant' -%}
{{- '<|im_start|>assistant\n' + assistant(m) + '<|im_end|>\n' -}}
{%- elif not (loop.first and first) -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
"""The family's chat template; goes into `chat_template.jinja` of a model directory."""

START, END = "<|im_start|>", "<|im_end|>"
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
SPECIAL_TOKENS = ("<|endoftext|>", START, END, *MARKS)
"""Added tokens that a tokenizer for this family should have, in this order; the first three are required as control
tokens, `<tool_call>` and the other marks are one token each where they are present and plain text where not."""

_Piece = tuple[str, bool, bool]
"""Text; whether it is structure of ours (may be a control token); whether an assistant would have sampled it."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def spell(value: Any) -> str:
    """Canonical JSON of tool arguments and schemas: compact, key order kept, no ASCII escapes."""
    return _encode(value)


class ChatML:
    """ChatML over one tokenizer."""

    name = "chatml"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look the control tokens up.

        Raises:
            ConfigError: the tokenizer lacks one.
        """
        missing = [token for token in (START, END) if token not in tokenizer.added]
        if missing:
            raise ConfigError(f"the chatml family needs the added tokens {missing}: add them to the tokenizer")
        self.tokenizer = tokenizer
        self._end = tokenizer.added[END]
        also = tokenizer.added.get("<|endoftext|>")
        self.stop_ids: tuple[int, ...] = (self._end,) if also is None else (self._end, also)

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The whole prompt; see `Family.render`."""
        return self._encode([*_conversation(messages, tools), *_GENERATE])

    def bridge(self, previous_ids: Ids, finish: Finish, new_messages: Sequence[Message]) -> Ids | None:
        """Closer, new messages, generation prompt; see `Family.bridge`."""
        del finish  # the ids themselves say whether the turn was closed
        closed = len(previous_ids) > 0 and int(previous_ids[-1]) == self._end
        closer: list[_Piece] = [] if closed else [(END, True, False)]
        return self._encode([*closer, ("\n", False, False), *_turns(new_messages), *_GENERATE])

    def parse(self, ids: Ids) -> Turn:
        """Read a reply from its ids; see `Family.parse`."""
        return parse_reply(self.tokenizer, ids, self.stop_ids)

    def transcript(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[Ids, Bools]:
        """Ids and assistant mask of a finished conversation; see `Family.transcript`."""
        runs = list(self._runs(_conversation(messages, tools)))
        mask = [sampled for ids, sampled in runs for _ in ids]
        return _joined(runs), np.array(mask, dtype=np.bool_)

    def _encode(self, pieces: Iterable[_Piece]) -> Ids:
        return _joined(self._runs(pieces))

    def _runs(self, pieces: Iterable[_Piece]) -> Iterator[tuple[Sequence[int], bool]]:
        """Ids in order, and whether an assistant would have sampled them.

        Plain text between control tokens is encoded as a whole, as a tokenizer does with the rendered text.
        """
        run: list[str] = []
        run_sampled = False
        for text, structural, sampled in pieces:
            token = self.tokenizer.added.get(text) if structural else None
            if run and (token is not None or sampled != run_sampled):
                yield self.tokenizer.ids_of("".join(run)), run_sampled
                run.clear()
            run_sampled = sampled
            if token is not None:
                yield (token,), sampled
            elif text:
                run.append(text)
        if run:
            yield self.tokenizer.ids_of("".join(run)), run_sampled


def _joined(runs: Iterable[tuple[Sequence[int], bool]]) -> Ids:
    return np.array([token for ids, _ in runs for token in ids], dtype=np.int32)


_GENERATE: tuple[_Piece, ...] = ((START, True, False), ("assistant\n", False, False))


def _conversation(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[_Piece]:
    pieces: list[_Piece] = []
    has_system = bool(messages) and messages[0].role == "system"
    if tools or has_system:
        system = _text(messages[0]) if has_system else ""
        block = system
        if tools:
            lines = "".join(f"{spell(_function(tool))}\n" for tool in tools)
            block += ("\n" if system else "") + f"<tools>\n{lines}</tools>"
        pieces += [(START, True, False), (f"system\n{block}", False, False), (END, True, False), ("\n", False, False)]
    pieces += _turns(messages[1:] if has_system else messages)
    return pieces


def _turns(messages: Sequence[Message]) -> Iterator[_Piece]:
    for index, message in enumerate(messages):
        if message.role == "tool":
            yield from _result(
                message,
                first=index == 0 or messages[index - 1].role != "tool",
                last=index + 1 == len(messages) or messages[index + 1].role != "tool",
            )
        elif message.role == "assistant":
            yield from _GENERATE
            yield from _assistant(message)
            yield END, True, True
            yield "\n", False, False
        else:
            yield START, True, False
            yield f"{message.role}\n{_text(message)}", False, False
            yield END, True, False
            yield "\n", False, False


def _result(message: Message, *, first: bool, last: bool) -> Iterator[_Piece]:
    if first:
        yield START, True, False
        yield "user", False, False
    yield "\n", False, False
    yield "<tool_response>", True, False
    yield f"\n{_text(message)}\n", False, False
    yield "</tool_response>", True, False
    if last:
        yield END, True, False
        yield "\n", False, False


def _assistant(message: Message) -> Iterator[_Piece]:
    if message.reasoning:
        yield "<think>", True, True
        yield f"\n{message.reasoning}\n", False, True
        yield "</think>", True, True
        yield "\n\n", False, True
    text = _text(message)
    yield text, False, True
    for index, call in enumerate(message.tool_calls):
        if text or index:
            yield "\n", False, True
        yield "<tool_call>", True, True
        yield f'\n{{"name":{spell(call.name)},"arguments":{spell(dict(call.arguments))}}}\n', False, True
        yield "</tool_call>", True, True


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    if any(isinstance(part, ImagePart) for part in message.content):
        raise LedgerError(f"a {message.role} message holds an image: the chatml family renders text only")
    return message.text
