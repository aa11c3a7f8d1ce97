"""The group stage of a rubric: all attempts at a task are graded together, before they go into a batch."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from agar.envs.registry import make
from agar.envs.rubric import Conversation, Rubric
from agar.ledger.trace import Trace
from agar.rollout.config import TasksConfig
from agar.rollout.episode import HOPELESS, classify
from agar.rollout.scheduler import GradeGroup
from agar.types import Message, Reward

logger = logging.getLogger(__name__)


def grading_of(config: TasksConfig) -> GradeGroup | None:
    """The group stage of the rubric that a table's environment has; None where it has none.

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
        return await grade_group(rubric, traces)

    return grade


async def grade_group(rubric: Rubric, traces: Sequence[Trace]) -> list[Trace]:
    """Add what a rubric's group stage gives to the traces that are in the statistics.

    What it adds counts for the last reply of an attempt. Where it fails, the whole group has: its attempts cannot be
    compared.

    Raises:
        ConfigError, MissingExtraError, UnsupportedPlatformError: no group can be graded here.
    """
    chosen = [index for index, trace in enumerate(traces) if trace.outcome.trainable and not trace.open_calls]
    graded = list(traces)
    if not chosen:
        return graded
    try:
        rewards = await rubric.grade_group([conversation_of(traces[index]) for index in chosen])
    except HOPELESS:
        raise
    except Exception as error:
        outcome, reason = classify(error)
        logger.warning("the group of %s could not be graded: %s", traces[0].group.task, reason)
        for index in chosen:
            graded[index] = replace(traces[index], outcome=outcome, reason=reason)
        return graded
    for index, reward in zip(chosen, rewards, strict=True):
        graded[index] = _with(traces[index], reward)
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
    turns = dict(trace.turn_rewards)
    if trace.nodes and more.total:
        last = trace.nodes[-1].id
        turns[last] = turns.get(last, 0.0) + more.total
    total = Reward(total=trace.reward.total + more.total, parts={**trace.reward.parts, **more.parts})
    return replace(trace, reward=total, turn_rewards=turns)
