"""Tasks that come one after the other: python generators, perhaps without an end."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agar.envs.tasks.saved import saved_count
from agar.errors import ConfigError
from agar.types import TaskRow

_END: Any = object()


class TaskStream:
    """A walk over what a generator yields; where it ends, it begins anew.

    It resumes by drawing again what was drawn before, so the generator must yield the same rows every time: what it
    draws by chance, it draws from a seed of its own.
    """

    def __init__(self, make: Callable[[], Iterable[TaskRow]]) -> None:
        """Walk over what `make()` gives."""
        self._make = make
        self._rows: Iterator[TaskRow] | None = None
        self._drawn = 0

    def next(self) -> TaskRow:
        """The next row.

        Raises:
            ConfigError: the generator yields nothing, or something that is no `TaskRow`.
        """
        row = next(self._running(), _END)
        if row is _END:
            self._rows = None
            row = next(self._running(), _END)
            if row is _END:
                raise ConfigError("a generator of tasks yielded nothing: it must yield at least one agar.TaskRow")
        if not isinstance(row, TaskRow):
            raise ConfigError(f"a generator of tasks yielded {type(row).__name__}: yield agar.TaskRow")
        self._drawn += 1
        return row

    def state(self) -> dict[str, Any]:
        """How many rows were drawn, JSON-able."""
        return {"drawn": self._drawn}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken: draw as many rows, and forget them.

        Raises:
            ConfigError: the state is not a stream's.
        """
        drawn = saved_count(state, "drawn", of="a generator")
        self._rows, self._drawn = None, 0
        for _ in range(drawn):
            self.next()

    def _running(self) -> Iterator[TaskRow]:
        if self._rows is None:
            self._rows = iter(self._make())
        return self._rows
