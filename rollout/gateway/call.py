"""A model call on its way in and its reply on its way out, in no particular dialect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agar.errors import AgarError
from agar.ledger.node import Node
from agar.rollout.gateway.budget import Budget
from agar.types import Message, ToolSpec, Turn


class BadRequest(AgarError, ValueError):
    """A request that the gateway cannot serve as it stands; the caller should not repeat it.

    Attributes:
        param: the field at fault, or None.
        code: short machine-readable reason.
    """

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message, param, code)
        self.param = param
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class BusyError(AgarError):
    """As many calls are under way as may be; the same call may work in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputForm:
    """The form that a caller wants its reply to have.

    Attributes:
        field: the request's field that asks for it.
        asked: what that field holds.
        schema: the JSON schema, as JSON text.
    """

    field: str
    asked: Any
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One request for a reply.

    Attributes:
        messages: the whole conversation.
        tools: the tools it offers.
        respelled: indexes of messages whose tool arguments are not spelt as the gateway spells them.
        requested: fields that have no effect and are kept in the record.
        unknown: fields of messages that mean nothing here, by their place in the request and with the index of their
            message; those of a history that is in the record are in it, too.
        model: the model that the caller named; echoed.
        fingerprint: equal for equal bodies; None where repeats are new calls.
        stream: the caller wants events; the call is given up when its last caller leaves.
        stream_usage: the events end with the usage.
        n: how many replies are wanted.
        stop: texts that end a reply.
        max_calls: the most tool calls that the caller takes of a reply; None for any number.
        form: the form that the reply is to have, or None.
        logprobs: the log-probs of the sampled tokens are wanted.
        remember: index of the first message of the conversation that is to be found again by the reply's id; None where
            none is.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    respelled: frozenset[int] = frozenset()
    requested: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    model: str | None = None
    fingerprint: bytes | None = None
    stream: bool = False
    stream_usage: bool = False
    n: int = 1
    stop: tuple[str, ...] = ()
    max_calls: int | None = None
    form: OutputForm | None = None
    logprobs: bool = False
    remember: int | None = None

    def gone_on(
        self,
        *,
        messages: tuple[Message, ...],
        respelled: frozenset[int],
        unknown: Mapping[str, tuple[int, Mapping[str, Any]]],
        fingerprint: bytes,
    ) -> "ModelCall":
        """The same wishes for a conversation that has gone on; `dataclasses.replace` takes three times as long."""
        return ModelCall(
            messages=messages,
            tools=self.tools,
            respelled=respelled,
            requested=self.requested,
            unknown=unknown,
            model=self.model,
            fingerprint=fingerprint,
            stream=self.stream,
            stream_usage=self.stream_usage,
            n=self.n,
            stop=self.stop,
            max_calls=self.max_calls,
            form=self.form,
            logprobs=self.logprobs,
            remember=self.remember,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reply:
    """What the caller gets.

    Attributes:
        id: unique per reply; a repeated reply has the same. Dialects put their own prefix before it.
        turn: the reply.
        node: its record; None where a budget answered instead of an engine.
        budget: the budget that answered.
        prompt_tokens: length of the prompt.
        created: unix time in seconds.
        stopped_by: the caller's text that ended the reply, or None.
        tokens: the texts of the sampled tokens, where their log-probs are wanted.
        others: the further replies, where several were wanted.
    """

    id: str
    turn: Turn
    node: Node | None
    budget: Budget | None
    prompt_tokens: int
    created: int
    stopped_by: str | None = None
    tokens: tuple[str, ...] | None = None
    others: tuple["Reply", ...] = ()

    @property
    def choices(self) -> tuple["Reply", ...]:
        """Every reply to the call."""
        return (self, *self.others)

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled for the call."""
        own = 0 if self.node is None else len(self.node.sampled)
        return own + sum([choice.sampled_tokens for choice in self.others])
