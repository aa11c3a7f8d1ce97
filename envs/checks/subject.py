"""The environment under check, and ways to play it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agar.envs.registry import make, spec
from agar.envs.runner import AsyncRunner, as_async
from agar.envs.tasks import TaskSet
from agar.types import Message, TaskRow, Turn

ENDLESS_TURNS = 1_000
"""An episode that is not over after so many turns is taken to be endless."""


class Fault(Exception):
    """A check failed; the message says what to fix."""


class NotApplicable(Exception):
    """A check does not apply; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One episode that a check played."""

    observations: tuple[tuple[Message, ...], ...]
    rewards: tuple[float, ...]
    ends: tuple[tuple[bool, bool], ...]
    info: Mapping[str, Any]
    turns: tuple[Turn, ...]

    @property
    def total(self) -> float:
        """The sum of the rewards."""
        return sum(self.rewards)


NextTurn = Callable[[AsyncRunner, int], Turn | Awaitable[Turn | None] | None]
"""Gives a check's next turn from the environment and the turn's number; None stops the episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is checked."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def new(self) -> AsyncRunner:
        """A fresh environment."""
        return as_async(make(self.id, **self.kwargs), step_timeout_s=60.0)

    def tasks(self, split: str) -> TaskSet:
        """The task set of a split."""
        return spec(self.id).tasks(split)

    def some(self, count: int) -> list[TaskRow]:
        """The first tasks of the train split."""
        tasks = self.tasks("train")
        return [tasks[index] for index in range(min(count, len(tasks)))]


async def play(runner: AsyncRunner, task: TaskRow, next_turn: NextTurn) -> Played:
    """Play one episode.

    Raises:
        Fault: it does not end.
    """
    first, info = await runner.areset(seed=task.payload.get("seed"), options={"task": task})
    observations: list[tuple[Message, ...]] = [tuple(first)]
    rewards: list[float] = []
    ends: list[tuple[bool, bool]] = []
    turns: list[Turn] = []
    while (turn := await _given(next_turn(runner, len(turns)))) is not None:
        if len(turns) == ENDLESS_TURNS:
            raise Fault(f"an episode was not over after {ENDLESS_TURNS} turns: register it with max_turns")
        observation, reward, terminated, truncated, info = await runner.astep(turn)
        turns.append(turn)
        observations.append(tuple(observation))
        rewards.append(reward)
        ends.append((terminated, truncated))
        if terminated or truncated:
            break
    return Played(
        observations=tuple(observations),
        rewards=tuple(rewards),
        ends=tuple(ends),
        info=info,
        turns=tuple(turns),
    )


async def _given(turn: Turn | Awaitable[Turn | None] | None) -> Turn | None:
    return await turn if inspect.isawaitable(turn) else turn


def always(turn: Turn) -> NextTurn:
    """The same turn, whatever happens."""
    return lambda runner, index: turn


def replay(turns: tuple[Turn, ...]) -> NextTurn:
    """The turns of an episode that was played before."""
    return lambda runner, index: turns[index] if index < len(turns) else None


def sampled(seed: int) -> NextTurn:
    """Turns drawn from the action space."""

    def next_turn(runner: AsyncRunner, index: int) -> Turn:
        if index == 0:
            runner.env.action_space.seed(seed)
        return Turn.of(runner.env.action_space.sample())

    return next_turn


async def gold(runner: AsyncRunner, index: int) -> Turn:
    """What the environment's `gold` says.

    Raises:
        NotApplicable: the environment has no `gold`.
    """
    turn = await runner.agold()
    if turn is None:
        raise NotApplicable("the environment has no gold(): write it to have its reward checked")
    return turn
