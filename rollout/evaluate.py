"""Plays a fixed set of tasks and says how well it went."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import EvaluationConfig
from agar.rollout.grading import GradeGroup, play_group
from agar.rollout.payload import as_kept
from agar.rollout.retry import play_with_retries
from agar.rollout.statistics import pass_at_k, trace_metrics
from agar.types import GroupId, Sampling, TaskRow

logger = logging.getLogger(__name__)

PlayWith = Callable[[Attempt, Sampling], Awaitable[Trace]]
Progress = Callable[[int, int], None]
"""Called with (episodes done, episodes in all)."""

SUCCESS = 1.0
"""A reward of at least this counts as solved for pass@k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of one evaluation.

    Attributes:
        config: what was evaluated.
        reward_mean: over trainable attempts; NaN where there is none.
        standard_error: of that mean, in reward units; NaN where there is no mean.
        excluded: attempts outside the statistics (environment or infrastructure failures).
        metrics: everything, keyed `eval/<name>/…`.
        traces: the episodes.
    """

    config: EvaluationConfig
    reward_mean: float
    standard_error: float
    excluded: int
    metrics: dict[str, float]
    traces: tuple[Trace, ...]


async def evaluate(
    config: EvaluationConfig,
    *,
    tasks: Sequence[TaskRow],
    play: PlayWith,
    concurrency: int,
    retries: int = 0,
    grade: GradeGroup | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Play every task `config.attempts` times.

    Args:
        config: environment, policy, sampling.
        tasks: the tasks, in order.
        play: plays one attempt, as `EpisodeRunner.play`.
        concurrency: episodes in flight.
        retries: how often an attempt that failed for reasons that are not the agent's is played again.
        grade: grades the attempts at a task together; None where nothing does.
        progress: called after each episode.

    Raises:
        ConfigError: a task's payload is not plain data.
    """
    slots = asyncio.Semaphore(concurrency)
    groups = [
        [
            Attempt(
                group=GroupId(task=task.key, ordinal=ordinal),
                index=index,
                task=task,
                env=config.env,
                env_kwargs=config.make_kwargs,
                policy=config.policy,
            )
            for index in range(config.attempts)
        ]
        for ordinal, task in enumerate(as_kept(task, env=config.env) for task in tasks)
    ]
    done, sampling = 0, config.sampling.build()
    counts: Counter[str] = Counter()

    async def sampled(attempt: Attempt) -> Trace:
        return await play(attempt, sampling)

    async def one(attempt: Attempt) -> Trace:
        nonlocal done
        async with slots:
            trace = await play_with_retries(attempt, sampled, retries=retries, counts=counts)
        done += 1
        if progress is not None:
            progress(done, len(tasks) * config.attempts)
        return trace

    async with asyncio.TaskGroup() as running:
        played = [running.create_task(play_group(attempts, one, grade)) for attempts in groups]
    result = summarise(config, [trace for group in played for trace in group.result()])
    counted = {f"eval/{config.title}/{name}": float(count) for name, count in counts.items()}
    return replace(result, metrics=result.metrics | counted)


def tries(attempts: int) -> list[int]:
    """Each k for which pass@k is reported: the powers of two below the number of attempts, and that number."""
    return [*(2**power for power in range((attempts - 1).bit_length())), attempts]


def summarise(config: EvaluationConfig, traces: Sequence[Trace]) -> Evaluation:
    """Turn finished episodes into an evaluation."""
    counted = [trace for trace in traces if trace.outcome.trainable]
    if traces and not counted:
        logger.warning(
            "no episode of the evaluation %s counts: all %d failed, the last because %s",
            config.title,
            len(traces),
            traces[-1].reason or traces[-1].outcome,
        )
    rewards = np.array([trace.reward.total for trace in counted] or [np.nan])
    error = float(rewards.std(ddof=1) / np.sqrt(len(rewards))) if len(rewards) > 1 else 0.0 * float(rewards[0])
    prefix = f"eval/{config.title}"
    by_task: dict[str, list[float]] = {}
    for trace in counted:
        by_task.setdefault(trace.task.key, []).append(trace.reward.total)
    solved = [(len(r), sum(x >= SUCCESS for x in r)) for r in by_task.values()]
    metrics = trace_metrics(traces, prefix)
    if counted:
        metrics |= {f"{prefix}/reward_se": error}
        passed = {k: pass_at_k(solved, k) for k in tries(config.attempts)}
        metrics |= {f"{prefix}/pass@{k}": value for k, value in passed.items() if value is not None}
    return Evaluation(
        config=config,
        reward_mean=float(rewards.mean()),
        standard_error=error,
        excluded=len(traces) - len(counted),
        metrics=metrics,
        traces=tuple(traces),
    )
