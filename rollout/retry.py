"""Plays an attempt again where it failed for reasons that are not the agent's."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.tool_servers.background import contained

logger = logging.getLogger(__name__)

Play = Callable[[Attempt], Awaitable[Trace]]


async def play_with_retries(attempt: Attempt, play: Play, *, retries: int, counts: Counter[str]) -> Trace:
    """Play until the outcome counts, or `retries` further tries are used up.

    Args:
        attempt: what to play.
        play: plays one attempt.
        retries: how often it may be played again.
        counts: gets one more of `retried_attempts/<outcome>` for each try that another one follows.

    Returns:
        The trace of the last try.

    Raises:
        RuntimeError: playing ended with a `CancelledError` that nobody outside had asked for: a task group would take
            the attempt for one that was called off, and nobody would ever hear of it.
    """
    while True:
        trace = await contained(play(attempt))
        if trace.outcome.trainable:
            return trace
        logger.warning("attempt %s failed (%s): %s", trace.trajectory, trace.outcome, trace.reason)
        if attempt.retry >= retries:
            return trace
        counts[f"retried_attempts/{trace.outcome}"] += 1
        attempt = replace(attempt, retry=attempt.retry + 1)
