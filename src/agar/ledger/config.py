"""Settings of recording: what counts as the same history, and which sampled tokens are kept out of training."""

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from agar.config import BaseConfig
from agar.types import MessageRole

AuditMode = Literal["off", "warn", "strict"]
"""`warn` counts and logs; `strict` refuses to train on a batch that breaks an invariant."""


class CanonicaliserConfig(BaseConfig):
    """Text that changes from call to call without meaning anything: a nonce, a clock, a billing line.

    Histories that differ in nothing else are the same; the record keeps the text that came first.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    """Names it; alone, it is one of the built-in ones (`clock`, `uuid`, `billing_header`)."""
    pattern: str | None = Field(None, min_length=1)
    """A regular expression; what it finds does not count."""
    function: str | None = Field(None, pattern=r"^[\w.]+:\w+$")
    """`module:attr` of a function from a message's text to what counts of it."""
    roles: tuple[MessageRole, ...] = Field(("system",), min_length=1)
    """Whose messages it looks at."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.pattern is not None and self.function is not None:
            raise ValueError(f"canonicaliser {self.name!r} has both a pattern and a function: keep one of them")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern of canonicaliser {self.name!r} is no regular expression: {error}") from error
        return self


class RecordPolicy(BaseConfig):
    """How a session records and what its trace trains."""

    history: Literal["as_sampled", "as_sent"] = "as_sampled"
    """Continue on the ids as sampled, or, where the caller sent the history back changed, on what it sent."""

    match: Literal["canonical", "strict"] = "canonical"
    """`canonical`: tool calls by value, reasoning optional, trailing white space ignored, parallel tool results in any
    order. `strict`: everything equal, tool arguments to the letter; what differs is another history."""

    on_divergence: Literal["record", "fork", "error"] = "record"
    """What a difference between the history sent and the history kept does: note it and go on from the history kept,
    note it and go on from what was sent, or refuse the call."""

    canonicalisers: tuple[CanonicaliserConfig, ...] = ()
    """Text that never counts, not even in strict matching; each difference in it is noted as `declared`."""

    truncated: Literal["close_masked", "stop", "exclude"] = "close_masked"
    """A reply cut by its length: go on behind a closer that is not trained, end the session, or go on and train none
    of the reply."""

    abandoned: Literal["exclude", "train"] = "exclude"
    """A reply that was asked for again and never built upon."""

    output_form: Literal["refuse", "ignore", "constrain"] = "refuse"
    """A caller that asks for JSON (`response_format`, `text.format`, `output_config.format`): refuse the call, note the
    wish and sample freely, or let the engine constrain the reply."""

    sampler: Literal["neutral", "recorded"] = "neutral"
    """`neutral`: tokens drawn under top-p, top-k, min-p, a schema or greedily are not trained, since their log-probs
    are not the model's own. `recorded`: they are; the row's `meta["samplers"]` says how they were drawn."""

    max_staleness: int | None = Field(default=None, ge=0)
    """Tokens sampled more than this many policy versions ago are not trained; None trains them all."""

    @property
    def keeps_changed_history(self) -> bool:
        """Whether a call goes on from the history kept although the caller sent it back changed."""
        return self.history == "as_sampled" and self.match == "canonical" and self.on_divergence == "record"

    def within(self, max_staleness: int) -> Self:
        """The policy of a run whose batches are within a bound: the tighter of the two holds."""
        bound = max_staleness if self.max_staleness is None else min(self.max_staleness, max_staleness)
        return self.model_copy(update={"max_staleness": bound})
