"""Which tasks come when, by how they went: the curriculum hook, and one curriculum by levels."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from agar.envs.tasks.base import TaskSet, rows
from agar.envs.tasks.saved import restore, saved, saved_count
from agar.errors import ConfigError
from agar.types import TaskRow


class Curriculum(Protocol):
    """Chooses the next task of a set, and hears how tasks went."""

    def choose(self, tasks: TaskSet, rng: np.random.Generator) -> int:
        """The position of the next task in the set. All chance is drawn from `rng`."""
        ...

    def observe(self, task: TaskRow, rewards: Sequence[float]) -> None:
        """The rewards of a group of attempts at a task, once it has ended; none where all of them failed."""
        ...

    def state(self) -> dict[str, Any]:
        """What it has learnt, JSON-able."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` had learnt."""
        ...


class CurriculumCursor:
    """A cursor whose tasks a curriculum chooses; the scheduler tells it how they went through `observe`."""

    def __init__(self, tasks: TaskSet, curriculum: Curriculum, *, seed: int = 0) -> None:
        """Walk over `tasks` as `curriculum` says; the seed fixes its chances.

        Raises:
            ConfigError: the set is empty.
        """
        if len(tasks) == 0:
            raise ConfigError("a curriculum needs at least one task, got an empty task set: check its filter or slice")
        self._tasks, self._curriculum = tasks, curriculum
        self._rng = np.random.default_rng(seed)

    def next(self) -> TaskRow:
        """The next task.

        Raises:
            ConfigError: the curriculum chose a position that the set does not have.
        """
        index = self._curriculum.choose(self._tasks, self._rng)
        if not 0 <= index < len(self._tasks):
            raise ConfigError(f"{type(self._curriculum).__name__} chose task {index} of {len(self._tasks)}")
        return self._tasks[index]

    def observe(self, task: TaskRow, rewards: Sequence[float]) -> None:
        """Tell the curriculum how a group went."""
        self._curriculum.observe(task, rewards)

    def state(self) -> dict[str, Any]:
        """What the curriculum has learnt, and the state of its chances."""
        return {"curriculum": self._curriculum.state(), "rng": self._rng.bit_generator.state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            ConfigError: it is not the state of a curriculum.
        """
        self._curriculum.load_state(saved(state, "curriculum", of="a curriculum"))
        restore(self._rng, state, of="a curriculum")


class Levels:
    """From easy to hard: tasks of the levels up to the present one, which rises when the mean reward is high enough.

    The present level is drawn half of the time, the ones below it otherwise, so that nothing learnt is forgotten.

    Args:
        level: the entry of a task's payload that says its level, an integer.
        threshold: the mean reward of the present level's last `window` groups at which the next one begins.
        window: how many groups are looked at.
    """

    def __init__(self, *, level: str = "level", threshold: float = 0.8, window: int = 32) -> None:
        self._name, self._threshold = level, threshold
        self._recent: deque[float] = deque(maxlen=window)
        self._at = 0
        self._places: list[list[int]] = []
        self._levels: list[int] = []
        self._known: TaskSet | None = None

    def choose(self, tasks: TaskSet, rng: np.random.Generator) -> int:
        """A task of the present level or of one below it.

        Raises:
            ConfigError: a task has no level, or a saved state had more levels than the tasks.
        """
        self._sort(tasks)
        if self._at >= len(self._levels):
            raise ConfigError(
                f"the saved position is at level {self._at} of {len(self._levels)}: resume with the same tasks"
            )
        below = self._at > 0 and rng.random() < 0.5
        places = self._places[int(rng.integers(self._at)) if below else self._at]
        return places[int(rng.integers(len(places)))]

    def observe(self, task: TaskRow, rewards: Sequence[float]) -> None:
        """Count a group of the present level."""
        if not rewards or self._at >= len(self._levels) or self._level(task) != self._levels[self._at]:
            return
        self._recent.append(float(np.mean(rewards)))
        full = len(self._recent) == self._recent.maxlen
        if full and np.mean(self._recent) >= self._threshold and self._at + 1 < len(self._levels):
            self._at += 1
            self._recent.clear()

    def state(self) -> dict[str, Any]:
        """The present level, its latest rewards, and which levels there are."""
        return {"at": self._at, "recent": list(self._recent), "levels": list(self._levels)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a level.

        Raises:
            ConfigError: it is not the state of levels.
        """
        self._at = saved_count(state, "at", of="levels")
        self._recent.clear()
        self._recent.extend(saved(state, "recent", of="levels"))
        # Groups that were in play when it was saved end before a task is chosen, and so before the tasks are known.
        self._levels, self._known = list(state.get("levels", ())), None

    def _sort(self, tasks: TaskSet) -> None:
        if self._known is tasks:
            return
        levels = [self._level(row) for row in rows(tasks)]
        self._levels = sorted(set(levels))
        self._places = [[at for at, level in enumerate(levels) if level == wanted] for wanted in self._levels]
        self._known = tasks

    def _level(self, task: TaskRow) -> int:
        try:
            return int(task.payload[self._name])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"task {task.key!r} has no level: its payload needs an integer {self._name!r}, or name another entry"
            ) from error
