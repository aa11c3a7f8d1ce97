"""Task cursors: a position in a task set."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.envs.tasks.base import TaskSet
from agar.envs.tasks.saved import saved, saved_count
from agar.errors import ConfigError
from agar.types import TaskRow

_KIND = "a task set"


class TaskCursor:
    """An endless walk over a task set: every row once an epoch, in an order that the seed fixes.

    Two cursors with the same set, seed and state give the same rows.
    """

    def __init__(self, taskset: TaskSet, *, seed: int = 0, shuffle: bool = True) -> None:
        """Start at the first row of epoch 0.

        Args:
            taskset: the tasks.
            seed: fixes the order of every epoch.
            shuffle: False walks in the set's own order.

        Raises:
            ConfigError: the set is empty.
        """
        if len(taskset) == 0:
            raise ConfigError("a task cursor needs at least one task, got an empty task set: check its filter or slice")
        self._taskset = taskset
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = 0
        self._index = 0
        self._order: npt.NDArray[np.int64] | None = None

    def next(self) -> TaskRow:
        """The next row; a new epoch begins where one ends."""
        if self._index == len(self._taskset):
            self._epoch, self._index, self._order = self._epoch + 1, 0, None
        if self._order is None and self._shuffle:
            self._order = np.random.default_rng([self._seed, self._epoch]).permutation(len(self._taskset))
        position = int(self._order[self._index]) if self._order is not None else self._index
        self._index += 1
        return self._taskset[position]

    def state(self) -> dict[str, Any]:
        """Where the walk stands, JSON-able."""
        return {
            "epoch": self._epoch,
            "index": self._index,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "size": len(self._taskset),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            ConfigError: the state belongs to another seed, order or size of task set, or to no task set at all.
        """
        mine = self.state()
        for name in ("seed", "shuffle", "size"):
            if (found := saved(state, name, of=_KIND)) != mine[name]:
                raise ConfigError(
                    f"the saved cursor has {name} {found!r}, this one has {mine[name]!r}: resume with the same tasks"
                )
        epoch = saved_count(state, "epoch", of=_KIND)
        index = saved_count(state, "index", of=_KIND, at_most=len(self._taskset))
        self._epoch, self._index, self._order = epoch, index, None
