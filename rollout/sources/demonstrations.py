"""Batches of transcripts to imitate: a scripted agent plays, the family encodes, the trainer learns the agent's turns.

Everything follows from the seed and the batch's number: which phase, which episodes, in which order. So the state for
an exact resume is one number, and the cache of played episodes can be made again.
"""

import asyncio
import importlib
import inspect
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from agar.agents.demonstrator import Demonstrator
from agar.agents.scripted import ScriptedAgent, ScriptedPolicy, Transcript
from agar.envs.registry import make, spec
from agar.envs.runner import as_async
from agar.envs.tasks.base import TaskSet
from agar.errors import ConfigError, DeadlineError, EnvError
from agar.ledger.families.base import Family
from agar.rollout.sources.config import DemonstrationsConfig, DemonstratorConfig
from agar.types import Batch, GroupId, Sample, Source, TaskRow


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a transcript stands in the run: the `number`th of a phase's distinct ones."""

    phase: int
    number: int


class Demonstrations:
    """An endless, deterministic `BatchSource` of demonstrations.

    Args:
        config: environment, agents by phase, batch size.
        family: encodes transcripts for the policy that is trained.
        steps: length of the run in batches; the phases' shares divide it.
        seed: fixes tasks, order and the choice among a phase's agents.

    Raises:
        ConfigError: a policy cannot be found or made; the environment has no such split.
    """

    def __init__(self, config: DemonstrationsConfig, *, family: Family, steps: int, seed: int) -> None:
        if steps < 1:
            raise ConfigError(f"steps must be at least 1, got {steps}: the phases divide it among themselves")
        self._config = config
        self._family = family
        self._seed = seed
        self._ends = phase_ends([phase.share for phase in config.phases], steps)
        self._tasks = spec(config.env).tasks(config.split)
        self._agents = [
            [load_agent(each, tasks=self._tasks, seed=seed) for each in phase.agents] for phase in config.phases
        ]
        self._played: dict[_Place, asyncio.Task[Sample]] = {}
        self._slots = asyncio.Semaphore(config.concurrency)
        self._next = 0
        self._end: int | None = None
        self._ahead: asyncio.Task[list[Sample]] | None = None

    @asynccontextmanager
    async def running(self, batches: int | None = None) -> AsyncIterator[None]:
        """Play the next batch in the background while the last one is trained, for so many; None: without end."""
        self._end = None if batches is None else self._next + batches
        try:
            yield
        finally:
            tasks = [task for task in (self._ahead, *self._played.values()) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ahead = None
            self._played = {place: task for place, task in self._played.items() if _succeeded(task)}

    async def next_batch(self, versions: Mapping[str, int]) -> Batch:
        """The next `trajectories_per_step` transcripts; `versions` does not matter, nothing was sampled.

        Raises:
            DeadlineError, EnvError, SandboxError: a demonstration could not be played.
        """
        if self._ahead is None or (self._ahead.done() and not _succeeded(self._ahead)):
            self._ahead = self._start(self._next)
        samples = await asyncio.shield(self._ahead)  # a wait that is cancelled loses nothing
        phase = self.phase_of(self._next)
        self._next += 1
        self._ahead = None if self._next == self._end else self._start(self._next)
        trained = sum(int(sample.loss_mask.sum()) for sample in samples)
        return Batch(
            samples=tuple(samples),
            metrics={
                "demonstrations/phase": float(phase),
                "demonstrations/reward_mean": float(np.mean([sample.reward for sample in samples])),
                "demonstrations/tokens": float(sum(len(sample.token_ids) for sample in samples)),
                "demonstrations/trained_tokens": float(trained),
            },
        )

    def publishing(self, versions: Mapping[str, int]) -> AbstractAsyncContextManager[None]:
        """Nothing to quiet: no engine is asked."""
        return nullcontext()

    def state(self) -> bytes:
        """The number of the next batch; everything else follows from the settings."""
        return json.dumps({"next": self._next}).encode()

    def load_state(self, state: bytes) -> None:
        """Go on at a batch; what was prepared for another one is given up."""
        self._next = int(json.loads(state)["next"])
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    def phase_of(self, batch: int) -> int:
        """The phase that a batch, counted from 0, belongs to."""
        return next((phase for phase, end in enumerate(self._ends) if batch < end), len(self._ends) - 1)

    def _start(self, batch: int) -> asyncio.Task[list[Sample]]:
        return asyncio.create_task(self._batch(batch), name=f"demonstrations-{batch}")

    async def _batch(self, batch: int) -> list[Sample]:
        samples = await asyncio.gather(*(asyncio.shield(self._sample(place)) for place in self._places(batch)))
        first = batch * self._config.trajectories_per_step
        return [
            sample.but(
                group=GroupId(task=sample.group.task, ordinal=ordinal), trajectory=f"{sample.group.task}#{ordinal}"
            )
            for ordinal, sample in enumerate(samples, first)
        ]

    def _places(self, batch: int) -> list[_Place]:
        """Each phase walks over its transcripts epoch by epoch, every epoch in its own order."""
        phase = self.phase_of(batch)
        start = self._ends[phase - 1] if phase else 0
        size, distinct = self._config.trajectories_per_step, self._config.distinct
        positions = range((batch - start) * size, (batch - start + 1) * size)
        orders = {
            epoch: np.random.default_rng([self._seed, phase, epoch]).permutation(distinct)
            for epoch in {position // distinct for position in positions}
        }
        return [_Place(phase, int(orders[position // distinct][position % distinct])) for position in positions]

    def _sample(self, place: _Place) -> asyncio.Task[Sample]:
        played = self._played.get(place)
        if played is None or (played.done() and not _succeeded(played)):
            played = self._played[place] = asyncio.create_task(self._play(place), name=f"demonstration-{place}")
        return played

    async def _play(self, place: _Place) -> Sample:
        config = self._config
        rng = np.random.default_rng([self._seed, place.phase, 1, place.number])
        weights = np.array([agent.weight for agent in config.phases[place.phase].agents])
        agent = self._agents[place.phase][int(rng.choice(len(weights), p=weights / weights.sum()))]
        index = int(rng.integers(len(self._tasks)))
        async with self._slots:
            transcript = await play(config, agent, task=self._tasks[index], attempt=place.number)
        return self._encode(transcript, place)

    def _encode(self, transcript: Transcript, place: _Place) -> Sample:
        turns = transcript.messages
        last = max(index for index, message in enumerate(turns) if message.role == "assistant")
        ids, taught = self._family.transcript(turns[: last + 1], transcript.tools)
        rewards = np.zeros(len(ids), dtype=np.float32)
        rewards[np.flatnonzero(taught)[-1]] = transcript.reward
        return Sample(
            policy=self._config.policy,
            group=GroupId(task=transcript.task.key, ordinal=0),  # numbered when it goes into a batch
            role="agent",
            trajectory=transcript.task.key,
            token_ids=ids,
            loss_mask=taught,
            source=np.where(taught, np.uint8(Source.DEMONSTRATION), np.uint8(Source.CONTEXT)),
            logprobs=np.zeros(len(ids), dtype=np.float32),
            policy_versions=np.full(len(ids), -1, dtype=np.int32),
            rewards=rewards,
            reward=transcript.reward,
            weight=1.0,
            outcome=transcript.outcome,
            meta={"phase": place.phase, "transcript": place.number},
        )


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def play(config: DemonstrationsConfig, agent: ScriptedAgent, *, task: TaskRow, attempt: int) -> Transcript:
    """Play one demonstration; its environment is closed.

    Raises:
        DeadlineError: it took longer than `episode_timeout_s`.
        EnvError: the environment or its sandbox failed.
    """
    env = as_async(make(config.env, **config.make_kwargs))
    try:
        async with asyncio.timeout(config.episode_timeout_s):
            transcript = await agent.transcript(env, task, attempt=attempt)
    except TimeoutError:
        raise DeadlineError(
            f"the demonstration of {config.env} {task.key} took longer than {config.episode_timeout_s:g} s: "
            "look at the environment, or raise episode_timeout_s"
        ) from None
    finally:
        await env.aclose()
    if not transcript.outcome.trainable:
        raise EnvError(
            f"the demonstration of {config.env} {task.key} failed ({transcript.outcome}): "
            f"{transcript.info.get('error', 'no reason was given')}"
        )
    return transcript


def phase_ends(shares: Sequence[float], steps: int) -> list[int]:
    """The batch at which each phase ends, rounded; the last one ends at `steps`.

    Example: shares (0.6, 0.4) of 10 steps give [6, 10].
    """
    total = math.fsum(shares)
    return [round(steps * math.fsum(shares[: count + 1]) / total) for count in range(len(shares))]


def load_agent(config: DemonstratorConfig, *, tasks: TaskSet, seed: int) -> ScriptedAgent:
    """Make who demonstrates.

    Args:
        config: its settings.
        tasks: the tasks of the environment.
        seed: fixes its chance.

    Raises:
        ConfigError: as `load_policy`.
    """
    if config.policy != "gold":
        return ScriptedAgent(load_policy(config), seed=seed)
    try:
        return Demonstrator(tasks=tasks, seed=seed, **config.kwargs)
    except TypeError as error:
        raise ConfigError(f"policy 'gold' takes err alone, got {dict(config.kwargs)}: {error}") from error


def load_policy(config: DemonstratorConfig) -> ScriptedPolicy:
    """Import a scripted policy, or make one with its arguments.

    A function that takes (messages, tools, rng) is a policy; one that can be called with `kwargs` alone makes one.

    Raises:
        ConfigError: the module or the name is missing, or the arguments do not fit.
    """
    module, _, name = config.policy.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"policy {config.policy!r} was not found ({error}): expected module:attr") from error
    signature = inspect.signature(found)
    try:
        signature.bind(**config.kwargs)
    except TypeError as error:
        if not config.kwargs and _takes_three(signature):
            return cast(ScriptedPolicy, found)
        raise ConfigError(f"policy {config.policy!r} does not take {dict(config.kwargs)}: {error}") from error
    made = found(**config.kwargs)
    if not callable(made) or not _takes_three(inspect.signature(made)):
        raise ConfigError(
            f"policy {config.policy!r} gave a {type(made).__name__}, expected (messages, tools, rng) -> Turn"
        )
    return cast(ScriptedPolicy, made)


def _takes_three(signature: inspect.Signature) -> bool:
    try:
        signature.bind((), (), None)
    except TypeError:
        return False
    return True
