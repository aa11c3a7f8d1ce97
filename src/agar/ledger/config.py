"""Settings of recording: what counts as the same history, and which sampled tokens are kept out of training."""

from typing import Literal

from pydantic import Field

from agar.config import BaseConfig

AuditMode = Literal["off", "report", "strict"]
"""`report` counts and logs; `strict` refuses to train on a batch that breaks an invariant."""


class RecordPolicy(BaseConfig):
    """How a session records and what its trace trains."""

    history: Literal["as_sampled", "as_sent"] = "as_sampled"
    """Continue on the ids as sampled, or, where the caller sent the history back changed, on what it sent."""

    match: Literal["canonical", "strict"] = "canonical"
    """`canonical`: tool calls by value, reasoning optional, trailing white space ignored, parallel tool results in any
    order. `strict`: everything equal, tool arguments to the letter."""

    on_divergence: Literal["record", "fork", "error"] = "record"
    """What a difference between the history sent and the history kept does: note it, branch off, or refuse the call."""

    truncated: Literal["close_masked", "stop", "exclude"] = "close_masked"
    """A reply cut by its length: go on behind a closer that is not trained, end the session, or go on and train none
    of the reply."""

    abandoned: Literal["exclude", "train"] = "exclude"
    """A reply that was asked for again and never built upon."""

    output_form: Literal["refuse", "ignore", "constrain"] = "refuse"
    """A caller that asks for JSON (`response_format`, `text.format`, `output_config.format`): refuse the call, note the
    wish and sample freely, or let the engine constrain the reply."""

    constrained: Literal["exclude", "train"] = "exclude"
    """A constrained reply: its log-probs are the constrained sampler's. Train none of it, or train it as sampled from
    another distribution, which only an algorithm with importance weights corrects for."""

    max_staleness: int | None = Field(default=None, ge=0)
    """Tokens sampled more than this many policy versions ago are not trained; None trains them all."""
