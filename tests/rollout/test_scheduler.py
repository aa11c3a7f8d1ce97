"""Admission, order, drops, retries, resume."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agar.errors import ConfigError, DeadlineError, EnvError
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig, TasksConfig
from agar.rollout.grading import GradeGroup
from agar.rollout.scheduler import Scheduler, Stream, choose
from agar.types import Outcome, Reward, TaskRow


class Counting:
    """Tasks t0, t1, t2, … without end."""

    def __init__(self) -> None:
        self.position = 0

    def next(self) -> TaskRow:
        self.position += 1
        return TaskRow(key=f"t{self.position - 1}")

    def state(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.position = state["position"]


def trace_of(attempt: Attempt, *, reward: float = 0.0, outcome: Outcome = Outcome.COMPLETED) -> Trace:
    return Trace(
        trajectory=attempt.trajectory,
        group=attempt.group,
        role="agent",
        policy=attempt.policy,
        task=attempt.task,
        nodes=(),
        divergences=(),
        turn_rewards={},
        reward=Reward(total=reward),
        outcome=outcome,
        reason="scripted",
        meta={},
    )


def scheduler_of(play: Callable[[Attempt], Awaitable[Trace]], **settings: Any) -> Scheduler:
    config = RolloutConfig(**{"tasks_per_step": 3, "group_size": 2, "concurrency": 100, **settings})
    return Scheduler(streams=[Stream(TasksConfig(env="Any-v0"), Counting())], play=play, config=config, seed=0)


def graded_by(play: Callable[[Attempt], Awaitable[Trace]], grade: GradeGroup, **settings: Any) -> Scheduler:
    config = RolloutConfig(**{"tasks_per_step": 1, "group_size": 3, "concurrency": 100, **settings})
    return Scheduler(streams=[Stream(TasksConfig(env="Any-v0"), Counting(), grade)], play=play, config=config, seed=0)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_groups_leave_in_the_order_they_started_however_long_they_take():
    rng = np.random.default_rng(1)

    async def play(attempt: Attempt) -> Trace:
        await asyncio.sleep(float(rng.uniform(0, 0.01)))
        return trace_of(attempt)

    scheduler = scheduler_of(play, max_staleness=2)
    seen = []
    async with scheduler.running():
        for _ in range(4):
            groups, _ = await scheduler.take()
            seen += [group.id.ordinal for group in groups]
            await scheduler.published()
    assert seen == list(range(12))


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
async def test_no_attempt_is_older_than_the_bound_when_it_is_trained(max_staleness):
    rng = np.random.default_rng(max_staleness)
    version = 0
    started: dict[str, int] = {}

    async def play(attempt: Attempt) -> Trace:
        started[attempt.trajectory] = version
        await asyncio.sleep(float(rng.exponential(0.004)))
        return trace_of(attempt)

    ages = []
    scheduler = scheduler_of(play, max_staleness=max_staleness)
    async with scheduler.running():
        for _ in range(8):
            groups, _ = await scheduler.take()
            ages += [version - started[trace.trajectory] for group in groups for trace in group.traces]
            await asyncio.sleep(0.005)  # the optimiser step
            version += 1
            await scheduler.published()
    assert max(ages) <= max_staleness
    assert min(ages) >= 0
    if max_staleness:
        assert max(ages) >= 1, "rollouts did not overlap training at all"


async def test_on_policy_rollouts_start_nothing_between_a_batch_and_its_publish():
    running: list[str] = []

    async def play(attempt: Attempt) -> Trace:
        running.append(attempt.trajectory)
        return trace_of(attempt)

    scheduler = scheduler_of(play, max_staleness=0)
    async with scheduler.running():
        await scheduler.take()
        await settle()
        before = len(running)
        await settle()
        assert before == len(running) == 6
        await scheduler.published()
        await settle()
        assert len(running) == 12


async def test_a_failed_attempt_is_played_again_and_counted():
    async def play(attempt: Attempt) -> Trace:
        broken = attempt.index == 0 and attempt.retry == 0
        return trace_of(attempt, outcome=Outcome.INFRA_ERROR if broken else Outcome.COMPLETED)

    scheduler = scheduler_of(play, attempt_retries=1)
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert counts == {"retried_attempts/infra_error": 3}
    assert all(len(group.trainable) == 2 for group in groups)
    assert groups[0].traces[0].trajectory.endswith("/0r1")


async def test_a_group_without_a_trainable_attempt_is_replaced_and_counted():
    async def play(attempt: Attempt) -> Trace:
        failed = attempt.group.ordinal == 1
        return trace_of(attempt, outcome=Outcome.ENV_ERROR if failed else Outcome.COMPLETED)

    scheduler = scheduler_of(play, attempt_retries=0)
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert [group.id.ordinal for group in groups] == [0, 2, 3]
    assert counts == {"dropped_groups/no_trainable_attempt": 1, "failed_attempts/env_error": 2}


async def test_a_group_of_quarantined_traces_alone_is_replaced():
    async def play(attempt: Attempt) -> Trace:
        return replace(trace_of(attempt), open_calls=int(attempt.group.ordinal == 0))

    scheduler = scheduler_of(play)
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert [group.id.ordinal for group in groups] == [1, 2, 3]
    assert counts == {"dropped_groups/no_trainable_attempt": 1}


async def test_mixed_drops_groups_of_equal_rewards():
    async def play(attempt: Attempt) -> Trace:
        equal = attempt.group.ordinal in {0, 2}
        return trace_of(attempt, reward=0.0 if equal else float(attempt.index))

    scheduler = scheduler_of(play, keep_groups="mixed")
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert [group.id.ordinal for group in groups] == [1, 3, 4]
    assert counts == {"dropped_groups/equal_rewards": 2}


async def test_mixed_drops_a_group_of_which_failures_left_one_attempt():
    async def play(attempt: Attempt) -> Trace:
        failed = attempt.group.ordinal == 1 and attempt.index == 0
        outcome = Outcome.ENV_ERROR if failed else Outcome.COMPLETED
        return trace_of(attempt, reward=float(attempt.index), outcome=outcome)

    scheduler = scheduler_of(play, keep_groups="mixed", attempt_retries=0)
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert [group.id.ordinal for group in groups] == [0, 2, 3]
    assert counts == {"dropped_groups/one_attempt_left": 1, "failed_attempts/env_error": 1}


async def test_a_task_that_always_fails_stops_the_run_with_its_reason():
    async def play(attempt: Attempt) -> Trace:
        return trace_of(attempt, outcome=Outcome.ENV_ERROR)

    scheduler = scheduler_of(play, attempt_retries=0, max_replacements=5)
    async with scheduler.running():
        with pytest.raises(EnvError, match=r"5 groups were dropped.*scripted"):
            await scheduler.take()


async def test_groups_without_a_signal_do_not_count_as_failures():
    async def play(attempt: Attempt) -> Trace:
        failed = attempt.group.ordinal == 4
        return trace_of(attempt, outcome=Outcome.ENV_ERROR if failed else Outcome.COMPLETED)

    settings = {"keep_groups": "mixed", "attempt_retries": 0, "tasks_per_step": 1, "max_replacements": 4}
    scheduler = scheduler_of(play, **settings)
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert [group.id.ordinal for group in groups] == [5]
    expected = {"equal_rewards": 4, "no_trainable_attempt": 1}
    assert {reason: counts[f"dropped_groups/{reason}"] for reason in expected} == expected


async def test_what_was_replaced_for_a_batch_is_remembered_over_a_resume():
    async def play(attempt: Attempt) -> Trace:
        if attempt.group.ordinal == 3:
            await asyncio.sleep(60)
        return trace_of(attempt)

    settings = {"keep_groups": "mixed", "tasks_per_step": 1, "max_replacements": 4}
    first = scheduler_of(play, **settings)
    async with first.running():
        await settle()
    state = json.loads(json.dumps(first.state()))

    async def at_once(attempt: Attempt) -> Trace:
        return trace_of(attempt)

    second = scheduler_of(at_once, **settings)
    second.load_state(state)
    async with second.running():
        groups, counts = await second.take()
    assert (groups[0].id.ordinal, counts["dropped_groups/equal_rewards"]) == (4, 4)


async def test_a_retry_that_spans_a_batch_is_counted_in_the_next():
    release = asyncio.Event()

    async def play(attempt: Attempt) -> Trace:
        broken = attempt.group.ordinal == 1 and attempt.retry < 2
        if broken:
            await release.wait()
        return trace_of(attempt, outcome=Outcome.INFRA_ERROR if broken else Outcome.COMPLETED)

    scheduler = scheduler_of(play, tasks_per_step=1, group_size=1, max_staleness=1, attempt_retries=2)
    async with scheduler.running():
        _, counts = await scheduler.take()
        assert not counts
        await scheduler.published()
        release.set()
        _, counts = await scheduler.take()
    assert counts == {"retried_attempts/infra_error": 2}


@pytest.mark.parametrize("max_replacements", [0, 3])
async def test_a_batch_of_nothing_but_failures_is_never_handed_out(max_replacements):
    async def play(attempt: Attempt) -> Trace:
        await asyncio.sleep(0.001)
        return trace_of(attempt, outcome=Outcome.ENV_ERROR)

    scheduler = scheduler_of(play, tasks_per_step=1, attempt_retries=0, max_replacements=max_replacements)
    async with scheduler.running():
        with pytest.raises(EnvError, match="scripted"):
            await scheduler.take()


async def test_a_defect_in_playing_surfaces_instead_of_hanging():
    async def play(attempt: Attempt) -> Trace:
        raise ZeroDivisionError("defect")

    scheduler = scheduler_of(play)
    async with scheduler.running():
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await asyncio.wait_for(scheduler.take(), 5)


@pytest.mark.parametrize("graded", [False, True])
async def test_an_attempt_that_cancels_itself_surfaces_instead_of_vanishing(graded):
    async def selfish(_: Any) -> Any:
        raise asyncio.CancelledError

    async def play(attempt: Attempt) -> Trace:
        return trace_of(attempt)

    scheduler = graded_by(play, selfish, batch_timeout_s=20) if graded else scheduler_of(selfish, batch_timeout_s=20)
    async with scheduler.running():
        with pytest.raises(RuntimeError, match=r"rollouts stopped: .*raised CancelledError, though nobody outside"):
            await scheduler.take()


async def test_waiting_without_progress_names_what_is_open():
    async def play(attempt: Attempt) -> Trace:
        await asyncio.sleep(60)
        return trace_of(attempt)

    scheduler = scheduler_of(play, batch_timeout_s=0.05)
    async with scheduler.running():
        with pytest.raises(DeadlineError, match=r"t0#0 \(2 of 2 open\)"):
            await scheduler.take()


@pytest.mark.parametrize("max_staleness", [0, 1])
async def test_resume_neither_loses_nor_repeats_a_task(max_staleness):
    release = asyncio.Event()
    played: list[tuple[str, int]] = []

    async def play(attempt: Attempt) -> Trace:
        if attempt.index == 1:
            await release.wait()
        played.append((attempt.task.key, attempt.index))
        return trace_of(attempt)

    first = scheduler_of(play, max_staleness=max_staleness)
    async with first.running():
        await settle()
    state = first.state()
    half = list(played)
    assert half, "attempts of index 0 should have finished before the stop"
    release.set()
    second = scheduler_of(play, max_staleness=max_staleness)
    second.load_state(state)
    trained = []
    async with second.running():
        for _ in range(3):
            groups, _ = await second.take()
            trained += [group.task.key for group in groups]
            await second.published()
    assert trained == [f"t{n}" for n in range(9)]
    assert len(played) == len(set(played)), "an attempt that had finished was played again"


@pytest.mark.parametrize("max_staleness", [0, 1, 5])
async def test_nothing_is_played_beyond_the_batches_that_are_wanted(max_staleness):
    played: list[str] = []

    async def play(attempt: Attempt) -> Trace:
        played.append(attempt.task.key)
        return trace_of(attempt)

    scheduler = scheduler_of(play, max_staleness=max_staleness, group_size=1)
    async with scheduler.running(2):
        for _ in range(2):
            await scheduler.take()
            await scheduler.published()
        await settle()
        with pytest.raises(RuntimeError, match=r"batch 3, but running\(\) was told of 2"):
            await scheduler.take()
    assert sorted(played) == [f"t{n}" for n in range(6)]
    async with scheduler.running(1):
        groups, _ = await scheduler.take()
    assert [group.task.key for group in groups] == [f"t{n}" for n in range(6, 9)]


async def test_a_resume_with_other_streams_of_tasks_is_refused():
    async def play(attempt: Attempt) -> Trace:
        return trace_of(attempt)

    state = scheduler_of(play).state()
    streams = [Stream(TasksConfig(env="Any-v0"), Counting()) for _ in range(2)]
    with pytest.raises(ConfigError, match=r"positions in 1 streams of tasks, the recipe has 2"):
        Scheduler(streams=streams, play=play, config=RolloutConfig(), seed=0).load_state(state)


class Odd(Counting):
    """Tasks whose payload is not what JSON knows."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__()
        self.payload = payload

    def next(self) -> TaskRow:
        return TaskRow(key=super().next().key, payload=self.payload)


