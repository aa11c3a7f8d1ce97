"""What a task set is, and the sets that are made on demand."""

import itertools
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

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


def rows(taskset: TaskSet, *, limit: int | None = None) -> Iterator[TaskRow]:
    """The rows of a set in order, at most `limit` of them."""
    return itertools.islice((taskset[index] for index in range(len(taskset))), limit)
