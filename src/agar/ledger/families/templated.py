"""A family over its model's own chat template: what all of them share.

The template itself writes every prompt, so that a prompt is the model's own rendering by construction. What a family
adds is what no template says: how to go on from ids that are there already, and how to read a reply.

The bridge comes from the template too. A probe conversation whose reply is a slot is rendered together with the new
messages; what follows the slot is the bridge, and what comes before it must be what came before it without them. Where
it is not, the template rewrites history for these messages, and there is no bridge.

Most new messages are results of tools. Where a template writes those as they are, what it writes around one is what it
writes around every other: it is run once with slots in their place, and then no more.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from agar.errors import ConfigError, LedgerError
from agar.ledger.families.calls import CallFormat
from agar.ledger.families.frame import Frame
from agar.ledger.families.growing import GrowingReply
from agar.ledger.families.marking import SLOTS, Marking
from agar.ledger.families.model import ChatModel
from agar.ledger.families.reply import THINK, UNTHINK, read_reply, reasoning_mark
from agar.ledger.families.template import ChatTemplate, Row
from agar.ledger.images import images_of, require_all_images
from agar.types import Bools, Finish, Ids, Message, ToolSpec, Turn

_REPLY, _REASONING, _RESULT = SLOTS
_FRAMED = 8  # the most results at once whose surroundings are kept
_AWKWARD = " \n</think><tool_response>{{ 0 }}\n</tool_response> \n"  # what a template that looks into it would change


class TemplateFamily:
    """One family over one model; subclasses say what its template does not.

    Args:
        model: tokenizer and template.

    Raises:
        ConfigError: the tokenizer lacks a control token of the family, or its template is not one of this family.
    """

    name: ClassVar[str]
    """Its registered name."""
    stops: ClassVar[tuple[str, ...]]
    """Tokens that end a reply, where the tokenizer has them; the first is the one that the template writes."""
    needs: ClassVar[tuple[str, ...]]
    """Tokens without which there is no conversation."""
    calls: ClassVar[CallFormat | None] = None
    """How its models write tool calls."""
    thinks: ClassVar[bool] = False
    """Whether its models reason before they answer."""
    unopened: ClassVar[bool] = False
    """Whether its models may reason without an opening mark where the prompt has none either."""
    plain_results: ClassVar[bool] = False
    """Whether its template writes a tool's result as it is: it reads nothing else of it, and does not look into it."""
    image: ClassVar[str | None] = None
    """The token that its template writes for an image; None where it takes text only."""
    wire: ClassVar[Literal["object", "json"]] = "object"
    """How its template wants tool calls: see `ChatTemplate`."""

    def __init__(self, model: ChatModel) -> None:
        self.tokenizer = model.tokenizer
        missing = [token for token in self.needs if token not in self.tokenizer.added]
        if missing:
            raise ConfigError(f"the {self.name} family needs the added tokens {missing}: add them to the tokenizer")
        self.image_token = None if self.image is None else self.tokenizer.added[self.image]
        self.stop_ids: tuple[int, ...] = tuple(
            self.tokenizer.added[token] for token in self.stops if token in self.tokenizer.added
        )
        # Where the marks are no tokens, nobody sees that a prompt ended inside the reasoning.
        self._unopened = self.unopened or (self.thinks and THINK not in self.tokenizer.added)
        self.marking = Marking(self.tokenizer)
        self.template = ChatTemplate(
            model.template, marking=self.marking, variables=model.variables, today=model.today, wire=self.wire
        )
        self._frames: dict[tuple[int, bool], Frame | None] = {}  # by the number of results and whether a reply follows
        self._question: list[Row] = [{"role": "user", "content": "."}]
        self._slot: Row = {"role": "assistant", "content": _REPLY, "reasoning_content": _REASONING}
        self._before = self.template.render(self._question, generation=False)
        asked = self.template.render(self._question, generation=True)
        self._opening = asked.removeprefix(self._before)
        if asked == self._opening:
            raise ConfigError(f"the template rewrites a question before its reply: it is not of the {self.name} family")
        self._close = self.template.render([*self._question, self._slot], generation=False).rpartition(_REPLY)[2]

    @property
    def opening(self) -> str:
        """Marked text that the template puts before a first reply."""
        return self._opening

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The whole prompt; see `Family.render`."""
        self._require(messages, tools)
        prompt = self.marking.ids(self.template.render(self.template.rows(messages), tools, generation=True))
        require_all_images(prompt, messages, self.image_token)
        return prompt

    def bridge(self, previous_ids: Ids, finish: Finish, new_messages: Sequence[Message]) -> Ids | None:
        """Closer, new messages, opening of the next reply; see `Family.bridge`."""
        del finish  # the ids themselves say whether the turn was closed
        ids = self._following(previous_ids, new_messages, generation=True)
        if ids is None:
            return None
        bridge = _array(ids)
        require_all_images(bridge, new_messages, self.image_token)
        return bridge

    def strips_reasoning(self, new_messages: Sequence[Message]) -> bool:
        """Whether the template leaves out the reasoning of earlier turns once `new_messages` follow them."""
        rows = [*self._probe(()), *self.template.rows(new_messages)]
        return self.thinks and _REASONING not in self.template.render(rows, generation=True)

    def parse(
        self, ids: Ids, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, call_id: str = "call"
    ) -> Turn:
        """Read a reply from its ids; see `Family.parse`."""
        values: list[int] = ids.tolist()
        stopped = bool(values) and values[-1] in self.stop_ids
        if stopped:
            values.pop()
        return read_reply(
            self.marking.decode(values),
            marking=self.marking,
            calls=self.calls,
            tools=tools,
            thinks=self.thinks,
            thinking=self._thinking(prompt),
            unopened=self._unopened,
            finish=Finish.STOP if stopped else Finish.LENGTH,
            call_id=call_id,
        )

    def grow(
        self, tools: Sequence[ToolSpec] = (), *, prompt: Ids | None = None, holds: Sequence[str] = ()
    ) -> GrowingReply | None:
        """Read a reply while it is sampled; see `Family.grow`."""
        return self._grow(prompt, holds, whole=())

    def reply(self, message: Message, *, prompt: Ids | None = None) -> Ids:
        """What a model samples to say `message`, stop token included.

        Args:
            message: of an assistant.
            prompt: int32 [n], what it follows; a first question if None.

        Raises:
            LedgerError: the family cannot say it.
        """
        self._require((message,), ())
        if message.reasoning and not self.thinks:
            raise LedgerError(f"the {self.name} family has no place for reasoning: leave it out")
        thinking = self._thinking(prompt)
        if message.reasoning and thinking == UNTHINK:
            raise LedgerError("the prompt has closed the reasoning already: leave it out, or switch it on (thinking)")
        said = self._said(message, thinking)
        return _array([*self.marking.encode(said), self._stop(message)])

    def transcript(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[Ids, Bools]:
        """Prompt, reply, bridge, reply and so on, as a rollout has them; see `Family.transcript`."""
        self._require(messages, tools)
        if images_of(messages):
            raise LedgerError("a transcript holds images, which no trainer here reads yet: leave them out")
        turns = [index for index, message in enumerate(messages) if message.role == "assistant"]
        if not turns:
            whole = self.marking.ids(self.template.render(self.template.rows(messages), tools, generation=False))
            return whole, np.zeros(len(whole), dtype=np.bool_)
        ids = self.render(messages[: turns[0]], tools).tolist() if turns[0] else self.marking.encode(self._opening)
        mask = [False] * len(ids)
        for at, following in zip(turns, [*turns[1:], None], strict=True):
            reply = self.reply(messages[at], prompt=np.array(ids, np.int32)).tolist()
            ids += reply
            mask += [True] * len(reply)
            new = messages[at + 1 : following]
            bridge = self._following(np.array(ids, np.int32), new, generation=following is not None)
            if bridge is None:
                raise LedgerError(
                    f"the {self.name} template rewrites history after message {at}: it cannot be one transcript"
                )
            ids += bridge
            mask += [False] * len(bridge)
        return _array(ids), np.array(mask, dtype=np.bool_)

    # ------------------------------------------------------------------------------------------ for subclasses

    def _probe(self, previous_ids: Ids | tuple[()]) -> list[Row]:
        """A conversation that ends in the slot; what comes after it is written as after `previous_ids`."""
        del previous_ids
        return [*self._question, self._slot]

    def _said(self, message: Message, thinking: str | None) -> str:
        """Marked text of a reply without its stop; by default what the template writes after the opening.

        Args:
            message: the reply.
            thinking: the mark that the prompt ends in, where it ends in one.
        """
        del thinking
        rows = [*self._question, *self.template.rows([message])]
        written = self.template.render(rows, generation=False).removeprefix(self._before)
        if not written.startswith(self._opening) or not written.endswith(self._close):
            raise LedgerError(f"the {self.name} template does not write this reply after its own opening")
        return written[len(self._opening) : len(written) - len(self._close)]

    def _stop(self, message: Message) -> int:
        """The token that ends this reply."""
        del message
        return self.stop_ids[0]

    def _follows(self, last: int, ids: Sequence[int]) -> Sequence[int] | None:
        """What follows a reply whose last id is `last`, given what the template writes after it."""
        return ids[1:] if ids and ids[0] == last else ids

    def _grow(self, prompt: Ids | None, holds: Sequence[str], *, whole: Sequence[str]) -> GrowingReply | None:
        if not self.tokenizer.byte_level:
            return None
        return GrowingReply(
            tokenizer=self.tokenizer,
            stop_ids=self.stop_ids,
            calls=self.calls,
            thinks=self.thinks,
            thinking=self._thinking(prompt),
            unopened=self._unopened,
            whole=whole,
            holds=holds,
        )

    # ---------------------------------------------------------------------------------------------- internals

    def _following(self, previous_ids: Ids, new: Sequence[Message], *, generation: bool) -> Sequence[int] | None:
        ids = self._framed(new, generation) if self.plain_results else None
        if ids is None:
            self._require(new, ())
            after = self._behind(self._probe(previous_ids), self.template.rows(new), generation=generation)
            if after is None:
                return None
            ids = self.marking.encode(after)
        return self._follows(int(previous_ids[-1]) if len(previous_ids) else -1, ids)

    def _behind(self, probe: Sequence[Row], new: Sequence[Row], *, generation: bool) -> str | None:
        """What the template writes behind the reply of a probe; None where it rewrites what stands before."""
        before, slot, after = self.template.render([*probe, *new], generation=generation).rpartition(_REPLY)
        return after if slot and before.startswith(self._lead(probe)) else None

    def _framed(self, new: Sequence[Message], generation: bool) -> Sequence[int] | None:
        """The ids of `_behind` for results of tools, in their frame; None where the template must be run."""
        results = [
            each.content
            for each in new
            if each.role == "tool" and not each.tool_calls and isinstance(each.content, str)
        ]
        count = len(results)
        if count != len(new) or count > _FRAMED:
            return None
        place = (count, generation)
        if place not in self._frames:
            self._frames[place] = self._frame(*place)
        frame = self._frames[place]
        return None if frame is None else frame.ids(results)

    def _frame(self, count: int, generation: bool) -> Frame | None:
        """What the template writes around results; None where it does not write awkward ones as they are."""

        def written(text: str) -> str:
            rows: list[Row] = [{"role": "tool", "content": text, "tool_call_id": ""}] * count
            return self._behind(self._probe(()), rows, generation=generation) or ""

        frame = Frame(written(_RESULT), _RESULT, marking=self.marking, tokenizer=self.tokenizer)
        awkward = self.marking.quote(_AWKWARD)
        return frame if frame.count == count and frame.text([awkward] * count) == written(awkward) else None

    def _lead(self, probe: Sequence[Row]) -> str:
        return self._before if len(probe) == 2 else self.template.render(probe[:-1], generation=False)

    def _thinking(self, prompt: Ids | None) -> str | None:
        """The reasoning mark that a prompt ends in, as its last control token."""
        if not self.thinks:
            return None
        return reasoning_mark(self.marking.last_token(self.marking.ids(self._opening) if prompt is None else prompt))

    def _require(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        self.template.require(messages, tools, self.name, images=self.image is not None)


def _array(ids: Sequence[int]) -> Ids:
    return np.array(ids, dtype=np.int32)
