"""An evaluation plays every task as often as it says, counts what counts, and names what it is."""

import asyncio
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agar.errors import ConfigError
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import EvaluationConfig
from agar.rollout.evaluate import Evaluation, evaluate
from agar.types import Outcome, Reward, Sampling, TaskRow

TASKS = [TaskRow(key=f"t{n}") for n in range(4)]


async def evaluated(config: EvaluationConfig, rewards: dict[tuple[str, int], float], *, concurrency: int = 8):
    """Play with these rewards by (task, attempt); an attempt without one fails."""
    running = most = 0
    seen: list[tuple[int, int]] = []

    async def play(attempt: Attempt, sampling: Sampling) -> Trace:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        reward = rewards.get((attempt.task.key, attempt.index))
        return Trace(
            trajectory=attempt.trajectory,
            group=attempt.group,
            role="agent",
            policy=attempt.policy,
            task=attempt.task,
            nodes=(),
            reward=Reward(total=reward or 0.0),
            outcome=Outcome.INFRA_ERROR if reward is None else Outcome.COMPLETED,
            reason="the engine is gone" if reward is None else "",
        )

    result = await evaluate(
        config, tasks=TASKS, play=play, concurrency=concurrency, progress=lambda *at: seen.append(at)
    )
    assert most <= concurrency
    assert seen == [(n, len(TASKS) * config.attempts) for n in range(1, len(TASKS) * config.attempts + 1)]
    return result


async def test_failed_attempts_are_outside_the_mean_and_counted():
    rewards = {("t0", 0): 1.0, ("t1", 0): 0.0, ("t3", 0): 1.0}
    result: Evaluation = await evaluated(EvaluationConfig(env="Any-v0"), rewards, concurrency=2)
    assert result.reward_mean == pytest.approx(2 / 3)
    assert result.standard_error == pytest.approx(statistics.stdev([1, 0, 1]) / math.sqrt(3))
    assert (result.excluded, len(result.traces)) == (1, 4)
    assert result.metrics["eval/Any-v0/reward_mean"] == pytest.approx(2 / 3)
    assert result.metrics["eval/Any-v0/outcome/infra_error"] == 0.25


async def test_every_task_is_played_as_often_as_asked_for_under_its_name():
    rewards = {(task.key, index): float(index == 1) for task in TASKS[:2] for index in range(2)}
    rewards |= {(task.key, index): 0.0 for task in TASKS[2:] for index in range(2)}
    result = await evaluated(EvaluationConfig(env="Any-v0", name="hard", attempts=2), rewards)
    assert len({trace.trajectory for trace in result.traces}) == 8
    assert result.metrics["eval/hard/pass@2"] == 0.5
    assert result.metrics["eval/hard/pass@1"] == 0.25


async def test_pass_at_k_is_given_for_powers_of_two_and_for_all_attempts():
    solved = {"t0": 0, "t1": 1, "t2": 3, "t3": 6}
    rewards = {(key, index): float(index < count) for key, count in solved.items() for index in range(6)}
    result = await evaluated(EvaluationConfig(env="Any-v0", attempts=6), rewards)
    found = {name.removeprefix("eval/Any-v0/"): value for name, value in result.metrics.items() if "pass@" in name}
    assert set(found) == {"pass@1", "pass@2", "pass@4", "pass@6"}
    for k in (1, 2, 4, 6):  # by trying every choice of k attempts
        chosen = list(itertools.combinations(range(6), k))
        expected = [
            statistics.mean(any(index < count for index in some) for some in chosen) for count in solved.values()
        ]
        assert found[f"pass@{k}"] == pytest.approx(statistics.mean(expected))


async def test_no_chance_is_claimed_for_more_attempts_than_any_task_has_left():
    rewards = {(task.key, 0): 1.0 for task in TASKS}  # the second attempts all fail
    result = await evaluated(EvaluationConfig(env="Any-v0", attempts=2), rewards)
    assert {name for name in result.metrics if "pass@" in name} == {"eval/Any-v0/pass@1"}


