"""A task set seen through a choice of its rows: slices, filters, other orders, shards."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from agar.envs.tasks.base import GeneratedTasks, TaskSet, rows
from agar.errors import ConfigError
from agar.types import TaskRow

_SHOWN = 5


class Tasks:
    """Rows of a task set, by their positions in it. A view: nothing is copied, and views of views are one view.

    Example: `Tasks(base).filter(short).shuffle(seed=1)[:100].shard(2, 0)`.
    """

    def __init__(self, base: TaskSet, order: npt.ArrayLike | None = None) -> None:
        """See `base` through `order`.

        Args:
            base: the rows.
            order: positions in it, int64 [n]; None takes all of them, as they are.
        """
        chosen = np.arange(len(base), dtype=np.int64) if order is None else np.asarray(order, dtype=np.int64)
        seen = base if isinstance(base, Tasks) else None
        self._base: TaskSet = base if seen is None else seen._base
        self._order: npt.NDArray[np.int64] = chosen if seen is None else seen._order[chosen]

    @classmethod
    def of(cls, source: Sequence[TaskRow]) -> "Tasks":
        """The rows of a list."""
        held = tuple(source)
        return cls(GeneratedTasks(held.__getitem__, size=len(held)))

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> TaskRow: ...
    @overload
    def __getitem__(self, index: slice) -> "Tasks": ...
    def __getitem__(self, index: int | slice) -> "TaskRow | Tasks":
        if isinstance(index, slice):
            return Tasks(self._base, self._order[index])
        return self._base[int(self._order[index])]

    def __iter__(self) -> Iterator[TaskRow]:
        return rows(self)

    def filter(self, keep: Callable[[TaskRow], bool]) -> "Tasks":
        """The rows that `keep` says yes to; every row is read once, now."""
        kept = [position for position in self._order if keep(self._base[int(position)])]
        return Tasks(self._base, np.array(kept, dtype=np.int64))

    def shuffle(self, seed: int) -> "Tasks":
        """The same rows in an order that the seed fixes."""
        return Tasks(self._base, np.random.default_rng(seed).permutation(self._order))

    def shard(self, count: int, index: int) -> "Tasks":
        """Every `count`th row, from row `index` on: the shards of one set share no row and miss none.

        Raises:
            ConfigError: there is no such shard.
        """
        if not 0 <= index < count:
            raise ConfigError(f"there are shards 0 to {count - 1} of {count}, got {index}")
        return self[index::count]

    def map(self, change: Callable[[TaskRow], TaskRow]) -> "Tasks":
        """The same rows, each changed when it is asked for."""
        return Tasks(GeneratedTasks(lambda index: change(self[index]), size=len(self)))

    def marked(self, *, env: str | None = None, split: str | None = None) -> "Tasks":
        """The same rows as tasks of an environment or a split."""
        marks: dict[str, Any] = {name: value for name, value in (("env", env), ("split", split)) if value is not None}
        return self.map(lambda row: replace(row, **marks))

    def validate(self, check: Callable[[TaskRow], str | None] | None = None, *, prompts: bool = True) -> int:
        """Read every row and refuse the set if one is unfit.

        A row is fit if it can be read, its key is unique and not empty, it has a prompt, or a `seed` in its
        payload to draw one from, its payload is JSON-able, and `check` has nothing to say.

        Args:
            check: what an environment asks of its rows: None for a good row, else what is wrong with it.
            prompts: False where the environment asks from the payload alone.

        Returns:
            How many rows there are.

        Raises:
            ConfigError: names the first rows that are unfit, and why.
        """
        seen: dict[str, int] = {}
        wrong: list[str] = []
        for position in range(len(self)):
            try:
                row = self[position]
            except ConfigError as error:
                wrong.append(f"row {position}: {error}")
                continue
            first = seen.setdefault(row.key, position)
            why = _unfit(row, first, position, prompts=prompts) or (check(row) if check else None)
            if why:
                wrong.append(f"row {position} ({row.key!r}): {why}")
        if wrong:
            more = f"\n… and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
            raise ConfigError(
                f"{len(wrong)} of {len(self)} tasks are unfit; mend or filter them:\n"
                + "\n".join(wrong[:_SHOWN])
                + more
            )
        return len(self)


def _unfit(row: TaskRow, first: int, position: int, *, prompts: bool) -> str | None:
    if not row.key:
        return "its key is empty"
    if first != position:
        return f"row {first} has the same key"
    if prompts and not row.prompt.strip() and "seed" not in row.payload:
        return "its prompt is empty: name the column that holds it"
    try:
        json.dumps(row.payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"its payload has no form in JSON ({error})"
    return None
