"""The group stage of a rubric: all attempts at a task are graded together, before any of them counts anywhere."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from agar.envs.contract import checked_number
from agar.envs.registry import make
from agar.envs.rubric import Conversation, Rubric
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import EvaluationConfig, TasksConfig
from agar.rollout.episode import HOPELESS, classify
from agar.types import Message, Reward

logger = logging.getLogger(__name__)

GradeGroup = Callable[[Sequence[Trace]], Awaitable[list[Trace]]]
"""Gives back a group's traces, graded together, in the same order."""


async def play_group(
    attempts: Sequence[Attempt], play: Callable[[Attempt], Coroutine[Any, Any, Trace]], grade: GradeGroup | None
) -> list[Trace]:
    """Play all attempts at a task at once; graded together when the last has ended, where something does.

    Raises:
        ExceptionGroup: what `play` raised.
        ConfigError, MissingExtraError, UnsupportedPlatformError: no group can be graded here.
    """
    async with asyncio.TaskGroup() as running:
        tasks = [running.create_task(play(attempt)) for attempt in attempts]
    traces = [task.result() for task in tasks]
    return traces if grade is None else await grade(traces)


def grading_of(config: TasksConfig | EvaluationConfig) -> GradeGroup | None:
    """The group stage of the rubric that a table's environment has; None where it has none.

    An evaluation counts an attempt that no row can be made of, since calls were open when it ended; training does not.
    Each compares what it counts.

    Raises:
        ConfigError: the environment cannot be made, or there is no such rubric.
    """
    named = config.kwargs.get("rubric")
    if named is None:
        # Where it runs in a process of its own, nothing of it may run here: its rubric must then stand in the recipe.
        env = make(config.env, **config.make_kwargs)
        try:
            named = getattr(env, "rubric", None)
        finally:
            env.close()
    if named is None or not (rubric := Rubric.named(named)).has("group"):
        return None

    async def grade(traces: Sequence[Trace]) -> list[Trace]:
        return await grade_group(rubric, traces, with_open_calls=isinstance(config, EvaluationConfig))

    return grade


async def grade_group(rubric: Rubric, traces: Sequence[Trace], *, with_open_calls: bool = False) -> list[Trace]:
    """Add what a rubric's group stage gives to the traces that are in the statistics.

    What it adds counts for the last reply of an attempt. Where it fails, the whole group has: its attempts cannot be
    compared.

    Args:
        rubric: has the group stage.
        traces: the attempts of a group.
        with_open_calls: compare those with calls that were open at the seal as well.

    Raises:
        ConfigError, MissingExtraError, UnsupportedPlatformError: no group can be graded here.
    """
    chosen = [
        index
        for index, trace in enumerate(traces)
        if trace.outcome.trainable and (with_open_calls or not trace.open_calls)
    ]
    graded = list(traces)
    if not chosen:
        return graded
    try:
        rewards = await rubric.grade_group([conversation_of(traces[index]) for index in chosen])
        for index, reward in zip(chosen, rewards, strict=True):
            graded[index] = _with(traces[index], reward)
    except HOPELESS:
        raise
    except Exception as error:
        outcome, reason = classify(error)
        logger.warning("the group of %s could not be graded: %s", traces[0].group.task, reason)
        for index in chosen:
            graded[index] = replace(traces[index], outcome=outcome, reason=reason)
    return graded


def conversation_of(trace: Trace) -> Conversation:
    """What was said on the path to the newest reply of the first call's tree."""
    messages: list[Message] = []
    if trace.nodes:
        newest = max(leaf for leaf in trace.leaves if trace.path(leaf)[0].id == 0)
        for node in trace.path(newest):
            messages += [*node.messages, node.turn.message()]
    return Conversation(
        task=trace.task, messages=tuple(messages), reward=trace.reward.total, parts=trace.reward.parts, meta=trace.meta
    )


def _with(trace: Trace, more: Reward) -> Trace:
    what = f"{trace.trajectory}: with those of its group, the rewards make"
    turns = dict(trace.turn_rewards)
    if trace.nodes and more.total:
        last = trace.nodes[-1].id
        turns[last] = checked_number(turns.get(last, 0.0) + more.total, what=what)
    total = checked_number(trace.reward.total + more.total, what=what)
    return replace(trace, reward=Reward(total=total, parts={**trace.reward.parts, **more.parts}), turn_rewards=turns)