def odd_scheduler(payload: dict[str, Any]) -> Scheduler:
    async def play(attempt: Attempt) -> Trace:
        await asyncio.sleep(0.2 * attempt.index)
        return trace_of(attempt)

    config = RolloutConfig(tasks_per_step=1, group_size=2)
    return Scheduler(streams=[Stream(TasksConfig(env="Any-v0"), Odd(payload))], play=play, config=config, seed=0)


async def test_a_payload_is_the_same_before_and_after_a_checkpoint():
    first = odd_scheduler({"seed": np.int64(3), "trail": np.array([1, 2]), "pair": (1, (2.5, None))})
    seen = []
    async with first.running():
        await settle()
        seen = [group.task.payload for group in first._buffer]
    state = json.loads(json.dumps(first.state()))
    second = odd_scheduler({})
    second.load_state(state)
    async with second.running():
        groups, _ = await second.take()
    assert groups[0].task.payload == seen[0] == {"seed": 3, "trail": [1, 2], "pair": [1, [2.5, None]]}


@pytest.mark.parametrize(("payload", "why"), [({"seen": {1, 2}}, "set"), ({"of": {1: "a"}}, "key of a table, got 1")])
async def test_a_payload_that_no_checkpoint_can_hold_is_refused_before_it_is_played(payload, why):
    scheduler = odd_scheduler(payload)
    async with scheduler.running():
        with pytest.raises(ConfigError, match=rf"payload of task 't0' of Any-v0 cannot be kept.*{why}"):
            await scheduler.take()


