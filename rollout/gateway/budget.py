"""What a session may spend, and what it has spent."""

import math
import time
from dataclasses import dataclass
from enum import StrEnum

from agar.types import Finish, Sampled


class Budget(StrEnum):
    """Which budget ended a session's calls."""

    TURNS = "turns"
    TOKENS = "tokens"
    CONTEXT = "context"
    WALL_CLOCK = "wall_clock"
    TRUNCATED = "truncated"
    """A reply was cut by its length and the record policy stops there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets of one session.

    Attributes:
        turns: model calls; None for no limit.
        tokens: sampled tokens in all; calls under way at once may pass it by their own replies. None for no limit.
        context_tokens: the longest prompt and reply; None for no limit.
        wall_s: time from opening; a call that is under way then is given up. None for no limit.
        call_timeout_s: the longest wait for one reply.
        calls_in_flight: the most generations under way at a time.
    """

    turns: int | None = None
    tokens: int | None = None
    context_tokens: int | None = None
    wall_s: float | None = None
    call_timeout_s: float = 600.0
    calls_in_flight: int = 64


class Account:
    """The running account of a session.

    Args:
        limits: what it may spend.
        reply_tokens: the longest reply, whatever is left.
        stop_when_cut: end the session after a reply that was cut by its length.

    Attributes:
        turns: calls answered by an engine, those under way included.
        tokens: tokens sampled.
    """

    def __init__(self, limits: Limits, reply_tokens: int, *, stop_when_cut: bool) -> None:
        self._limits, self._reply_tokens, self._stop_when_cut = limits, reply_tokens, stop_when_cut
        self._cut = False
        self._ends_s = None if limits.wall_s is None else time.monotonic() + limits.wall_s
        self.turns = 0
        self.tokens = 0

    def add(self, sampled: Sampled) -> None:
        """Count a reply."""
        self.tokens += len(sampled)
        self._cut = self._cut or sampled.finish is Finish.LENGTH

    def spent(self) -> Budget | None:
        """The budget that leaves nothing for another call, or None."""
        if self._cut and self._stop_when_cut:
            return Budget.TRUNCATED
        if self._limits.turns is not None and self.turns >= self._limits.turns:
            return Budget.TURNS
        if self._limits.tokens is not None and self.tokens >= self._limits.tokens:
            return Budget.TOKENS
        return Budget.WALL_CLOCK if self.left_s() <= 0 else None

    def left_s(self) -> float:
        """Time left; infinite where there is no limit."""
        return math.inf if self._ends_s is None else self._ends_s - time.monotonic()

    def room(self, prompt: int, replies: int = 1) -> int:
        """How many tokens each of several replies to `prompt` tokens may have; none or fewer where there is no room."""
        room = self._reply_tokens
        if self._limits.tokens is not None:
            room = min(room, (self._limits.tokens - self.tokens) // replies)
        if self._limits.context_tokens is not None:
            room = min(room, self._limits.context_tokens - prompt)
        return room
