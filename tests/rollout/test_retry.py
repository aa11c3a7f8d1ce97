"""A failed attempt is played again under a trajectory of its own, and each further try is counted."""

from collections import Counter

import pytest

from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.retry import play_with_retries
from agar.types import GroupId, Outcome, Reward, TaskRow

ATTEMPT = Attempt(group=GroupId(task="t", ordinal=3), index=1, task=TaskRow(key="t"), env="Any-v0")


def player(*outcomes: Outcome):
    left = list(outcomes)

    async def play(attempt: Attempt) -> Trace:
        return Trace(
            trajectory=attempt.trajectory, group=attempt.group, role="agent", policy="main", task=attempt.task,
            nodes=(), reward=Reward(total=0.0), outcome=left.pop(0), reason="",
        )  # fmt: skip

    return play, left


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.trainable])
async def test_what_the_agent_did_itself_is_not_played_again(outcome):
    counts: Counter[str] = Counter()
    play, left = player(outcome, Outcome.COMPLETED)
    trace = await play_with_retries(ATTEMPT, play, retries=2, counts=counts)
    assert (trace.trajectory, trace.outcome, len(left), counts) == ("t#3/1", outcome, 1, {})


async def test_tries_that_failed_are_counted_until_one_counts():
    counts: Counter[str] = Counter()
    play, left = player(Outcome.ENV_ERROR, Outcome.INFRA_ERROR, Outcome.COMPLETED, Outcome.COMPLETED)
    trace = await play_with_retries(ATTEMPT, play, retries=5, counts=counts)
    assert (trace.trajectory, len(left)) == ("t#3/1r2", 1)
    assert counts == {"retried_attempts/env_error": 1, "retried_attempts/infra_error": 1}


async def test_the_last_failure_is_kept_and_not_counted_as_retried():
    counts: Counter[str] = Counter()
    play, left = player(*[Outcome.INFRA_ERROR] * 4)
    trace = await play_with_retries(ATTEMPT, play, retries=2, counts=counts)
    assert (trace.trajectory, trace.outcome, len(left)) == ("t#3/1r2", Outcome.INFRA_ERROR, 1)
    assert counts == {"retried_attempts/infra_error": 2}