async def test_a_payload_is_plain_as_it_is_in_training():
    seen: list[object] = []

    async def play(attempt: Attempt, sampling: Sampling) -> Trace:
        seen.append(attempt.task.payload["trail"])
        return Trace(
            trajectory=attempt.trajectory, group=attempt.group, role="agent", policy=attempt.policy, task=attempt.task,
            nodes=(), reward=Reward(total=1.0), reason="", outcome=Outcome.COMPLETED,
        )  # fmt: skip

    tasks = [TaskRow(key="t0", payload={"trail": (np.int64(1), 2)})]
    await evaluate(EvaluationConfig(env="Any-v0"), tasks=tasks, play=play, concurrency=1)
    assert seen == [[1, 2]]
    with pytest.raises(ConfigError, match="payload of task 't1' of Any-v0"):
        await evaluate(
            EvaluationConfig(env="Any-v0"), tasks=[TaskRow(key="t1", payload={"seen": {1}})], play=play, concurrency=1
        )


async def test_an_evaluation_of_which_nothing_counts_claims_no_reward(caplog):
    result = await evaluated(EvaluationConfig(env="Any-v0"), {})
    assert math.isnan(result.reward_mean)
    assert math.isnan(result.standard_error)
    assert not [name for name in result.metrics if "reward" in name or "pass@" in name]
    assert "all 4 failed, the last because the engine is gone" in caplog.text


async def test_an_attempt_that_failed_by_chance_is_played_again_and_counted():
    async def play(attempt: Attempt, sampling: Sampling) -> Trace:
        broken = attempt.task.key == "t1" and attempt.retry == 0
        return Trace(
            trajectory=attempt.trajectory, group=attempt.group, role="agent", policy=attempt.policy, task=attempt.task,
            nodes=(), reward=Reward(total=1.0), reason="",
            outcome=Outcome.INFRA_ERROR if broken else Outcome.COMPLETED,
        )  # fmt: skip

    result = await evaluate(EvaluationConfig(env="Any-v0"), tasks=TASKS, play=play, concurrency=2, retries=1)
    assert (result.excluded, result.reward_mean, len(result.traces)) == (0, 1.0, 4)
    assert result.metrics["eval/Any-v0/retried_attempts/infra_error"] == 1.0


async def test_the_attempts_at_a_task_are_graded_together_before_they_count():
    """Attempt n has the reward n; the best of a task gets 10 more, and the comparison fails for one task."""

    async def play(attempt: Attempt, sampling: Sampling) -> Trace:
        return Trace(
            trajectory=attempt.trajectory, group=attempt.group, role="agent", policy=attempt.policy, task=attempt.task,
            nodes=(), reward=Reward(total=float(attempt.index)), outcome=Outcome.COMPLETED, reason="",
        )  # fmt: skip

    async def grade(traces: Sequence[Trace]) -> list[Trace]:
        assert [trace.reward.total for trace in traces] == [0, 1, 2]
        assert len({trace.task.key for trace in traces}) == 1
        if traces[0].task.key == "t2":
            return [replace(trace, outcome=Outcome.ENV_ERROR, reason="no judge") for trace in traces]
        return [replace(t, reward=Reward(total=t.reward.total + 10 * (t is traces[-1]))) for t in traces]

    config = EvaluationConfig(env="Any-v0", attempts=3)
    result = await evaluate(config, tasks=TASKS, play=play, concurrency=2, grade=grade)
    assert (result.excluded, result.reward_mean) == (3, pytest.approx((0 + 1 + 12) / 3))  # none of them is a 0
    assert result.metrics["eval/Any-v0/outcome/env_error"] == 0.25
    assert [trace.reward.total for trace in result.traces[:3]] == [0, 1, 12]
    assert [trace.task.key for trace in result.traces[::3]] == [task.key for task in TASKS]
