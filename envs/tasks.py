"""Task sets (data) and task cursors (a position in one)."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from agar.errors import ConfigError
from agar.types import TaskRow

SPLITS = ("train", "heldout")
"""The splits that every task source knows."""


@runtime_checkable
class TaskSet(Protocol):
    """A finite, ordered set of tasks; generated sets make a row when it is asked for."""

    def __len__(self) -> int:
        """How many tasks there are."""
        ...

    def __getitem__(self, index: int) -> TaskRow:
        """The task at a position, always the same one."""
        ...


TaskSource = Callable[[str], TaskSet]
"""Gives the task set of a split (`train`, `heldout`)."""


class GeneratedTasks:
    """A task set whose rows are made on demand by a function of the index."""

    def __init__(self, make_row: Callable[[int], TaskRow], *, size: int) -> None:
        """Make a set of `size` rows; `make_row(index)` must always give the same row for an index."""
        self._make_row = make_row
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> TaskRow:
        if not -self._size <= index < self._size:  # also what ends `for row in tasks`
            raise IndexError(f"task index {index} is outside a set of {self._size}")
        return self._make_row(index % self._size)


def check_split(split: str) -> str:
    """Return a known split name.

    Raises:
        ConfigError: the split is not one of `SPLITS`.
    """
    if split not in SPLITS:
        raise ConfigError(f"split must be one of {', '.join(SPLITS)}, got {split!r}: set it to one of them")
    return split


class SeededTasks:
    """The task source of an environment that needs only a seed: even seeds train, odd seeds are held out.

    The seeds are disjoint by construction. Whether two seeds can give the same situation is the environment's affair.
    """

    def __init__(self, env: str, *, train: int = 65_536, heldout: int = 4_096) -> None:
        """Make the source of `env` with that many rows in each split."""
        self.env = env
        self._sizes = {"train": train, "heldout": heldout}

    def __call__(self, split: str) -> TaskSet:
        """The task set of a split.

        Raises:
            ConfigError: the split is unknown.
        """
        odd = SPLITS.index(check_split(split))

        def make_row(index: int) -> TaskRow:
            return TaskRow(key=f"{split}/{index}", payload={"seed": 2 * index + odd}, split=split, env=self.env)

        return GeneratedTasks(make_row, size=self._sizes[split])


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
            ConfigError: the state belongs to another seed, order or size of task set.
        """
        mine = self.state()
        for name in ("seed", "shuffle", "size"):
            if state[name] != mine[name]:
                raise ConfigError(
                    f"the saved cursor has {name} {state[name]!r}, this one has {mine[name]!r}: "
                    "resume with the same tasks"
                )
        self._epoch, self._index, self._order = int(state["epoch"]), int(state["index"]), None


def rows(taskset: TaskSet, *, limit: int | None = None) -> Iterator[TaskRow]:
    """The rows of a set in order, at most `limit` of them."""
    return itertools.islice((taskset[index] for index in range(len(taskset))), limit)
