"""Keeps the right number of groups in flight: admission by staleness, retries, drops with reasons."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from agar.envs.tasks import Cursor
from agar.errors import AgarError, ConfigError, DeadlineError, EnvError
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.buffer import Buffer, Group
from agar.rollout.config import RolloutConfig, TasksConfig
from agar.rollout.grading import GradeGroup
from agar.rollout.payload import as_kept
from agar.rollout.retry import Play, play_with_retries
from agar.tool_servers.background import contained
from agar.types import GroupId

logger = logging.getLogger(__name__)

FAILED = "no_trainable_attempt"
EQUAL, ALONE = WITHOUT_SIGNAL = ("equal_rewards", "one_attempt_left")
"""Why a group is dropped. Each kind has its own `max_replacements`: groups without a signal are no sign of a fault."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of tasks.

    Attributes:
        config: its settings.
        cursor: the position in it; one with an `observe` hears how its groups went.
        grade: grades the attempts of a group together; None where nothing does.
    """

    config: TasksConfig
    cursor: Cursor
    grade: GradeGroup | None = None


def choose(streams: Sequence[Stream], rng: np.random.Generator) -> int:
    """The index of the stream that the next task comes from, by their weights."""
    weights = np.array([stream.config.weight for stream in streams])
    return int(rng.choice(len(weights), p=weights / weights.sum())) if len(weights) > 1 else 0


class Scheduler:
    """Hands out tasks, plays their attempts, and gives back whole groups in the order they were started.

    Admission is what makes `max_staleness` a bound on every sample. Batch b is trained right after publish number b,
    and groups leave in the order they came, so a group that will be in batch b may start once publish number
    b - max_staleness is done. In numbers: at most `(published + max_staleness + 1 - taken) * tasks_per_step` groups
    are queued, where `published` and `taken` count publishes after training steps and batches handed out. Nothing is
    played for a batch that nobody will ask for: `running` is told how many are wanted.
    """

    def __init__(self, *, streams: Sequence[Stream], play: Play, config: RolloutConfig, seed: int) -> None:
        if not streams:
            raise ValueError("a scheduler needs at least one stream of tasks, got none: add a [[tasks]] table")
        self._streams = streams
        self._play = play
        self._config = config
        self._rng = np.random.default_rng(seed)
        self._buffer = Buffer()
        self._slots = asyncio.Semaphore(config.concurrency)
        self._changed = asyncio.Condition()
        self._ended = 0  # attempts and gradings
        self._next_ordinal = 0
        self._taken = 0
        self._published = 0
        self._end: int | None = None
        self._counts: Counter[str] = Counter()
        self._producer: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self, batches: int | None = None) -> AsyncIterator[None]:
        """Play in the background while the context is open; what is unfinished at the end stays in the state.

        Args:
            batches: how many will be taken: no group beyond them is started. None: no end is known.
        """
        self._end = None if batches is None else self._taken + batches
        self._producer = asyncio.create_task(self._produce(), name="rollout-producer")
        self._producer.add_done_callback(self._wake)
        try:
            yield
        finally:
            self._producer.cancel()
            await asyncio.gather(self._producer, return_exceptions=True)
            self._producer = None

    async def take(self) -> tuple[list[Group], Counter[str]]:
        """The next `tasks_per_step` groups, all finished, and what was dropped or retried since the last call.

        Raises:
            DeadlineError: no attempt finished for `batch_timeout_s`.
            EnvError: more than `max_replacements` groups for one batch failed without one attempt to train on.
            RuntimeError: it is one batch more than `running` was told, or `running` is not open.
        """
        if self._taken == self._end:
            raise RuntimeError(f"take() was called for batch {self._taken + 1}, but running() was told of {self._end}")
        async with self._changed:
            while (groups := self._buffer.take(self._config.tasks_per_step)) is None:
                await self._progress()
            self._taken += 1
            counts = self._counts.copy()
            self._counts.clear()  # and not replaced: an attempt under way counts its retries in it
            return groups, counts

    def give_back(self, groups: Sequence[Group], counts: Counter[str]) -> None:
        """Undo the last `take`, whose groups nobody will train: the next one hands them out again, after a resume too.

        Args:
            groups: what `take` gave.
            counts: what it gave with them.
        """
        self._buffer.put_back(groups)
        self._taken -= 1
        self._counts.update(counts)

    async def published(self) -> None:
        """Say that the weights of one more training step are out; admits the next groups."""
        async with self._changed:
            self._published += 1
            self._changed.notify_all()

    def state(self) -> dict[str, Any]:
        """JSON-able state for an exact resume: positions, queue, counters, random state."""
        return {
            "cursors": [stream.cursor.state() for stream in self._streams],
            "queue": self._buffer.state(),
            "next_ordinal": self._next_ordinal,
            "taken": self._taken,
            "published": self._published,
            "counts": dict(self._counts),
            "rng": self._rng.bit_generator.state,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` gave; before `running`.

        Raises:
            ConfigError: it belongs to other streams of tasks.
        """
        if len(state["cursors"]) != len(self._streams):
            raise ConfigError(
                f"the checkpoint has positions in {len(state['cursors'])} streams of tasks, the recipe has "
                f"{len(self._streams)}: resume with the same [[tasks]] tables"
            )
        for stream, position in zip(self._streams, state["cursors"], strict=True):
            stream.cursor.load_state(position)
        self._buffer.load_state(state["queue"])
        self._next_ordinal, self._taken, self._published = state["next_ordinal"], state["taken"], state["published"]
        self._counts = Counter(state["counts"])
        self._rng.bit_generator.state = state["rng"]

    async def _progress(self) -> None:
        seen = self._ended
        while self._ended == seen:
            self._raise_producer_failure()
            try:
                async with asyncio.timeout(self._config.batch_timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                waiting = [f"{g.id.task}#{g.id.ordinal} ({len(g.missing)} of {g.size} open)" for g in self._buffer]
                raise DeadlineError(
                    f"no attempt finished for {self._config.batch_timeout_s:g} s; waiting for {', '.join(waiting[:4])}"
                    f"{' …' if len(waiting) > 4 else ''}: look at the engines' logs, or raise rollout.batch_timeout_s"
                ) from None

    def _raise_producer_failure(self) -> None:
        producer = self._producer
        if producer is None:
            raise RuntimeError("take() was called outside of running()")
        if producer.done() and not producer.cancelled() and (error := producer.exception()) is not None:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error if isinstance(error, AgarError) else RuntimeError(f"rollouts stopped: {error!r}") from error

    def _room(self) -> int:
        admitted = self._published + self._config.max_staleness + 1
        wanted = admitted if self._end is None else min(admitted, self._end)
        return (wanted - self._taken) * self._config.tasks_per_step - len(self._buffer)

    async def _produce(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            for group in self._buffer:  # what a resume brought back
                self._start(group, attempts)
            while True:
                async with self._changed:
                    while self._room() <= 0:
                        await self._changed.wait()
                    group = self._draw()
                    self._buffer.add(group)
                self._start(group, attempts)

    def _wake(self, producer: asyncio.Task[None]) -> None:
        """Let `take` see that the producer has ended; only then is its exception to be had."""

        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._waking = asyncio.create_task(notify())

    def _draw(self) -> Group:
        stream = choose(self._streams, self._rng)
        task = as_kept(self._streams[stream].cursor.next(), env=self._streams[stream].config.env)
        ordinal, self._next_ordinal = self._next_ordinal, self._next_ordinal + 1
        return Group(
            id=GroupId(task=task.key, ordinal=ordinal),
            stream=stream,
            task=task,
            size=self._config.group_size,
            graded=self._streams[stream].grade is None,
        )

    def _start(self, group: Group, attempts: asyncio.TaskGroup) -> None:
        name = f"{group.id.task}#{group.id.ordinal}"
        if not group.missing and not group.done:
            attempts.create_task(self._grade(group), name=f"{name} grading")
        for index in group.missing:
            attempts.create_task(self._attempt(group, index), name=f"{name}/{index}")

    async def _attempt(self, group: Group, index: int) -> None:
        async with self._slots:
            trace = await self._play_with_retries(group, index)
        async with self._changed:
            group.finished[index] = trace
            self._ended += 1
            if not trace.outcome.trainable:
                self._counts[f"failed_attempts/{trace.outcome}"] += 1
            last = not group.missing
            if group.done:
                self._settle(group)
            self._changed.notify_all()
        if last and not group.graded:
            await self._grade(group)

    async def _grade(self, group: Group) -> None:
        """Grade the attempts of a group together, now that all have ended."""
        grade = self._streams[group.stream].grade
        graded = group.traces if grade is None else await contained(grade(group.traces))
        async with self._changed:
            for index, (before, trace) in enumerate(zip(group.traces, graded, strict=True)):
                group.finished[index] = trace
                if before.outcome.trainable and not trace.outcome.trainable:
                    self._counts[f"failed_attempts/{trace.outcome}"] += 1
            group.graded = True
            self._ended += 1
            self._settle(group)
            self._changed.notify_all()

    def _settle(self, group: Group) -> None:
        """Tell a finished group to whom it may concern, and drop it where it is of no use."""
        observe = getattr(self._streams[group.stream].cursor, "observe", None)
        if observe is not None:
            observe(group.task, [trace.reward.total for trace in group.trainable])
        if reason := self._verdict(group):
            self._buffer.drop(group)  # first, or `take` could hand out a group that stops the run
            self._check_replacements(group)
            self._counts[f"dropped_groups/{reason}"] += 1

    async def _play_with_retries(self, group: Group, index: int) -> Trace:
        stream = self._streams[group.stream].config
        attempt = Attempt(
            group=group.id,
            index=index,
            task=group.task,
            env=stream.env,
            env_kwargs=stream.make_kwargs,
            policy=stream.policy,
        )
        return await play_with_retries(attempt, self._play, retries=self._config.attempt_retries, counts=self._counts)

    def _verdict(self, group: Group) -> str | None:
        """Why a finished group is dropped, or None where it is kept."""
        rewards = {trace.reward.total for trace in group.trainable}
        if not rewards:
            return FAILED
        if self._config.keep_groups == "mixed" and len(rewards) == 1:
            replaced = sum(self._counts[f"dropped_groups/{reason}"] for reason in WITHOUT_SIGNAL)
            if replaced < self._config.max_replacements:
                return EQUAL if len(group.trainable) > 1 else ALONE
        return None

    def _check_replacements(self, group: Group) -> None:
        """Stop the run where the last group that may be dropped for a batch failed too."""
        failed = self._counts[f"dropped_groups/{FAILED}"]
        if not group.trainable and failed >= self._config.max_replacements:
            raise EnvError(
                f"{failed} groups were dropped for one batch as all their attempts failed, and the last, "
                f"{group.id.task}, failed too: "
                f"{group.traces[-1].reason}; fix that, or raise rollout.max_replacements"
            )