def test_streams_are_drawn_by_their_weights():
    streams = [Stream(TasksConfig(env="Any-v0", weight=weight), Counting()) for weight in (1.0, 6.0, 3.0)]
    rng = np.random.default_rng(0)
    drawn = np.bincount([choose(streams, rng) for _ in range(10_000)])
    assert drawn == pytest.approx([1000, 6000, 3000], abs=200), "four standard deviations"


async def test_attempts_are_graded_together_before_their_group_is_handed_out():
    seen: list[list[str]] = []

    async def play(attempt: Attempt) -> Trace:
        await asyncio.sleep(0.001 * (3 - attempt.index))
        return trace_of(attempt, reward=float(attempt.index))

    async def rank(traces: Sequence[Trace]) -> list[Trace]:
        seen.append([trace.trajectory for trace in traces])
        await asyncio.sleep(0.005)
        return [replace(trace, reward=Reward(total=10 - trace.reward.total)) for trace in traces]

    scheduler = graded_by(play, rank)
    async with scheduler.running():
        groups, _ = await scheduler.take()
    assert [[trace.reward.total for trace in group.traces] for group in groups] == [[10.0, 9.0, 8.0]]
    assert seen == [["t0#0/0", "t0#0/1", "t0#0/2"]]


async def test_a_group_that_cannot_be_graded_is_dropped_and_replaced():
    async def play(attempt: Attempt) -> Trace:
        return trace_of(attempt, reward=1.0)

    async def grade(traces: Sequence[Trace]) -> list[Trace]:
        failed = traces[0].group.ordinal == 0
        return [replace(trace, outcome=Outcome.ENV_ERROR) if failed else trace for trace in traces]

    scheduler = graded_by(play, grade)
    async with scheduler.running():
        groups, counts = await scheduler.take()
    assert [group.id.ordinal for group in groups] == [1]
    assert counts == {"dropped_groups/no_trainable_attempt": 1, "failed_attempts/env_error": 3}


