"""Task sets of the built-in worlds: drawn from a seed, each task in one split by what it is."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from agar.envs.base import task_of
from agar.envs.tasks import SPLITS, GeneratedTasks, TaskSet, check_split
from agar.types import TaskRow

Draw = Callable[[np.random.Generator], tuple[str, dict[str, Any]]]
"""Draws a task: its prompt and its payload, which is JSON-able."""

T = TypeVar("T")

_HELDOUT_SHARE = 5
"""One in this many tasks belongs to the held-out split."""


class DrawnTasks:
    """A task source over a function that draws tasks.

    A task belongs to one split by the hash of its prompt and payload, whatever index it was drawn with, so that none
    that is held out is ever trained on.
    """

    def __init__(self, env: str, draw: Draw, *, train: int = 65_536, heldout: int = 4_096) -> None:
        """Make the source of `env` with that many rows in each split."""
        self.env = env
        self._draw = draw
        self._sizes = {"train": train, "heldout": heldout}

    def __call__(self, split: str) -> TaskSet:
        """The task set of a split.

        Raises:
            ConfigError: the split is unknown.
        """
        check_split(split)
        return GeneratedTasks(lambda index: self._row(split, index), size=self._sizes[split])

    def given_or_drawn(self, options: Mapping[str, Any] | None, rng: np.random.Generator) -> TaskRow:
        """The task of a reset's options, or one of the train split."""
        return task_of(options) or self("train")[int(rng.integers(0, self._sizes["train"]))]

    def _row(self, split: str, index: int) -> TaskRow:
        rng = np.random.default_rng([SPLITS.index(split), index])
        while True:
            prompt, payload = self._draw(rng)
            digest = hashlib.blake2s(json.dumps([prompt, payload], sort_keys=True).encode(), digest_size=4).digest()
            if (int.from_bytes(digest) % _HELDOUT_SHARE == 0) == (split == "heldout"):
                return TaskRow(key=f"{split}/{index}", prompt=prompt, payload=payload, split=split, env=self.env)


def pick(rng: np.random.Generator, values: Sequence[T]) -> T:
    """One of some values; much faster than `rng.choice`, which makes an array of them first."""
    return values[int(rng.integers(len(values)))]
