"""Runs without a trainer: rollouts that are only recorded, and evaluations."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np

from agar.ledger.trace import Trace
from agar.recipe.config import Recipe
from agar.recipe.folder import RunFolder
from agar.recipe.players import Players, playing
from agar.recipe.view import View
from agar.rollout.attempt import Attempt
from agar.rollout.evaluate import Evaluation
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
        attempts = _attempts(players, groups)
        slots = asyncio.Semaphore(recipe.rollout.concurrency)
        play = players.play()
        traces: list[Trace] = []
        counts: Counter[str] = Counter()
        with view.task("rollouts") as progress:

            async def one(attempt: Attempt) -> None:
                async with slots:
                    trace = await play_with_retries(
                        attempt, play, retries=recipe.rollout.attempt_retries, counts=counts
                    )
                traces.append(trace)
                folder.keep([trace], "rollouts")
                progress(len(traces), len(attempts))

            async with asyncio.TaskGroup() as running:
                for attempt in attempts:
                    running.create_task(one(attempt))
        retried = {f"rollout/{name}": float(count) for name, count in counts.items()}
        view.step(0, trace_metrics(traces, "rollout") | retried)
        return traces


@asynccontextmanager
async def _ready(recipe: Recipe, folder: RunFolder, view: View) -> AsyncIterator[Players]:
    async with AsyncExitStack() as stack:
        with view.stage("engines"):
            players = await stack.enter_async_context(playing(recipe, logs=folder.logs))
        yield players


def _attempts(players: Players, groups: int) -> list[Attempt]:
    streams = players.streams()
    size = players.recipe.rollout.group_size
    attempts = []
    rng = np.random.default_rng(players.recipe.run.seed)
    for ordinal in range(groups):
        stream = streams[choose(streams, rng)]
        task = stream.cursor.next()
        attempts += [
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
    return attempts
