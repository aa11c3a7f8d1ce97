"""Runs without a trainer: rollouts that are only recorded, and evaluations."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import numpy as np

from agar.ledger.trace import Trace
from agar.recipe.config import Recipe
from agar.recipe.folder import RunFolder
from agar.recipe.players import Players, playing
from agar.recipe.view import View
from agar.rollout.attempt import Attempt
from agar.rollout.evaluate import Evaluation
from agar.rollout.grading import GradeGroup, play_group
from agar.rollout.retry import play_with_retries
from agar.rollout.scheduler import choose
from agar.rollout.statistics import trace_metrics
from agar.types import GroupId


async def play_evaluations(recipe: Recipe, folder: RunFolder, view: View) -> list[Evaluation]:
    """Evaluate the recipe's models as they are on disk.

    Raises:
        AgarError: whatever stopped it.
    """
    async with _ready(recipe, folder, view) as players:
        results: list[Evaluation] = []
        for config in recipe.evaluate:
            with view.task(f"evaluate {config.title} ({config.split})") as progress:
                result = await players.evaluate(config, progress)
            view.evaluation(0, result)
            folder.keep(result.traces, f"eval-{len(results)}")
            results.append(result)
        return results


async def play_rollouts(recipe: Recipe, folder: RunFolder, view: View, *, groups: int) -> list[Trace]:
    """Play `groups` groups of the recipe's tasks and write their traces.

    Raises:
        AgarError: whatever stopped it.
    """
    async with _ready(recipe, folder, view) as players:
        drawn = _groups(players, groups)
        total = sum(len(attempts) for _, attempts in drawn)
        slots = asyncio.Semaphore(recipe.rollout.concurrency)
        play = players.play()
        traces: list[Trace] = []
        counts: Counter[str] = Counter()
        with view.task("rollouts") as progress:

            def keep(found: Sequence[Trace]) -> None:
                traces.extend(found)
                folder.keep(found, "rollouts")
                progress(len(traces), total)

            async def one(attempt: Attempt, *, graded: bool) -> Trace:
                async with slots:
                    trace = await play_with_retries(
                        attempt, play, retries=recipe.rollout.attempt_retries, counts=counts
                    )
                if not graded:
                    keep([trace])
                return trace

            async def group(grade: GradeGroup | None, attempts: Sequence[Attempt]) -> None:
                found = await play_group(attempts, partial(one, graded=grade is not None), grade)
                if grade is not None:
                    keep(found)

            async with asyncio.TaskGroup() as running:
                for grade, attempts in drawn:
                    running.create_task(group(grade, attempts))
        retried = {f"rollout/{name}": float(count) for name, count in counts.items()}
        view.step(0, trace_metrics(traces, "rollout") | retried)
        return traces


@asynccontextmanager
async def _ready(recipe: Recipe, folder: RunFolder, view: View) -> AsyncIterator[Players]:
    async with AsyncExitStack() as stack:
        with view.stage("engines"):
            players = await stack.enter_async_context(playing(recipe, logs=folder.logs))
        yield players


def _groups(players: Players, groups: int) -> list[tuple[GradeGroup | None, list[Attempt]]]:
    """The attempts of each group, and what grades them together."""
    streams = players.streams()
    size = players.recipe.rollout.group_size
    drawn = []
    rng = np.random.default_rng(players.recipe.run.seed)
    for ordinal in range(groups):
        stream = streams[choose(streams, rng)]
        task = stream.cursor.next()
        attempts = [
            Attempt(
                group=GroupId(task=task.key, ordinal=ordinal),
                index=index,
                task=task,
                env=stream.config.env,
                env_kwargs=stream.config.make_kwargs,
                policy=stream.config.policy,
            )
            for index in range(size)
        ]
        drawn.append((stream.grade, attempts))
    return drawn