async def test_a_group_that_was_being_graded_is_graded_after_a_resume():
    graded: list[int] = []

    async def play(attempt: Attempt) -> Trace:
        return trace_of(attempt)

    async def never(traces: Sequence[Trace]) -> list[Trace]:
        await asyncio.Event().wait()
        raise AssertionError

    async def at_once(traces: Sequence[Trace]) -> list[Trace]:
        graded.append(len(traces))
        return list(traces)

    stopped = graded_by(play, never)
    async with stopped.running():
        await settle()
        state = json.loads(json.dumps(stopped.state()))
    assert len(state["queue"][0]["finished"]) == 3

    resumed = graded_by(play, at_once)
    resumed.load_state(state)
    async with resumed.running():
        groups, _ = await resumed.take()
    assert [group.id.ordinal for group in groups] == [0]
    assert graded[0] == 3


async def test_a_cursor_hears_how_its_groups_went():
    heard: list[tuple[str, list[float]]] = []

    class Listening(Counting):
        def observe(self, task: TaskRow, rewards: Sequence[float]) -> None:
            heard.append((task.key, list(rewards)))

    async def play(attempt: Attempt) -> Trace:
        failed = attempt.index == 1
        outcome = Outcome.INFRA_ERROR if failed else Outcome.COMPLETED
        return trace_of(attempt, reward=float(attempt.index), outcome=outcome)

    config = RolloutConfig(tasks_per_step=2, group_size=3, attempt_retries=0)
    scheduler = Scheduler(streams=[Stream(TasksConfig(env="Any-v0"), Listening())], play=play, config=config, seed=0)
    async with scheduler.running():
        await scheduler.take()
    assert sorted(heard)[:2] == [("t0", [0.0, 2.0]), ("t1", [0.0, 2.0])]
