"""A model's own chat template, run in a sandbox: messages to marked text."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Literal

from agar.errors import ConfigError, LedgerError
from agar.ledger.canonical import spell
from agar.ledger.families.marking import Marking
from agar.ledger.families.tool_rows import ToolRows, each_string
from agar.ledger.images import images_of
from agar.types import ImagePart, Message, TextPart, ToolSpec

Row = Mapping[str, Any]
"""A message as chat templates know it, its strings quoted."""


class ChatTemplate:
    """One jinja template over one tokenizer's marked text, rendered as transformers renders it.

    Args:
        text: the template.
        marking: quotes what the messages hold.
        variables: named tokens (`bos_token`, ...) and settings (`enable_thinking`, ...) that the template may read.
        today: the date that it may write (`strftime_now`), midnight by the hour. It stands still: prompts, bridges and
            audits of one conversation must agree on it.
        wire: how it wants tool calls: `object` has their arguments as an object; `json` has them as JSON text, and no
            content where a message has calls and no text, as the APIs send them.

    Raises:
        ConfigError: it is not a jinja template.
    """

    def __init__(
        self,
        text: str,
        *,
        marking: Marking,
        variables: Mapping[str, Any],
        today: date,
        wire: Literal["object", "json"] = "object",
    ) -> None:
        import jinja2

        self.text = text
        self._marking, self._variables, self._wire = marking, dict(variables), wire
        self._tools = ToolRows(marking.quote)
        try:
            self._compiled = _environment(marking, self._tools, today).from_string(text)
        except jinja2.TemplateError as error:
            raise ConfigError(f"the chat template is not jinja ({error}): repair it") from error
        self._compiled.globals = dict(self._compiled.globals)  # copied by every rendering: jinja's own chain is slow

    def render(self, rows: Sequence[Row], tools: Sequence[ToolSpec] = (), *, generation: bool) -> str:
        """Marked text of a conversation.

        Args:
            rows: from `rows`.
            tools: what the model may call.
            generation: end with the opening of the next reply.

        Raises:
            LedgerError: the template refuses the conversation.
        """
        offered = self._tools.of(tools) or None
        try:
            return str(
                self._compiled.render(
                    messages=rows, tools=offered, documents=None, add_generation_prompt=generation, **self._variables
                )
            )
        except Exception as error:  # a template is a program from elsewhere and fails as it likes
            roles = ", ".join(str(row["role"]) for row in rows[-4:])
            raise LedgerError(
                f"the chat template refuses a conversation that ends in {roles}: {error}; send what it can write"
            ) from error

    @property
    def takes_tools(self) -> bool:
        """Whether it has a place for tools."""
        return "tools" in self.text

    def require(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], family: str, *, images: bool = False
    ) -> None:
        """Refuse what the template would leave out without a word.

        Args:
            messages: of the conversation.
            tools: that are offered.
            family: whose template it is.
            images: whether it has a place for images.

        Raises:
            LedgerError: it has no place for tools, tool calls or images.
        """
        if tools and not self.takes_tools:
            raise LedgerError(f"the {family} template has no place for tools: describe them in the system message")
        for message in messages:
            if message.tool_calls and "tool_calls" not in self.text:
                raise LedgerError(f"the {family} template has no place for tool calls: write them as text")
            if not images and not isinstance(message.content, str) and images_of((message,)):
                raise LedgerError(f"a {message.role} message holds an image: the {family} family renders text only")

    def rows(self, messages: Sequence[Message]) -> list[Row]:
        """Messages as the template reads them, their strings quoted."""
        return [self._row(message) for message in messages]

    def _row(self, message: Message) -> Row:
        quote = self._marking.quote
        row: dict[str, Any] = {"role": message.role}
        if not isinstance(message.content, str) and images_of((message,)):
            row["content"] = [self._part(part) for part in message.content]
        else:
            row["content"] = quote(message.text)
            if message.tool_calls and not message.text and self._wire == "json":
                row["content"] = None
        if message.reasoning is not None:
            row["reasoning_content"] = quote(message.reasoning)
        if message.tool_call_id is not None:
            row["tool_call_id"] = quote(message.tool_call_id)
        if message.tool_calls:
            row["tool_calls"] = [
                {
                    "id": quote(call.id),
                    "type": "function",
                    "function": {
                        "name": quote(call.name),
                        "arguments": quote(spell(call.arguments))
                        if self._wire == "json"
                        else each_string(call.arguments, quote),
                    },
                }
                for call in message.tool_calls
            ]
        return row

    def _part(self, part: TextPart | ImagePart) -> Row:
        if isinstance(part, TextPart):
            return {"type": "text", "text": self._marking.quote(part.text)}
        return {"type": "image"}


_DICT_METHODS = frozenset(dir(dict))
_LOOP_PLACES = frozenset({"first", "last", "index", "index0", "previtem", "nextitem"})


def _environment(marking: Marking, tools: ToolRows, today: date) -> Any:
    """Jinja as transformers sets it up, in the sandbox that denies a template everything but its arguments."""
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.runtime import Context, LoopContext, Macro
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what an assistant said, for training masks; here it is only its content."""

        tags = {"generation"}  # noqa: RUF012 (jinja's own way of declaring it)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        def write() -> str:
            plain = each_string(value, marking.unquote)
            options: dict[str, Any] = {"ensure_ascii": ensure_ascii, "indent": indent, "sort_keys": sort_keys}
            return marking.quote(json.dumps(plain, separators=separators, **options))

        return tools.written(value, (ensure_ascii, indent, str(separators), sort_keys), write)

    def refuse(message: str) -> None:
        raise LedgerError(marking.unquote(message))

    class Environment(ImmutableSandboxedEnvironment):
        """Keys of rows, places in loops and the template's own macros need none of the sandbox's questions."""

        def getattr(self, obj: Any, attribute: str) -> Any:
            if type(obj) is dict and attribute not in _DICT_METHODS:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
            if type(obj) is LoopContext and attribute in _LOOP_PLACES:
                return getattr(obj, attribute)
            return super().getattr(obj, attribute)

        def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
            if type(obj) is not Macro:
                return super().call(context, obj, *args, **kwargs)
            kwargs.pop("_loop_vars", None)  # for functions of the context, which a template's own macro is not
            kwargs.pop("_block_vars", None)
            return obj(*args, **kwargs)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = datetime.combine(today, time()).strftime
    return environment
