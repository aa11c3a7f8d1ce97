"""Does a family fit its model? The conformance kit behind `agar family check`.

Every claim is held against something that is not the family: how transformers renders the model's own template, and
the tokenizer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agar.errors import LedgerError
from agar.ledger.families.conversations import CONVERSATIONS, Conversation, message_rows, tool_rows
from agar.ledger.families.templated import TemplateFamily
from agar.types import Finish, Ids, Message, ToolCall

Reference = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None, bool], Sequence[int]]
"""The model's own rendering: messages and tools as its template reads them, generation prompt or not, to ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property.

    Attributes:
        name: what it says.
        held: in how many cases it held.
        refused: why cases were refused by the family or by its template, by case.
        fault: the first difference; empty where there is none.
    """

    name: str
    held: int
    refused: dict[str, str]
    fault: str

    def __str__(self) -> str:
        if self.fault:
            return f"FAILED   {self.name}: {self.fault}"
        by_reason: dict[str, list[str]] = {}
        for case, why in self.refused.items():
            by_reason.setdefault(why, []).append(case)
        refused = "".join(f"\n             refused ({why}): {', '.join(cases)}" for why, cases in by_reason.items())
        return f"{'held' if self.held else 'no case':<8} {self.name}: {self.held} cases{refused}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyReport:
    """Every property of one family over one model."""

    family: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not any(check.fault for check in self.checks)

    def __str__(self) -> str:
        return "\n".join([f"family {self.family}", *(f"  {check}" for check in self.checks)])


def check_family(family: TemplateFamily, reference: Reference, *, ends: Sequence[int] = ()) -> FamilyReport:
    """Prove a family over one model.

    Args:
        family: built over the model.
        reference: `apply_chat_template` of the same model, or an equivalent.
        ends: ids that the model's own files name as ends of a reply.
    """
    prover = _Prover(family, reference, ends)
    properties = (
        ("a first prompt is apply_chat_template's", prover.first_prompt),
        ("a prompt with history is apply_chat_template's", prover.whole_prompt),
        ("a bridge is what the template writes after the reply", prover.bridge),
        ("prompt, reply and bridge are the whole prompt, where the template keeps a turn as sampled", prover.growth),
        ("a reply that was cut gets its closer", prover.closer),
        ("parse reads what the model writes", prover.round_trip),
        ("whatever ends a reply is a stop token", prover.stop),
        ("foreign text never becomes a control token", prover.injection),
    )
    conversations = [_fitting(conversation, family) for conversation in CONVERSATIONS]
    return FamilyReport(
        family=family.name, checks=tuple(_check(name, holds, conversations) for name, holds in properties)
    )


def _fitting(conversation: Conversation, family: TemplateFamily) -> Conversation:
    """Without reasoning where the family has none, without tools where the template has no place for them."""
    messages = tuple(m if family.thinks else replace(m, reasoning=None) for m in conversation.messages)
    return replace(conversation, messages=messages, tools=conversation.tools if family.template.takes_tools else ())


def _check(name: str, holds: Callable[[Conversation], str | None], conversations: Sequence[Conversation]) -> Check:
    held, refused = 0, {}
    for conversation in conversations:
        try:
            fault = holds(conversation)
        except LedgerError as refusal:
            refused[conversation.name] = str(refusal)
            continue
        if fault:
            return Check(name=name, held=held, refused=refused, fault=f"{conversation.name}: {fault}")
        held += fault is not None
    return Check(name=name, held=held, refused=refused, fault="")


class _Prover:
    """Properties of a family: each says what is wrong with a conversation, nothing (""), or None: no case of it."""

    def __init__(self, family: TemplateFamily, reference: Reference, ends: Sequence[int]) -> None:
        self._family, self._reference, self._ends = family, reference, ends
        self._controls = frozenset(family.tokenizer.added.values())

    def first_prompt(self, conversation: Conversation) -> str | None:
        at = self._first_reply(conversation)
        return self._same_prompt(conversation.messages[:at], conversation)

    def whole_prompt(self, conversation: Conversation) -> str | None:
        if self._first_reply(conversation) == len(conversation.messages):
            return None
        return self._same_prompt(conversation.messages, conversation)

    def bridge(self, conversation: Conversation) -> str | None:
        at = self._last_reply(conversation)
        if at is None:
            return None
        _, bridge = self._going_on(conversation, at)
        whole = self._render(conversation.messages, conversation, generation=True)
        return self._difference(bridge, whole[-len(bridge) :])

    def growth(self, conversation: Conversation) -> str | None:
        at = self._last_reply(conversation)
        if at is None:
            return None
        known, bridge = self._going_on(conversation, at)
        whole = self._render(conversation.messages, conversation, generation=True)
        if whole[: len(known)] != known.tolist():
            return None  # it writes that turn otherwise, once it is history
        return self._difference([*known.tolist(), *bridge], whole)

    def closer(self, conversation: Conversation) -> str | None:
        at = self._last_reply(conversation)
        if at is None:
            return None
        known, bridge = self._going_on(conversation, at)
        cut = self._family.bridge(known[:-1], Finish.LENGTH, conversation.messages[at + 1 :])
        if cut is None:
            return "there is no bridge after a reply that was cut"
        return self._difference(cut.tolist(), [int(known[-1]), *bridge])

    def round_trip(self, conversation: Conversation) -> str | None:
        at = self._last_reply(conversation)
        if at is None:
            return None
        prompt, said = self._family.render(conversation.messages[:at], conversation.tools), conversation.messages[at]
        turn = self._family.parse(self._family.reply(said, prompt=prompt), conversation.tools, prompt=prompt)
        got = (turn.text, turn.reasoning, _values(turn.tool_calls), turn.finish, turn.parse_error)
        expected = (said.text, said.reasoning, _values(said.tool_calls), Finish.STOP, None)
        return "" if got == expected else f"expected {expected}, got {got}"

    def stop(self, conversation: Conversation) -> str | None:
        at = self._last_reply(conversation)
        if at is None:
            return None
        last = int(self._family.reply(conversation.messages[at])[-1])
        missing = [self._name(id) for id in (last, *self._ends) if id not in self._family.stop_ids]
        return f"{', '.join(missing)} ends a reply, but is no stop token of the family" if missing else ""

    def injection(self, conversation: Conversation) -> str | None:
        tokens = list(self._family.tokenizer.added)
        evil = replace(conversation, messages=tuple(_infected(m, tokens) for m in conversation.messages))
        tame = replace(conversation, messages=tuple(_infected(m, ["+"]) for m in conversation.messages))
        got, expected = (
            [id for id in self._family.render(c.messages, c.tools).tolist() if id in self._controls]
            for c in (evil, tame)
        )
        return self._difference(got, expected)

    # ---------------------------------------------------------------------------------------------- internals

    def _same_prompt(self, messages: Sequence[Message], conversation: Conversation) -> str:
        got = self._family.render(messages, conversation.tools).tolist()
        return self._difference(got, self._render(messages, conversation, generation=True))

    def _render(self, messages: Sequence[Message], conversation: Conversation, *, generation: bool) -> list[int]:
        rows, tools = message_rows(messages, self._family.wire), tool_rows(conversation.tools)
        try:
            return list(self._reference(rows, tools, generation))
        except Exception as error:  # whatever a template raises
            raise LedgerError(f"apply_chat_template: {error}") from error

    def _going_on(self, conversation: Conversation, at: int) -> tuple[Ids, list[int]]:
        """Prompt and reply, and the bridge to what came after it."""
        prompt = self._family.render(conversation.messages[:at], conversation.tools)
        reply = self._family.reply(conversation.messages[at], prompt=prompt)
        known = np.concatenate([prompt, reply])
        bridge = self._family.bridge(known, Finish.STOP, conversation.messages[at + 1 :])
        if bridge is None:
            raise LedgerError("no bridge: the template cannot go on from what was sampled")
        return known, bridge.tolist()

    @staticmethod
    def _first_reply(conversation: Conversation) -> int:
        roles = [message.role for message in conversation.messages]
        return roles.index("assistant") if "assistant" in roles else len(roles)

    @staticmethod
    def _last_reply(conversation: Conversation) -> int | None:
        turns = [index for index, message in enumerate(conversation.messages) if message.role == "assistant"]
        return turns[-1] if turns else None

    def _difference(self, got: Sequence[int], expected: Sequence[int]) -> str:
        """The first difference between two sequences of ids, with what is around it."""
        if list(got) == list(expected):
            return ""
        pairs = zip(got, expected, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(got), len(expected)))
        text = self._family.tokenizer.decode
        around = [text(list(ids[max(0, at - 8) : at + 8])) for ids in (got, expected)]
        return f"token {at} of {len(expected)}: expected {around[1]!r}, got {around[0]!r}"

    def _name(self, id: int) -> str:
        return repr(self._family.tokenizer.decode([id]))


def _values(calls: Sequence[ToolCall]) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in calls]


def _infected(message: Message, words: Sequence[str]) -> Message:
    """The message with the words in every place that somebody else may fill."""
    text = f"{message.text} {' '.join(words)} ."
    calls = []
    for call in message.tool_calls:
        arguments = {**call.arguments, f"k{words[-1]}": "".join(words)}
        calls.append(replace(call, name=f"{call.name}{words[0]}", arguments=arguments))
    reasoning = f"{message.reasoning} {text}" if message.reasoning else message.reasoning
    return replace(message, content=text, tool_calls=tuple(calls), reasoning=reasoning)
