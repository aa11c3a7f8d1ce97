"""The ChatML families: agar's own with tools and reasoning, whose template is here, and the plain one.

    <|im_start|>system            the system message and, where there are tools, one JSON line per tool
    <|im_start|>user              text, or the results of a turn's tool calls
    <|im_start|>assistant         <think> reasoning </think>, text, <tool_call> JSON </tool_call>

`TEMPLATE` keeps reasoning in earlier turns, so that a conversation's prompt only ever grows.
"""

from agar.ledger.families.calls import JsonCalls
from agar.ledger.families.model import ChatModel
from agar.ledger.families.templated import TemplateFamily
from agar.ledger.tokenizer import Tokenizer

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


class PlainChatML(TemplateFamily):
    """ChatML without tools and without reasoning: roles and texts."""

    name = "chatml-plain"
    stops = (END, "<|endoftext|>")
    needs = (START, END)


class ChatML(PlainChatML):
    """agar's own ChatML over one tokenizer."""

    name = "chatml"
    calls = JsonCalls()
    thinks = True
    plain_results = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look the control tokens up.

        Raises:
            ConfigError: the tokenizer lacks one.
        """
        super().__init__(ChatModel(tokenizer=tokenizer, template=TEMPLATE))
