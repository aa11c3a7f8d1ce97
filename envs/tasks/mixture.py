"""Several walks as one, drawn by weight."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from agar.envs.tasks.saved import restore, saved
from agar.errors import ConfigError
from agar.types import TaskRow

_KIND = "a mixture"


class Cursor(Protocol):
    """A position in tasks: what `TaskCursor`, `TaskStream`, `Mixture` and `CurriculumCursor` are."""

    def next(self) -> TaskRow:
        """The next task; never ends."""
        ...

    def state(self) -> dict[str, Any]:
        """Where it stands, JSON-able."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` stood."""
        ...


class Mixture:
    """Draws each task from one of several cursors, by chance and weight; the seed fixes the draws."""

    def __init__(self, parts: Sequence[tuple[Cursor, float]], *, seed: int = 0) -> None:
        """Mix cursors.

        Args:
            parts: cursors and their weights, which need not add to 1.
            seed: fixes which cursor each task comes from.

        Raises:
            ConfigError: there is nothing to mix, or a weight is not a finite number above 0.
        """
        weights = np.array([weight for _, weight in parts], dtype=np.float64)
        if not len(parts) or not ((weights > 0) & np.isfinite(weights)).all():
            raise ConfigError(f"a mixture needs cursors with finite weights above 0, got weights {weights.tolist()}")
        self._cursors = [cursor for cursor, _ in parts]
        self._shares = weights / weights.sum()
        self._rng = np.random.default_rng(seed)

    def next(self) -> TaskRow:
        """The next task of one of the cursors."""
        return self._cursors[int(self._rng.choice(len(self._cursors), p=self._shares))].next()

    def state(self) -> dict[str, Any]:
        """Where every cursor stands, and the state of the draws."""
        return {"cursors": [cursor.state() for cursor in self._cursors], "rng": self._rng.bit_generator.state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            ConfigError: it belongs to another mixture.
        """
        positions = saved(state, "cursors", of=_KIND)
        if len(positions) != len(self._cursors):
            raise ConfigError(
                f"the saved mixture has {len(positions)} parts, this one {len(self._cursors)}: "
                "resume with the same tasks"
            )
        for cursor, position in zip(self._cursors, positions, strict=True):
            cursor.load_state(position)
        restore(self._rng, state, of=_KIND)
