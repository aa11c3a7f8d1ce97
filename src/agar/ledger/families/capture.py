"""The capture path: any model whose template no family is registered for.

Each call gets its own full prompt, rendered by the model's own template. There is no bridge: where a prompt happens to
begin with the ids of an earlier call, the forest hangs it there, otherwise it is a new root.
"""

from collections.abc import Sequence

from agar.errors import ConfigError, LedgerError
from agar.ledger.families.calls import JsonCalls
from agar.ledger.families.growing import GrowingReply
from agar.ledger.families.marking import Marking
from agar.ledger.families.model import ChatModel
from agar.ledger.families.reply import THINK, UNTHINK, read_reply, reasoning_mark
from agar.ledger.families.template import ChatTemplate
from agar.types import Bools, Finish, Ids, Message, ToolCall, ToolSpec, Turn


class Capture:
    """Any chat template over one tokenizer.

    Replies are read by the marks that the tokenizer has: `<think>` for reasoning, `<tool_call>` around JSON for calls.
    A model that writes its calls otherwise needs a family of its own; they stay text here.

    Args:
        model: tokenizer, template, and the ids that end a reply.

    Raises:
        ConfigError: nothing says which token ends a reply.
    """

    name = "capture"
    image_token = None

    def __init__(self, model: ChatModel) -> None:
        if not model.end_ids:
            raise ConfigError(
                "nothing says which token ends a reply: set eos_token in tokenizer_config.json, or eos_token_id in "
                "generation_config.json"
            )
        self.tokenizer = model.tokenizer
        self.stop_ids = model.end_ids
        self._marking = Marking(model.tokenizer)
        as_objects, as_json = (
            ChatTemplate(model.template, marking=self._marking, variables=model.variables, today=model.today, wire=wire)
            for wire in ("object", "json")
        )
        self._template = as_objects if _takes_calls(as_objects) or not _takes_calls(as_json) else as_json
        calls = JsonCalls()
        self._thinks = {THINK, UNTHINK} <= model.tokenizer.added.keys()
        self._calls = calls if calls.opening in model.tokenizer.added else None

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The whole prompt; see `Family.render`."""
        self._template.require(messages, tools, "model's")
        return self._marking.ids(self._template.render(self._template.rows(messages), tools, generation=True))

    def bridge(self, previous_ids: Ids, finish: Finish, new_messages: Sequence[Message]) -> Ids | None:
        """None: nothing is known of the template."""
        del previous_ids, finish, new_messages
        return None

    def parse(
        self, ids: Ids, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, call_id: str = "call"
    ) -> Turn:
        """Read a reply by the tokenizer's marks; see `Family.parse`."""
        values: list[int] = ids.tolist()
        stopped = bool(values) and values[-1] in self.stop_ids
        return read_reply(
            self._marking.decode(values[:-1] if stopped else values),
            marking=self._marking,
            calls=self._calls,
            tools=tools,
            thinks=self._thinks,
            thinking=None if prompt is None else reasoning_mark(self._marking.last_token(prompt)),
            unopened=True,
            finish=Finish.STOP if stopped else Finish.LENGTH,
            call_id=call_id,
        )

    def grow(
        self, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, holds: Sequence[str] = ()
    ) -> GrowingReply | None:
        """None: nothing is known of how the model reasons."""
        del tools, prompt, holds
        return None

    def strips_reasoning(self, new_messages: Sequence[Message]) -> bool:
        """False: every prompt is the template's own rendering already."""
        del new_messages
        return False

    def transcript(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[Ids, Bools]:
        """Not to be had: which of a template's tokens a model would sample, only a family knows.

        Raises:
            LedgerError: always.
        """
        del messages, tools
        raise LedgerError("a model without a family has no transcripts to learn from: register a family for it")


def _takes_calls(template: ChatTemplate) -> bool:
    call = ToolCall(id="c", name="t", arguments={"a": 1})
    messages = [
        Message(role="user", content="."),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=".", tool_call_id="c"),
    ]
    try:
        return bool(template.render(template.rows(messages), generation=True))
    except LedgerError:
        return False
